"""Run requests for stored runs and workflows: resume a run, repeat part of it, run a stored workflow."""

import enum
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from joblens.analysis.runs.status import run_label
from joblens.app.driving.checks import RunRequest
from joblens.app.runs.control import refuse_command, refuse_driven
from joblens.app.runs.reruns import (
    RerunSelection,
    carry_raised_requests,
    changed_of,
    failed_of,
    selected_of,
)
from joblens.app.runs.specs import hide_secrets, whole_batches, whole_run
from joblens.app.runs.state import state_of_run
from joblens.app.runs.user_data import check_private_values
from joblens.app.workflows.loader import LoadedSpec, grown_plan, load_spec, loaded_run
from joblens.model.errors import InputError, UnknownRun
from joblens.model.runs.run import JobState, Run, RunOptions, RunStatus, Workflow
from joblens.model.settings import Settings
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.spawning import extended
from joblens.ports.store import Store

Change = Callable[[RunOptions], RunOptions]  # of the recorded options


def as_recorded(options: RunOptions) -> RunOptions:
    return options


# ---- resume ---------------------------------------------------------------------------------------------


def load_run(
    store: Store, run: Run, settings: Settings, change: Change = as_recorded
) -> tuple[Run, LoadedSpec]:
    """Returns the run with its secrets and the changed options, and its plan with added jobs."""
    whole = whole_run(run, store, settings)
    whole = replace(whole, options=change(whole.options))
    loaded = loaded_run(whole)
    whole = replace(whole, options=hide_secrets(loaded, whole.options))
    loaded.plan = grown_plan(loaded, whole)
    return whole, loaded


def resume_request(
    store: Store, run: Run, settings: Settings, change: Change = as_recorded
) -> tuple[RunRequest, bool]:
    """Returns the request, and whether resuming can do anything. Raises RunIsDriven if another process
    drives the run."""
    refuse_driven(run, settings)
    whole, loaded = load_run(store, run, settings, change)
    left, can_resume = unfinished_jobs(store, whole)
    recorded = replace(whole, options=run.options)
    return RunRequest(loaded=loaded, options=whole.options, resumed=recorded, left=left), can_resume


def unfinished_jobs(store: Store, run: Run) -> tuple[tuple[int, ...], bool]:
    """Returns the unfinished jobs, and whether resuming can do anything: one of them does not wait for a
    failed job, a dataset can be finalized now, or no job failed, so that it was an action."""
    state = state_of_run(store, run)
    unfinished = tuple(job.index for job in state.jobs if job.is_left)
    succeeded = (JobState.COMPLETED, JobState.DISABLED)
    failed = [job.index for job in state.jobs if not job.is_left and job.state not in succeeded]
    can_resume = bool(set(unfinished) - Graph(state.plan).behind(failed))
    return unfinished, can_resume or not failed or state.has_failed_datasets


# ---- repeat ---------------------------------------------------------------------------------------------


class RerunPart(enum.StrEnum):
    """Jobs of a run to run again; their dependents always do, too."""

    FAILED = "failed"  # that did not succeed
    CHANGED = "changed"  # whose definition, inputs or datasets changed since, by the current file
    ONLY = "only"  # that are named
    ALL = "all"


def rerun_request(
    store: Store,
    run: Run,
    settings: Settings,
    part: RerunPart,
    only: Sequence[str] = (),
    change: Change = as_recorded,
) -> RunRequest:
    """Returns the request for a new run that repeats part of `run`; other jobs keep their results. Its
    `again` is empty if nothing has to run again."""
    refuse_command(run, store)
    workflow = store.find_workflow(run.workflow_uuid)
    base = _base_of_rerun(store, run, workflow, settings, part)
    loaded, again = _selection(store, base, workflow, part, only)
    if again is not None and again.spawned:
        loaded.plan = extended(loaded.plan, whole_batches(again.spawned, settings))
        loaded.raise_requests((*loaded.raised, *again.raised))
    options = change(hide_secrets(loaded, base.options))
    return RunRequest(loaded=loaded, options=options, workflow=workflow, again=again, base=run)


def _base_of_rerun(store: Store, run: Run, workflow: Workflow, settings: Settings, part: RerunPart) -> Run:
    """Adds the parts that the store does not have; the current file needs nothing of the base."""
    if part is RerunPart.CHANGED and workflow.source and not run.options.parameters:
        check_private_values(store, run, settings)
        return run
    return whole_run(run, store, settings, with_user_data=part is not RerunPart.ALL)


def _selection(
    store: Store, base: Run, workflow: Workflow, part: RerunPart, only: Sequence[str]
) -> tuple[LoadedSpec, RerunSelection | None]:
    """Returns the jobs to run again with the file to run them from; None: all."""
    if part is RerunPart.CHANGED and workflow.source:
        loaded = load_spec(workflow.source, base.options.parameters)
        carry_raised_requests(store.find_run(base.uuid), loaded)
    else:
        loaded = loaded_run(base)
    match part:
        case RerunPart.FAILED:
            return loaded, failed_of(store, base)
        case RerunPart.ONLY:
            return loaded, selected_of(store, base, only)
        case RerunPart.CHANGED:
            hide_secrets(loaded, base.options)  # jobs are compared by their names in the store
            return loaded, changed_of(store, store.find_run(base.uuid), loaded, base.options.cwd)
        case RerunPart.ALL:
            return loaded, None


# ---- run a stored workflow ------------------------------------------------------------------------------


def workflow_request(store: Store, workflow: Workflow, settings: Settings, change: Change) -> RunRequest:
    """Returns the request to run all jobs of the workflow, in its run that was created and not started, if
    there is one for the same directories, else in a new one."""
    runs = store.runs(workflow.uuid)
    if not runs:
        raise UnknownRun(f"workflow {workflow.number} has no jobs yet", hint="joblens run FILE")
    newest = whole_run(store.find_run(runs[-1].uuid), store, settings)
    refuse_command(newest, store)
    options = change(newest.options)
    is_elsewhere = (newest.options.cwd, newest.options.output_dir) != (options.cwd, options.output_dir)
    is_new = newest.status is not RunStatus.CREATED or is_elsewhere
    loaded = loaded_run(replace(newest, raised=()) if is_new else newest)
    return RunRequest(
        loaded=loaded,
        options=hide_secrets(loaded, options),
        workflow=workflow if is_new else None,
        resumed=newest,
    )


# ---- for clients of a server, which get an error in place of a message ---------------------------------


def refuse_finished(run: Run, *, can_resume: bool) -> None:
    """Raises InputError for a run in which nothing is left to do."""
    label = run_label(run)
    if run.status is RunStatus.COMPLETED:
        raise InputError(f"run {label} is completed: nothing is left to do")
    if run.status is RunStatus.FAILED and not can_resume:
        raise InputError(
            f"run {label} failed and cannot be resumed",
            hint=f"joblens rerun {label} --failed runs failed jobs and their dependents again",
        )
