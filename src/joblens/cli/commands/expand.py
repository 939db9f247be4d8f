"""`joblens expand`: a workflow with every job by itself."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_file, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.spec import param_option, params_of


@click.command("expand", cls=GroupedCommand)
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@param_option
@shared_options
def command(session: Session, file: str, params: tuple[str, ...]) -> None:
    """Print a workflow with every parameter, variable, regex and reference expanded.

    The result is a workflow file for the same jobs, in YAML, or in JSON with --json. In YAML, comments
    list its stages.
    """
    from joblens.app.workflows.loader import expanded_workflow, load_spec

    values = params_of(params)
    loaded = load_spec(file, values, keeps_spec=True)
    plan = loaded.plan
    document = expanded_workflow(loaded, values)
    if session.json:
        session.write_json(document)
        return
    from joblens.plan.workflows.graph import stages_of
    from joblens.views.runs.plan import render_plan
    from joblens.views.text.yaml_text import yaml_lines

    for line in render_plan(plan, stages_of(plan), width=session.width - 2):
        session.write(f"# {line}".rstrip() + "\n")
    for line in yaml_lines(document):
        session.write(f"{line}\n")
