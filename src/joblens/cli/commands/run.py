"""Implementation of `joblens run`. Does not import click: plain command lines do without it
(`quick_run`)."""

import os
import sys
from typing import Any

from joblens.cli.context import Globals, Session, with_values
from joblens.cli.options.request import check_options, request_from
from joblens.model.errors import InputError


def run(session: Session, values: dict[str, Any]) -> None:
    """`values` has every option by its name in the option table. Exits with the job's exit code."""
    session.refuse_server("run")
    if values["spec"] is not None:
        from joblens.cli.commands.run_spec import run_spec
        from joblens.cli.options.run import take_queue_options

        take_queue_options(session, values)
        run_spec(session, values)
        return
    engine = values["engine"] or "local"
    if engine != "local":
        from joblens.cli.commands.run_on_engine import run_on_engine
        from joblens.cli.options.run import take_queue_options

        check_options(engine, values)
        take_queue_options(session, values)
        run_on_engine(session, values)
        return
    _run_here(session, values)


def _run_here(session: Session, values: dict[str, Any]) -> None:
    from msgspec.structs import replace

    from joblens.app.jobs.foreground import run_in_foreground
    from joblens.app.jobs.preparation import prepare

    check_options("local", values)
    report = values["report"]
    if values["quiet"] and values["verbose"]:
        raise InputError("--quiet and --verbose cannot be combined")
    settings = session.settings
    if values["no_capture"]:
        settings = replace(settings, output=replace(settings.output, capture=False))
    prepared = prepare(request_from(values, background=False), settings)
    if report:
        from joblens.cli.commands.job_ending import check_report

        check_report(report)
    shows_live = not values["quiet"] and os.isatty(2)
    color = shows_live and session.error_color

    # A container with its own terminal draws on the screen itself.
    shares_screen = prepared.job.container is None or not (os.isatty(0) and os.isatty(1))
    draws_line = shows_live and shares_screen and settings.output.capture

    def render_live(samples: list[Any]) -> str:
        from joblens.cli.commands.job_ending import terminal_width
        from joblens.views.jobs.live_line import render_live_line

        return render_live_line(prepared.job.name, samples, terminal_width(), color)

    session.own_jobs()
    live = None
    if draws_line:
        from joblens.cli.ui.live_line import LiveLine

        live = LiveLine(render_live)
    ended = run_in_foreground(prepared, settings, live=live, store=session.journaled_store)
    record = ended.record
    shows_summary = ended.error is None and (shows_live or values["verbose"])
    if shows_summary or report or session.json:
        from joblens.cli.commands.job_ending import show_ending

        at_line_start = (ended.stdout_ends_in_newline, not ended.is_stderr_line_open)
        show_ending(session, record, report, at_line_start, color=color if shows_summary else None)
    if ended.error is not None:
        raise ended.error
    if ended.died_of_interrupt:
        sys.exit(-2)  # joblens dies of SIGINT too, so that a shell script notices (__main__.entry)
    code = record.outcome.exit_code if record.outcome else None
    sys.exit(125 if code is None else code)


def run_parsed(values: dict[str, Any]) -> None:
    """Takes the result of `quick_run.parse`."""
    session = Session(with_values(Globals(), values))
    try:
        run(session, values)
    finally:
        session.close()
