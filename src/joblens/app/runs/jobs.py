"""Single jobs of a run, by name or by their last attempt, whatever state they are in."""

from msgspec import Struct

from joblens.analysis.runs.workflow_rows import run_label
from joblens.app.runs.state import JobStanding, state_of_run
from joblens.model.errors import UnknownJob, UnknownRun
from joblens.model.jobs.job import Record
from joblens.model.runs.run import JobState, Run, RunStatus
from joblens.plan.commands.raised_requests import describe_raised
from joblens.ports.store import Store


class RunJob(Struct, frozen=True):
    run: Run
    index: int
    name: str
    state: JobState


def job_of_run(store: Store, run: Run, name: str) -> RunJob:
    """Raises UnknownJob."""
    jobs = state_of_run(store, run).jobs
    for job in jobs:
        if job.name == name:
            return _run_job(run, job)
    from joblens.plan.workflows.problems import nearest_name

    near = nearest_name(name, [job.name for job in jobs])
    label = run_label(run)
    hint = f"did you mean {near}?" if near else f"joblens results {label} lists them"
    raise UnknownJob(f"run {label} has no job '{name}'", hint=hint)


def waiting_job(store: Store, record: Record) -> RunJob | None:
    """The job of a run whose last attempt this was, and that waits for its next one."""
    link = record.job.run
    if link is None or link.index < 0 or not record.status.is_final:
        return None
    try:
        run = store.find_run(link.run_uuid)
    except UnknownRun:
        return None
    if run.status is not RunStatus.RUNNING:
        return None
    job = state_of_run(store, run).jobs[link.index]
    is_last = bool(job.results) and job.results[-1].job_uuid == record.job.uuid
    return _run_job(run, job) if is_last and not job.state.is_final else None


def raised_before(store: Store, record: Record) -> str:
    """Describes requests that recovery raised before this attempt; '' where there are none."""
    link = record.job.run
    if link is None or link.index < 0:
        return ""
    try:
        run = store.find_run(link.run_uuid)
    except UnknownRun:
        return ""
    return describe_raised(run.raised, link.index, link.attempt, with_why=True)


def _run_job(run: Run, job: JobStanding) -> RunJob:
    """`is_left`: a run that was stopped would go on with it, though it counts as ended now."""
    return RunJob(
        run, job.index, job.name, JobState.READY if job.is_left and job.state.is_final else job.state
    )
