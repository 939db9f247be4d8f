"""How a worker ends jobs that never began, and what it says of those that do not end here."""

from joblens.agent.claimed_jobs import ClaimedJob
from joblens.model.delivery import RetryLost
from joblens.model.job import Outcome, Status


def count_of_jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def must_not_run_twice(held: ClaimedJob) -> bool:
    return held.claim.ticket.retry_lost is RetryLost.NEVER


def cancelled_before_start(now_us: int, worker: str) -> Outcome:
    return Outcome(
        status=Status.CANCELLED,
        ended_at_us=now_us,
        duration_s=0.0,
        reason="cancelled",
        error="someone asked for its end before it was started",
        worker=worker,
    )
