"""`joblens store`: looking after the store itself."""

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.model.errors import StoreCorrupt
from joblens.model.units import format_bytes


@click.group("store")
def command() -> None:
    """Check, back up or compact the store, or say where it is."""


@command.command("check")
@shared_options
def check(session: Session) -> None:
    """Read everything and report damage."""
    found = session.store.check()
    if session.json:
        session.write_json(to_builtins(found))
    else:
        session.write(
            f"{session.store.url}: schema {found.schema_version}, {found.jobs:,} jobs, "
            f"{found.workflows:,} workflows, {found.runs:,} runs, "
            f"{found.sample_blocks:,} sample blocks, {format_bytes(found.bytes)}\n"
        )
        session.write("".join(f"  {problem}\n" for problem in found.problems) or "no damage found\n")
    if not found.ok:
        raise StoreCorrupt(
            f"{session.store.url}: {len(found.problems)} problems found",
            hint="go back to a backup, or export what can still be read: joblens export history -o FILE",
        )


@command.command("backup")
@click.argument("file", type=click.Path(dir_okay=False))
@shared_options
def backup(session: Session, file: str) -> None:
    """Copy the store to FILE, also while jobs run."""
    session.store.backup(file)
    if session.json:
        session.write_json({"store": session.store.url, "backup": file})
    else:
        session.write(f"{session.store.url} copied to {file}\n")


@command.command("vacuum")
@shared_options
def vacuum(session: Session) -> None:
    """Give space that is no longer used back to the file system."""
    before = session.store.check().bytes
    session.store.vacuum()
    after = session.store.check().bytes
    if session.json:
        session.write_json({"store": session.store.url, "bytes_before": before, "bytes_after": after})
    else:
        session.write(f"{session.store.url}: {format_bytes(before)} before, {format_bytes(after)} now\n")


@command.command("path")
@shared_options
def path(session: Session) -> None:
    """Where the store is."""
    from joblens.app.drivers import store_name

    place = store_name(session.settings)
    if session.json:
        session.write_json({"store": place})
    else:
        session.write(f"{place}\n")
