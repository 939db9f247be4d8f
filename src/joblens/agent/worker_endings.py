"""How a worker ends jobs that never began, and what it says of those that do not end here."""

from joblens.agent.worker_plan import WorkerPlan
from joblens.model.delivery import Claim, RetryLost
from joblens.model.job import Attempt, Outcome, Status


def count_of_jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def must_not_run_twice(claim: Claim) -> bool:
    return claim.ticket.retry_lost is RetryLost.NEVER


def is_spent(plan: WorkerPlan, claim: Claim, attempt: Attempt | None, now_us: int) -> bool:
    """Whether a job that goes back has had one of its deliveries."""
    return attempt is not None and (must_not_run_twice(claim) or has_filled(plan, attempt, now_us))


def has_filled(plan: WorkerPlan, attempt: Attempt, now_us: int) -> bool:
    """Whether a job has had most of the time of a worker that a cluster ends: with another one like it the
    same would happen again, and again. It counts as a delivery, of which a job has only so many."""
    return plan.is_timed and 2 * (now_us - attempt.started_at_us) > now_us - plan.info.started_at_us


def cancelled_before_start(now_us: int, worker: str) -> Outcome:
    return Outcome(
        status=Status.CANCELLED,
        ended_at_us=now_us,
        duration_s=0.0,
        reason="not-started",
        error="cancelled before it began",
        worker=worker,
    )
