"""`--notify` of a run: a command that gets the run's results as JSON on its standard input."""

import os
import shlex
import subprocess
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from joblens.app.driving.driving import Driven
from joblens.app.driving.endings import ending_document
from joblens.app.jobs.after_job import Notice, notify
from joblens.app.jobs.preparation import parse_notify
from joblens.model.errors import JoblensError, UnknownRun
from joblens.model.jobs.job import Record
from joblens.model.runs.run import Run
from joblens.ports.store import Store

_PATIENCE_S = 60


def notify_run(store: Store, driven: Driven, line: str, warn: Callable[[str], None]) -> None:
    """What fails here is a warning: the run has ended as it has."""
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
        done = subprocess.run(argv, input=document, env=env, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        warn(f"--notify {shlex.join(argv[:1])}: {error}")
        return
    if done.returncode != 0:
        warn(f"--notify {shlex.join(argv[:1])} ended with exit code {done.returncode}")


def _notify_of_command(store: Store, run: Run, argv: tuple[str, ...], warn: Callable[[str], None]) -> None:
    """With the job's record, as of a command that ran here."""
    try:
        record = record_of_command(store, run)
        record = replace(record, job=replace(record.job, notify=argv))
        notify(record, Notice(argv, os.environ, run.options.cwd or os.getcwd()))
    except JoblensError as error:
        warn(str(error))


def record_of_command(store: Store, run: Run) -> Record:
    """The one job of a run of one command."""
    results = store.run_results(run.uuid)
    if not results:
        raise UnknownRun(f"run {run.uuid} has no job")
    return store.find(results[-1].job_uuid)
