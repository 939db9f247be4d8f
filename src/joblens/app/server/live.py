"""Running jobs as the Overview shows them: one reading of the store for all clients, and to each client only
the changes since its last request."""

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from joblens.analysis.numbers.rates import cpu_percent, host_cpu_percent, unreclaimable_bytes
from joblens.app.server.access import Principal
from joblens.app.server.jobs import run_of
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.ports.store import QueueStore
from joblens.probes.host.machine_load import HostProbe, read_host

_AGE_S = 0.9  # requests within this time share one reading
_POINTS = 60  # that a sparkline has
_WITH_HISTORY = 100  # jobs whose earlier points are read for a first view: a screen full and more
_MOST_NEW = 1000  # jobs whose first samples are read at once; the others follow in the next readings
_QUEUED = 200  # jobs of each user that wait and are listed; all are counted
_GONE = 5000  # ended jobs that are remembered for clients that ask again


class LiveQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Annotated[int, Meta(ge=0, le=2**62)] = 0  # `turn` of the answer before; 0: everything


class LiveJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part that changes rarely. None: not limited, or unknown."""

    number: int
    uuid: str
    name: str
    status: Status
    user: str = ""
    host: str = ""
    tool: str = ""
    queue: str = ""
    run: str = ""
    command: str = ""
    since_us: int  # its start; of a queued job, its creation
    cpus: float | None = None
    memory_bytes: int | None = None
    timeout_s: float | None = None


class LivePoints(Struct, frozen=True, kw_only=True, array_like=True):
    """New points of one job, oldest first. CPU: 100 is one core; memory that cannot be reclaimed."""

    number: int
    cpu_percent: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]


class Machine(Struct, frozen=True, kw_only=True):
    """One machine as its newest reading shows it. CPU: 100 is all cores."""

    host: str
    jobs: int = 0
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    load1: float | None = None
    cpu_count: int | None = None


class LiveAnswer(Struct, frozen=True, kw_only=True):
    """All running jobs, and of each user the first of those that wait; the others are only counted."""

    turn: int  # for `since` of the next request
    is_complete: bool  # False: `jobs` has only those that are new or changed
    at_us: int
    running: int
    queued: int
    jobs: tuple[LiveJob, ...]
    gone: tuple[int, ...]
    points: tuple[LivePoints, ...]
    machines: tuple[Machine, ...]


class _Followed:
    """One job that has not ended."""

    def __init__(self, record: Record, turn: int) -> None:
        self.record = record
        self.shown = _live_job(record)
        self.changed = turn
        self.requested_turn = 0  # the last turn in which its samples were requested before there were any
        self.last_index = -1
        self.last: Sample | None = None
        self.points: deque[tuple[int, float | None, int | None]] = deque(maxlen=_POINTS)

    def take(self, found: list[tuple[int, Sample]], turn: int) -> tuple[Sample | None, Sample] | None:
        """Adds points; returns the last two samples for numbers of their machine."""
        before = None
        for index, sample in found:
            before, earlier = self.last, self.last
            rate = None if earlier is None else cpu_percent(earlier, sample)
            shown = None if rate is None else round(rate, 1)
            self.points.append((turn, shown, unreclaimable_bytes(sample)))
            self.last, self.last_index = sample, index
        return None if self.last is None or not found else (before, self.last)


class LiveJobs:
    """Shared by all clients of a server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A server that was started again counts from a higher number, so that its clients start over.
        self._first = self._turn = time.time_ns() // 1_000_000
        self._read_at = 0.0
        self._at_us = 0
        self._jobs: dict[int, _Followed] = {}
        self._known: dict[int, Record] = {}
        self._queued: dict[str | None, int] = {}  # by this user; None: all
        self._gone: deque[tuple[int, int, str]] = deque(maxlen=_GONE)  # turn, number, user
        self._hosts: dict[str, tuple[int, Machine]] = {}  # at, reading
        self._here = _ThisMachine()

    def close(self) -> None:
        self._here.close()

    def answer(self, store: QueueStore, caller: Principal, query: LiveQuery) -> LiveAnswer:
        with self._lock:
            self._refresh(store)
            oldest = self._gone[0][0] if len(self._gone) == _GONE else self._first
            is_complete = not oldest <= query.since <= self._turn
            since = 0 if is_complete else query.since
            visible = [each for each in self._jobs.values() if caller.may_see_user(each.record.job.user)]
            running = sum(each.record.status is Status.RUNNING for each in visible)
            queued = self._count_queued(store, caller)
            return LiveAnswer(
                turn=self._turn,
                is_complete=is_complete,
                at_us=self._at_us,
                running=running,
                queued=queued,
                jobs=tuple(each.shown for each in visible if each.changed > since),
                gone=()
                if is_complete
                else tuple(
                    number for turn, number, user in self._gone if turn > since and caller.may_see_user(user)
                ),
                points=tuple(found for each in visible if (found := _points_since(each, since)) is not None),
                machines=self._machines(visible),
            )

    def machines(self, store: QueueStore, caller: Principal) -> tuple[Machine, ...]:
        """Returns machines with running jobs that `caller` may see, and this one, which comes first."""
        with self._lock:
            self._refresh(store)
            visible = [each for each in self._jobs.values() if caller.may_see_user(each.record.job.user)]
            return self._machines(visible)

    def _refresh(self, store: QueueStore) -> None:
        now = time.monotonic()
        if now - self._read_at < _AGE_S:
            return
        records = store.still_running(self._known, _QUEUED)
        self._turn += 1
        turn = self._turn
        self._known = {record.number: record for record in records if record.number is not None}
        for number in [number for number in self._jobs if number not in self._known]:
            self._gone.append((turn, number, self._jobs.pop(number).record.job.user))
        for number, record in self._known.items():
            followed = self._jobs.get(number)
            if followed is None:
                self._jobs[number] = _Followed(record, turn)
            elif followed.record is not record and followed.record != record:
                if record.attempt != followed.record.attempt:  # it starts again: its counters too
                    followed = self._jobs[number] = _Followed(record, turn)
                followed.record, followed.shown, followed.changed = record, _live_job(record), turn
        self._read_samples(store, turn)
        self._queued.clear()
        self._at_us = store.now_us()
        self._read_at = time.monotonic()

    def _count_queued(self, store: QueueStore, caller: Principal) -> int:
        """Once per reading and user."""
        query = caller.visible(HistoryQuery(statuses=(Status.QUEUED,)))
        if query.user not in self._queued:
            self._queued[query.user] = store.count(query)
        return self._queued[query.user]

    def _read_samples(self, store: QueueStore, turn: int) -> None:
        started = [each for each in self._jobs.values() if each.record.status is Status.RUNNING]
        new = [each for each in started if each.last_index < 0]
        known = [each for each in started if each.last_index >= 0]
        new.sort(key=lambda each: each.requested_turn)  # those without a sample must not keep others waiting
        for each in new[:_MOST_NEW]:
            each.requested_turn = turn
        first, second = new[:_WITH_HISTORY], new[_WITH_HISTORY:_MOST_NEW]
        for followed, most in ((known, 10), (first, _POINTS), (second, 2)):
            after = {each.record.job.uuid: each.last_index for each in followed}
            tails: Mapping[str, list[tuple[int, Sample]]] = store.tails(after, most) if after else {}
            for each in followed:
                pair = each.take(tails.get(each.record.job.uuid, []), turn)
                if pair is not None:
                    self._note_host(each.record, *pair)

    def _note_host(self, record: Record, before: Sample | None, last: Sample) -> None:
        attempt = record.attempt
        if attempt is None:
            return
        host = attempt.owner.host
        at_us, known = self._hosts.get(host, (0, Machine(host=host)))
        if last.at_us < at_us:
            return
        rate = None if before is None else host_cpu_percent(before, last)
        self._hosts[host] = (
            last.at_us,
            Machine(
                host=host,
                cpu_percent=known.cpu_percent if rate is None else round(rate, 1),
                memory_used_bytes=last.host_memory_used_bytes,
                memory_total_bytes=last.host_memory_total_bytes,
                load1=None if last.host_load1 is None else last.host_load1 / 100,
                cpu_count=attempt.cpu_count,
            ),
        )

    def _machines(self, visible: list[_Followed]) -> tuple[Machine, ...]:
        """Returns machines with running jobs, and this one."""
        jobs: dict[str, int] = {self._here.host: 0}
        for each in visible:
            if each.record.attempt is not None and each.record.status is Status.RUNNING:
                host = each.record.attempt.owner.host
                jobs[host] = jobs.get(host, 0) + 1
        found = {host: machine for host, (_, machine) in self._hosts.items()}
        found[self._here.host] = self._here.read()
        return tuple(
            replace(found.get(host, Machine(host=host)), jobs=number) for host, number in jobs.items()
        )


class _ThisMachine:
    """The server's machine, which is shown also while it runs nothing."""

    def __init__(self) -> None:
        facts = read_host()
        self.host = facts.hostname
        self._cpu_count = facts.cpu_count
        self._probe = HostProbe()
        self._busy, self._total = 0, 0
        self._shown = Machine(host=self.host)
        self._read_at = 0.0

    def close(self) -> None:
        self._probe.close()

    def read(self) -> Machine:
        now = time.monotonic()
        if now - self._read_at < _AGE_S:
            return self._shown
        found = self._probe.read()
        busy, total = found.get("host_cpu_busy_usec", 0), found.get("host_cpu_total_usec", 0)
        passed = total - self._total
        rate = 100.0 * (busy - self._busy) / passed if self._total and passed > 0 else None
        load = found.get("host_load1")
        self._busy, self._total, self._read_at = busy, total, now
        self._shown = Machine(
            host=self.host,
            cpu_percent=None if rate is None else round(rate, 1),
            memory_used_bytes=found.get("host_memory_used_bytes"),
            memory_total_bytes=found.get("host_memory_total_bytes"),
            load1=None if load is None else load / 100,
            cpu_count=self._cpu_count,
        )
        return self._shown


def _points_since(followed: _Followed, turn: int) -> LivePoints | None:
    if not followed.points or followed.points[-1][0] <= turn or followed.record.number is None:
        return None
    new = [point for point in followed.points if point[0] > turn]
    return LivePoints(
        number=followed.record.number,
        cpu_percent=tuple(cpu for _, cpu, _ in new),
        memory_bytes=tuple(memory for _, _, memory in new),
    )


def _live_job(record: Record) -> LiveJob:
    job, attempt = record.job, record.attempt
    requirements = job.requirements
    return LiveJob(
        number=record.number or 0,
        uuid=job.uuid,
        name=job.name,
        status=record.status,
        user=job.user,
        host="" if attempt is None else attempt.owner.host,
        tool=job.tool,
        queue=job.queue,
        run=run_of(job),
        command=" ".join(job.argv)[:200],
        since_us=record.began_at_us,
        cpus=requirements.cpus,
        memory_bytes=requirements.memory_bytes,
        timeout_s=requirements.timeout_s,
    )
