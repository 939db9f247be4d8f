"""What goes when it is old or too much: samples and kept output, never records."""

import contextlib
import os
from collections.abc import Collection, Iterator

from msgspec import Struct

from joblens.app.drivers import store_path
from joblens.app.places import logs_dir
from joblens.model.errors import JoblensError, UnknownJob
from joblens.model.history import PruneReport
from joblens.model.settings import Settings
from joblens.ports.store import Store

_DAY_US = 86_400_000_000
_MARKER = ".retention"


class LogFolder(Struct, frozen=True):
    """The kept output of one job."""

    path: str
    uuid: str
    bytes: int
    changed_us: int


class Pruned(Struct, frozen=True, kw_only=True):
    samples: PruneReport
    log_folders: int = 0
    log_bytes: int = 0


def logs_root(settings: Settings) -> str:
    return settings.output.dir or logs_dir(store_path(settings))


def prune(store: Store, root: str, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> Pruned:
    """Samples and output of jobs that ended before `before_us`; then the oldest, until the samples and the
    output each fit in `max_bytes`."""
    report = store.prune(before_us=before_us, max_bytes=max_bytes, dry_run=dry_run)
    going = list(_surplus(store, root, set(report.uuids), before_us, max_bytes))
    if not dry_run:
        for folder in going:
            _remove(folder.path)
    return Pruned(samples=report, log_folders=len(going), log_bytes=sum(folder.bytes for folder in going))


def apply_retention(store: Store, settings: Settings, now_us: int) -> Pruned | None:
    """The configured retention, at most once a day; None when it was not yet time. Never raises for a
    failing disk: keeping too much is no reason to disturb anyone."""
    policy = settings.job_metrics
    if not policy.retention_days and not policy.retention_size:
        return None
    marker = os.path.join(os.path.dirname(os.path.abspath(store_path(settings))), _MARKER)
    try:
        if not _is_due(marker, now_us):
            return None
        return prune(store, logs_root(settings), **configured_bounds(settings, now_us), dry_run=False)
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
    descriptor = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    os.utime(marker, ns=(now_us * 1000, now_us * 1000))
    return True


def _surplus(
    store: Store, root: str, pruned: Collection[str], before_us: int | None, max_bytes: int | None
) -> Iterator[LogFolder]:
    folders = sorted(_log_folders(root), key=lambda folder: folder.changed_us)
    kept = sum(folder.bytes for folder in folders)
    for folder in folders:
        is_old = before_us is not None and (folder.changed_us < before_us or folder.uuid in pruned)
        is_too_much = max_bytes is not None and kept > max_bytes
        if (is_old or is_too_much) and _may_go(store, folder, before_us if not is_too_much else None):
            kept -= folder.bytes
            yield folder


def _may_go(store: Store, folder: LogFolder, before_us: int | None) -> bool:
    """Output of a running job stays; that of a job nobody remembers goes."""
    try:
        record = store.find(folder.uuid)
    except UnknownJob:
        return True
    if record.outcome is None:
        return False
    return before_us is None or record.outcome.ended_at_us < before_us


def _log_folders(root: str) -> Iterator[LogFolder]:
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
            yield LogFolder(
                entry.path, entry.name, sum(file.st_blocks * 512 for file in files), newest_ns // 1000
            )


def _remove(folder: str) -> None:
    """Files, then the folder; a folder inside it is not ours and stays."""
    for file in os.scandir(folder):
        if not file.is_dir(follow_symlinks=False):
            os.unlink(file.path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
