"""`joblens plan`: the stages of a workflow, with the allocations that each asks for."""

import click

from joblens.cli.context import Session
from joblens.cli.options.common import complete_file_or_run, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.spec import load_file_or_run, param_option, params_of


@click.command("plan", cls=GroupedCommand)
@click.argument("target", metavar="FILE|RUN", shell_complete=complete_file_or_run)
@param_option
@shared_options
def command(session: Session, target: str, params: tuple[str, ...]) -> None:
    """Show the stages of a workflow: jobs that become ready together, by kind, and the actions they
    trigger, such as Slurm allocations.

    Reads only the file. 'joblens run FILE --dry-run' also asks the cluster, and shows each sbatch.
    """
    show_plan(session, target, params)


def show_plan(session: Session, target: str, params: tuple[str, ...] = ()) -> None:
    from joblens.app.driving.dry_runs import stages_document
    from joblens.plan.workflows.graph import stages_of

    loaded, _ = load_file_or_run(session, target, params_of(params))
    plan = loaded.plan
    stages = tuple(stages_of(plan))
    if session.json:
        document = {"workflow_name": plan.name, "jobs": len(plan.jobs)}
        session.write_json({**document, "stages": stages_document(plan, stages)})
        return
    from joblens.views.runs.plan import render_plan

    session.write_lines(render_plan(plan, stages, width=session.width, paint=session.palette))
