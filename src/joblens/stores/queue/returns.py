"""Tickets that come back: given back, taken back, withdrawn."""

from collections.abc import Mapping

import msgspec

from joblens.model.delivery import RetryLost, Ticket
from joblens.model.errors import UnknownJob
from joblens.model.jobs.job import Attempt, Status
from joblens.stores.queue.endings import ending_of_lost, withdrawn
from joblens.stores.queue.rows import end_jobs, settle_followers
from joblens.stores.queue.tables import GAVE_BACK, read_or_none
from joblens.stores.queue.ticket_book import TicketBook

_ticket = msgspec.json.Decoder(Ticket)
_attempt = msgspec.json.Decoder(Attempt)


class _Created(msgspec.Struct):
    """All that is asked of a job's document here."""

    created_at_us: int = 0


_created = msgspec.json.Decoder(_Created)


class _Delivery(msgspec.Struct):
    """A job that has a ticket, as it stands now."""

    uuid: str
    number: int
    status: Status
    fence: int
    worker: str | None
    deliveries: int
    ticket: Ticket | None  # None: it cannot be read
    attempt_json: bytes | None
    created_at_us: int
    is_cancelled: bool


def take_back(book: TicketBook, uuid: str, fence: int) -> Status | None:
    _, held = _look_up(book, uuid)
    if held is None or held.worker is None or held.fence != fence:
        return None
    return _take_back(book, held, held.worker)


def _take_back(book: TicketBook, held: _Delivery, worker: str) -> Status:
    attempt = read_or_none(_attempt, held.attempt_json)
    ending = ending_of_lost(
        held.ticket, worker, held.deliveries, attempt, book.now_us(), is_cancelled=held.is_cancelled
    )
    if ending is not None:
        end_jobs(book, [(held.uuid, held.fence, ending)])
        return ending.status
    book.ask("put_lost_ticket_back", number=held.number, worker=worker, attempt=held.attempt_json)
    _queue_again(book, held)
    return Status.QUEUED


def give_back(book: TicketBook, worker: str, held_by_it: Mapping[str, int]) -> None:
    for uuid, fence in sorted(held_by_it.items()):
        _, held = _look_up(book, uuid)
        if held is None or held.worker != worker or held.fence != fence:
            continue
        if held.is_cancelled:
            end_jobs(book, [(uuid, fence, withdrawn(book.now_us()))])
        elif held.status is Status.RUNNING and not _may_run_twice(held):
            _take_back(book, held, worker)
        elif held.status is Status.RUNNING:
            book.ask("put_begun_ticket_back", number=held.number, worker=worker, mark=GAVE_BACK)
            _queue_again(book, held)
        else:
            book.ask("put_ticket_back", number=held.number)
            _queue_again(book, held)


def _may_run_twice(held: _Delivery) -> bool:
    return held.ticket is not None and held.ticket.retry_lost is not RetryLost.NEVER


def withdraw(book: TicketBook, uuid: str) -> bool:
    _, waiting = _look_up(book, uuid)
    if waiting is None or waiting.worker is not None:
        return False
    end_jobs(book, [(uuid, waiting.fence, withdrawn(book.now_us()))])
    return True


def release_after(book: TicketBook, uuid: str) -> list[tuple[str, str]]:
    status, _ = _look_up(book, uuid)
    if not status.is_final:
        return []
    settle_followers(book, [(uuid, status)])
    return [(follower, queue) for follower, queue in book.ask("released_followers", uuid=uuid)]


def _look_up(book: TicketBook, uuid: str) -> tuple[Status, _Delivery | None]:
    """The job's status, and its ticket where it has one. Nobody else changes them before this transaction is
    over."""
    if not book.ask("hold_job", uuid=uuid):
        raise UnknownJob(f"no job has the id '{uuid}'")
    (row,) = book.ask("delivery_of", uuid=uuid)
    number, status, fence, worker, deliveries, ticket, attempt, job, is_cancelled = row
    if ticket is None:
        return Status(status), None
    created_at_us = (read_or_none(_created, job) or _Created()).created_at_us
    return Status(status), _Delivery(
        uuid=uuid,
        number=number,
        status=Status(status),
        fence=fence,
        worker=worker,
        deliveries=deliveries,
        ticket=read_or_none(_ticket, ticket),
        attempt_json=attempt,
        created_at_us=created_at_us,
        is_cancelled=bool(is_cancelled),
    )


def _queue_again(book: TicketBook, held: _Delivery) -> None:
    """Without what the attempt had written."""
    book.ask("queue_again", number=held.number, began_at_us=held.created_at_us)
    for query in ("forget_attempt", "forget_details", "forget_samples"):
        book.ask(query, number=held.number)
