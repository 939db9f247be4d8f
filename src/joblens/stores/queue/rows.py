"""Tickets on their way into a store, and what follows for others when a job has ended."""

from collections.abc import Iterable, Sequence

import msgspec

from joblens.model.jobs.job import Outcome, Status
from joblens.model.writes import JobEnded, TicketMade, Write
from joblens.stores.queue.endings import blocked
from joblens.stores.queue.ticket_book import TicketBook

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
