"""`joblens export`: exports records and samples to other formats, and RO-Crates."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

import click
from msgspec import Struct, structs

from joblens.cli.context import Session
from joblens.cli.options.common import complete_job, complete_run, count_from, shared_options
from joblens.cli.options.filters import is_narrowed, job_filters, with_run_found
from joblens.cli.options.groups import FILTER_GROUPS, GroupedCommand
from joblens.cli.terminal import ProgressBar
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record
from joblens.model.values.units import counted, parse_size

if TYPE_CHECKING:
    from joblens.app.reports.exports import ExportResult


_EXAMPLE = "for example: joblens export ro-crate 3.1 -o crate"
_NAMES = ("ident", "with_files", "files_limit", "license")


class CrateRequest(Struct, frozen=True, kw_only=True):
    """Options of a crate as typed."""

    ident: str | None = None
    with_files: bool = False
    files_limit: str | None = None
    license: str | None = None


def crate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options and passes them as one `crate`."""

    @functools.wraps(function)
    def with_crate(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in _NAMES}
        return function(*args, crate=CrateRequest(**values), **kwargs)

    for option in (
        click.option("--license", metavar="URL|WORDS", help="For ro-crate: license, as a URL or text."),
        click.option(
            "--files-limit", metavar="SIZE", help="For --with-files: largest file to include. Default: 100m."
        ),
        click.option("--with-files", is_flag=True, help="For ro-crate: include input and output files."),
        click.argument("ident", metavar="[RUN|JOB]", required=False, shell_complete=complete_run),
    ):
        with_crate = option(with_crate)
    return with_crate


def refuse_crate_options(form: str, request: CrateRequest) -> None:
    """Refuses crate options with another format."""
    if request.ident is not None:
        raise InputError(f"'{request.ident}' does not apply to '{form}'", hint="use --job ID to select a job")
    for name in ("with_files", "files_limit", "license"):
        if getattr(request, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} does not apply to '{form}'", hint="it needs ro-crate")


def export_crate(session: Session, output: str | None, request: CrateRequest) -> None:
    result = _write(session, output, request)
    if session.json:
        form = {"jobs": result.jobs, "rows": result.rows, "files": list(result.files), "note": result.note}
        session.write_json(form)
        return
    session.note(f"{counted(result.rows, 'file')} about {counted(result.jobs, 'job')} written to {output}")
    if result.note:
        session.note(result.note)


def _write(session: Session, output: str | None, request: CrateRequest) -> "ExportResult":
    from joblens.app.crates.collection import MOST_BYTES, NO_LICENSE, CrateChoice
    from joblens.app.crates.collection import export_crate as write
    from joblens.app.crates.files import check_output
    from joblens.app.runs.lookup import find_job_or_run

    if request.ident is None:
        raise InputError("'ro-crate' needs a run or a job", hint=_EXAMPLE)
    if output is None or output == "-":
        raise InputError("'ro-crate' needs an output path", hint=f"{_EXAMPLE}, or -o crate.zip")
    if request.files_limit is not None and not request.with_files:
        raise InputError("--files-limit needs --with-files")
    choice = CrateChoice(
        license=request.license or NO_LICENSE,
        with_files=request.with_files,
        most_bytes=MOST_BYTES if request.files_limit is None else parse_size(request.files_limit),
    )
    check_output(output)
    store = session.current_store
    found = find_job_or_run(store, request.ident, session.note)
    with ProgressBar("jobs") as bar:
        return write(store, found, output, choice, bar.advance)


FORMATS = ("history", "samples", "time-series", "parquet", "csv", "ro-crate")


@click.command("export", cls=GroupedCommand, groups=FILTER_GROUPS)
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Output file; for samples of several jobs, a directory; for ro-crate, a new directory or FILE.zip.",
)
@click.option(
    "--job",
    "idents",
    multiple=True,
    metavar="ID",
    shell_complete=complete_job,
    help="Export only this job. Repeatable.",
)
@click.option("--samples", is_flag=True, help="For csv and parquet: one row per sample, not per job.")
@click.option("-l", "--limit", type=count_from(1), metavar="N", help="Export at most the N newest jobs.")
@crate_options
@job_filters
@shared_options
def command(
    session: Session,
    form: str,
    output: str | None,
    idents: tuple[str, ...],
    samples: bool,
    limit: int | None,
    query: HistoryQuery,
    crate: CrateRequest,
) -> None:
    """Export jobs or their samples to files for other programs.

    \b
    history      JSON lines, one object per job (jobs_history.jsonl)
    samples      gzipped JSON lines, <dir>/<uuid>/<start>.jsonl.gz; a single job also to a file or stdout
    time-series  SQLite file with job_resource_samples and job_metadata
    parquet      one row per job or sample (needs joblens[data])
    csv          the same as CSV
    ro-crate     one run or job with all its metadata, for research archives
    """
    if form == "ro-crate":
        if idents or limit is not None or samples or is_narrowed(query):
            raise InputError("'ro-crate' exports one run or job: give it after the format, without filters")
        export_crate(session, output, crate)
        return
    refuse_crate_options(form, crate)
    if samples and form not in ("csv", "parquet"):
        raise InputError(f"--samples does not apply to '{form}'", hint="it needs csv or parquet")
    choice = structs.replace(query, limit=limit, sort=SortKey.STARTED, ascending=limit is None)
    with ProgressBar("jobs") as bar:
        result = _Export(session, output, idents, choice, bar).run(form, samples)
    if session.json and output is not None:
        session.write_json({"jobs": result.jobs, "rows": result.rows, "files": list(result.files)})
    elif output is not None:
        session.note(f"{counted(result.rows, 'row')} of {counted(result.jobs, 'job')} written to {output}")
        if result.note:
            session.note(result.note)


class _Export:
    """One export: which jobs, and where to."""

    def __init__(
        self,
        session: Session,
        output: str | None,
        idents: tuple[str, ...],
        query: HistoryQuery,
        bar: ProgressBar,
    ) -> None:
        from joblens.app.jobs.queries import find

        self._store = session.current_store
        self._session = session
        self._output = None if output in (None, "-") else output
        self._query = with_run_found(self._store, query)
        self._named = [
            find(self._store, ident, session.note) for ident in idents
        ]  # before anything is written
        self._bar = bar
        self._jobs = 0

    def run(self, form: str, samples: bool) -> "ExportResult":
        if form == "samples":
            done = self._samples()
        elif form == "time-series":
            done = self._time_series()
        else:
            done = self._rows(form, samples)
        return structs.replace(done, jobs=done.jobs or self._jobs)

    def _records(self) -> Iterator[Record]:
        for record in self._named or self._store.records(self._query):
            self._jobs += 1
            yield record

    def _needed_output(self, form: str, example: str) -> str:
        if self._output is None:
            raise InputError(f"'{form}' needs an output path", hint=f"for example: -o {example}")
        return self._output

    def _rows(self, form: str, samples: bool) -> "ExportResult":
        from joblens.app.reports import exports

        records, advance = self._records(), self._bar.advance
        if form == "history":
            return self._to_file(lambda file: exports.export_history(self._store, records, file, advance))
        table = (
            exports.samples_table(self._store, records, advance)
            if samples
            else exports.jobs_table(records, advance)
        )
        if form == "csv":
            return self._to_file(lambda file: exports.export_csv(table, file))
        return exports.export_parquet(table, self._needed_output("parquet", "jobs.parquet"))

    def _to_file(self, write: "Callable[[IO[bytes]], ExportResult]") -> "ExportResult":
        from joblens.app.reports.exports import output_file

        if self._output is None:
            self._session.flush()
            done = write(sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return done
        with output_file(self._output) as file:
            done = write(file)
        return structs.replace(done, files=(self._output,))

    def _time_series(self) -> "ExportResult":
        from joblens.app.reports.exports import export_time_series

        path = self._needed_output("time-series", "resource_metrics.db")
        return export_time_series(self._store, self._records(), path, self._bar.advance)

    def _samples(self) -> "ExportResult":
        from joblens.app.reports import exports

        is_one = len(self._named) == 1
        if self._output is None and not is_one:
            raise InputError(
                "samples of several jobs need an output directory",
                hint="give -o DIR, or select one job with --job ID",
            )
        if self._output is None or (is_one and self._output.endswith((".gz", ".jsonl"))):
            record = next(self._records())
            is_plain = self._output is None or self._output.endswith(".jsonl")
            write = exports.export_job_samples if is_plain else exports.export_gzip_samples
            return self._to_file(
                lambda file: exports.ExportResult(jobs=1, rows=write(self._store, record, file))
            )
        if os.path.isfile(self._output):
            raise InputError(f"{self._output} is a file; samples of several jobs need a directory")
        return exports.export_samples(self._store, self._records(), self._output, self._bar.advance)
