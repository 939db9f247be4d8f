"""Recovery of a failed run: causes, larger requests, the hook, and jobs reset to run again."""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from joblens.agent.runs.signals import wakeups_ignored
from joblens.agent.runtime.ownership import RunLock, is_gone
from joblens.analysis.findings.failure_causes import Cause, Diagnosis, diagnose
from joblens.analysis.runs.status import run_label
from joblens.app.driving.checks import RunRequest
from joblens.app.driving.requests import load_run
from joblens.app.driving.start import Runs
from joblens.app.runs.control import driven_by_another, note_facts, refuse_unfinished_base
from joblens.app.runs.state import JobStanding, RunState, state_of_run
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import StoreConnection, spool_dir, store_name
from joblens.app.workflows.loader import LoadedSpec
from joblens.engine.life.recovery_plan import (
    Failure,
    JobRecovery,
    RecoveryChoice,
    capped,
    plan_recovery,
    requests_of,
)
from joblens.engine.progress.allocations import RunAllocations
from joblens.engine.schedule.replay import notes_of
from joblens.model.errors import InputError, PlanError, RecoveryRefused, RunIsDriven, UnknownJob
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import (
    JobsReset,
    JobState,
    RaisedRequest,
    RequirementsRaised,
    Run,
    RunEnded,
    RunFact,
    RunStatus,
)
from joblens.model.settings import Settings
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.plan_document import with_raised
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host


def refuse_unfinished_run(run: Run, store: Store, settings: Settings) -> None:
    """Raises RunIsDriven while a process on any machine drives the run, or one of its jobs runs."""
    refuse_unfinished_base(run, store, settings)
    if run.status is RunStatus.RUNNING and run.owner is not None and not is_gone(run.owner, read_host()):
        label = run_label(run)
        raise RunIsDriven(
            f"run {label} is being run on {run.owner.host}",
            hint=f"joblens watch {label} --recover waits for it to end, joblens cancel {label} cancels it",
        )


@contextmanager
def hold_run(run: Run, store: Store, settings: Settings) -> Iterator[RunLock]:
    """Holds the run's lock from a decision to its end: no other process drives or resets the run
    meanwhile. Raises RunIsDriven."""
    refuse_unfinished_run(run, store, settings)
    lock = RunLock(spool_dir(store_name(settings)), run.uuid)
    with wakeups_ignored():
        if not lock.take():
            raise driven_by_another(run, lock)
        try:
            yield lock
        finally:
            lock.release()


def reset_jobs(
    store: Store, run: Run, jobs: Sequence[tuple[int, int]], raised: Sequence[RaisedRequest], by: str
) -> None:
    """`jobs`: (index, last attempt). The run counts as stopped until it is resumed."""
    facts: list[RunFact] = [JobsReset(tuple(jobs), by)]
    if raised:
        facts.insert(0, RequirementsRaised(tuple(raised), by))
    if run.status is not RunStatus.CREATED:
        facts.append(RunEnded(RunStatus.STOPPED))
    note_facts(store, run, *facts)


class JobReset(Struct, frozen=True):
    """Jobs to reset, by name and by (index, last attempt)."""

    names: tuple[str, ...]
    dependents: tuple[str, ...]
    completed: tuple[str, ...]  # that succeeded; their results are replaced
    jobs: tuple[tuple[int, int], ...]


def plan_reset(store: Store, run: Run, indexes: Collection[int]) -> JobReset:
    """Returns the jobs and their dependents, without cancelled ones that are not among `indexes`."""
    state = state_of_run(store, run)
    jobs = [state.jobs[index] for index in with_dependents(state, indexes, cancelled_jobs(store, run))]
    return JobReset(
        names=tuple(job.name for job in jobs if job.index in indexes),
        dependents=tuple(job.name for job in jobs if job.index not in indexes),
        completed=tuple(job.name for job in jobs if job.state is JobState.COMPLETED),
        jobs=tuple((job.index, last_attempt(job)) for job in jobs),
    )


def last_attempt(job: JobStanding) -> int:
    """Returns the attempt in this run; 0: there is none, or its outcome comes from an earlier run."""
    return job.results[-1].attempt if job.results and job.kept_from is None else 0


def with_dependents(state: RunState, indices: Collection[int], cancelled: Collection[int] = ()) -> list[int]:
    """Returns the jobs and all their dependents. Jobs that are not part of this run stay so, and so do
    `cancelled` jobs, unless they are named."""
    behind = Graph(state.plan).behind(sorted(indices))
    excluded = set(cancelled) - set(indices)
    return sorted(
        index
        for index in behind
        if index not in excluded and state.jobs[index].state is not JobState.DISABLED
    )


def cancelled_jobs(store: Store, run: Run) -> frozenset[int]:
    """Returns jobs that were cancelled and not reset since."""
    return notes_of([event for _, event in store.run_events(run.uuid)]).cancelled


_FAILED = (JobState.FAILED, JobState.TERMINATED, JobState.PENDING_FAILED)
_MOST_CAPS = 3  # a job may lack memory and, once that is capped, time
_IDS_PASSED = 1000  # to a hook: one variable can have some 100,000 characters


class RunFailures(Struct, frozen=True):
    state: RunState
    failures: tuple[Failure, ...]
    cancelled: frozenset[int] = frozenset()  # jobs that were cancelled

    def names(self, indices: Sequence[int]) -> list[str]:
        return [self.state.jobs[index].name for index in indices]


def failures_of(store: Store, run: Run) -> RunFailures:
    """Returns jobs of the run that ended without success."""
    state = state_of_run(store, run)
    events = [event for _, event in store.run_events(run.uuid)]
    notes, allocations = notes_of(events), RunAllocations(events)
    failed = [job for job in state.jobs if job.state in _FAILED and not job.is_left and job.results]
    failures = tuple(_failure(store, job, notes.outputs_missing, allocations) for job in failed)
    return RunFailures(state, failures, notes.cancelled)


def _failure(
    store: Store, job: JobStanding, missing_outputs: Collection[tuple[int, int]], allocations: RunAllocations
) -> Failure:
    last = job.results[-1]
    try:
        record = store.find(last.job_uuid)
    except UnknownJob:
        diagnosis = Diagnosis(
            cause=Cause.UNKNOWN, evidence=f"{job.why or 'it failed'}; its record was deleted"
        )
        return Failure(job.index, job.name, last_attempt(job), diagnosis)
    diagnosis = diagnose(
        record,
        outputs_missing=(last.index, last.attempt) in missing_outputs,
        cluster_word=allocations.last_word(last.job_uuid),
    )
    return Failure(job.index, job.name, last_attempt(job), diagnosis, record.number)


def jobs_to_run(found: RunFailures, jobs: Sequence[JobRecovery]) -> tuple[int, ...]:
    """Returns failed jobs that are retried, their dependents, and unfinished jobs."""
    retried = [one.failure.index for one in jobs if one.is_retried]
    standing = found.state.jobs
    waiting = [index for index in with_dependents(found.state, retried) if _can_run(standing[index])]
    unfinished = [job.index for job in standing if job.is_left]
    skipped = [one.failure.index for one in jobs if not one.is_retried] + sorted(found.cancelled)
    held_up = set(with_dependents(found.state, skipped)) if skipped else set()
    return tuple(sorted({*retried, *waiting, *unfinished} - held_up))


def _can_run(job: JobStanding) -> bool:
    return job.state not in (JobState.COMPLETED, *_FAILED)


def fit_to_engine(
    plan: Plan, jobs: Sequence[JobRecovery], check: Callable[[Plan], None]
) -> tuple[JobRecovery, ...]:
    """Limits requests to the engine's capacity. `check` raises PlanError with the excess. Raises PlanError
    for jobs that cannot run for another reason."""
    fitted = tuple(jobs)
    for _ in range(_MOST_CAPS):
        try:
            check(with_raised(plan, requests_of(fitted)))
        except PlanError as error:
            smaller = capped(fitted, error.lacks)
            if smaller == fitted:
                raise
            fitted = smaller
        else:
            return fitted
    check(with_raised(plan, requests_of(fitted)))
    return fitted


# ---- the hook -------------------------------------------------------------------------------------------


def parse_hook(line: str) -> tuple[str, ...]:
    """Splits it like a shell, without starting one."""
    try:
        argv = tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(f"--recovery-hook {line}: {error}") from error
    if not argv:
        raise InputError("--recovery-hook: no command given", hint="--recovery-hook 'bash fix.sh'")
    if any("\0" in word for word in argv):
        raise InputError("--recovery-hook: a command cannot have NUL characters in it")
    return argv


def run_hook(
    argv: Sequence[str],
    run: Run,
    failures: Sequence[Failure],
    settings: Settings,
    say: Callable[[str], None],
) -> None:
    """Runs it as a separate job, measured and recorded. Raises RecoveryRefused unless it succeeds."""
    from joblens.app.jobs.api import SequentialRunner
    from joblens.app.jobs.preparation import prepare
    from joblens.app.jobs.requests import Request
    from joblens.app.wiring.drivers import store_for_jobs

    workflow = str(run.workflow_number or "")
    ids = [str(one.job_id) for one in failures if one.job_id is not None]
    env = {
        "TORC_WORKFLOW_ID": workflow,
        "TORC_RUN_ID": str(run.number or ""),
        "JOBLENS_WORKFLOW_ID": workflow,
        "JOBLENS_RUN_ID": run.uuid,
        "JOBLENS_RUN_NUMBER": str(run.number or ""),
        "JOBLENS_FAILED_JOBS": " ".join(ids[:_IDS_PASSED]),
        "JOBLENS_OUTPUT_DIR": os.path.normpath(os.path.join(run.options.cwd, run.options.output_dir)),
        "JOBLENS_STORE": store_for_jobs(settings, is_elsewhere=False),
    }
    request = Request(
        argv=(*argv, workflow), name=f"recovery-hook-{run_label(run)}", env=env, cwd=run.options.cwd or None
    )
    with SequentialRunner(settings) as jobs:
        result = jobs.run(prepare(request, settings))
    number = result.record.number
    label = f"job {number}" if number is not None else result.uuid[:8]
    if result.ok:
        say(f"the recovery hook succeeded ({label})")
        return
    error = result.record.outcome.error if result.record.outcome is not None else None
    code = result.returncode
    raise RecoveryRefused(
        f"the recovery hook {argv[0]} failed ({error or f'exit code {code}'}); nothing changed",
        hint=f"joblens logs {number if number is not None else result.uuid} shows what it printed",
    )


# ---- decide, write, run -----------------------------------------------------------------------------------


class Recovery(Struct, frozen=True):
    """A decided recovery. `to_run`: all jobs that then run."""

    run: Run
    found: RunFailures
    jobs: tuple[JobRecovery, ...]
    to_run: tuple[int, ...]

    @property
    def has_work(self) -> bool:
        return any(one.is_retried for one in self.jobs) or bool(self.to_run)

    def document(self, *, is_dry_run: bool = False) -> dict[str, Any]:
        """For --json."""
        return {
            "run": run_label(self.run),
            "run_uuid": self.run.uuid,
            "dry_run": is_dry_run,
            "failures": [_form(one) for one in self.jobs],
            "retried": sum(one.is_retried for one in self.jobs),
            "skipped": sum(not one.is_retried for one in self.jobs),
            "jobs_to_run": self.found.names(self.to_run),
        }


def decide(
    runs: Runs,
    store: Store,
    run: Run,
    settings: Settings,
    choose: Callable[[tuple[Failure, ...]], RecoveryChoice],
) -> Recovery:
    """Diagnoses the failures and limits requests to the capacity of the run's engine. Writes nothing."""
    found = failures_of(store, run)
    jobs = plan_recovery(found.failures, choose(found.failures))
    whole, loaded = load_run(store, run, settings)

    def check(raised: Plan) -> None:
        loaded.plan = raised
        with runs.validated(_held(whole, loaded, jobs_to_run(found, jobs))):
            pass

    if any(one.is_retried for one in jobs):
        jobs = fit_to_engine(loaded.plan, jobs, check)
    return Recovery(run, found, jobs, jobs_to_run(found, jobs))


def write_recovery(
    recovery: Recovery,
    hook: Sequence[str],
    connection: StoreConnection,
    settings: Settings,
    say: Callable[[str], None],
) -> Run:
    """Runs the hook, then records the recovery. Returns the run, ready to be resumed. Raises
    RecoveryRefused."""
    run = recovery.run
    retried = [one.failure for one in recovery.jobs if one.is_retried]
    unknown = [one for one in retried if one.diagnosis.cause is Cause.UNKNOWN]
    if hook and unknown:
        run_hook(hook, run, unknown, settings, say)
    if retried:
        jobs = [(one.index, one.attempt) for one in retried]
        store = connection.to_write().direct()
        reset_jobs(store, run, jobs, requests_of(recovery.jobs), current_user())
    return connection.to_read().find_run(run.uuid)


def recovered_request(store: Store, run: Run, settings: Settings, to_run: tuple[int, ...]) -> RunRequest:
    """Returns the request to resume the run, whose lock this process holds."""
    return _held(*load_run(store, run, settings), to_run)


def _held(run: Run, loaded: LoadedSpec, left: tuple[int, ...]) -> RunRequest:
    return RunRequest(loaded=loaded, options=run.options, resumed=run, is_held=True, left=left)


def _form(one: JobRecovery) -> dict[str, Any]:
    failure, diagnosis = one.failure, one.failure.diagnosis
    return {
        "job_name": failure.name,
        "job_id": failure.job_id,
        "attempt": failure.attempt,
        "cause": diagnosis.cause.value,
        "evidence": diagnosis.evidence,
        "is_guess": diagnosis.is_guess,
        "return_code": diagnosis.exit_code,
        "memory_limit_bytes": diagnosis.memory_limit_bytes,
        "peak_memory_bytes": diagnosis.memory_peak_bytes,
        "runtime_limit_s": diagnosis.time_limit_s,
        "duration_s": diagnosis.duration_s,
        "is_retried": one.is_retried,
        "new_memory_bytes": one.memory_bytes,
        "new_runtime_s": one.timeout_s,
        "note": one.note or None,
    }
