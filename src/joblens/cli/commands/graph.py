"""`joblens graph`: dependencies of jobs, as text or picture."""

import os
from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_file_or_run, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.spec import load_file_or_run, param_option, params_of
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.views.graph.text import Drawing

FORMATS = ("text", "svg", "mermaid", "json")
_FILE_WIDTH = 120
_ENDINGS = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".json": "json", ".txt": "text"}


@click.command("graph", cls=GroupedCommand)
@click.argument("target", metavar="FILE|RUN", shell_complete=complete_file_or_run)
@click.option("-o", "--output", metavar="PATH", help="Output file; its extension selects the format.")
@click.option("--all", "all_jobs", is_flag=True, help="Show every job separately.")
@param_option
@shared_options
def command(
    session: Session, target: str, output: str | None, all_jobs: bool, params: tuple[str, ...]
) -> None:
    """Show job dependencies stage by stage; for a run, also the state of each job.

    --format also accepts svg and mermaid. Text shows the jobs of a sweep as one line; pictures show a box
    per job unless there are too many.
    """
    form = _format(session, output)
    drawing = _drawing(session, target, params_of(params), form, all_jobs=all_jobs)
    if form == "json" and output is None:
        from joblens.views.graph.text import drawing_form

        session.write_json(drawing_form(drawing))
        return
    text = _rendered(session, drawing, form, is_file=output is not None)
    if output is None:
        session.write(text)
        return
    _write(output, text)
    if session.json:
        session.write_json({"file": output, "jobs": drawing.jobs, "stages": drawing.stages})
    else:
        from joblens.model.values.units import counted

        session.note(f"graph of {counted(drawing.jobs, 'job')} written to {output}")


def _drawing(
    session: Session, target: str, params: dict[str, str], form: str, *, all_jobs: bool
) -> "Drawing":
    from joblens.app.workflows.loader import grown_plan
    from joblens.views.graph.text import Grouping, drawing_of, fitting_drawing

    loaded, run = load_file_or_run(session, target, params, keeps_spec=True)
    states = None
    plan = loaded.plan
    if run is not None:
        from joblens.app.runs.state import state_of_run

        plan = grown_plan(loaded, run)
        states = {job.index: job.state for job in state_of_run(session.store, run).jobs}
    entries = [job.name for job in loaded.spec.jobs]
    if all_jobs:
        return drawing_of(plan, entries, Grouping.JOB, states)
    finest = Grouping.JOB if form in ("svg", "mermaid") else Grouping.ENTRY
    return fitting_drawing(plan, entries, finest, states)


def _format(session: Session, output: str | None) -> str:
    """Returns the requested format, otherwise that of the file's ending, otherwise text."""
    option = click.get_current_context().params.get("global_format")
    if option in ("svg", "mermaid"):
        return str(option)
    if output is not None:
        ending = os.path.splitext(output)[1].lower()
        if ending in _ENDINGS:
            return _ENDINGS[ending]
        if option is None:
            hint = "use the extension .svg, .mmd, .json or .txt, or give --format"
            raise InputError(f"unknown output format: '{output}'", hint=hint)
    return "json" if session.json else "text"


def _rendered(session: Session, drawing: "Drawing", form: str, *, is_file: bool) -> str:
    match form:
        case "svg":
            from joblens.views.graph.svg import render_svg

            return render_svg(drawing)
        case "mermaid":
            from joblens.views.graph.text import render_mermaid

            return "\n".join([*render_mermaid(drawing), ""])
        case "json":
            from msgspec import json

            from joblens.views.graph.text import drawing_form

            return json.encode(drawing_form(drawing)).decode() + "\n"
    from joblens.views.graph.text import render_graph

    if is_file:
        return "\n".join([*render_graph(drawing, width=_FILE_WIDTH), ""])
    return "\n".join([*render_graph(drawing, width=session.width, paint=session.palette), ""])


def _write(path: str, text: str) -> None:
    from joblens.app.reports.exports import output_file

    with output_file(path) as file:
        file.write(text.encode())


for _parameter in command.params:
    if _parameter.name == "global_format":  # the option of every command has two more values here
        _parameter.type = click.Choice(FORMATS)
