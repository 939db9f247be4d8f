"""`joblens store`: checks, copies and compacts the store itself."""

import click
from msgspec import to_builtins

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.model.errors import StoreCorrupt
from joblens.model.values.units import counted, format_bytes


@click.group("store", cls=CommandGroup)
def command() -> None:
    """Check, back up, compact or copy the store, or print its path."""


@command.command("check")
@shared_options
def check(session: Session) -> None:
    """Read everything and report damage."""
    found = session.store.check()
    if session.json:
        session.write_json(to_builtins(found))
    else:
        session.write(
            f"{session.store.url}: schema {found.schema_version}, {counted(found.jobs, 'job')}, "
            f"{counted(found.workflows, 'workflow')}, {counted(found.runs, 'run')}, "
            f"{counted(found.sample_blocks, 'sample block')}, {format_bytes(found.bytes)}\n"
        )
        session.write("".join(f"  {problem}\n" for problem in found.problems) or "no damage found\n")
    if not found.ok:
        raise StoreCorrupt(
            f"{session.store.url}: {counted(len(found.problems), 'problem')} found",
            hint="restore a backup, or export what is readable: joblens export history -o FILE",
        )


@command.command("backup")
@click.argument("file", type=click.Path(dir_okay=False))
@shared_options
def backup(session: Session, file: str) -> None:
    """Copy the store to FILE, even while jobs run."""
    session.store.backup(file)
    if session.json:
        session.write_json({"store": session.store.url, "backup": file})
    else:
        session.write(f"{session.store.url} copied to {file}\n")


@command.command("vacuum")
@shared_options
def vacuum(session: Session) -> None:
    """Return unused space to the file system."""
    before = session.store.check().bytes
    session.store.vacuum()
    after = session.store.check().bytes
    if session.json:
        session.write_json({"store": session.store.url, "bytes_before": before, "bytes_after": after})
    elif after < before:
        session.write(f"{session.store.url}: {format_bytes(before)} before, {format_bytes(after)} now\n")
    else:
        session.write(f"{session.store.url}: {format_bytes(after)}, nothing to free\n")


@command.command("path")
@shared_options
def path(session: Session) -> None:
    """Print the path or URL of the store."""
    from joblens.app.wiring.drivers import store_name

    name = store_name(session.settings)
    if session.json:
        session.write_json({"store": name})
    else:
        session.write(f"{name}\n")


@command.command("copy")
@click.argument("source")
@click.argument("target")
@shared_options
def copy(session: Session, source: str, target: str) -> None:
    """Copy everything from SOURCE to TARGET; each is a file or a PostgreSQL URL.

    Skips what TARGET already has, so an interrupted copy can be repeated. Jobs that have not ended are
    not copied.
    """
    from joblens.app.reports.store_copy import copy_store
    from joblens.cli.terminal import ProgressBar

    for name, url in (("SOURCE", source), ("TARGET", target)):
        session.warn_of_password(name, url, "PGPASSWORD or ~/.pgpass")
    with ProgressBar("jobs", poll_every=1) as bar:
        copied = copy_store(source, target, session.settings, session.warn, bar.expect)
    if session.json:
        session.write_json(to_builtins(copied))
        return
    session.write(f"{copied.source} copied to {copied.target}\n")
    session.write(
        f"{counted(copied.jobs, 'job')} with {counted(copied.samples, 'sample')}, "
        f"{counted(copied.workflows, 'workflow')} with {counted(copied.runs, 'run')}, "
        f"{counted(copied.task_workflows, 'workflow')} of tasks\n"
    )
    if copied.known_jobs:
        session.write(f"{counted(copied.known_jobs, 'job')} skipped: already in the target\n")
    if copied.unfinished_jobs:
        waiting, running = copied.waiting_jobs, copied.unfinished_jobs - copied.waiting_jobs
        session.write(
            f"{counted(copied.unfinished_jobs, 'job')} skipped: {waiting} waiting and {running} running in"
            " the source; copy again when they have ended\n"
        )
    if not copied.kept_numbers:
        session.write("the target already had jobs, so copied jobs got new numbers\n")
