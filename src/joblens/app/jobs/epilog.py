"""Epilog of a job: its time-series file, the notification, and retention of samples and output."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from joblens.app.wiring.drivers import logs_root, spool_dir, store_home, store_name
from joblens.files.private import open_with_folder
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Granularity
from joblens.model.redaction.secrets import REDACTED
from joblens.model.values.ids import short

if TYPE_CHECKING:
    import subprocess

    from joblens.app.jobs.retention import PruneResult
    from joblens.model.jobs.job import Record
    from joblens.model.settings import Settings
    from joblens.ports.store import Store

_DAY_US = 86_400_000_000
_MARKER = ".retention"
Warn = Callable[[str], None]
DEFAULT_OUTPUT_DIR = "output"


class Notice(Struct, frozen=True):
    """A command to run at the end, like the job. Has secrets: never stored."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def notice_from_record(record: Record) -> Notice | None:
    """Used when the process that knew the real command is gone: it runs unless a secret was removed from
    it."""
    if not record.job.notify or any(REDACTED in word for word in record.job.notify):
        return None
    return Notice(record.job.notify, os.environ, record.job.cwd)


def apply_retention(store: Store, settings: Settings, now_us: int) -> PruneResult | None:
    """Applies the configured retention at most once per day; None: not due yet. Never raises for a
    failing disk: too much data is no reason to fail."""
    policy = settings.job_metrics
    if not policy.retention_days and not policy.retention_size:
        return None
    marker = os.path.join(store_home(store_name(settings)), _MARKER)
    try:
        if not _is_due(marker, now_us):
            return None
        from joblens.app.jobs.retention import configured_bounds, prune  # once a day

        bounds = configured_bounds(settings, now_us)
        spool = spool_dir(store_name(settings))
        return prune(store, logs_root(settings), policy.storage_dir, spool, **bounds, dry_run=False)
    except (OSError, JoblensError):
        return None


def _is_due(marker: str, now_us: int) -> bool:
    """Touches the marker before the work, so that only one of two processes does it."""
    try:
        last_us = os.stat(marker).st_mtime_ns // 1000
    except FileNotFoundError:
        last_us = None
    if last_us is not None and 0 <= now_us - last_us < _DAY_US:
        return False
    os.close(open_with_folder(marker, os.O_WRONLY))
    os.utime(marker, ns=(now_us * 1000, now_us * 1000))
    return True


def after_job(
    record: Record, store: Store, settings: Settings, warn: Warn, notice: Notice | None = None
) -> None:
    """Nothing here may change the job's outcome: failures are warnings."""
    if record.job.granularity is Granularity.TIME_SERIES and record.attempt is not None:
        warn_of_errors(lambda: write_time_series(record, store, warn), warn)
    if notice is not None:
        warn_of_errors(lambda: notify(record, notice), warn)
    elif record.job.notify:
        warn(f"--notify {record.job.notify[0]} was not run: its secrets were lost when joblens was killed")
    warn_of_errors(
        lambda: apply_retention(store, settings, record.outcome.ended_at_us if record.outcome else 0), warn
    )


def time_series_path(record: Record) -> str:
    """Returns <output>/resource_utilization/resource_metrics_<host>_<workflow>_<run>.db; a single job is
    a workflow of its own, run once."""
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
        process = subprocess.run(
            notice.argv, input=document, env=env, cwd=notice.cwd, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JoblensError(f"--notify {program} {why_not_run(error)}") from error
    if process.returncode != 0:
        raise JoblensError(f"--notify {program} ended with exit code {process.returncode}")


def why_not_run(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, OSError):
        return f"cannot be run: {error.strerror}"
    return f"did not end within {error.timeout:g} s"


def warn_of_errors(action: Callable[[], object], warn: Warn) -> None:
    try:
        action()
    except (JoblensError, OSError) as error:
        warn(str(error))
