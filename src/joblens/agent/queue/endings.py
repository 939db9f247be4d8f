"""How a worker ends jobs that never began or end with its allocation, and what it says of those that do not
end here."""

from msgspec.structs import replace

from joblens.agent.queue.worker_plan import WorkerPlan
from joblens.analysis.findings.endings import with_ending
from joblens.model.clusters.placing import PlaceEnding
from joblens.model.delivery import Claim, RetryLost
from joblens.model.jobs.job import Attempt, Job, Outcome, Status


def count_of_jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def must_not_run_twice(claim: Claim) -> bool:
    return claim.ticket.retry_lost is RetryLost.NEVER


def is_spent(plan: WorkerPlan, claim: Claim, attempt: Attempt | None, now_us: int) -> bool:
    """Whether a job that goes back has had one of its deliveries."""
    if attempt is None:
        return False
    return must_not_run_twice(claim) or has_filled(plan, attempt.started_at_us, now_us)


def has_filled(plan: WorkerPlan, began_us: int, now_us: int) -> bool:
    """Whether a job has had most of the time of a worker that a cluster ends: with another one like it the
    same would happen again, and again. It counts as a delivery, of which a job has only so many."""
    return plan.is_timed and 2 * (now_us - began_us) > now_us - plan.info.started_at_us


def would_be_lost(plan: WorkerPlan, claim: Claim, began_us: int | None, now_us: int) -> bool:
    """Whether a job that began here and goes back would not run again."""
    if began_us is None:
        return False
    is_last = claim.fence >= claim.ticket.most_deliveries
    return must_not_run_twice(claim) or (is_last and has_filled(plan, began_us, now_us))


def ended_with_place(job: Job, outcome: Outcome, ending: PlaceEnding) -> Outcome:
    """Returns the outcome of a job that the cluster ended together with its allocation, however the process
    itself ended: with an exit code, by a signal, or by its worker."""
    is_timeout = ending.status is Status.TIMEOUT
    if is_timeout and outcome.status is Status.SUCCESS:
        return outcome
    changed = replace(
        outcome,
        status=ending.status,
        reason=ending.reason,
        error=ending.text,
        exit_code=job.timeout_exit_code if is_timeout else outcome.exit_code,
    )
    return with_ending(job, changed)


def cut_off_with_place(job: Job, attempt: Attempt | None, ending: PlaceEnding, now_us: int) -> Outcome:
    """Returns the outcome of a job whose worker could not write one."""
    began_us = now_us if attempt is None else attempt.started_at_us
    outcome = Outcome(
        status=ending.status, ended_at_us=now_us, duration_s=max(0, now_us - began_us) / 1_000_000
    )
    return ended_with_place(job, outcome, ending)


def cancelled_before_start(now_us: int, worker: str) -> Outcome:
    return Outcome(
        status=Status.CANCELLED,
        ended_at_us=now_us,
        duration_s=0.0,
        reason="not-started",
        error="cancelled before it began",
        worker=worker,
    )
