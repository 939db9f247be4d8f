"""How jobs end that no worker ended, and what becomes of a ticket whose worker is gone. Pure: every store
decides by this."""

from joblens import __version__
from joblens.model.delivery import RetryLost, Ticket
from joblens.model.job import Attempt, Outcome, Status

_UNREADABLE = f"joblens {__version__} cannot read what it is to run"


def withdrawn(now_us: int) -> Outcome:
    """It waited, and somebody wanted it to end."""
    return _never_began(Status.CANCELLED, now_us, "cancelled", "before it began")


def blocked(now_us: int, after: str) -> Outcome:
    error = f"the job before it ({after}) did not succeed"
    return _never_began(Status.CANCELLED, now_us, "blocked", error)


def unreadable(now_us: int, why: str) -> Outcome:
    """It waited, and no worker of this version can tell what to run."""
    error = f"{_UNREADABLE} ({why}): a newer one wrote it, or it is damaged"
    return _never_began(Status.ERROR, now_us, "not-started", error)


def _never_began(status: Status, now_us: int, reason: str, error: str) -> Outcome:
    return Outcome(status=status, ended_at_us=now_us, duration_s=0.0, reason=reason, error=error)


def ending_of_lost(
    ticket: Ticket | None,
    worker: str,
    deliveries: int,
    attempt: Attempt | None,
    now_us: int,
    *,
    is_cancelled: bool,
) -> Outcome | None:
    """Of a job whose worker is gone; None: it is queued again. No ticket: it cannot be read."""
    began_us = now_us if attempt is None else attempt.started_at_us
    duration_s = max(0, now_us - began_us) / 1_000_000
    if is_cancelled:
        return Outcome(
            status=Status.CANCELLED,
            ended_at_us=now_us,
            duration_s=duration_s,
            reason="cancelled",
            error=f"its worker {worker} was lost before it could end it",
        )
    if ticket is None:
        why = _UNREADABLE
    elif ticket.retry_lost is RetryLost.NEVER:
        why = "it must not run twice (retry_lost: never)"
    elif deliveries >= ticket.most_deliveries:
        why = f"it was given to workers {deliveries} times"
    else:
        return None
    return Outcome(
        status=Status.LOST,
        ended_at_us=now_us,
        duration_s=duration_s,
        reason="lost",
        error=f"its worker {worker} was lost, and {why}",
    )


def counts(fence: int, known_fence: int, *, has_free_ticket: bool) -> bool:
    """Whether what is written under `fence` is by the worker that holds the job. One that was taken back and
    nobody has taken again belongs to nobody, although its fence has not risen yet."""
    return fence == known_fence and not (known_fence > 0 and has_free_ticket)
