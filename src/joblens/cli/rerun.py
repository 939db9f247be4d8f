"""`joblens rerun`: a new run that repeats part of an earlier one."""

import os
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.cli.run_arguments import complete_run
from joblens.cli.run_options import offer_options, with_offer
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.reruns import Again
    from joblens.app.specs import LoadedSpec
    from joblens.model.run import Run


@click.command()
@click.argument("ident", metavar="RUN|JOB", shell_complete=complete_run)
@click.option("--failed", is_flag=True, help="What has not succeeded, and everything that needs it.")
@click.option("--changed", is_flag=True, help="What has changed since: the file, commands, input files.")
@click.option("--all", "everything", is_flag=True, help="Everything.")
@click.option("--dry-run", is_flag=True, help="Only tell which jobs would start, in which order, and why.")
@offer_options
@shared_options
def command(
    session: Session, /, ident: str, failed: bool, changed: bool, everything: bool, **given: Any
) -> None:
    """Make a new run of the same workflow that runs part of RUN again; the other jobs keep the outcome they
    have there. --failed and --all use the file as it was then, --changed as it is now.

    With a JOB, its command is run again in front, as joblens run would."""
    from joblens.app.runs import find_job_or_run
    from joblens.model.job import Record

    found = find_job_or_run(session.current_store, ident, session.note)
    if isinstance(found, Record):
        if failed or changed or everything or given["dry_run"]:
            raise InputError("--failed, --changed, --all and --dry-run go with a run, not with a job")
        _run_job_again(session, found, quiet=given["quiet"])
        return
    if failed + changed + everything != 1:
        raise InputError("say what is to run again: one of --failed, --changed and --all")
    _run_again(session, found, "failed" if failed else "changed" if changed else "all", given)


def _run_again(session: Session, base: "Run", what: str, given: dict[str, Any]) -> None:
    from joblens.app.drivers import open_store_directly
    from joblens.app.run_checks import prepare_place, refuse_unfinished_base
    from joblens.app.workflow_runs import check_plan, create_run
    from joblens.cli.run_spec import detach, drive_in_front, show_dry_run

    store = session.store
    if not given["dry_run"]:
        refuse_unfinished_base(base, store, session.settings)
    base = _whole(session, base, what)
    loaded, again = _choose(session, base, what)
    if again is not None and again.is_empty:
        if session.json:
            session.write_json({"run": None, "base_run_uuid": base.uuid, "again": []})
        else:
            session.write("Nothing has to run again\n")
        return
    options = with_offer(base.options, given)
    places = again.places if again is not None else None
    if given["dry_run"]:
        show_dry_run(session, loaded, store.find_workflow(base.workflow_uuid), options, again)
        return
    check_plan(loaded.plan, options, places)
    prepare_place(options, detach=given["detach"])
    direct = open_store_directly(session.settings, session.warn)
    try:
        workflow = store.find_workflow(base.workflow_uuid)
        run = create_run(
            direct,
            workflow,
            loaded,
            options,
            session.settings,
            base=base if again is not None else None,
            again=places,
        )
    finally:
        direct.close()
    if given["detach"]:
        detach(session, run)
    else:
        drive_in_front(session, run, loaded.plan, quiet=given["quiet"])


def _whole(session: Session, base: "Run", what: str) -> "Run":
    """With what the store does not have of it: of a file as it is now nothing of the base is needed."""
    from joblens.app.kept_specs import whole_run

    has_file = what == "changed" and bool(session.store.find_workflow(base.workflow_uuid).source)
    return (
        base if has_file and not base.options.parameters else whole_run(base, session.store, session.settings)
    )


def _choose(session: Session, base: "Run", what: str) -> "tuple[LoadedSpec, Again | None]":
    from joblens.app.reruns import changed_of, failed_of
    from joblens.app.specs import load_spec, loaded_run

    store = session.store
    if what != "changed":
        _tell_of_changed_file(session, base)
    if what == "failed":
        return loaded_run(base), failed_of(store, base)
    if what == "all":
        return loaded_run(base), None
    workflow = store.find_workflow(base.workflow_uuid)
    loaded = load_spec(workflow.source, base.options.parameters) if workflow.source else loaded_run(base)
    return loaded, changed_of(store, base, loaded.plan, base.options.cwd)


def _tell_of_changed_file(session: Session, base: "Run") -> None:
    import shlex

    from joblens.analysis.workflow_rows import run_label
    from joblens.app.sources import changed_source

    source = changed_source(session.store, base)
    if source:
        session.warn(
            f"{source} has changed since run {run_label(base)}, which is repeated with the file as it was; "
            f"joblens run {shlex.quote(source)} --rerun-changed takes it as it is now"
        )


def _run_job_again(session: Session, record: Any, *, quiet: bool) -> None:
    """As far as its record tells all of it: what was taken out of it as a secret cannot be put back."""
    from joblens.cli.job_request import options_of_container
    from joblens.cli.option_table import GLOBAL_OPTIONS, JOB_OPTIONS, RUN_OPTIONS, SPEC_OPTIONS
    from joblens.cli.run import run
    from joblens.model.secrets import REDACTED

    job = record.job
    if job.run is not None:
        raise InputError(
            f"job {record.number} belongs to a run of a workflow",
            hint=f"joblens rerun {job.run.run_uuid[:8]} --failed runs what has failed there again",
        )
    if any(REDACTED in text for text in job.argv):
        raise InputError(
            f"job {record.number}: a secret was taken out of its recorded command",
            hint="type the command again",
        )
    if job.attached:
        raise InputError(f"job {record.number} was not run by joblens, only looked at: {job.attached}")
    if not job.argv and job.container is None:
        raise InputError(f"job {record.number} has no command: a program measured itself")
    lost = sorted(name for name, value in job.env.items() if REDACTED in value)
    if lost and job.container is not None:
        raise InputError(
            f"job {record.number}: the values of {', '.join(lost)} were not kept, they may be secrets",
            hint="type the command again, with --env",
        )
    if missing := [name for name in lost if name not in os.environ]:
        session.warn(f"{', '.join(missing)}: set by --env then, not kept in the record, and not set now")
    rows = (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS)
    given: dict[str, Any] = {
        row.name: False if row.kind == "flag" else () if row.kind == "many" else row.default for row in rows
    }
    asked = job.requirements
    given |= {
        "spec": None,
        "command_line": () if job.is_shell else job.argv,
        "shell": job.argv[0] if job.is_shell else None,
        "name": job.name,
        "tool": job.tool,
        "tags": job.tags,
        "cwd": job.cwd or None,
        "cpus": asked.cpus,
        "memory": None if asked.memory_bytes is None else str(asked.memory_bytes),
        "gpus": None if asked.gpus is None else str(asked.gpus),
        "pids": asked.pids,
        "timeout": None if asked.timeout_s is None else str(asked.timeout_s),
        "no_enforce": not job.enforce,
        "cpu_list": job.cpu_list or None,
        "probes": None if job.probes is None else ",".join(job.probes) or "none",
        "quiet": quiet,
    }
    if job.container is not None:
        given["env"] = tuple(f"{name}={value}" for name, value in job.env.items())
    given |= options_of_container(job.container)
    run(session, given)
