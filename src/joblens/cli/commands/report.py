"""`joblens report`: one file with pages and data of jobs, to share."""

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from joblens.cli.context import Session
from joblens.cli.options.common import complete_job_or_run, count_from, shared_options
from joblens.cli.options.filters import bench_option, is_narrowed, job_filters, with_run_found
from joblens.cli.options.groups import FILTER_GROUPS, GroupedCommand
from joblens.cli.terminal import ProgressBar
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery
from joblens.model.values.units import counted, format_bytes, format_instant, listed

if TYPE_CHECKING:
    from joblens.app.html_report.answers import ReadLog
    from joblens.app.html_report.writing import Selection
    from joblens.model.jobs.job import Record

_MOST_OF_SERVER = 2000  # lines of one answer
_LONGEST_NAME = 80  # in a title
_EXAMPLE = "for example: joblens report 12, joblens report nightly, joblens report --since 7d"


@click.command("report", cls=GroupedCommand, groups=FILTER_GROUPS)
@click.argument("idents", metavar="[JOB|RUN...]", nargs=-1, shell_complete=complete_job_or_run)
@click.option(
    "-o",
    "--output",
    default="report.html",
    metavar="FILE",
    show_default=True,
    help="Output file; FILE.pdf writes only a PDF.",
)
@click.option("--pdf", is_flag=True, help="Also write a PDF beside the file; needs Chromium.")
@click.option("--title", metavar="TEXT", help="Heading of the report. Default: names its jobs.")
@click.option("--redact-paths", is_flag=True, help="Hide the directories of all paths; file names stay.")
@click.option(
    "--points",
    type=click.IntRange(10, 10_000),
    metavar="N",
    help="Points per curve. Default: 600; above 100 jobs 120, above 1,000 jobs 30.",
)
@click.option(
    "--log-lines",
    type=click.IntRange(0, 100_000),
    metavar="N",
    help="Last lines of each output. Default: 500; above 100 jobs 50, above 1,000 jobs 0.",
)
@click.option("-l", "--limit", type=count_from(1), metavar="N", help="Include at most the N newest jobs.")
@job_filters
@bench_option
@shared_options
def command(
    session: Session,
    /,
    *,
    idents: tuple[str, ...],
    output: str,
    pdf: bool,
    title: str | None,
    limit: int | None,
    query: HistoryQuery,
    **amounts: Any,
) -> None:
    """Write jobs and runs to one HTML file to share: summary, job table, charts, logs, runs.

    The file needs no server and no network. Give jobs, runs, or filters of `joblens history`.
    """
    from joblens.app.html_report.pdf import find_chromium, print_pdf
    from joblens.app.html_report.writing import ReportChoice, reader, write_report
    from joblens.app.reports.exports import output_file
    from joblens.app.wiring.agent_context import current_user

    only_pdf = output.lower().endswith(".pdf")
    chromium = find_chromium() if pdf or only_pdf else ""
    store = session.current_store
    selection = _selection(session, idents, structs.replace(query, limit=limit), title)
    choice = ReportChoice(
        points=amounts["points"], log_lines=amounts["log_lines"], hides_paths=amounts["redact_paths"]
    )
    with ExitStack() as stack:
        page = output
        if only_pdf:
            import tempfile

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="joblens-report-"))
            page = os.path.join(folder, "report.html")
        with ProgressBar("jobs", poll_every=1) as bar, output_file(page) as file:
            result = write_report(
                store,  # type: ignore[arg-type]  # every store of a session has the queue's tables
                reader(current_user()),
                selection,
                choice,
                file,
                _log_reader(session),
                bar.expect,
            )
        files = [] if only_pdf else [output]
        if chromium:
            files.append(output if only_pdf else f"{os.path.splitext(output)[0]}.pdf")
            print_pdf(chromium, page, files[-1])
    sizes = {path: os.path.getsize(path) for path in files if os.path.isfile(path)}
    if session.json:
        session.write_json({**structs.asdict(result), "files": files, "bytes": sum(sizes.values())})
        return
    session.write_lines(files)
    size = format_bytes(sum(sizes.values()))
    runs = f" and {counted(result.runs, 'run')}" if result.runs else ""
    session.note(f"report of {counted(result.jobs, 'attempt' if result.retried else 'job')}{runs}, {size}")
    if result.unknown_secrets:
        session.warn(
            f"output may contain values of {listed(result.unknown_secrets, 5)}, "
            "which are not stored and cannot be hidden there; --log-lines 0 omits output"
        )


def _selection(
    session: Session, idents: tuple[str, ...], query: HistoryQuery, title: str | None
) -> "Selection":
    from joblens.analysis.runs.status import run_label
    from joblens.app.html_report.writing import Selection
    from joblens.app.runs.lookup import find_job_or_run
    from joblens.model.jobs.job import Record
    from joblens.views.jobs.labels import display_name

    store = session.store
    is_filtered = is_narrowed(query) or query.limit is not None
    if idents and is_filtered:
        raise InputError("give jobs and runs, or filters, not both", hint=_EXAMPLE)
    if not idents:
        if not is_filtered:
            raise InputError("a report needs jobs, runs or filters", hint=_EXAMPLE)
        return Selection(title=title or _words(query), query=with_run_found(store, query))
    found = [find_job_or_run(store, ident, session.note) for ident in dict.fromkeys(idents)]
    jobs = tuple(each for each in found if isinstance(each, Record))
    runs = tuple(each for each in found if not isinstance(each, Record))
    names = [
        *(f"Run {run_label(run)} of {store.find_workflow(run.workflow_uuid).name}" for run in runs),
        *(f"Job {record.number} {display_name(record.job)}".strip() for record in jobs),
    ]
    names = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names]
    return Selection(title=title or listed(names, 3), jobs=jobs, runs=runs)


def _words(query: HistoryQuery) -> str:
    """Returns 'Jobs: status failed, since 2026-01-31 10:00 UTC'."""
    parts = [
        *(f"status {each.value}" for each in query.statuses),
        *(f"name {each}" for each in query.names),
        *([f"name with {query.name_contains}"] if query.name_contains else []),
        *(f"tool {each}" for each in query.tools),
        *(f"tag {each}" for each in query.tags),
        *([f"user {query.user}"] if query.user else []),
        *(f"host {each}" for each in query.hosts),
        *(f"finding {each}" for each in query.findings),
        *([f"run {query.run_uuid}"] if query.run_uuid else []),
        *([f"since {_minute(query.since_us)}"] if query.since_us is not None else []),
        *([f"until {_minute(query.until_us)}"] if query.until_us is not None else []),
    ]
    jobs = "Jobs" if query.limit is None else f"The {counted(query.limit, 'newest job')}"
    return f"{jobs}: {', '.join(parts)}" if parts else jobs


def _minute(at_us: int) -> str:
    return f"{format_instant(at_us)[:16].replace('T', ' ')} UTC"


def _log_reader(session: Session) -> "ReadLog":
    """Output is read where it is: here, or on the server's machine."""

    from joblens.app.html_report.writing import reader
    from joblens.app.server.log_window import LogWindow, WindowPart, read_window
    from joblens.app.wiring.agent_context import current_user

    store, remote, who = session.store, session.remote, reader(current_user())

    def read(record: "Record", stream: str, lines: int) -> LogWindow:
        uuid = record.job.uuid
        if remote is not None:
            path = f"/jobs/{uuid}/logs/{stream}/window?part=backward&limit={min(lines, _MOST_OF_SERVER)}"
            return remote.server.call("GET", path, LogWindow)
        return read_window(store, who, uuid, stream, at=None, part=WindowPart.BACKWARD, limit=lines)  # type: ignore[arg-type]

    return read
