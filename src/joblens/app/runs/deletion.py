"""Deletion of jobs: which may go, and everything that goes with them, in the store and in files beside it."""

import contextlib
import glob
import os
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from joblens.app.jobs.epilog import time_series_path
from joblens.app.jobs.logs import STREAMS
from joblens.app.runs.specs import whole_run
from joblens.app.wiring.drivers import history_file
from joblens.model.errors import InputError, StoreError, UnknownRun
from joblens.model.history import Tombstone
from joblens.model.jobs.job import Record
from joblens.model.runs.run import Run, RunStatus, Workflow
from joblens.model.settings import Settings
from joblens.ports.store import QueueStore, Store

_LEVELS = 3  # from the logs of a job to the output of its run, at most
Warn = Callable[[str], None]


class Mirrors(Struct, frozen=True, kw_only=True):
    """Files beside the store that have copies of jobs; "": not used."""

    history: str = ""  # jobs_history.jsonl; rotated ones beside it
    live: str = ""  # folder with a folder of sample files per job

    @classmethod
    def of(cls, settings: Settings) -> "Mirrors":
        return cls(history=history_file(settings), live=settings.job_metrics.storage_dir or "")


class Obstacle(Struct, frozen=True):
    """A job that may not be deleted."""

    record: Record
    reason: str  # continues "job 3 "
    hint: str


class Selection(Struct, frozen=True):
    jobs: tuple[Record, ...]  # may be deleted
    obstacles: tuple[Obstacle, ...]


def select(store: Store, records: Iterable[Record], user: str | None, settings: Settings) -> Selection:
    """Splits the records. `user`: may delete own jobs only; None: all jobs may be deleted."""
    jobs: list[Record] = []
    obstacles: list[Obstacle] = []
    statuses: dict[str, RunStatus | None] = {}  # of runs that can be resumed, by UUID; None: others
    for record in records:
        found = _obstacle(record, user)
        if found is None and record.job.run is not None:
            uuid = record.job.run.run_uuid
            if uuid not in statuses:
                statuses[uuid] = _resumable_status(store, uuid, settings)
            if (status := statuses[uuid]) is not None:
                found = Obstacle(
                    record,
                    f"is needed by a run that is {status} and can be resumed",
                    f"let the run end first: joblens resume {uuid[:8]}",
                )
        if found is None:
            jobs.append(record)
        else:
            obstacles.append(found)
    return Selection(tuple(jobs), tuple(obstacles))


def _obstacle(record: Record, user: str | None) -> Obstacle | None:
    owner = record.job.user
    if user is not None and owner and owner != user:
        return Obstacle(record, f"belongs to {owner}, not to {user}", f"ask {owner} to delete it")
    if not record.status.is_final:
        state = "running" if record.attempt is not None else "queued"
        return Obstacle(record, f"is {state}", f"cancel it first: joblens cancel {record.number}")
    return None


def _resumable_status(store: Store, run_uuid: str, settings: Settings) -> RunStatus | None:
    try:
        run = store.find_run(run_uuid)
    except UnknownRun:
        return None
    return run.status if _can_be_resumed(store, run, settings) else None


def _can_be_resumed(store: Store, run: Run, settings: Settings) -> bool:
    """Returns False also for a stopped run of this machine whose directory or private file is gone."""
    if run.status is not RunStatus.STOPPED or run.host != os.uname().nodename:
        return run.status in (RunStatus.CREATED, RunStatus.RUNNING, RunStatus.STOPPED)
    try:
        whole_run(run, store, settings)
    except InputError:
        return False
    return os.path.isdir(run.options.cwd or ".")


def refuse_resumable(store: Store, workflow: Workflow, user: str | None, settings: Settings) -> None:
    """Raises InputError if the workflow belongs to another user, or one of its runs has not ended."""
    if user is not None and workflow.user and workflow.user != user:
        raise InputError(
            f"workflow {workflow.number} belongs to {workflow.user}, not to {user}",
            hint=f"ask {workflow.user} to delete it",
        )
    for run in store.runs(workflow.uuid):
        if run.started_at_us is not None and _can_be_resumed(store, store.find_run(run.uuid), settings):
            raise InputError(
                f"run {workflow.number}.{run.number} is {run.status} and can be resumed",
                hint=f"let the run end first: joblens resume {workflow.number}.{run.number}",
            )


def refuse(obstacles: Sequence[Obstacle]) -> None:
    """Raises InputError about the first of them, and says how many more there are."""
    if obstacles:
        first, others = obstacles[0], len(obstacles) - 1
        more = f", and {others} more cannot be deleted either" if others else ""
        raise InputError(f"job {first.record.number} {first.reason}{more}", hint=first.hint)


def delete(
    store: QueueStore, records: Sequence[Record], mirrors: Mirrors, *, by: str, at_us: int, warn: Warn
) -> list[Tombstone]:
    """Deletes from the store first, then files: after a crash in between, `prune` finds the files."""
    known = {record.job.uuid: record for record in records}
    deleted = store.delete_jobs(list(known), by=by, at_us=at_us)
    gone = [known[each.uuid] for each in deleted]
    for record in gone:
        _remove_output(record)
        if mirrors.live:
            _remove_folder(os.path.join(mirrors.live, record.job.uuid))
    uuids = {record.job.uuid for record in gone}
    try:
        if mirrors.history and uuids:
            from joblens.stores.sinks.history_jsonl import remove_jobs

            remove_jobs(mirrors.history, uuids)
        for folder in {folder for record in gone for folder in _series_folders(record)}:
            _forget_series(folder, uuids)
    except (OSError, StoreError) as error:
        warn(f"deleted jobs are still in a file beside the store: {error}")
    return deleted


def _series_folders(record: Record) -> list[str]:
    """Beside the output of the job, or of its run, whose folder is above that of the job's logs."""
    folder = record.attempt.logs_dir if record.attempt is not None else ""
    above: list[str] = []
    for _ in range(_LEVELS if folder else 0):
        folder = os.path.dirname(folder)
        above.append(os.path.join(folder, "resource_utilization"))
    return [os.path.dirname(time_series_path(record)), *above]


def _forget_series(folder: str, uuids: set[str]) -> None:
    from joblens.stores.sinks.time_series import remove_jobs

    for path in glob.glob(os.path.join(glob.escape(folder), "resource_metrics_*.db")):
        remove_jobs(path, uuids)


def _remove_output(record: Record) -> None:
    """Removes a folder of the job's own; from any other folder only the job's output, and only on the machine
    where it ran: the same path may belong to another job here."""
    if record.attempt is None or not record.attempt.logs_dir:
        return
    folder = record.attempt.logs_dir
    if os.path.basename(folder) == record.job.uuid:
        _remove_folder(folder)
        return
    if record.attempt.owner.host != os.uname().nodename:
        return
    for name in STREAMS.values():
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _remove_folder(folder: str) -> None:
    """Files, then the folder; a folder inside it is not ours and stays."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
