"""Requests for another go at a run as it is recorded: resume it, or repeat part of it in a new run."""

from collections.abc import Sequence

from msgspec.structs import replace

from joblens.analysis.runs.status import run_label
from joblens.app.driving.checks import RunRequest
from joblens.app.runs.control import refuse_command, refuse_driven
from joblens.app.runs.reruns import failed_of, selected_of
from joblens.app.runs.specs import hide_secrets, whole_batches, whole_run
from joblens.app.runs.state import state_of_run
from joblens.app.workflows.loader import grown_plan, loaded_run
from joblens.model.errors import InputError
from joblens.model.runs.run import JobState, Run, RunStatus
from joblens.model.settings import Settings
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.spawning import extended
from joblens.ports.store import Store


def resume_request(store: Store, run: Run, settings: Settings) -> RunRequest:
    """Returns the request with the options that the run had. Raises InputError where nothing is left to do,
    RunIsDriven where another process drives it."""
    refuse_command(run, store)
    if run.status is RunStatus.COMPLETED:
        raise InputError(f"run {run_label(run)} is completed: nothing is left to do")
    refuse_driven(run, settings)
    whole = whole_run(run, store, settings)
    loaded = loaded_run(whole)
    run = replace(whole, options=hide_secrets(loaded, whole.options))
    loaded.plan = grown_plan(loaded, run)
    left, can_resume = unfinished_jobs(store, run)
    if run.status is RunStatus.FAILED and not can_resume:
        raise InputError(
            f"run {run_label(run)} failed and cannot be resumed",
            hint=f"joblens rerun {run_label(run)} --failed runs failed jobs and their dependents again",
        )
    return RunRequest(loaded=loaded, options=run.options, resumed=whole, left=left)


def rerun_request(
    store: Store, run: Run, settings: Settings, *, failed: bool = False, only: Sequence[str] = ()
) -> RunRequest:
    """Returns the request for a new run that repeats failed jobs, those that match `only`, or all; other jobs
    keep their results. Raises InputError where nothing has to run again."""
    refuse_command(run, store)
    base = whole_run(run, store, settings, with_user_data=failed or bool(only))
    loaded = loaded_run(base)
    again = failed_of(store, base) if failed else selected_of(store, base, tuple(only)) if only else None
    if again is not None and again.is_empty:
        raise InputError(f"no job of run {run_label(run)} needs to run again")
    if again is not None and again.spawned:
        loaded.plan = extended(loaded.plan, whole_batches(again.spawned, settings))
        loaded.raise_requests((*loaded.raised, *again.raised))
    return RunRequest(
        loaded=loaded,
        options=hide_secrets(loaded, base.options),
        workflow=store.find_workflow(run.workflow_uuid),
        again=again,
        base=run,
    )


def unfinished_jobs(store: Store, run: Run) -> tuple[tuple[int, ...], bool]:
    """Returns the unfinished jobs, and whether resuming can do anything: one of them does not wait for a
    failed job, a dataset can be finalized now, or no job failed, so that it was an action."""
    state = state_of_run(store, run)
    left = tuple(job.index for job in state.jobs if job.is_left)
    over_well = (JobState.COMPLETED, JobState.DISABLED)
    failed = [job.index for job in state.jobs if not job.is_left and job.state not in over_well]
    can_resume = bool(set(left) - Graph(state.plan).behind(failed))
    return left, can_resume or not failed or state.has_failed_datasets
