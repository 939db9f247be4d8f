"""How jobs end that no worker ended, and what becomes of a ticket whose worker is gone. Pure: every store
decides by this."""

from msgspec.structs import replace

from joblens import __version__
from joblens.model.delivery import RetryLost, Ticket
from joblens.model.jobs.job import Attempt, Outcome, Status

_UNREADABLE = f"joblens {__version__} cannot read what it is to run"


def withdrawn(now_us: int) -> Outcome:
    """Cancelled while it waited: no attempt of a run."""
    return _ended(Status.CANCELLED, now_us, "not-started", "cancelled before it began")


def blocked(now_us: int, after: str) -> Outcome:
    return _ended(Status.CANCELLED, now_us, "blocked", f"the job before it ({after}) did not succeed")


def unreadable(now_us: int, why: str) -> Outcome:
    """It waited, and no worker of this version can tell what to run."""
    error = f"{_UNREADABLE} ({why}): a newer one wrote it, or it is damaged"
    return _ended(Status.ERROR, now_us, "not-started", error)


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
    lost = f"its worker {worker} was lost"
    if is_cancelled:
        error = f"{lost} before it could end it"
        return _ended(Status.CANCELLED, now_us, "cancelled", error, duration_s)
    if ticket is None:
        why = _UNREADABLE
    elif ticket.retry_lost is RetryLost.NEVER:
        why = "it must not run twice (retry_lost: never)"
    elif deliveries >= ticket.most_deliveries:
        why = f"it was given to workers {deliveries} times"
    else:
        return None
    return replace(_ended(Status.LOST, now_us, "lost", f"{lost}, and {why}", duration_s), worker=worker)


def _ended(status: Status, now_us: int, reason: str, error: str, duration_s: float = 0.0) -> Outcome:
    return Outcome(status=status, ended_at_us=now_us, duration_s=duration_s, reason=reason, error=error)


def counts(fence: int, known_fence: int, *, has_free_ticket: bool) -> bool:
    """Whether what is written under `fence` is by the worker that holds the job. One that was taken back and
    nobody has taken again belongs to nobody, although its fence has not risen yet."""
    return fence == known_fence and not (known_fence > 0 and has_free_ticket)
