"""Tables of runs: rows of `joblens results` and `joblens workflows`, and the summary of one run."""

import enum
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from joblens.agent.runtime.ownership import is_gone
from joblens.analysis.runs.status import INTERRUPTED, RunRow, TaskGroupRow, WorkflowRow, driven_s, run_label
from joblens.analysis.runs.table import ResultRow, RunSummary, numbers_of, use_so_far
from joblens.app.runs.lookup import records_of_run, reused_results
from joblens.app.runs.state import JobStanding, RunState, state_of_run
from joblens.engine.schedule.replay import was_withdrawn
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import JobResult, JobState, OutputsMissing, Run, RunStatus, Workflow
from joblens.model.values.units import format_instant
from joblens.plan.workflows.plan_document import describe_raised
from joblens.ports.store import Store
from joblens.probes.host.machine_load import HostFacts, read_host
from joblens.views.jobs.summary import ending, with_last_output


class ResultSort(enum.StrEnum):
    JOB = "job"  # as in the plan
    NAME = "name"
    STATUS = "status"
    DURATION = "duration"
    CPU = "cpu"
    MEMORY = "memory"


_KEYS: dict[ResultSort, Callable[[ResultRow], Any]] = {
    ResultSort.JOB: lambda row: row.index,
    ResultSort.NAME: lambda row: row.name,
    ResultSort.STATUS: lambda row: (row.state.label, row.index),
    ResultSort.DURATION: lambda row: row.duration_s,
    ResultSort.CPU: lambda row: row.peak_cpu_percent,
    ResultSort.MEMORY: lambda row: row.peak_memory_bytes,
}
_MAX_SAMPLED_JOBS = 40  # reading samples of a thousand running jobs would take longer than it helps
_LARGEST_FIRST = (ResultSort.DURATION, ResultSort.CPU, ResultSort.MEMORY)


def result_rows(store: Store, run: Run) -> list[ResultRow]:
    """Returns every job of the plan, in its order."""
    standing = state_of_run(store, run)
    uuids = {job.results[-1].job_uuid for job in standing.jobs if job.results}
    records: dict[str, Record] = {}
    for uuid in _runs_of(standing):
        for record in records_of_run(store, uuid):
            if record.job.uuid in uuids:
                records[record.job.uuid] = record
    rows = [
        _row(
            job,
            records.get(job.results[-1].job_uuid) if job.results else None,
            sum(map(_tries, job.results)),
            describe_raised(run.raised, job.index),
        )
        for job in standing.jobs
    ]
    if run.status is not RunStatus.RUNNING:
        return rows
    return _with_use_so_far(store, rows, records)


def _tries(result: JobResult) -> int:
    """A job that waits at a queue or cluster has not started this time."""
    return result.tries - (result.status is Status.QUEUED)


def _with_use_so_far(store: Store, rows: list[ResultRow], records: dict[str, Record]) -> list[ResultRow]:
    """For running jobs: the time so far and, for the first of them, the usage from their samples."""
    now_us, sampled, found = time.time_ns() // 1000, 0, []
    for row in rows:
        record = records.get(row.job_uuid or "")
        if row.state is not JobState.RUNNING or record is None or record.attempt is None:
            found.append(row)
            continue
        duration_s = max(0, now_us - record.attempt.started_at_us) / 1e6
        samples = store.samples(record.job.uuid) if sampled < _MAX_SAMPLED_JOBS else []
        sampled += 1
        use = use_so_far([sample for _, sample in samples])
        found.append(replace(row, duration_s=duration_s, **use))
    return found


def _runs_of(standing: RunState) -> Iterable[str]:
    return dict.fromkeys([standing.run.uuid, *(job.kept_from for job in standing.jobs if job.kept_from)])


def _row(job: JobStanding, record: Record | None, attempts: int, raised: str) -> ResultRow:
    why = job.why
    if record is not None and record.outcome is not None and job.state is not JobState.COMPLETED:
        why = why or ending(record.outcome)
    if job.state in (JobState.FAILED, JobState.PENDING_FAILED):
        why = with_last_output(why, record)
    return ResultRow(
        index=job.index,
        name=job.name,
        label=job.label,
        state=job.state,
        why=why,
        attempts=attempts,
        kept_from=job.kept_from,
        raised=raised,
        added_by=job.added_by,
        **({} if record is None else numbers_of(record)),
    )


def sorted_rows(rows: list[ResultRow], sort: ResultSort, *, reverse: bool) -> list[ResultRow]:
    """Numbers from the largest, text from A to Z; rows without a value come last either way."""
    key = _KEYS[sort]
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    known.sort(key=key, reverse=(sort in _LARGEST_FIRST) != reverse)
    return [*known, *unknown]


def summary_of(store: Store, run: Run) -> RunSummary:
    rows = result_rows(store, run)
    results = [result for result in store.run_results(run.uuid) if result.index >= 0]
    counts = Counter(row.state for row in rows)
    cpu = [result.cpu_usec for result in results if result.cpu_usec is not None]
    timed = [row for row in rows if row.duration_s is not None]
    measured = [row for row in rows if row.peak_memory_bytes is not None]
    events = [event for _, event in store.run_events(run.uuid)]
    now_us = time.time_ns() // 1000 if run.status is RunStatus.RUNNING else None
    return RunSummary(
        run=run,
        workflow=store.find_workflow(run.workflow_uuid),
        counts=dict(sorted(counts.items())),
        attempts=len(results),
        wall_s=driven_s(events, results, now_us),
        jobs_s=sum(result.duration_s or 0.0 for result in results),
        cpu_s=sum(cpu) / 1e6 if cpu else None,
        longest=max(timed, key=lambda row: row.duration_s or 0.0, default=None),
        largest=max(measured, key=lambda row: row.peak_memory_bytes or 0, default=None),
        failed=tuple(row for row in rows if row.has_failed),
    )


def listed_workflows(store: Store) -> list[Workflow]:
    """Newest first, without those that single commands make."""
    return [workflow for workflow in store.workflows() if not workflow.is_of_commands]


def workflow_rows(store: Store, workflows: Iterable[Workflow]) -> list[WorkflowRow]:
    """Reads the runs of each."""
    host = read_host()
    rows = []
    for workflow in workflows:
        runs = store.runs(workflow.uuid)
        last = _run_row(store, runs[-1], host) if runs else None
        rows.append(WorkflowRow(workflow=workflow, runs=len(runs), last=last))
    return rows


def run_rows(store: Store, workflow: Workflow) -> list[RunRow]:
    host = read_host()
    return [_run_row(store, run, host) for run in store.runs(workflow.uuid)]


def run_row(store: Store, run: Run) -> RunRow:
    return _run_row(store, run, read_host())


def _run_row(store: Store, run: Run, host: HostFacts) -> RunRow:
    reused = reused_results(store, run)
    own = store.run_results(run.uuid)
    results = [*(reused.results if reused else ()), *own]
    events = [event for _, event in store.run_events(run.uuid)]
    without_output = {
        (event.fact.index, event.fact.attempt) for event in events if isinstance(event.fact, OutputsMissing)
    }
    done, failed = _counted(results, without_output)
    status = status_of(run, host)
    now_us = time.time_ns() // 1000 if status == RunStatus.RUNNING else None
    return RunRow(run=run, status=status, done=done, failed=failed, took_s=driven_s(events, own, now_us))


def _counted(results: list[JobResult], without_output: set[tuple[int, int]]) -> tuple[int, int]:
    """Returns the number of successful jobs, and of jobs whose last attempt ended otherwise. Cancelled
    ones are left."""
    succeeded: set[int] = set()
    last: dict[int, Status] = {}
    for result in results:
        if was_withdrawn(result):
            continue
        last[result.index] = result.status
        if result.status is Status.SUCCESS:
            if (result.index, result.attempt) in without_output:
                last[result.index] = Status.FAILED
            else:
                succeeded.add(result.index)
    not_failed = succeeded.union(index for index, status in last.items() if status is Status.CANCELLED)
    failed = sum(status.is_final for index, status in last.items() if index not in not_failed)
    return len(succeeded), failed


def status_of(run: Run, host: HostFacts) -> str:
    if run.status is RunStatus.RUNNING and run.owner is not None and is_gone(run.owner, host):
        return INTERRUPTED
    return run.status.value


def workflow_form(row: WorkflowRow) -> dict[str, Any]:
    """For --json."""
    form: dict[str, Any] = to_builtins(row.workflow)
    return {
        "id": form.pop("number", None),
        **form,
        "created_time": format_instant(row.workflow.created_at_us),
        "runs": row.runs,
        "last_run": None if row.last is None else run_form(row.last),
    }


def task_group_form(row: TaskGroupRow) -> dict[str, Any]:
    """For --json: with the keys of a workflow that apply here."""
    return {
        "id": row.workflow_id,
        "name": row.name,
        "created_time": format_instant(row.began_at_us),
        "status": row.status.value,
        "tasks": row.tasks,
        "completed": row.done,
        "failed": row.failed,
        "left": row.left,
        "runs": None,
        "last_run": None,
    }


def run_form(row: RunRow) -> dict[str, Any]:
    run = row.run
    return {
        "run": run_label(run),
        "run_id": run.number,
        "run_uuid": run.uuid,
        "status": row.status,
        "jobs": run.jobs,
        "completed": row.done,
        "failed": row.failed,
        "left": row.left,
        "created_time": format_instant(run.created_at_us),
        "start_time": _instant(run.started_at_us),
        "end_time": _instant(run.ended_at_us),
        "duration_seconds": None if row.status == RunStatus.RUNNING else row.took_s,
        "output_dir": run.options.output_dir,
        "job_output": run.logs_dir or None,
        "base_run_uuid": run.base_run_uuid,
        "user": run.user,
        "host": run.host,
    }


def _instant(at_us: int | None) -> str | None:
    return None if at_us is None else format_instant(at_us)
