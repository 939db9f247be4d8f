"""Tickets on their way into the store, and what follows for others when a job has ended."""

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from joblens.model.job import Outcome, Status
from joblens.model.writes import JobEnded, TicketMade, Write
from joblens.stores.sqlite.sql import TICKET_QUERIES
from joblens.stores.sqlite.store_clock import now_us
from joblens.stores.ticket_endings import blocked

_json = msgspec.json.Encoder()

Ending = tuple[str, int, Outcome]  # uuid, fence, how


def json_list(values: Iterable[object]) -> str:
    return _json.encode(list(values)).decode()


class TicketFacts:
    """Those of one batch, turned into bytes before the write lock is taken."""

    def __init__(self, writes: Iterable[Write]) -> None:
        tickets = [write.ticket for write in writes if isinstance(write, TicketMade)]
        self._rows = [(each.uuid, each.queue, each.after or None, _json.encode(each)) for each in tickets]
        self._after = {each.after for each in tickets if each.after}
        self.has_facts = bool(tickets)

    def write(self, connection: apsw.Connection, compression_level: int) -> None:
        """Their jobs are in the store already."""
        at_us = now_us()
        rows = [(uuid, queue, at_us, after, data) for uuid, queue, after, data in self._rows]
        connection.executemany(TICKET_QUERIES["insert_ticket"], rows)
        if self._after:
            before = list(connection.execute(TICKET_QUERIES["states"], (json_list(self._after),)))
            over = [(str(uuid), Status(status)) for uuid, status in before if Status(status).is_final]
            settle_followers(connection, over, compression_level)


def settle_ended(
    connection: apsw.Connection, ended: Sequence[tuple[str, Status]], compression_level: int
) -> None:
    """Their tickets go; who came after them may go now, or never."""
    connection.execute(TICKET_QUERIES["delete_tickets"], (json_list(uuid for uuid, _ in ended),))
    settle_followers(connection, ended, compression_level)


def settle_followers(
    connection: apsw.Connection, ended: Sequence[tuple[str, Status]], compression_level: int
) -> None:
    at_us = now_us()
    succeeded = [uuid for uuid, status in ended if status is Status.SUCCESS]
    if succeeded:
        connection.execute(TICKET_QUERIES["release_followers"], (json_list(succeeded), at_us))
    others = [uuid for uuid, status in ended if status is not Status.SUCCESS]
    if others:
        rows = list(connection.execute(TICKET_QUERIES["blocked_followers"], (json_list(others),)))
        endings = [(str(uuid), int(fence), blocked(at_us, str(after))) for uuid, fence, after in rows]
        end_jobs(connection, endings, compression_level)


def end_jobs(connection: apsw.Connection, endings: Sequence[Ending], compression_level: int) -> None:
    """By the store itself, inside a transaction. Tickets first: an outcome counts then."""
    if not endings:
        return
    from joblens.stores.sqlite.writer import Batch

    connection.execute(TICKET_QUERIES["delete_tickets"], (json_list(uuid for uuid, _, _ in endings),))
    Batch([JobEnded(uuid, outcome, fence) for uuid, fence, outcome in endings], compression_level).write(
        connection
    )
