"""Tickets in a store: their rows, ends of jobs without a worker, and the queries each database provides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from joblens import __version__
from joblens.model.jobs.job import Outcome, RetryLost, Status
from joblens.model.writes import JobEnded, TicketMade

if TYPE_CHECKING:
    from joblens.model.delivery import Ticket
    from joblens.model.jobs.job import Attempt
    from joblens.model.writes import Write

_UNREADABLE = f"joblens {__version__} cannot read its command"


def withdrawn(now_us: int) -> Outcome:
    """Outcome of a job that was cancelled while queued; it has no attempt."""
    return _ended(Status.CANCELLED, now_us, "not-started", "cancelled before it started")


def blocked(now_us: int, after: str) -> Outcome:
    return _ended(Status.CANCELLED, now_us, "blocked", f"its dependency ({after}) did not succeed")


def unreadable(now_us: int, why: str) -> Outcome:
    """Outcome of a queued job that no worker of this version can read."""
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
    """Outcome of a job whose worker was lost; None: it is requeued. `ticket` is None if unreadable."""
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
        why = f"{deliveries} workers have tried it"
    else:
        return None
    return replace(_ended(Status.LOST, now_us, "lost", f"{lost}, and {why}", duration_s), worker=worker)


def _ended(status: Status, now_us: int, reason: str, error: str, duration_s: float = 0.0) -> Outcome:
    return Outcome(status=status, ended_at_us=now_us, duration_s=duration_s, reason=reason, error=error)


def counts(fence: int, known_fence: int, *, has_free_ticket: bool) -> bool:
    """Whether a write under `fence` comes from the worker that holds the job.

    A job that was released and not claimed again belongs to no one, although its fencing token is unchanged.
    """
    return fence == known_fence and not (known_fence > 0 and has_free_ticket)


class TicketBook(Protocol):
    """Queries of one transaction."""

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Runs a query. A list is passed as one parameter that stands for any number of values."""
        ...

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def write(self, writes: Sequence[Write]) -> None:
        """Writes as `apply` does, in the same transaction."""
        ...

    def now_us(self) -> int:
        """Returns the time of the store's clock."""
        ...


_json = msgspec.json.Encoder()

Ending = tuple[str, int, Outcome]  # uuid, fencing token, how


class TicketFacts:
    """Facts about tickets in one batch, encoded before anything is locked."""

    def __init__(self, writes: Iterable[Write]) -> None:
        self._tickets = [write.ticket for write in writes if isinstance(write, TicketMade)]
        self._data = [_json.encode(ticket) for ticket in self._tickets]
        self.has_facts = bool(self._tickets)

    def write(self, book: TicketBook) -> None:
        """Writes the batch; its jobs are in the store already."""
        before = {ticket.after for ticket in self._tickets if ticket.after}
        states = _states_for_good(book, before)
        at_us = book.now_us()
        rows = [
            {
                "uuid": ticket.uuid,
                "queue": ticket.queue,
                "at_us": at_us,
                "is_ready": not ticket.after or states.get(ticket.after) is Status.SUCCESS,
                "after": ticket.after or None,
                "data": data,
            }
            for ticket, data in zip(self._tickets, self._data, strict=True)
        ]
        book.ask_each("insert_ticket", rows)
        update_followers(book, [(uuid, status) for uuid, status in states.items() if status.is_final])


def _states_for_good(book: TicketBook, uuids: set[str]) -> dict[str, Status]:
    """Locks the jobs' states, so that none ends unnoticed during this transaction."""
    if not uuids:
        return {}
    return {uuid: Status(status) for uuid, status in book.ask("states_held", uuids=sorted(uuids))}


def remove_ended(book: TicketBook, ended: Sequence[tuple[str, Status]]) -> None:
    """Removes the tickets of ended jobs; releases or cancels the jobs that depend on them."""
    book.ask("delete_tickets", uuids=[uuid for uuid, _ in ended])
    update_followers(book, ended)


def update_followers(book: TicketBook, ended: Sequence[tuple[str, Status]]) -> None:
    succeeded = [uuid for uuid, status in ended if status is Status.SUCCESS]
    if succeeded:
        book.ask("release_followers", uuids=succeeded, at_us=book.now_us())
    others = [uuid for uuid, status in ended if status is not Status.SUCCESS]
    if others:
        rows = book.ask("blocked_followers", uuids=others)
        at_us = book.now_us() if rows else 0
        end_jobs(book, [(uuid, fence, blocked(at_us, after)) for uuid, fence, after in rows])


def end_jobs(book: TicketBook, endings: Sequence[Ending]) -> None:
    """Ends jobs on behalf of the store. Removes tickets first: a job without a holder accepts the outcome."""
    if endings:
        book.ask("delete_tickets", uuids=[uuid for uuid, _, _ in endings])
        book.write([JobEnded(uuid, outcome, fence) for uuid, fence, outcome in endings])
