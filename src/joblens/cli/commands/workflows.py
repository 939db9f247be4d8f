"""`joblens workflows`: lists workflows and their runs."""

from typing import Any

import click

from joblens.cli.commands.delete import delete_workflows
from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import (
    complete_file_or_run,
    complete_run,
    global_options,
    remember_globals,
    run_argument,
    shared_options,
)


@click.group("workflows", cls=CommandGroup, invoke_without_command=True)
@global_options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """List workflows and their runs. Without a subcommand, the same as 'workflows list'."""
    remember_globals(ctx, values)
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@command.command("list")
@shared_options
def list_(session: Session) -> None:
    """List workflows, newest first, with the status of the latest run."""
    from joblens.app.queue.watch import task_group_rows
    from joblens.app.runs.tables import listed_workflows, workflow_rows

    rows = workflow_rows(session.current_store, listed_workflows(session.current_store))
    groups = task_group_rows(session.store)
    if session.json:
        from joblens.app.runs.tables import task_group_form, workflow_form

        session.write_json([*map(workflow_form, rows), *map(task_group_form, groups)])
        return
    if not rows and not groups:
        session.write("No workflows yet. Run one: joblens run FILE\n")
        return
    from joblens.app.wiring.drivers import SystemClock
    from joblens.views.runs.workflows import render_workflows

    now_us = SystemClock().now_us()
    session.write_lines(
        render_workflows(rows, groups, now_us=now_us, width=session.width, paint=session.palette)
    )


@command.command("create-from-spec")
@click.argument("path", metavar="FILE", type=click.Path())
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="K=V",
    help="Set a parameter of the workflow. Repeatable.",
)
@click.option("--no-resource-monitoring", "unmonitored", is_flag=True, help="Take no samples of its jobs.")
@shared_options
def create_from_spec(session: Session, path: str, params: tuple[str, ...], unmonitored: bool) -> None:
    """Store the workflow of FILE without running it, and print its ID. 'joblens run-jobs' runs it."""
    from joblens.app.runs.records import create_from_file

    run = create_from_file(path, params, session.settings, session.warn, monitor=not unmonitored)
    if session.json:
        session.write_json({"workflow_id": run.workflow_number, "run_uuid": run.uuid, "jobs": run.jobs})
    elif session.is_terminal:
        from joblens.model.values.units import counted

        number = run.workflow_number
        session.write(f"Workflow {number} has {counted(run.jobs, 'job')}: joblens run-jobs {number}\n")
    else:
        session.write(f"{run.workflow_number}\n")


@command.command("execution-plan")
@click.argument("target", metavar="FILE|ID", shell_complete=complete_file_or_run)
@shared_options
def execution_plan(session: Session, target: str) -> None:
    """Show the stages of a workflow, like 'joblens plan'."""
    from joblens.cli.commands.plan import show_plan

    show_plan(session, target)


@command.command("show")
@click.argument("ident", metavar="ID", shell_complete=complete_run)
@shared_options
def show(session: Session, ident: str) -> None:
    """Show one workflow and all its runs; for wf-…, its tasks."""
    from joblens.app.queue.watch import find_group
    from joblens.app.runs.state import actions_form, failed_actions
    from joblens.app.runs.tables import run_rows

    store = session.current_store
    group = find_group(store, ident)
    if group is not None:
        from joblens.cli.commands.status import show_workflow

        show_workflow(session, group.uuids)
        return
    workflow = store.find_workflow(ident)
    rows = run_rows(store, workflow)
    if session.json:
        from msgspec import to_builtins

        from joblens.app.runs.tables import run_form

        runs = [
            run_form(row) | {"failed_actions": actions_form(failed_actions(store, row.run.uuid))}
            for row in rows
        ]
        session.write_json({**to_builtins(workflow), "runs": runs})
        return
    from joblens.app.wiring.drivers import SystemClock
    from joblens.views.runs.workflows import render_workflow

    now_us = SystemClock().now_us()
    session.write_lines(
        render_workflow(workflow, rows, now_us=now_us, width=session.width, paint=session.palette)
    )
    actions = failed_actions(store, rows[-1].run.uuid) if rows else ()
    if actions:
        from joblens.views.runs.results import render_actions

        session.write_lines(["", "In the last run:", *render_actions(actions, width=session.width)])


@command.command("cancel")
@click.argument("idents", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
@click.option("--no-wait", is_flag=True, help="Send the request without waiting for the jobs to end.")
@click.pass_context
def cancel(ctx: click.Context, idents: tuple[str, ...], no_wait: bool) -> None:
    """Cancel the jobs of runs, like 'joblens cancel'. A number always means a workflow, never a job."""
    from joblens.cli.commands.cancel import command as cancel_any

    named = tuple(ident if ident.startswith("workflow:") else f"workflow:{ident}" for ident in idents)
    ctx.invoke(cancel_any, idents=named, names=(), no_wait=no_wait)


command.add_command(delete_workflows)


@command.command("reset-status")
@run_argument
@click.option("--failed-only", is_flag=True, help="Reset only jobs that did not succeed. Default: all jobs.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be reset without changing anything.")
@click.option("--no-prompts", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def reset_status(session: Session, ident: str, failed_only: bool, dry_run: bool, no_prompts: bool) -> None:
    """Reset jobs of RUN and their dependents; 'joblens resume' then runs them in the same run."""
    from joblens.app.runs.lookup import find_named_run
    from joblens.app.runs.state import state_of_run
    from joblens.cli.commands.jobs import reset
    from joblens.model.runs.run import JobState

    store = session.current_store
    run = find_named_run(store, ident, session.note)
    skipped_runs = (JobState.COMPLETED, JobState.DISABLED) if failed_only else (JobState.DISABLED,)
    indexes = [job.index for job in state_of_run(store, run).jobs if job.state not in skipped_runs]
    reset(session, run, indexes, dry_run=dry_run, no_prompts=no_prompts)
