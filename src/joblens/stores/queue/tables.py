"""What is told about workers, queues and states."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from joblens.model.delivery import Backlog, FormerWorker, WorkerInfo
from joblens.model.jobs.job import Status
from joblens.stores.queue.ticket_book import TicketBook

GAVE_BACK = b'"gave-back"'  # in place of the lost attempt: the worker ended the job and gave it back
_HEARD_OF_FOR_US = 3600 * 1_000_000
_worker = msgspec.json.Decoder(WorkerInfo)

T = TypeVar("T")


def read_or_none(decoder: msgspec.json.Decoder[T], data: bytes | None) -> T | None:
    """None also where a newer joblens wrote what this one does not know, or the row is damaged: one such row
    must not keep anybody from the others."""
    try:
        return None if data is None else decoder.decode(data)
    except ValueError:
        return None


def workers(book: TicketBook, host: str | None = None) -> list[WorkerInfo]:
    since_us = book.now_us() - _HEARD_OF_FOR_US
    if host is None:
        rows = book.ask("workers", since_us=since_us)
    else:
        rows = book.ask("workers_of_host", since_us=since_us, host=host)
    known = [(read_or_none(_worker, data), seen_at_us) for seen_at_us, data in rows]
    return [replace(worker, seen_at_us=seen_at_us) for worker, seen_at_us in known if worker is not None]


def backlog(book: TicketBook) -> list[Backlog]:
    at_us = book.now_us()
    return [
        Backlog(queue, waiting, held, 0 if since_us is None else max(0, at_us - since_us))
        for queue, waiting, held, since_us in book.ask("backlog")
    ]


def states(book: TicketBook, uuids: Sequence[str]) -> dict[str, Status]:
    return {uuid: Status(status) for uuid, status in book.ask("states", uuids=list(uuids))}


def released_by(book: TicketBook, uuids: Sequence[str]) -> list[tuple[str, str]]:
    return [(follower, queue) for follower, queue in book.ask("released_by", uuids=list(uuids))]


def former_workers(book: TicketBook, uuids: Sequence[str]) -> dict[str, FormerWorker]:
    return {
        uuid: FormerWorker(worker, mark == GAVE_BACK)
        for uuid, worker, mark in book.ask("former_workers", uuids=list(uuids))
    }
