"""Summary of a run at its end, from the store, and its notification (`--notify`)."""

import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from joblens.analysis.runs.status import FailedJob, RunEnding, run_label
from joblens.analysis.runs.table import FAILED_STATES, row_form
from joblens.app.driving.driver import RunOutcome
from joblens.app.jobs.epilog import Notice, notify, why_not_run
from joblens.app.jobs.preparation import parse_notify
from joblens.app.runs.datasets import failed_datasets, failed_form
from joblens.app.runs.state import actions_form, failed_actions, state_of_run
from joblens.app.runs.tables import result_rows
from joblens.app.workflows.loader import source_of
from joblens.model.errors import JoblensError, UnknownRun
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import JobResult, JobState, Run, RunStatus
from joblens.ports.store import Store
from joblens.views.jobs.summary import with_last_output

_MOST_FAILURES = 10


def ending_of(store: Store, driven: RunOutcome) -> RunEnding:
    driven, plan = as_stored(store, driven), driven.plan
    failed = [index for index, state in enumerate(driven.states) if state in FAILED_STATES]
    # Jobs that ran come first: they are the reason why others did not.
    failed.sort(key=lambda index: driven.states[index] is JobState.CANCELED)
    attempts = _last_attempts(store, driven) if failed else {}
    return RunEnding(
        label=run_label(driven.run),
        name=plan.name,
        status=driven.status,
        wall_s=driven.wall_s,
        counts=driven.counts(),
        failures=tuple(
            _failed(
                store,
                plan.jobs[index].name,
                driven.states[index],
                driven.whys.get(index, ""),
                attempts.get(index),
            )
            for index in failed[:_MOST_FAILURES]
        ),
        more_failures=max(0, len(failed) - _MOST_FAILURES),
        actions=failed_actions(store, driven.run.uuid),
        datasets=tuple((fact.name, fact.error) for fact in failed_datasets(store, driven.run.uuid)),
        file=source_of(store, driven.run) if failed else "",
        has_too_small=any(_is_too_small(attempts.get(index)) for index in failed),
    )


def as_stored(store: Store, driven: RunOutcome) -> RunOutcome:
    """Returns a stopped run with its jobs as `joblens results` shows them: ready to resume."""
    if driven.status is not RunStatus.STOPPED:
        return driven
    try:
        run = store.find_run(driven.run.uuid)
        jobs = state_of_run(store, run).jobs if run.status is driven.status else ()
    except JoblensError:
        return driven  # the store does not answer
    if len(jobs) != len(driven.states):
        return driven
    return structs.replace(
        driven, states=tuple(job.state for job in jobs), whys={job.index: job.why for job in jobs}
    )


def _last_attempts(store: Store, driven: RunOutcome) -> dict[int, JobResult]:
    try:
        return {result.index: result for result in store.run_results(driven.run.uuid)}
    except JoblensError:
        return {}


def _is_too_small(result: JobResult | None) -> bool:
    return result is not None and (result.status is Status.TIMEOUT or result.reason == "out-of-memory")


def _failed(store: Store, name: str, state: JobState, why: str, last: JobResult | None) -> FailedJob:
    record = None if last is None else _record(store, last)
    if record is None:
        return FailedJob(name, state, why)
    if state in (JobState.FAILED, JobState.PENDING_FAILED):
        why = with_last_output(why, record)
    logs_dir = record.attempt.logs_dir if record.attempt is not None else ""
    return FailedJob(name, state, why, logs_dir, record.number)


def _record(store: Store, result: JobResult) -> Record | None:
    try:
        return store.find(result.job_uuid)
    except JoblensError:
        return None


def ending_document(store: Store, driven: RunOutcome) -> dict[str, Any]:
    """Returns the document of `run FILE --json`."""
    run = store.find_run(driven.run.uuid)
    driven = as_stored(store, driven)
    return {
        "workflow_id": run.workflow_number,
        "workflow_name": driven.plan.name,
        "run_id": run.number,
        "run_uuid": run.uuid,
        "run": run_label(run),
        "run_status": driven.status.value,
        "duration_s": driven.wall_s,
        "counts": {state.label: count for state, count in driven.counts().items()},
        "results": [row_form(row) for row in result_rows(store, run)],
        "failed_actions": actions_form(failed_actions(store, run.uuid)),
        "failed_datasets": failed_form(failed_datasets(store, run.uuid)),
    }


_TIMEOUT_S = 60


def notify_run(store: Store, driven: RunOutcome, line: str, warn: Callable[[str], None]) -> None:
    """A failure here is a warning: the outcome of the run does not change."""
    argv = parse_notify(line)
    run = driven.run
    if run.is_command:
        _notify_of_command(store, run, argv, warn)
        return
    env = {
        **os.environ,
        "JOBLENS_RUN_ID": run.uuid,
        "JOBLENS_WORKFLOW_ID": str(run.workflow_number or ""),
        "JOBLENS_RUN_NUMBER": str(run.number or ""),
        "JOBLENS_STATUS": driven.status.value,
    }
    document = msgspec.json.encode(ending_document(store, driven))
    try:
        process = subprocess.run(argv, input=document, env=env, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        warn(f"--notify {shlex.join(argv[:1])} {why_not_run(error)}")
        return
    if process.returncode != 0:
        warn(f"--notify {shlex.join(argv[:1])} ended with exit code {process.returncode}")


def _notify_of_command(store: Store, run: Run, argv: tuple[str, ...], warn: Callable[[str], None]) -> None:
    """Uses the job's record, as for a local command."""
    try:
        record = record_of_command(store, run)
        record = replace(record, job=replace(record.job, notify=argv))
        notify(record, Notice(argv, os.environ, run.options.cwd or os.getcwd()))
    except JoblensError as error:
        warn(str(error))


def record_of_command(store: Store, run: Run) -> Record:
    """Returns the only job of a run of one command."""
    results = store.run_results(run.uuid)
    if not results:
        raise UnknownRun(f"run {run.uuid} has no job")
    return store.find(results[-1].job_uuid)
