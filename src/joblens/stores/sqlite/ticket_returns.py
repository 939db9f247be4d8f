"""Tickets that come back: given back, taken back, withdrawn. Every function is called inside a
transaction."""

from collections.abc import Mapping

import apsw
import msgspec

from joblens.model.delivery import RetryLost, Ticket
from joblens.model.errors import UnknownJob
from joblens.model.job import Attempt, Status
from joblens.stores.sqlite.sample_tables import keys_of
from joblens.stores.sqlite.sql import QUERIES, TICKET_QUERIES
from joblens.stores.sqlite.store_clock import now_us
from joblens.stores.sqlite.ticket_rows import end_jobs, settle_followers
from joblens.stores.ticket_endings import ending_of_lost, withdrawn

_ticket = msgspec.json.Decoder(Ticket)
_attempt = msgspec.json.Decoder(Attempt)


class _Held(msgspec.Struct):
    number: int
    status: Status
    fence: int
    worker: str | None
    deliveries: int
    ticket: Ticket
    attempt_json: bytes | None
    is_cancelled: bool

    @property
    def attempt(self) -> Attempt | None:
        return None if self.attempt_json is None else _attempt.decode(self.attempt_json)


def take_back(connection: apsw.Connection, uuid: str, fence: int, level: int) -> Status:
    status, held = _held(connection, uuid)
    if held is None or held.worker is None or held.fence != fence:
        return status
    at_us = now_us()
    ending = ending_of_lost(
        held.ticket, held.worker, held.deliveries, held.attempt, at_us, is_cancelled=held.is_cancelled
    )
    if ending is not None:
        end_jobs(connection, [(uuid, fence, ending)], level)
        return ending.status
    _queue_again(connection, held, was_lost=True)
    return Status.QUEUED


def give_back(connection: apsw.Connection, worker: str, held_by_it: Mapping[str, int], level: int) -> None:
    at_us = now_us()
    for uuid, fence in held_by_it.items():
        _, held = _held(connection, uuid)
        if held is None or held.worker != worker or held.fence != fence:
            continue
        if held.is_cancelled:
            end_jobs(connection, [(uuid, fence, withdrawn(at_us))], level)
        elif held.status is Status.RUNNING and held.ticket.retry_lost is RetryLost.NEVER:
            take_back(connection, uuid, fence, level)
        else:
            _queue_again(connection, held, was_lost=False)


def withdraw(connection: apsw.Connection, uuid: str, level: int) -> bool:
    for (fence,) in list(connection.execute(TICKET_QUERIES["free_ticket"], (uuid,))):
        end_jobs(connection, [(uuid, fence, withdrawn(now_us()))], level)
        return True
    return False


def release_after(connection: apsw.Connection, uuid: str, level: int) -> list[tuple[str, str]]:
    status, _ = _held(connection, uuid)
    if not status.is_final:
        return []
    settle_followers(connection, [(uuid, status)], level)
    rows = connection.execute(TICKET_QUERIES["released_followers"], (uuid,))
    return [(follower, queue) for follower, queue in rows]


def _held(connection: apsw.Connection, uuid: str) -> tuple[Status, _Held | None]:
    """The job's status, and its ticket where it has one."""
    for row in list(connection.execute(TICKET_QUERIES["held_ticket"], (uuid,))):
        number, status, fence, worker, deliveries, ticket, attempt, is_cancelled = row
        state = Status(status)
        if ticket is None:
            return state, None
        found = _Held(
            number, state, fence, worker, deliveries, _ticket.decode(ticket), attempt, bool(is_cancelled)
        )
        return state, found
    raise UnknownJob(f"no job has the id '{uuid}'")


def _queue_again(connection: apsw.Connection, held: _Held, *, was_lost: bool) -> None:
    lost = (held.worker, held.attempt_json) if was_lost else (None, None)
    connection.execute(TICKET_QUERIES["put_ticket_back"], (held.number, 0 if was_lost else 1, *lost))
    if held.status is Status.QUEUED and held.attempt_json is None:
        return
    connection.execute(TICKET_QUERIES["queue_again"], (held.number,))
    connection.execute(TICKET_QUERIES["forget_attempt"], (held.number,))
    keys = keys_of(held.number)
    connection.execute(QUERIES["delete_tail"], keys)
    connection.execute(QUERIES["delete_blocks"], keys)
    connection.execute(QUERIES["delete_details"], (held.number,))
