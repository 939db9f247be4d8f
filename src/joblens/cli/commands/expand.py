"""`joblens expand`: a workflow with every job by itself."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_file, shared_options
from joblens.cli.options.spec import param_option, params_of


@click.command("expand")
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@param_option
@shared_options
def command(session: Session, file: str, params: tuple[str, ...]) -> None:
    """Write a workflow with every parameter, variable, regex and reference put in.

    The result is a workflow file itself (YAML; with --json JSON) that stands for the same jobs. In YAML its
    stages stand before it, as comments.
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
