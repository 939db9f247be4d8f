"""Who holds which ticket."""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from joblens.model.clusters.placing import NodeCapacity
from joblens.model.delivery import Claim, FormerWorker, Holding, Renewal, Ticket, WorkerInfo
from joblens.model.jobs.job import Attempt, Job
from joblens.stores.queue.capacity import RoomLeft
from joblens.stores.queue.endings import unreadable, withdrawn
from joblens.stores.queue.rows import Ending, end_jobs
from joblens.stores.queue.tables import GAVE_BACK, read_or_none
from joblens.stores.queue.ticket_book import TicketBook

_SECOND = 1_000_000
_MORE_ROWS, _LEAST_LOOK = 8, 64  # looked at behind those for which there was no room
_FORGOTTEN_AFTER_S = 24 * 3600.0
_THERE_S = 60.0  # who was not heard of for this long is not counted
_LOOKS_OVER = 1 / 16  # of renewals
_encoder = msgspec.json.Encoder()
_job = msgspec.json.Decoder(Job)
_ticket = msgspec.json.Decoder(Ticket)
_attempt = msgspec.json.Decoder(Attempt)


def claim_those(
    book: TicketBook,
    worker: WorkerInfo,
    uuids: Sequence[str],
    lease_s: float,
    room: NodeCapacity | None = None,
) -> list[Claim]:
    rows = book.ask("waiting_of", uuids=list(uuids), user=only_user(worker))
    place = {uuid: number for number, uuid in enumerate(uuids)}
    rows = sorted(rows, key=lambda row: place[row[1]])
    return _claim(book, rows, worker, lease_s, RoomLeft(room), len(rows))


def claim_oldest(
    book: TicketBook,
    worker: WorkerInfo,
    most: int,
    lease_s: float,
    older_than_s: float,
    room: NodeCapacity | None = None,
) -> list[Claim]:
    until_us = book.now_us() - round(older_than_s * _SECOND)

    def oldest(count: int) -> Sequence[tuple[Any, ...]]:
        return book.ask(
            "oldest_waiting",
            queues=list(worker.routes),
            until_us=until_us,
            user=only_user(worker),
            most=count,
        )

    left = RoomLeft(room)
    rows = oldest(most)
    claims = _claim(book, rows, worker, lease_s, left, most)
    if left.has_refused and len(rows) == most:
        seen = {row[1] for row in rows}
        behind = [row for row in oldest(max(_LEAST_LOOK, most * _MORE_ROWS)) if row[1] not in seen]
        claims += _claim(book, behind, worker, lease_s, left, most - len(claims))
    return claims


def any_waiting(book: TicketBook, worker: WorkerInfo, older_than_s: float) -> bool:
    until_us = book.now_us() - round(older_than_s * _SECOND)
    user = only_user(worker)
    return any(
        book.ask("first_waiting", queue=route, until_us=until_us, user=user) for route in worker.routes
    )


def _claim(
    book: TicketBook,
    rows: Sequence[tuple[Any, ...]],
    worker: WorkerInfo,
    lease_s: float,
    left: RoomLeft,
    most: int,
) -> list[Claim]:
    at_us = book.now_us() if rows else 0
    claims: list[Claim] = []
    numbers: list[int] = []
    unwanted: list[Ending] = []
    for number, uuid, fence, job, ticket, lost_worker, lost_attempt, is_cancelled in rows:
        if len(claims) >= most:
            break
        if is_cancelled:
            unwanted.append((uuid, fence, withdrawn(at_us)))
            continue
        try:
            claim = Claim(
                job=_job.decode(job),
                ticket=_ticket.decode(ticket),
                fence=fence + 1,
                former=FormerWorker(lost_worker, lost_attempt == GAVE_BACK) if lost_worker else None,
                lost_attempt=read_or_none(_attempt, lost_attempt),
            )
        except ValueError as error:  # left alone it would be found again and again, by every worker
            unwanted.append((uuid, fence, unreadable(at_us, str(error))))
            continue
        if worker.serves(claim.ticket.label) and left.take(claim.job.requirements):
            numbers.append(number)
            claims.append(claim)
    if numbers:
        until_us = at_us + round(lease_s * _SECOND)
        book.ask("take_tickets", numbers=numbers, worker=worker.name, until_us=until_us)
        book.ask("raise_fences", numbers=numbers)
    end_jobs(book, unwanted)
    return claims


def only_user(worker: WorkerInfo) -> str | None:
    return None if worker.any_user else worker.user


def renew(book: TicketBook, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
    at_us = book.now_us()
    data = _encoder.encode(worker)
    book.ask("announce_worker", name=worker.name, at_us=at_us, data=data, host=worker.host)
    workers = looked_over(book, at_us) if is_time_to_look_over() else 0
    if not held:
        return Renewal(frozenset(), frozenset(), workers)
    mine = {
        number: (uuid, is_cancelled)
        for uuid, number, fence, holder, is_cancelled in book.ask("held_now", uuids=list(held))
        if holder == worker.name and fence == held[uuid]
    }
    until_us = at_us + round(lease_s * _SECOND)
    renewed = book.ask("renew_leases", numbers=list(mine), worker=worker.name, until_us=until_us)
    still = [mine[number] for (number,) in renewed]
    return Renewal(
        fenced=frozenset(held) - {uuid for uuid, _ in still},
        cancelled=frozenset(uuid for uuid, is_cancelled in still if is_cancelled),
        workers=workers,
    )


def is_time_to_look_over() -> bool:
    return random.random() < _LOOKS_OVER  # noqa: S311


def looked_over(book: TicketBook, at_us: int) -> int:
    """-> how many workers there are. Reads them all, so that not everybody does it every time."""
    book.ask("forget_workers_before", before_us=at_us - round(_FORGOTTEN_AFTER_S * _SECOND))
    [(count,)] = book.ask("count_workers", since_us=at_us - round(_THERE_S * _SECOND))
    return int(count)


def holdings(
    book: TicketBook, near: WorkerInfo | None = None, of: Collection[str] | None = None
) -> list[Holding]:
    at_us = book.now_us()
    if near is not None:
        rows = book.ask("holdings_near", worker=near.name, host=near.host, at_us=at_us)
    else:
        rows = book.ask("holdings") if of is None else book.ask("holdings_of", uuids=list(of))
    return [holding_of((*row, at_us)) for row in rows]


def holding_of(row: tuple[Any, ...]) -> Holding:
    uuid, fence, worker, until_us, attempt, at_us = row
    expired_us, known = max(0, at_us - until_us), read_or_none(_attempt, attempt)
    return Holding(uuid=uuid, fence=fence, worker=worker, expired_us=expired_us, attempt=known)
