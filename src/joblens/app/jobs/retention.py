"""Retention: removes samples, output and private files of old jobs and runs by age and by size."""

import contextlib
import os
import re
from collections.abc import Iterator

from msgspec import Struct

from joblens.app.wiring.agent_context import find_or_none
from joblens.model.errors import UnknownRun
from joblens.model.history import PruneReport
from joblens.model.runs.run import RunStatus
from joblens.model.settings import Settings
from joblens.ports.store import Store

_DAY_US = 86_400_000_000
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RUN_FILE = rf"(?:run-)?({_UUID})\.(?:spec|log|{_UUID}\.(?:data|jobs))"


class OutputFolder(Struct, frozen=True):
    """The output folder of one job, or its live sample files."""

    path: str
    uuid: str
    bytes: int
    changed_us: int


class RunFile(Struct, frozen=True):
    """A private file of a run: secrets of its workflow, added jobs or user data, or the log of its driver."""

    path: str
    bytes: int


class PruneResult(Struct, frozen=True, kw_only=True):
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
) -> PruneResult:
    """Removes samples and output of jobs that ended before `before_us`; then the oldest, until the
    samples, the output (below `logs`) and the live sample files (below `live`) each fit into `max_bytes`.
    Removes private files (in `spool`) of runs that finished before `before_us`."""
    report = store.prune(before_us=before_us, max_bytes=max_bytes, dry_run=dry_run)
    bounds = _Bounds(set(report.uuids), before_us, max_bytes)
    old_logs = list(_surplus(store, logs, bounds, unknown_may_go=True))
    # Another system may have its files of the same form there.
    old_live = list(_surplus(store, live, bounds, unknown_may_go=False)) if live else []
    run_files = list(_old_run_files(store, spool, before_us)) if spool and before_us is not None else []
    if not dry_run:
        for folder in (*old_logs, *old_live):
            _remove(folder.path)
        for file in run_files:
            with contextlib.suppress(OSError):
                os.unlink(file.path)
    return PruneResult(
        samples=report,
        log_folders=len(old_logs),
        log_bytes=sum(folder.bytes for folder in old_logs),
        live_folders=len(old_live),
        live_bytes=sum(folder.bytes for folder in old_live),
        run_files=len(run_files),
        run_file_bytes=sum(file.bytes for file in run_files),
    )


def configured_bounds(settings: Settings, now_us: int) -> dict[str, int | None]:
    """0 in the settings means no bound."""
    policy = settings.job_metrics
    return {
        "before_us": now_us - round(policy.retention_days * _DAY_US) if policy.retention_days else None,
        "max_bytes": policy.retention_size or None,
    }


class _Bounds(Struct, frozen=True):
    pruned: set[str]  # jobs whose samples are removed
    before_us: int | None
    max_bytes: int | None


def _surplus(store: Store, root: str, bounds: _Bounds, *, unknown_may_go: bool) -> Iterator[OutputFolder]:
    before_us, max_bytes = bounds.before_us, bounds.max_bytes
    folders = sorted(_job_folders(root), key=lambda folder: folder.changed_us)
    total = sum(folder.bytes for folder in folders)
    for folder in folders:
        is_old = before_us is not None and (folder.changed_us < before_us or folder.uuid in bounds.pruned)
        is_too_much = max_bytes is not None and total > max_bytes
        if not is_old and not is_too_much:
            continue
        record = find_or_none(store, folder.uuid)
        if record is None:
            # Not for size: the jobs may be another store's that has its output here too.
            may_go = unknown_may_go and is_old
        elif record.outcome is None:
            may_go = False  # it runs
        else:
            may_go = is_too_much or (before_us is not None and record.outcome.ended_at_us < before_us)
        if may_go:
            total -= folder.bytes
            yield folder


def _job_folders(root: str) -> Iterator[OutputFolder]:
    """Yields folders that look like ours: named by a UUID, directly below the root."""
    try:
        entries = list(os.scandir(root))
    except FileNotFoundError:
        return
    for entry in entries:
        if len(entry.name) == 36 and entry.name.count("-") == 4 and entry.is_dir(follow_symlinks=False):
            files = [file.stat(follow_symlinks=False) for file in os.scandir(entry.path)]
            newest_ns = max((file.st_mtime_ns for file in files), default=entry.stat().st_mtime_ns)
            # Blocks, not length: a file beyond its limit has a hole.
            yield OutputFolder(
                entry.path, entry.name, sum(file.st_blocks * 512 for file in files), newest_ns // 1000
            )


def _old_run_files(store: Store, spool: str, before_us: int) -> Iterator[RunFile]:
    """Returns files of finished runs, and of runs that the store does not know. A stopped run can be
    resumed, so its files stay."""
    is_old: dict[str, bool] = {}
    with contextlib.suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            found = re.fullmatch(_RUN_FILE, entry.name)
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
    """Removes files, then the folder; a folder inside it is not ours and stays."""
    for file in os.scandir(folder):
        if not file.is_dir(follow_symlinks=False):
            os.unlink(file.path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
