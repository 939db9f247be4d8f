"""The rows of `joblens results`."""

import enum
import time
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from joblens.analysis.runs.table import ResultRow, numbers_of, use_so_far
from joblens.app.runs.lookup import records_of_run
from joblens.app.runs.state import JobStanding, RunState, state_of_run
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import JobResult, JobState, Run, RunStatus
from joblens.plan.commands.raised_requests import describe_raised
from joblens.ports.store import Store
from joblens.views.jobs.summary import ending, with_last_words


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
_JOBS_LOOKED_AT = 40  # reading the samples of a thousand running jobs would take longer than it tells
_LARGEST_FIRST = (ResultSort.DURATION, ResultSort.CPU, ResultSort.MEMORY)


def result_rows(store: Store, run: Run) -> list[ResultRow]:
    """Every job of the plan, in its order."""
    standing = state_of_run(store, run)
    wanted = {job.results[-1].job_uuid for job in standing.jobs if job.results}
    records: dict[str, Record] = {}
    for uuid in _runs_of(standing):
        for record in records_of_run(store, uuid):
            if record.job.uuid in wanted:
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
    """One that waits at a queue or cluster has not begun this time."""
    return result.tries - (result.status is Status.QUEUED)


def _with_use_so_far(store: Store, rows: list[ResultRow], records: dict[str, Record]) -> list[ResultRow]:
    """Of jobs under way the time so far and, of the first of them, what their samples show."""
    now_us, looked_at, found = time.time_ns() // 1000, 0, []
    for row in rows:
        record = records.get(row.job_uuid or "")
        if row.state is not JobState.RUNNING or record is None or record.attempt is None:
            found.append(row)
            continue
        duration_s = max(0, now_us - record.attempt.started_at_us) / 1e6
        samples = store.samples(record.job.uuid) if looked_at < _JOBS_LOOKED_AT else []
        looked_at += 1
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
        why = with_last_words(why, record)
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
    """Numbers from the largest, words from A to Z; what has no number comes last either way."""
    key = _KEYS[sort]
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    known.sort(key=key, reverse=(sort in _LARGEST_FIRST) != reverse)
    return [*known, *unknown]
