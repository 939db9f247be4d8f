"""`joblens prune`: deletes old samples and output."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.values.units import counted, format_bytes

if TYPE_CHECKING:
    from joblens.app.jobs.retention import PruneResult


@click.command("prune", cls=GroupedCommand)
@click.option("--older-than", metavar="AGE", help="Prune jobs that ended longer ago than AGE: 30d, 12h.")
@click.option(
    "--max-size",
    metavar="SIZE",
    help="Prune the oldest jobs until samples and output are each below SIZE: 2g, 500m.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def command(session: Session, older_than: str | None, max_size: str | None, dry_run: bool, yes: bool) -> int:
    """Delete samples and output of old jobs, and private files (secrets of workflows, logs of background
    drivers) of old finished runs. Records stay.

    Without --older-than and --max-size, applies the retention settings.
    """
    from joblens.app.jobs.requests import bytes_of, seconds_of
    from joblens.app.jobs.retention import configured_bounds, prune
    from joblens.app.wiring.drivers import SystemClock, logs_root, spool_dir, store_name

    now_us = SystemClock().now_us()
    bounds = configured_bounds(session.settings, now_us)
    if older_than is not None or max_size is not None:
        age_s = seconds_of("--older-than", older_than)
        bounds = {
            "before_us": None if age_s is None else now_us - round(age_s * 1e6),
            "max_bytes": bytes_of("--max-size", max_size),
        }

    def prune_now(*, dry_run: bool) -> "PruneResult":
        settings = session.settings
        live = settings.job_metrics.storage_dir
        spool = spool_dir(store_name(settings))
        return prune(session.current_store, logs_root(settings), live, spool, **bounds, dry_run=dry_run)

    if not dry_run and not yes and session.is_interactive:
        planned = prune_now(dry_run=True)
        if not _is_empty(planned) and not click.confirm(f"{_sentence(planned)} Continue?", err=True):
            return 1
    pruned = prune_now(dry_run=dry_run)
    if session.json:
        session.write_json({**to_builtins(pruned), "dry_run": dry_run})
    elif _is_empty(pruned):
        session.write("Nothing to prune.\n")
    else:
        session.write(_sentence(pruned, "would go" if dry_run else "gone") + "\n")
    return 0


def _is_empty(pruned: "PruneResult") -> bool:
    return not (pruned.samples.samples or pruned.log_folders or pruned.live_folders or pruned.run_files)


def _sentence(pruned: "PruneResult", verb: str = "would go") -> str:
    samples = pruned.samples
    parts = []
    if samples.samples:
        owners = counted(samples.jobs, "job")
        parts.append(f"{counted(samples.samples, 'sample')} of {owners} ({format_bytes(samples.bytes)})")
    if pruned.log_folders:
        parts.append(f"the output of {counted(pruned.log_folders, 'job')} ({format_bytes(pruned.log_bytes)})")
    if pruned.live_folders:
        owners = counted(pruned.live_folders, "job")
        parts.append(f"the live sample files of {owners} ({format_bytes(pruned.live_bytes)})")
    if pruned.run_files:
        size = format_bytes(pruned.run_file_bytes)
        parts.append(f"{counted(pruned.run_files, 'private file')} of finished runs ({size})")
    note = f"; {format_bytes(samples.kept_bytes)} of samples stay" if samples.samples else ""
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"{listed} {verb}{note}."
