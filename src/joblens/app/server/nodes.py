"""Machines and workers: capacity, use, jobs, their last heartbeat, and the measurements there."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, convert, structs

from joblens.app.server.access import Principal, TimedCache
from joblens.app.server.jobs import Word
from joblens.app.server.live import LiveJobs, Machine
from joblens.model.delivery import WorkerInfo
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record
from joblens.model.settings import Settings
from joblens.model.sql import SqlLimits
from joblens.ports.store import QueueStore

_WEEK_US = 7 * 86_400_000_000
_AGE_S = 60.0
_HOSTS = """SELECT host, count(*) AS jobs, max(began_at_us) AS last_us FROM jobs
WHERE began_at_us >= {since} AND host <> '' GROUP BY host"""


class NodePage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    cursor: Word | None = None  # `next` of the page before


class NodeName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Word


class NodeWorker(Struct, frozen=True, kw_only=True):
    name: str
    user: str
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    concurrency: int
    running: int
    cpus: float | None
    memory_bytes: int | None
    gpus: int
    version: str
    started_at_us: int
    seen_at_us: int
    is_silent: bool  # its lease would have run out: it stopped, or cannot reach the store


class Node(Struct, frozen=True, kw_only=True):
    """CPU: 100 is all cores. None: not known, because nothing reports from there now."""

    host: str
    is_server: bool
    jobs: int
    jobs_of_week: int
    cpu_count: float | None
    memory_total_bytes: int | None
    gpus: int | None
    cpu_percent: float | None
    memory_used_bytes: int | None
    load1: float | None
    seen_at_us: int | None
    workers: tuple[NodeWorker, ...]


class Nodes(Struct, frozen=True, kw_only=True):
    items: tuple[Node, ...]
    next: str | None = None


class Measurement(Struct, frozen=True, kw_only=True):
    """One number or group of numbers. `source`: where it is read; '': it is not measured, for `reason`."""

    name: str
    source: str = ""
    reason: str = ""


class NodeMeasurements(Struct, frozen=True, kw_only=True):
    """Measurements of the newest ended job of a machine."""

    host: str
    job: int | None  # its number; None: no job has ended there
    ended_at_us: int | None
    accounting: str
    accounting_reason: str
    kernel: str
    items: tuple[Measurement, ...]


class HostJobs(Struct, frozen=True):
    jobs: int
    last_us: int


class HostHistory:
    """Machines of the last week's jobs, from one query that is repeated once per minute. Thread-safe."""

    def __init__(self) -> None:
        self._answers: TimedCache[str | None, dict[str, HostJobs]] = TimedCache(_AGE_S)

    def read(self, store: QueueStore, caller: Principal) -> dict[str, HostJobs]:
        return self._answers.get(caller.only_user, lambda: _host_jobs(store, caller.only_user))


def _host_jobs(store: QueueStore, user: str | None) -> dict[str, HostJobs]:
    text = _HOSTS.format(since=store.now_us() - _WEEK_US)
    rows = store.sql(text, SqlLimits(seconds=20.0, is_trusted=True), only_user=user).rows
    return {str(host): HostJobs(int(jobs), int(last_us)) for host, jobs, last_us in rows}


def list_nodes(
    store: QueueStore,
    caller: Principal,
    settings: Settings,
    live: LiveJobs,
    history: HostHistory,
    query: NodePage,
) -> Nodes:
    """Returns the server's machine first, then machines with jobs or workers, by name."""
    machines = live.machines(store, caller)
    workers = [each for each in store.workers() if caller.may_see_user(each.user)]
    nodes = nodes_of(machines, workers, history.read(store, caller), store.now_us(), settings.queue.lease)
    names = [node.host for node in nodes]
    begin = 0
    if query.cursor is not None:
        if query.cursor not in names:
            raise InputError(
                f"cursor '{query.cursor[:80]}': this machine is no longer known",
                hint="omit it to start again",
            )
        begin = names.index(query.cursor) + 1
    items = tuple(nodes[begin : begin + query.limit])
    more = begin + len(items) < len(nodes)
    return Nodes(items=items, next=items[-1].host if more else None)


def nodes_of(
    machines: Sequence[Machine],
    workers: Sequence[WorkerInfo],
    history: dict[str, HostJobs],
    now_us: int,
    lease_s: float,
) -> list[Node]:
    """Joins the facts about each machine. The first of `machines` is the server's."""
    live = {each.host: each for each in machines}
    here = machines[0].host if machines else ""
    by_host: dict[str, list[WorkerInfo]] = {}
    for worker in workers:
        by_host.setdefault(worker.host, []).append(worker)
    others = sorted({*live, *by_host, *history} - {here})
    return [
        _node(host, host == here, live.get(host), by_host.get(host, []), history.get(host), now_us, lease_s)
        for host in ([here] if here else []) + others
    ]


def _node(
    host: str,
    is_server: bool,  # noqa: FBT001 - a field of the result
    machine: Machine | None,
    workers: Sequence[WorkerInfo],
    history: HostJobs | None,
    now_us: int,
    lease_s: float,
) -> Node:
    times = [each.seen_at_us for each in workers]
    if machine is not None and (is_server or machine.jobs):
        times.append(now_us)
    if history is not None:
        times.append(history.last_us)
    cpus = max((each.cpus for each in workers if each.cpus is not None), default=None)
    memory = max((each.memory_bytes for each in workers if each.memory_bytes is not None), default=None)
    shown = machine or Machine(host=host)
    return Node(
        host=host,
        is_server=is_server,
        jobs=shown.jobs,
        jobs_of_week=0 if history is None else history.jobs,
        cpu_count=cpus if shown.cpu_count is None else shown.cpu_count,
        memory_total_bytes=memory if shown.memory_total_bytes is None else shown.memory_total_bytes,
        gpus=max((each.gpus for each in workers), default=None),
        cpu_percent=shown.cpu_percent,
        memory_used_bytes=shown.memory_used_bytes,
        load1=shown.load1,
        seen_at_us=max(times, default=None),
        workers=tuple(_worker(each, now_us, lease_s) for each in workers),
    )


def _worker(worker: WorkerInfo, now_us: int, lease_s: float) -> NodeWorker:
    is_silent = now_us - worker.seen_at_us > lease_s * 1e6
    return convert({**structs.asdict(worker), "is_silent": is_silent}, NodeWorker)


def get_measurements(store: QueueStore, caller: Principal, host: str) -> NodeMeasurements:
    query = HistoryQuery(hosts=(host,), include_unfinished=False, sort=SortKey.STARTED, limit=1)
    records = store.page(caller.visible(query)).records
    if not records:
        return NodeMeasurements(
            host=host, job=None, ended_at_us=None, accounting="", accounting_reason="", kernel="", items=()
        )
    return measurements_of(host, records[0])


def measurements_of(host: str, record: Record) -> NodeMeasurements:
    attempt, outcome = record.attempt, record.outcome
    usage = None if outcome is None else outcome.usage
    found: list[Measurement] = []
    if usage is not None:
        found += [Measurement(name=name, source=source) for name, source in usage.sources.items()]
        found += [Measurement(name=name, reason=reason) for name, reason in usage.unknown.items()]
    return NodeMeasurements(
        host=host,
        job=record.number,
        ended_at_us=None if outcome is None else outcome.ended_at_us,
        accounting="" if attempt is None else attempt.accounting,
        accounting_reason="" if attempt is None else attempt.accounting_reason,
        kernel="" if attempt is None else attempt.kernel,
        items=tuple(found),
    )
