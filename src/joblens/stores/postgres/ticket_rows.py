"""Tickets on their way into the store, and what follows for others when a job has ended."""

from collections.abc import Iterable, Sequence

import msgspec

from joblens.model.job import Outcome, Status
from joblens.model.writes import JobEnded, TicketMade, Write
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import queries_of
from joblens.stores.ticket_endings import blocked

_json = msgspec.json.Encoder()
_Q = {name: text.encode() for name, text in queries_of("ticket_writing.sql").items()}

Ending = tuple[str, int, Outcome]  # uuid, fence, how


class TicketFacts:
    """Those of one batch."""

    def __init__(self, writes: Iterable[Write]) -> None:
        tickets = [write.ticket for write in writes if isinstance(write, TicketMade)]
        self._rows = [(each.uuid, each.queue, each.after or None, _json.encode(each)) for each in tickets]
        self._after = sorted({each.after for each in tickets if each.after})
        self.has_facts = bool(tickets)

    def write(self, connection: Connection, compression_level: int) -> None:
        """Their jobs are in the store already."""
        # Locked, so that one that ends at this moment finds the ticket that waits for it, or is found ended.
        before: list[tuple[str, str]] = []
        if self._after:
            before = connection.execute(_Q["lock_states"], (self._after,)).fetchall()
        connection.execute(_Q["insert_tickets"], list(map(list, zip(*self._rows, strict=True))))
        over = [(uuid, Status(status)) for uuid, status in before if Status(status).is_final]
        if over:
            settle_followers(connection, over, compression_level)


def settle_ended(connection: Connection, ended: Sequence[tuple[str, Status]], compression_level: int) -> None:
    """Their tickets go; who came after them may go now, or never."""
    connection.execute(_Q["delete_tickets"], ([uuid for uuid, _ in ended],))
    settle_followers(connection, ended, compression_level)


def settle_followers(
    connection: Connection, ended: Sequence[tuple[str, Status]], compression_level: int
) -> None:
    succeeded = [uuid for uuid, status in ended if status is Status.SUCCESS]
    if succeeded:
        connection.execute(_Q["release_followers"], (succeeded,))
    others = [uuid for uuid, status in ended if status is not Status.SUCCESS]
    if others:
        rows = connection.execute(_Q["blocked_followers"], (others,)).fetchall()
        end_jobs(
            connection,
            [(uuid, fence, blocked(at_us, after)) for uuid, fence, after, at_us in rows],
            compression_level,
        )


def end_jobs(connection: Connection, endings: Sequence[Ending], compression_level: int) -> None:
    """By the store itself, inside a transaction. Tickets first: an outcome counts then."""
    if not endings:
        return
    from joblens.stores.postgres.writer import Batch

    connection.execute(_Q["delete_tickets"], ([uuid for uuid, _, _ in endings],))
    Batch([JobEnded(uuid, outcome, fence) for uuid, fence, outcome in endings], compression_level).write(
        connection
    )
