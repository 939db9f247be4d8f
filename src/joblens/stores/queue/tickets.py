"""Tickets in a store: their rows, ends of jobs without a worker, and the queries each database provides."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from joblens import __version__
from joblens.model.delivery import RetryLost, Ticket
from joblens.model.jobs.job import Attempt, Outcome, Status
from joblens.model.writes import JobEnded, TicketMade, Write

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


class TicketBook(Protocol):
    """Within one transaction."""

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """A list as value is for a query that takes any number at once."""
        ...

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def write(self, writes: Sequence[Write]) -> None:
        """As `apply` does, in the same transaction."""
        ...

    def now_us(self) -> int:
        """By the store's clock."""
        ...


_json = msgspec.json.Encoder()

Ending = tuple[str, int, Outcome]  # uuid, fence, how


class TicketFacts:
    """Those of one batch, turned into bytes before anything is locked."""

    def __init__(self, writes: Iterable[Write]) -> None:
        self._tickets = [write.ticket for write in writes if isinstance(write, TicketMade)]
        self._data = [_json.encode(ticket) for ticket in self._tickets]
        self.has_facts = bool(self._tickets)

    def write(self, book: TicketBook) -> None:
        """Their jobs are in the store already."""
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
        settle_followers(book, [(uuid, status) for uuid, status in states.items() if status.is_final])


def _states_for_good(book: TicketBook, uuids: set[str]) -> dict[str, Status]:
    """None of these jobs ends while this transaction goes on, so that none ends unseen."""
    if not uuids:
        return {}
    return {uuid: Status(status) for uuid, status in book.ask("states_held", uuids=sorted(uuids))}


def settle_ended(book: TicketBook, ended: Sequence[tuple[str, Status]]) -> None:
    """Their tickets go; who came after them may go now, or never."""
    book.ask("delete_tickets", uuids=[uuid for uuid, _ in ended])
    settle_followers(book, ended)


def settle_followers(book: TicketBook, ended: Sequence[tuple[str, Status]]) -> None:
    succeeded = [uuid for uuid, status in ended if status is Status.SUCCESS]
    if succeeded:
        book.ask("release_followers", uuids=succeeded, at_us=book.now_us())
    others = [uuid for uuid, status in ended if status is not Status.SUCCESS]
    if others:
        rows = book.ask("blocked_followers", uuids=others)
        at_us = book.now_us() if rows else 0
        end_jobs(book, [(uuid, fence, blocked(at_us, after)) for uuid, fence, after in rows])


def end_jobs(book: TicketBook, endings: Sequence[Ending]) -> None:
    """By the store itself. Tickets first: what is written of a job that nobody holds would not count."""
    if endings:
        book.ask("delete_tickets", uuids=[uuid for uuid, _, _ in endings])
        book.write([JobEnded(uuid, outcome, fence) for uuid, fence, outcome in endings])
