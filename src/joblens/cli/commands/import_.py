"""`joblens import`: imports records and samples of other systems."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.terminal import ProgressBar
from joblens.model.errors import FormatError, InputError
from joblens.model.values.units import counted

if TYPE_CHECKING:
    from joblens.app.reports.imports import ImportResult

FORMATS = ("history", "samples", "time-series", "slurm")
_OF_SLURM = ("since", "until", "users", "all_users", "cluster")


@click.command("import", cls=GroupedCommand)
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("--strict", is_flag=True, help="Stop at the first invalid line.")
@click.option(
    "--since",
    metavar="WHEN",
    help="slurm: only jobs since WHEN: a date, a time, an age or 'today'. Default: 30d.",
)
@click.option("--until", metavar="WHEN", help="slurm: only jobs until WHEN.")
@click.option(
    "--user", "users", metavar="NAME", multiple=True, help="slurm: jobs of these users. Default: yours."
)
@click.option("--all-users", is_flag=True, help="slurm: jobs of all users that Slurm shows you.")
@click.option(
    "--cluster", metavar="NAME", help="slurm: jobs of this cluster; with FILE, the cluster that they ran on."
)
@shared_options
def command(session: Session, /, form: str, files: tuple[str, ...], strict: bool, **values: Any) -> None:
    """Import files from other systems, or from another joblens, into the store.

    \b
    history      jobs_history.jsonl: from Keystone or 'joblens export'
    samples      .jsonl.gz or .jsonl: from Joblet or 'joblens export'; a directory means all files in it
    time-series  SQLite file with job_resource_samples: from Torc or 'joblens export'
    slurm        Slurm accounting: runs sacct, or reads FILE, the output of sacct -P

    Records that the store already has are skipped, so importing twice is harmless."""
    from joblens.app.reports import imports

    slurm_options = [name for name in _OF_SLURM if values[name]]
    if slurm_options and form != "slurm":
        raise InputError(f"{_option(slurm_options[0])} needs 'import slurm'")
    if not files and form != "slurm":
        raise InputError(f"import {form} needs files")
    if files and (others := [name for name in slurm_options if name != "cluster"]):
        raise InputError(f"{_option(others[0])} selects what sacct reports; it does not apply to a file")
    result = imports.ImportResult(is_strict=strict)
    with ProgressBar("lines") as bar:
        if form == "slurm":
            from joblens.app.reports.slurm_import import SlurmPast, import_slurm

            past = SlurmPast(**{name: values[name] for name in slurm_options})
            import_slurm(session.writable_store, files, past, result, bar.advance)
        else:
            work = {
                "history": imports.import_history,
                "samples": imports.import_samples,
                "time-series": imports.import_time_series,
            }[form]
            work(session.writable_store, files, result, bar.advance)
    for problem in result.bad:
        session.note(f"joblens: {problem}")
    if result.bad_lines > len(result.bad):
        session.note(f"joblens: … and {result.bad_lines - len(result.bad):,} more")
    if session.json:
        report = structs.asdict(result)
        session.write_json({key: value for key, value in report.items() if key != "is_strict"})
    else:
        session.write(_sentence(result) + "\n")
    if result.bad_lines and not (result.jobs or result.samples or result.known):
        raise FormatError(
            f"no line of it could be read as '{form}'", hint=f"known formats: {', '.join(FORMATS)}"
        )


def _option(name: str) -> str:
    return "--user" if name == "users" else f"--{name.replace('_', '-')}"


def _sentence(result: "ImportResult") -> str:
    parts = [f"{counted(result.jobs, 'job')} imported"]
    if result.samples:
        parts.append(counted(result.samples, "sample"))
    if result.known:
        parts.append(f"{counted(result.known, 'job')} already in the store")
    if result.unfinished:
        parts.append(f"{result.unfinished:,} unfinished skipped")
    if result.bad_lines:
        parts.append(f"{counted(result.bad_lines, 'invalid line')} skipped")
    return ", ".join(parts) + "."
