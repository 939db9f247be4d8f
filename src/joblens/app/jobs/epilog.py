"""Epilog of a job: its time-series file, the notification, and retention of samples and output."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from joblens.app.wiring.drivers import logs_root, spool_dir, store_home, store_name
from joblens.files.private import open_with_folder
from joblens.model.errors import JoblensError, UnknownJob, UnknownRun
from joblens.model.history import PruneReport
from joblens.model.jobs.job import Granularity, Record
from joblens.model.redaction.secrets import REDACTED
from joblens.model.runs.run import RunStatus
from joblens.model.settings import Settings
from joblens.model.values.ids import short
from joblens.ports.store import Store

_DAY_US = 86_400_000_000
_MARKER = ".retention"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RUN_FILE = re.compile(rf"(?:run-)?({_UUID})\.(?:spec|log|{_UUID}\.(?:data|jobs))")


class OutputFolder(Struct, frozen=True):
    """The kept output of one job, or its live sample files."""

    path: str
    uuid: str
    bytes: int
    changed_us: int


class RunFile(Struct, frozen=True):
    """A private file of a run: secrets of its workflow, added jobs or user data, or the log of its driver."""

    path: str
    bytes: int


class Pruned(Struct, frozen=True, kw_only=True):
    samples: PruneReport
    log_folders: int = 0
    log_bytes: int = 0
    live_folders: int = 0
    live_bytes: int = 0
    run_files: int = 0
    run_file_bytes: int = 0


def prune(
    store: Store,
    logs: str,
    live: str | None = None,
    spool: str | None = None,
    *,
    before_us: int | None,
    max_bytes: int | None,
    dry_run: bool,
) -> Pruned:
    """Samples and output of jobs that ended before `before_us`; then the oldest, until the samples, the
    output (below `logs`) and the live sample files (below `live`) each fit in `max_bytes`. Private files (in
    `spool`) of runs that finished before `before_us`."""
    report = store.prune(before_us=before_us, max_bytes=max_bytes, dry_run=dry_run)
    wanted = _Bounds(set(report.uuids), before_us, max_bytes)
    old_logs = list(_surplus(store, logs, wanted, unknown_may_go=True))
    # Another system may keep its files of the same form there.
    old_live = list(_surplus(store, live, wanted, unknown_may_go=False)) if live else []
    run_files = list(_old_run_files(store, spool, before_us)) if spool and before_us is not None else []
    if not dry_run:
        for folder in (*old_logs, *old_live):
            _remove(folder.path)
        for file in run_files:
            with contextlib.suppress(OSError):
                os.unlink(file.path)
    return Pruned(
        samples=report,
        log_folders=len(old_logs),
        log_bytes=sum(folder.bytes for folder in old_logs),
        live_folders=len(old_live),
        live_bytes=sum(folder.bytes for folder in old_live),
        run_files=len(run_files),
        run_file_bytes=sum(file.bytes for file in run_files),
    )


def apply_retention(store: Store, settings: Settings, now_us: int) -> Pruned | None:
    """The configured retention, at most once a day; None when it was not yet time. Never raises for a
    failing disk: keeping too much is no reason to disturb anyone."""
    policy = settings.job_metrics
    if not policy.retention_days and not policy.retention_size:
        return None
    marker = os.path.join(store_home(store_name(settings)), _MARKER)
    try:
        if not _is_due(marker, now_us):
            return None
        bounds = configured_bounds(settings, now_us)
        spool = spool_dir(store_name(settings))
        return prune(store, logs_root(settings), policy.storage_dir, spool, **bounds, dry_run=False)
    except (OSError, JoblensError):
        return None


def configured_bounds(settings: Settings, now_us: int) -> dict[str, int | None]:
    """0 in the settings means no bound."""
    policy = settings.job_metrics
    return {
        "before_us": now_us - round(policy.retention_days * _DAY_US) if policy.retention_days else None,
        "max_bytes": policy.retention_size or None,
    }


def _is_due(marker: str, now_us: int) -> bool:
    """Touches the marker when it is, before the work: of two processes one does it."""
    try:
        last_us = os.stat(marker).st_mtime_ns // 1000
    except FileNotFoundError:
        last_us = None
    if last_us is not None and 0 <= now_us - last_us < _DAY_US:
        return False
    os.close(open_with_folder(marker, os.O_WRONLY))
    os.utime(marker, ns=(now_us * 1000, now_us * 1000))
    return True


class _Bounds(Struct, frozen=True):
    pruned: set[str]  # jobs whose samples go
    before_us: int | None
    max_bytes: int | None


def _surplus(store: Store, root: str, bounds: _Bounds, *, unknown_may_go: bool) -> Iterator[OutputFolder]:
    before_us, max_bytes = bounds.before_us, bounds.max_bytes
    folders = sorted(_job_folders(root), key=lambda folder: folder.changed_us)
    kept = sum(folder.bytes for folder in folders)
    for folder in folders:
        is_old = before_us is not None and (folder.changed_us < before_us or folder.uuid in bounds.pruned)
        is_too_much = max_bytes is not None and kept > max_bytes
        if not is_old and not is_too_much:
            continue
        record = _find(store, folder.uuid)
        if record is None:
            # Not to make room: the jobs may be those of another store that keeps its output here too.
            may_go = unknown_may_go and is_old
        elif record.outcome is None:
            may_go = False  # it runs
        else:
            may_go = is_too_much or (before_us is not None and record.outcome.ended_at_us < before_us)
        if may_go:
            kept -= folder.bytes
            yield folder


def _find(store: Store, uuid: str) -> Record | None:
    try:
        return store.find(uuid)
    except UnknownJob:
        return None


def _job_folders(root: str) -> Iterator[OutputFolder]:
    """Only folders that look like ours: named by a UUID, right below the root."""
    try:
        entries = list(os.scandir(root))
    except FileNotFoundError:
        return
    for entry in entries:
        if len(entry.name) == 36 and entry.name.count("-") == 4 and entry.is_dir(follow_symlinks=False):
            files = [file.stat(follow_symlinks=False) for file in os.scandir(entry.path)]
            newest_ns = max((file.st_mtime_ns for file in files), default=entry.stat().st_mtime_ns)
            # blocks, not length: a file beyond its cap has a hole
            yield OutputFolder(
                entry.path, entry.name, sum(file.st_blocks * 512 for file in files), newest_ns // 1000
            )


def _old_run_files(store: Store, spool: str, before_us: int) -> Iterator[RunFile]:
    """Of runs that have nothing left to do, and of runs that the store does not know. A run that was stopped
    can be resumed, so its files stay."""
    is_old: dict[str, bool] = {}
    with contextlib.suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            found = _RUN_FILE.fullmatch(entry.name)
            if found is None or not entry.is_file(follow_symlinks=False):
                continue
            size = entry.stat(follow_symlinks=False)
            if size.st_mtime_ns // 1000 >= before_us:
                continue
            uuid = found[1]
            if uuid not in is_old:
                is_old[uuid] = _has_finished(store, uuid, before_us)
            if is_old[uuid]:
                yield RunFile(entry.path, size.st_size)


def _has_finished(store: Store, run_uuid: str, before_us: int) -> bool:
    try:
        run = store.find_run(run_uuid)
    except UnknownRun:
        return True
    is_final = run.status in (RunStatus.COMPLETED, RunStatus.FAILED)
    return is_final and run.ended_at_us is not None and run.ended_at_us < before_us


def _remove(folder: str) -> None:
    """Files, then the folder; a folder inside it is not ours and stays."""
    for file in os.scandir(folder):
        if not file.is_dir(follow_symlinks=False):
            os.unlink(file.path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


Warn = Callable[[str], None]
DEFAULT_OUTPUT_DIR = "output"


class Notice(Struct, frozen=True):
    """A command to run at the end, as the job was run. Holds secrets: never stored."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def notice_from_record(record: Record) -> Notice | None:
    """What can still be done when whoever knew the real command is gone: it runs unless a secret was taken
    out of it."""
    if not record.job.notify or any(REDACTED in word for word in record.job.notify):
        return None
    return Notice(record.job.notify, os.environ, record.job.cwd)


def after_job(
    record: Record, store: Store, settings: Settings, warn: Warn, notice: Notice | None = None
) -> None:
    """Nothing here may change the job's outcome: what fails is a warning."""
    if record.job.granularity is Granularity.TIME_SERIES and record.attempt is not None:
        _warned(lambda: write_time_series(record, store, warn), warn)
    if notice is not None:
        _warned(lambda: notify(record, notice), warn)
    elif record.job.notify:
        warn(f"--notify {record.job.notify[0]} was not run: its secrets were lost when joblens was killed")
    _warned(
        lambda: apply_retention(store, settings, record.outcome.ended_at_us if record.outcome else 0), warn
    )


def time_series_path(record: Record) -> str:
    """<output>/resource_utilization/resource_metrics_<host>_<workflow>_<run>.db; a single job is a
    workflow of its own, run once."""
    host = record.attempt.owner.host if record.attempt else "localhost"
    folder = os.path.join(record.job.cwd, record.job.output_dir or DEFAULT_OUTPUT_DIR, "resource_utilization")
    return os.path.join(folder, f"resource_metrics_{host}_{record.number or 0}_1.db")


def write_time_series(record: Record, store: Store, warn: Warn) -> None:
    from joblens.stores.sinks.time_series import write_own_time_series

    uuid = record.job.uuid
    samples = [sample for _, sample in store.samples(uuid)]
    usual = time_series_path(record)
    path = write_own_time_series(usual, short(uuid), {uuid}, [(record, samples)])
    if path != usual:
        warn(f"{usual} belongs to another store; samples are in {path}")


def notify(record: Record, notice: Notice) -> None:
    """Runs the command with the record as JSON on its standard input."""
    import subprocess

    import msgspec

    from joblens.analysis.formats.history import to_history_record

    outcome, program = record.outcome, record.job.notify[0]
    env = {
        **notice.env,
        "JOBLENS_JOB_ID": record.job.uuid,
        "JOBLENS_JOB_NAME": record.job.name,
        "JOBLENS_STATUS": str(record.status),
        "JOBLENS_EXIT_CODE": str(outcome.exit_code if outcome else ""),
    }
    document = msgspec.json.encode(to_history_record(record))
    try:
        done = subprocess.run(notice.argv, input=document, env=env, cwd=notice.cwd, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JoblensError(f"--notify {program}: {error}") from error
    if done.returncode != 0:
        raise JoblensError(f"--notify {program} ended with exit code {done.returncode}")


def _warned(action: Callable[[], object], warn: Warn) -> None:
    try:
        action()
    except (JoblensError, OSError) as error:
        warn(str(error))
