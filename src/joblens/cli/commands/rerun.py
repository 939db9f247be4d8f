"""`joblens rerun`: a new run that repeats part of an earlier one."""

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.run import offer_options, take_queue_options, tell_of_broker, with_offer
from joblens.cli.options.run_arguments import complete_run
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.runs.reruns import RerunSelection
    from joblens.app.workflows.loading import LoadedSpec
    from joblens.model.runs.run import Run


@click.command()
@click.argument("ident", metavar="RUN|JOB", shell_complete=complete_run)
@click.option("--failed", is_flag=True, help="What has not succeeded, and everything that needs it.")
@click.option(
    "--changed", is_flag=True, help="What has changed since: the file, commands, input files, datasets."
)
@click.option("--all", "everything", is_flag=True, help="Everything.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="These jobs, and everything that needs them: name, glob, label:…, regex:… (repeatable).",
)
@click.option(
    "--env", multiple=True, metavar="K=V", help="JOB: variable for it, such as a secret (repeatable)."
)
@click.option("--cwd", metavar="DIR", help="JOB: directory to run it in. Default: as then.")
@offer_options
@shared_options
def command(
    session: Session, /, ident: str, failed: bool, changed: bool, everything: bool, **given: Any
) -> None:
    """Make a new run of the same workflow that runs part of RUN again; the other jobs keep the outcome they
    have there. --failed, --only and --all use the file as it was then, --changed as it is now.

    With a JOB, its command is run again in front: in its directory, with its limits, parameters and
    variables. What is not as it was then is told."""
    from joblens.app.runs.lookup import find_job_or_run
    from joblens.model.jobs.job import Record

    take_queue_options(session, given)
    found = find_job_or_run(session.current_store, ident, session.note, is_to_change=True)
    if isinstance(found, Record):
        from joblens.cli.commands.rerun_job import rerun_job

        if failed or changed or everything or given["only"]:
            raise InputError("--failed, --changed, --only and --all go with a run, not with a job")
        rerun_job(session, found, given)
        return
    if given["env"] or given["cwd"] is not None:
        raise InputError("--env and --cwd go with a job, not with a run")
    only: tuple[str, ...] = given["only"]
    if failed + changed + everything + bool(only) != 1:
        raise InputError("say what is to run again: one of --failed, --changed, --only and --all")
    what = "failed" if failed else "changed" if changed else "only" if only else "all"
    _run_again(session, found, what, given)


def _run_again(session: Session, base: "Run", what: str, given: dict[str, Any]) -> None:
    from joblens.app.driving.checks import RunRequest
    from joblens.app.runs.kept_specs import hide_secrets, whole_batches
    from joblens.app.runs.refusals import refuse_command
    from joblens.cli.commands.run_spec import detach, drive_in_front, show_dry_run, start
    from joblens.plan.workflows.spawning import extended

    refuse_command(base, session.store)
    first = base
    base = _whole(session, base, what)
    loaded, again = _choose(session, base, what, given["only"])
    if again is not None and again.spawned:
        loaded.plan = extended(loaded.plan, whole_batches(again.spawned, session.settings))
        loaded.raise_requests((*loaded.raised, *again.raised))
    base = replace(base, options=hide_secrets(loaded, base.options))
    if again is not None and again.is_empty:
        if session.json:
            session.write_json({"run": None, "base_run_uuid": base.uuid, "again": []})
        else:
            session.write("Nothing has to run again\n")
        return
    options = with_offer(base.options, given)
    warnings = loaded.warnings_for(options.engine)  # of a file as it is now
    if not given["quiet"]:
        for warning in warnings:
            session.warn(warning)
    tell_of_broker(session, options)
    request = RunRequest(loaded=loaded, options=options, again=again, base=first, detach=given["detach"])
    workflow = session.store.find_workflow(base.workflow_uuid)
    if given["dry_run"]:
        show_dry_run(session, request, workflow, warnings)
        return
    run = start(session, request, workflow)
    notify = given["notify"] or options.notify
    if given["detach"]:
        detach(session, run, notify, warnings=warnings)
    else:
        drive_in_front(session, run, loaded.plan, quiet=given["quiet"], notify=notify, warnings=warnings)


def _whole(session: Session, base: "Run", what: str) -> "Run":
    """With what the store does not have of it: of a file as it is now nothing of the base is needed."""
    from joblens.app.runs.kept_specs import whole_run
    from joblens.app.runs.user_data import check_private_values

    keeps_data = what != "all"
    has_file = what == "changed" and bool(session.store.find_workflow(base.workflow_uuid).source)
    if has_file and not base.options.parameters:
        check_private_values(session.store, base, session.settings)
        return base
    return whole_run(base, session.store, session.settings, with_user_data=keeps_data)


def _choose(
    session: Session, base: "Run", what: str, only: tuple[str, ...]
) -> "tuple[LoadedSpec, RerunSelection | None]":
    from joblens.app.runs.kept_specs import hide_secrets
    from joblens.app.runs.reruns import carry_raised_requests, changed_of, failed_of, selected_of
    from joblens.app.workflows.loading import load_spec, loaded_run

    store = session.store
    if what != "changed":
        _tell_of_changed_file(session, base)
    if what == "failed":
        return loaded_run(base), failed_of(store, base)
    if what == "only":
        return loaded_run(base), selected_of(store, base, only)
    if what == "all":
        return loaded_run(base), None
    workflow = store.find_workflow(base.workflow_uuid)
    if workflow.source:
        loaded = load_spec(workflow.source, base.options.parameters)
        carry_raised_requests(store.find_run(base.uuid), loaded)
    else:
        loaded = loaded_run(base)
    hide_secrets(loaded, base.options)  # jobs are compared by their names in the store
    return loaded, changed_of(store, store.find_run(base.uuid), loaded, base.options.cwd)


def _tell_of_changed_file(session: Session, base: "Run") -> None:
    import shlex

    from joblens.analysis.runs.workflow_rows import run_label
    from joblens.app.workflows.sources import changed_source

    source = changed_source(session.store, base)
    if source:
        session.warn(
            f"{source} has changed since run {run_label(base)}, which is repeated with the file as it was; "
            f"joblens run {shlex.quote(source)} --rerun-changed takes it as it is now"
        )
