"""Claims of tickets by workers: grant by capacity, renew, release, cancel, list."""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from joblens.model.clusters.placement import NodeCapacity
from joblens.model.delivery import (
    Backlog,
    Claim,
    FormerWorker,
    Holding,
    Renewal,
    Ticket,
    TicketQuery,
    TicketStanding,
    WorkerInfo,
)
from joblens.model.errors import UnknownJob
from joblens.model.jobs.job import Attempt, Job, Requirements, RetryLost, Status
from joblens.stores.queue.tickets import (
    Ending,
    TicketBook,
    end_jobs,
    ending_of_lost,
    unreadable,
    update_followers,
    withdrawn,
)


class RemainingCapacity:
    def __init__(self, capacity: NodeCapacity | None) -> None:
        self._capacity = capacity
        self._cpus = capacity.cpus if capacity is not None else None
        self._memory_bytes = capacity.memory_bytes if capacity is not None else None
        self._gpus = capacity.gpus if capacity is not None else None
        self.has_refused = False

    def take(self, asked: Requirements) -> bool:
        """Whether the request fits; if so, subtracts it from the capacity."""
        capacity = self._capacity
        if capacity is None:
            return True
        cpus = max(1, -int(-(asked.cpus or 1) // 1))
        memory_bytes, gpus = asked.memory_bytes or 0, asked.gpus or 0
        lasts_s = asked.timeout_s if asked.timeout_s is not None else capacity.usual_s or 0.0
        is_late = capacity.time_s is not None and lasts_s > capacity.time_s
        lacks = (
            (self._cpus is not None and cpus > self._cpus)
            or (self._memory_bytes is not None and memory_bytes > self._memory_bytes)
            or (self._gpus is not None and gpus > self._gpus)
        )
        if is_late or lacks:
            self.has_refused = True
            return False
        if self._cpus is not None:
            self._cpus -= cpus
        if self._memory_bytes is not None:
            self._memory_bytes -= memory_bytes
        if self._gpus is not None:
            self._gpus -= gpus
        return True


GAVE_BACK = b'"gave-back"'  # replaces the lost attempt: the worker ended the job and released it
_REPORTED_WITHIN_US = 3600 * 1_000_000
_worker = msgspec.json.Decoder(WorkerInfo)

T = TypeVar("T")


def read_or_none(decoder: msgspec.json.Decoder[T], data: bytes | None) -> T | None:
    """Decodes, or returns None for data that is damaged or written by a newer joblens.

    One such row must not block the others.
    """
    try:
        return None if data is None else decoder.decode(data)
    except ValueError:
        return None


def workers(book: TicketBook, host: str | None = None) -> list[WorkerInfo]:
    since_us = book.now_us() - _REPORTED_WITHIN_US
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


def tickets(book: TicketBook, query: TicketQuery) -> list[TicketStanding]:
    since_us, number = query.after
    rows = book.ask(
        "tickets_held" if query.is_held else "tickets_waiting",
        since_us=since_us,
        number=number,
        queue=query.queue,
        user=query.user,
        most=query.limit,
    )
    found = [_standing(row) for row in rows]
    return found if query.is_held else _with_positions(book, found, is_complete=query.user is None)


def _standing(row: tuple[Any, ...]) -> TicketStanding:
    return TicketStanding(
        number=row[0],
        uuid=row[1],
        name=row[2],
        user=row[3],
        queue=row[4],
        waiting_since_us=row[5],
        is_ready=bool(row[6]),
        after=row[7] or "",
        worker=row[8] or "",
        lease_until_us=row[9],
        deliveries=row[10],
        lost_worker=row[11],
    )


def _with_positions(
    book: TicketBook, found: Sequence[TicketStanding], *, is_complete: bool
) -> list[TicketStanding]:
    """Counts tickets before the first one of each queue, or before each one where others are hidden."""
    positions: dict[str, int] = {}
    placed = []
    for each in found:
        if not each.is_ready:
            placed.append(each)
            continue
        if not is_complete or each.queue not in positions:
            ((positions[each.queue],),) = book.ask(
                "count_tickets_before", queue=each.queue, since_us=each.waiting_since_us, number=each.number
            )
        positions[each.queue] += 1
        placed.append(replace(each, position=positions[each.queue]))
    return placed


def states(book: TicketBook, uuids: Sequence[str]) -> dict[str, Status]:
    return {uuid: Status(status) for uuid, status in book.ask("states", uuids=list(uuids))}


def released_by(book: TicketBook, uuids: Sequence[str]) -> list[tuple[str, str]]:
    return [(follower, queue) for follower, queue in book.ask("released_by", uuids=list(uuids))]


def former_workers(book: TicketBook, uuids: Sequence[str]) -> dict[str, FormerWorker]:
    return {
        uuid: FormerWorker(worker, mark == GAVE_BACK)
        for uuid, worker, mark in book.ask("former_workers", uuids=list(uuids))
    }


_SECOND = 1_000_000
_MORE_ROWS, _MIN_ROWS = 8, 64  # considered only after jobs that fit
_FORGOTTEN_AFTER_S = 24 * 3600.0
_THERE_S = 60.0  # workers without a report for this long are not counted
_SCANS_PER_RENEWAL = 1 / 16  # renewals
_job = msgspec.json.Decoder(Job)
_ticket = msgspec.json.Decoder(Ticket)
_attempt = msgspec.json.Decoder(Attempt)


def claim_those(
    book: TicketBook,
    worker: WorkerInfo,
    uuids: Sequence[str],
    lease_s: float,
    capacity: NodeCapacity | None,
) -> list[Claim]:
    rows = book.ask("waiting_of", uuids=list(uuids), user=only_user(worker))
    order = {uuid: number for number, uuid in enumerate(uuids)}
    rows = sorted(rows, key=lambda row: order[row[1]])
    return _claim(book, rows, worker, lease_s, RemainingCapacity(capacity), len(rows))


def claim_oldest(
    book: TicketBook,
    worker: WorkerInfo,
    most: int,
    lease_s: float,
    older_than_s: float,
    capacity: NodeCapacity | None,
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

    left = RemainingCapacity(capacity)
    rows = oldest(most)
    claims = _claim(book, rows, worker, lease_s, left, most)
    if left.has_refused and len(rows) == most:
        considered = {row[1] for row in rows}
        behind = [row for row in oldest(max(_MIN_ROWS, most * _MORE_ROWS)) if row[1] not in considered]
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
    left: RemainingCapacity,
    most: int,
) -> list[Claim]:
    at_us = book.now_us() if rows else 0
    claims: list[Claim] = []
    numbers: list[int] = []
    withdrawals: list[Ending] = []
    for number, uuid, fence, job, ticket, lost_worker, lost_attempt, is_cancelled in rows:
        if len(claims) >= most:
            break
        if is_cancelled:
            withdrawals.append((uuid, fence, withdrawn(at_us)))
            continue
        try:
            claim = Claim(
                job=_job.decode(job),
                ticket=_ticket.decode(ticket),
                fence=fence + 1,
                former=FormerWorker(lost_worker, lost_attempt == GAVE_BACK) if lost_worker else None,
                lost_attempt=read_or_none(_attempt, lost_attempt),
            )
        except ValueError as error:  # otherwise every worker would find it repeatedly
            withdrawals.append((uuid, fence, unreadable(at_us, str(error))))
            continue
        if worker.serves(claim.ticket.label) and left.take(claim.job.requirements):
            numbers.append(number)
            claims.append(claim)
    if numbers:
        until_us = at_us + round(lease_s * _SECOND)
        book.ask("take_tickets", numbers=numbers, worker=worker.name, until_us=until_us)
        book.ask("raise_fences", numbers=numbers)
    end_jobs(book, withdrawals)
    return claims


def only_user(worker: WorkerInfo) -> str | None:
    return None if worker.any_user else worker.user


def renew(book: TicketBook, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
    at_us = book.now_us()
    data = msgspec.json.encode(worker)
    book.ask("announce_worker", name=worker.name, at_us=at_us, data=data, host=worker.host)
    workers = count_workers(book)
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


def count_workers(book: TicketBook) -> int:
    """Forgets workers of long ago and returns the number of active ones. It scans all workers, so it does so
    only now and then, and otherwise returns 0."""
    if random.random() >= _SCANS_PER_RENEWAL:  # noqa: S311
        return 0
    at_us = book.now_us()
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


class _Created(msgspec.Struct):
    """Fields needed from a job's document."""

    created_at_us: int = 0


_created = msgspec.json.Decoder(_Created)


class _Delivery(msgspec.Struct):
    """Current state of a job that has a ticket."""

    uuid: str
    number: int
    status: Status
    fence: int
    worker: str | None
    deliveries: int
    ticket: Ticket | None  # None: unreadable
    attempt_json: bytes | None
    created_at_us: int
    is_cancelled: bool


def take_back(book: TicketBook, uuid: str, fence: int) -> Status | None:
    _, held = _lock(book, uuid)
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
        _, held = _lock(book, uuid)
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
    _, waiting = _lock(book, uuid)
    if waiting is None or waiting.worker is not None:
        return False
    end_jobs(book, [(uuid, waiting.fence, withdrawn(book.now_us()))])
    return True


def release_after(book: TicketBook, uuid: str) -> list[tuple[str, str]]:
    status, _ = _lock(book, uuid)
    if not status.is_final:
        return []
    update_followers(book, [(uuid, status)])
    return [(follower, queue) for follower, queue in book.ask("released_followers", uuid=uuid)]


def _lock(book: TicketBook, uuid: str) -> tuple[Status, _Delivery | None]:
    """Returns the job's status, and its ticket if any, locked until the end of this transaction."""
    if not book.ask("hold_job", uuid=uuid):
        raise UnknownJob(f"no job has the ID '{uuid}'")
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
    """Requeues the job and discards what the attempt has written."""
    book.ask("queue_again", number=held.number, began_at_us=held.created_at_us)
    for query in ("forget_attempt", "forget_details", "forget_samples"):
        book.ask(query, number=held.number)
