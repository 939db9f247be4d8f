"""Queues as the server shows them: their status, jobs that wait with position and reason, and leases."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, convert, structs

from joblens.app.queue.notifiers import living_workers
from joblens.app.server.access import Principal
from joblens.app.server.jobs import Word
from joblens.model.access import Scope
from joblens.model.clusters.placement import is_of_cluster
from joblens.model.delivery import Backlog, TicketQuery, TicketStanding, WorkerInfo
from joblens.model.errors import InputError
from joblens.model.settings import Settings
from joblens.model.values.labels import queue_and_label, unserved_words
from joblens.model.values.units import counted
from joblens.ports.store import QueueStore


class TicketPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Word | None = None
    queue: Word | None = None  # `route` of a queue


class QueueStanding(Struct, frozen=True, kw_only=True):
    """`problem`: why its jobs do not run; '': they do, or none waits."""

    route: str
    queue: str
    label: str
    waiting: int
    held: int
    oldest_waiting_us: int
    workers: int
    slots: int
    free_slots: int
    problem: str


class Queues(Struct, frozen=True, kw_only=True):
    """`is_complete` is False for callers that see only their own jobs: then totals are not shown."""

    items: tuple[QueueStanding, ...]
    is_complete: bool


class WaitingJob(Struct, frozen=True, kw_only=True):
    number: int
    uuid: str
    name: str
    user: str
    queue: str
    label: str
    since_us: int
    position: int | None  # in its queue, from 1; None: it waits for another job
    after: str  # uuid of that job
    reason: str


class WaitingJobs(Struct, frozen=True, kw_only=True):
    items: tuple[WaitingJob, ...]
    next: str | None = None


class Lease(Struct, frozen=True, kw_only=True):
    """`left_us`: negative if it has expired; other workers then take the job."""

    number: int
    uuid: str
    name: str
    user: str
    queue: str
    label: str
    worker: str
    host: str  # '': the worker sent no heartbeat in the last hour
    left_us: int
    deliveries: int


class Leases(Struct, frozen=True, kw_only=True):
    items: tuple[Lease, ...]
    next: str | None = None


class RouteWorkers(Struct, frozen=True, kw_only=True):
    workers: int = 0
    slots: int = 0
    free: int = 0


def get_queues(store: QueueStore, caller: Principal, settings: Settings) -> Queues:
    if caller.scope is not Scope.ALL:
        return Queues(items=(), is_complete=False)
    workers, backlog = living_workers(settings, store), store.backlog()
    known = {each.queue: each for each in backlog}
    routes = dict.fromkeys((*known, *(route for worker in workers for route in worker.routes)))
    return Queues(
        items=tuple(_queue(known.get(route, Backlog(route, 0, 0)), workers) for route in routes),
        is_complete=True,
    )


def _queue(backlog: Backlog, workers: Sequence[WorkerInfo]) -> QueueStanding:
    queue, label = queue_and_label(backlog.queue)
    serving = workers_of(backlog.queue, workers)
    problem = ""
    if backlog.waiting and not serving.workers and not is_of_cluster(backlog.queue):
        problem = _unserved(backlog.queue)
    return QueueStanding(
        route=backlog.queue,
        queue=queue,
        label=label,
        waiting=backlog.waiting,
        held=backlog.held,
        oldest_waiting_us=backlog.oldest_waiting_us,
        workers=serving.workers,
        slots=serving.slots,
        free_slots=serving.free,
        problem=problem,
    )


def list_waiting(store: QueueStore, caller: Principal, settings: Settings, query: TicketPage) -> WaitingJobs:
    found = store.tickets(_query(caller, query, is_held=False))
    workers = living_workers(settings, store)
    items = tuple(_waiting(each, workers) for each in found)
    return WaitingJobs(items=items, next=_next(found, query))


def _waiting(ticket: TicketStanding, workers: Sequence[WorkerInfo]) -> WaitingJob:
    queue, label = queue_and_label(ticket.queue)
    facts = {
        **structs.asdict(ticket),
        "queue": queue,
        "label": label,
        "since_us": ticket.waiting_since_us,
        "after": "" if ticket.is_ready else ticket.after,
        "reason": reason_of(ticket, workers),
    }
    return convert(facts, WaitingJob)


def list_leases(store: QueueStore, caller: Principal, query: TicketPage) -> Leases:
    found = store.tickets(_query(caller, query, is_held=True))
    hosts = {worker.name: worker.host for worker in store.workers()}
    now_us = store.now_us()
    return Leases(items=tuple(_lease(each, hosts, now_us) for each in found), next=_next(found, query))


def _lease(ticket: TicketStanding, hosts: dict[str, str], now_us: int) -> Lease:
    queue, label = queue_and_label(ticket.queue)
    facts = {
        **structs.asdict(ticket),
        "queue": queue,
        "label": label,
        "host": hosts.get(ticket.worker, ""),
        "left_us": (ticket.lease_until_us or 0) - now_us,
    }
    return convert(facts, Lease)


def workers_of(route: str, workers: Sequence[WorkerInfo], user: str | None = None) -> RouteWorkers:
    """Counts workers of a route, with `user` only those that take jobs of that user."""
    serving = [
        each
        for each in workers
        if route in each.routes and (user is None or each.any_user or each.user == user)
    ]
    slots = sum(each.concurrency for each in serving)
    return RouteWorkers(
        workers=len(serving),
        slots=slots,
        free=max(0, slots - sum(each.running for each in serving)),
    )


def reason_of(ticket: TicketStanding, workers: Sequence[WorkerInfo]) -> str:
    """Returns why a ticket waits, in a sentence."""
    if not ticket.is_ready:
        return "starts when the job before it has succeeded"
    again = f"requeued: worker {ticket.lost_worker} stopped before its end; " if ticket.lost_worker else ""
    if is_of_cluster(ticket.queue):
        return f"{again}waits for a worker that the cluster starts"
    serving = workers_of(ticket.queue, workers, ticket.user)
    if not serving.workers:
        others = workers_of(ticket.queue, workers).workers
        if others:
            return f"{again}its workers run jobs of other users only: start one as {ticket.user}"
        return again + _unserved(ticket.queue)
    ahead = (ticket.position or 1) - 1
    before = f"{ahead} before it; " if ahead else ""
    if not serving.free:
        slots, its_workers = counted(serving.slots, "slot"), counted(serving.workers, "worker")
        return f"{again}{before}all {slots} of {its_workers} are taken"
    if ahead >= serving.free:
        return f"{again}{before}{serving.free} of {counted(serving.slots, 'slot')} free"
    return f"{again}a worker takes it next, if it fits the worker's memory and GPUs"


def _unserved(route: str) -> str:
    queue, label = queue_and_label(route)
    if label:
        return unserved_words(route)
    where = "" if queue == "default" else f" --queues {queue}"
    return f"no worker serves the queue {queue}: start one with joblens worker{where}"


def _query(caller: Principal, query: TicketPage, *, is_held: bool) -> TicketQuery:
    return TicketQuery(
        is_held=is_held,
        limit=query.limit,
        after=_after(query.cursor),
        queue=query.queue,
        user=caller.only_user,
    )


def _after(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return -1, -1
    since, mark, number = cursor.partition(".")
    if not (mark and all(each.isascii() and each.isdecimal() and len(each) < 19 for each in (since, number))):
        raise InputError(
            f"cursor '{cursor[:80]}' is not one that a list returned",
            hint="use `next` of the previous page unchanged, or omit it to start again",
        )
    return int(since), int(number)


def _next(found: Sequence[TicketStanding], query: TicketPage) -> str | None:
    if len(found) < query.limit:
        return None
    since_us, number = found[-1].position_key
    return f"{since_us}.{number}"
