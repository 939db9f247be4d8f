"""`joblens export ro-crate`: one job or run with everything that is known of it."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from joblens.cli.context import Session
from joblens.cli.options.run_arguments import complete_run
from joblens.cli.progress import ProgressBar
from joblens.model.errors import InputError
from joblens.model.values.units import parse_size
from joblens.views.text.numbers import counted

if TYPE_CHECKING:
    from joblens.app.reports.exports import Exported

_EXAMPLE = "for example: joblens export ro-crate 3.1 -o crate"
_NAMES = ("ident", "with_files", "files_limit", "license")


class CrateRequest(Struct, frozen=True, kw_only=True):
    """As typed."""

    ident: str | None = None
    with_files: bool = False
    files_limit: str | None = None
    license: str | None = None


def crate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them and hands them over as one `crate`."""

    @functools.wraps(function)
    def with_crate(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in _NAMES}
        return function(*args, crate=CrateRequest(**given), **kwargs)

    for option in (
        click.option("--license", metavar="URL|WORDS", help="For ro-crate: how others may use it."),
        click.option("--files-limit", metavar="SIZE", help="For --with-files: none larger; 100m by default."),
        click.option("--with-files", is_flag=True, help="For ro-crate: take inputs and outputs along."),
        click.argument("ident", metavar="[RUN|JOB]", required=False, shell_complete=complete_run),
    ):
        with_crate = option(with_crate)
    return with_crate


def refuse_crate_options(form: str, asked: CrateRequest) -> None:
    """They were given with a form that has no use for them."""
    if asked.ident is not None:
        raise InputError(f"'{asked.ident}' has no meaning for '{form}'", hint="--job ID chooses a job")
    for name in ("with_files", "files_limit", "license"):
        if getattr(asked, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} has no meaning for '{form}'", hint="it goes with ro-crate")


def export_crate(session: Session, output: str | None, asked: CrateRequest) -> None:
    done = _write(session, output, asked)
    if session.json:
        form = {"jobs": done.jobs, "rows": done.rows, "files": list(done.files), "note": done.note}
        session.write_json(form)
        return
    session.note(f"{counted(done.rows, 'file')} about {counted(done.jobs, 'job')} written to {output}")
    if done.note:
        session.note(done.note)


def _write(session: Session, output: str | None, asked: CrateRequest) -> "Exported":
    from joblens.app.crates.collection import MOST_BYTES, NO_LICENSE, CrateChoice
    from joblens.app.crates.collection import export_crate as write
    from joblens.app.crates.writing import refuse_place
    from joblens.app.runs.lookup import find_job_or_run

    if asked.ident is None:
        raise InputError("'ro-crate' needs a run or a job", hint=_EXAMPLE)
    if output is None or output == "-":
        raise InputError("'ro-crate' needs a place to write to", hint=f"{_EXAMPLE}, or -o crate.zip")
    if asked.files_limit is not None and not asked.with_files:
        raise InputError("--files-limit goes with --with-files")
    choice = CrateChoice(
        license=asked.license or NO_LICENSE,
        with_files=asked.with_files,
        most_bytes=MOST_BYTES if asked.files_limit is None else parse_size(asked.files_limit),
    )
    refuse_place(output)
    store = session.current_store
    found = find_job_or_run(store, asked.ident, session.note)
    with ProgressBar("jobs") as bar:
        return write(store, found, output, choice, bar.advance)
