"""Threads of a job: CPU time, run-queue waits and migrations of each.

Every sample reads one short file per thread, then more for those that have run since, the busiest first. It
stops after a few milliseconds and continues there the next time: a job with thousands of threads delays no
one.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.details import Details, ThreadTable, ThreadUse
from joblens.model.values.sums import sum_of_known
from joblens.model.values.units import format_cpu_list
from joblens.probes.proc.kernel_files import USEC_PER_TICK, line_value, read_bytes, stat_fields


class ThreadStat(Struct, frozen=True):
    name: str
    user_ticks: int
    system_ticks: int
    start_ticks: int
    last_cpu: int
    parent: int


class Scheduling(NamedTuple):
    """None: not reported by the kernel."""

    switches_voluntary: int | None
    switches_involuntary: int | None
    migrations: int | None


def parse_thread_stat(data: bytes) -> ThreadStat:
    words = stat_fields(data)
    return ThreadStat(
        name=data[data.index(b"(") + 1 : data.rindex(b")")].decode("utf-8", "replace"),
        user_ticks=int(words[11]),
        system_ticks=int(words[12]),
        start_ticks=int(words[19]),
        last_cpu=int(words[36]),
        parent=int(words[1]),
    )


def parse_schedstat(data: bytes) -> tuple[int, int]:
    """Returns nanoseconds on a CPU, and nanoseconds ready to run without one."""
    on_cpu, waiting, _ = data.split(maxsplit=2)
    return int(on_cpu), int(waiting)


def parse_sched(data: bytes) -> Scheduling:
    """Parses sched, which kernels with CONFIG_SCHED_DEBUG have."""
    return Scheduling(
        _value(data, b"\nnr_voluntary_switches"),
        _value(data, b"\nnr_involuntary_switches"),
        _value(data, b"\nse.nr_migrations"),
    )


def parse_switches(status: bytes) -> Scheduling:
    """Parses status, for kernels without sched."""
    return Scheduling(
        _value(status, b"\nvoluntary_ctxt_switches"), _value(status, b"\nnonvoluntary_ctxt_switches"), None
    )


def _value(data: bytes, name: bytes) -> int | None:
    value = (line_value(data, name) or b"").lstrip(b" :\t")
    return int(value) if value.isdigit() else None


MOST_KEPT = 256
_MOST_WATCHED = 2048  # alive at once; others are only in the job's totals
# CPU time of a sample: for all times, and including details …
_TIMES_NS, _SCAN_NS = 4_000_000, 6_000_000
_SCAN_WALL_NS = 25_000_000  # … and wall time: a job that uses every CPU makes this thread wait for each file
_SOURCE = "/proc/PID/task/TID: schedstat, stat, sched"
_SHORTEST_S, _LONGEST_S = 1.0, 15.0
_EMPTY = Details()


class _ThreadState(Struct):
    """State of a living thread. Times in nanoseconds since the job's start."""

    pid: int
    process: str
    base_cpu_ns: int = 0
    base_wait_ns: int = 0
    base_user_usec: int = 0
    base_system_usec: int = 0
    base_sched: Scheduling = Scheduling(0, 0, 0)
    cpu_ns: int = 0
    wait_ns: int | None = None
    read_at_cpu_ns: int = -1  # its CPU time when the rest was read
    stat: ThreadStat | None = None
    name: str = ""  # under which it used the most: a shell may have become `sleep` since
    name_cpu_ns: int = -1
    name_now: str = ""
    name_now_cpu_ns: int = 0
    sched: Scheduling = Scheduling(None, None, None)
    allowed: str = ""
    parent: int | None = None  # as first seen: orphans get another one
    started_at_us: int | None = None


class ThreadsProbe:
    """`pids` lists the living processes.

    Subtracts a thread's earlier use where `was_before(tid, start_ticks)` says that it was not for the job.
    `earlier`: threads that another process has measured; ended ones are kept. `waited`: a thread that has
    become the job since, and its files by name as they were before.
    """

    name = "threads"

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        was_before: Callable[[int, int], bool],
        *,
        earlier: ThreadTable | None = None,
        waited: tuple[int, Mapping[str, bytes]] | None = None,
        proc: str = "/proc",
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._pids = pids
        self._was_before = was_before
        self._proc = proc
        self._now_us = now_us
        self._began_s = time.monotonic()
        self._booted_us = now_us() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        self._living: dict[int, _ThreadState] = {}
        self._ended: list[ThreadUse] = []  # the hottest of them
        self._ended_cpu_ns = self._ended_wait_ns = 0
        self._ended_migrations: int | None = None
        self._seen = self._missed = 0
        self._unread: set[int] = set()  # that are there, and have not been read once
        self._turn = 0
        self._is_complete = False  # the last scan reached every thread
        self._last: ThreadTable | None = None
        self._earlier = earlier
        self._not_met: dict[int, ThreadUse] = {}
        for use in earlier.threads if earlier is not None else ():
            if use.is_alive:
                self._not_met[use.tid] = use
            else:
                self._add_ended(use)
        if waited is not None:
            state = self._living[waited[0]] = _before_it_was_the_job(*waited)
            state.started_at_us = None if state.stat is None else self._started_at_us(state.stat)
            self._seen += 1
        else:  # the current use may have to be subtracted
            self._sample()

    @property
    def interval_s(self) -> float:
        """Returns a short interval for a young job, so that a short one is sampled at all."""
        return min(_LONGEST_S, max(_SHORTEST_S, (time.monotonic() - self._began_s) / 10))

    @property
    def is_stable(self) -> bool:
        """The last scan was not stopped by its budget."""
        return self._is_complete and all(
            state.cpu_ns == state.read_at_cpu_ns for state in self._living.values()
        )

    def read(self) -> Details:
        self._sample()
        table = self._table()
        if self._last is not None and _without_time(table) == _without_time(self._last):
            return _EMPTY
        self._last = table
        return Details(threads=table)

    def close(self) -> None:
        """No resources to close."""

    # ---- sampling --------------------------------------------------------------------------------------

    def _sample(self) -> None:
        """Updates the living threads."""
        budget, is_spent = _Budget(), False
        there = self._list()
        for tid in self._living.keys() - there.keys():
            self._end(tid)
        for tid, use in list(self._not_met.items()):
            if there.get(tid) != use.pid:
                self._add_ended(self._not_met.pop(tid))
        order = list(there)
        first = self._turn % len(order) if order else 0
        for number, tid in enumerate((*order[first:], *order[:first])):
            if is_spent := budget.is_spent(_TIMES_NS):
                self._turn = first + number
                break
            with suppress(OSError):  # it has just ended
                self._update(tid, there[tid])
        self._missed += len(self._unread - there.keys())
        self._unread = there.keys() - self._living.keys()
        self._is_complete = not is_spent and not self._unread
        ran = [tid for tid, state in self._living.items() if state.cpu_ns != state.read_at_cpu_ns]
        for tid in sorted(ran, key=lambda tid: self._living[tid].read_at_cpu_ns - self._living[tid].cpu_ns):
            if budget.is_spent(_SCAN_NS):
                return
            with suppress(OSError):
                self._read_closely(tid, self._living[tid])

    def _list(self) -> dict[int, int]:
        """Thread -> process."""
        found: dict[int, int] = {}
        for pid in self._pids():
            try:
                found.update((int(name), pid) for name in os.listdir(f"{self._proc}/{pid}/task"))
            except OSError:
                continue  # it has just ended
            if len(found) > _MOST_WATCHED:
                return dict(list(found.items())[:_MOST_WATCHED])
        return found

    def _update(self, tid: int, pid: int) -> None:
        folder = f"{self._proc}/{pid}/task/{tid}"
        cpu_ns, wait_ns = self._times(folder)
        state = self._living.get(tid)
        if state is not None and (state.pid != pid or cpu_ns < state.cpu_ns + state.base_cpu_ns):
            self._end(tid)  # its tid was reused
            state = None
        is_new = state is None
        if state is None:
            state = _ThreadState(pid=pid, process=self._process_name(pid, tid))
        state.cpu_ns = cpu_ns - state.base_cpu_ns
        state.wait_ns = None if wait_ns is None else wait_ns - state.base_wait_ns
        if is_new:
            state.stat = parse_thread_stat(read_bytes(f"{folder}/stat"))
            state.parent = state.stat.parent
            state.started_at_us = self._started_at_us(state.stat)
            if self._was_before(tid, state.stat.start_ticks):
                self._read_closely(tid, state)
                _take_base(state)
            self._living[tid] = state
            self._seen += 1
            known = self._not_met.pop(tid, None)
            if known is not None and known.cpu_usec > cpu_ns // 1000:
                self._add_ended(known)  # that one had the same number
            elif known is not None:
                state.parent, state.started_at_us = known.parent, known.started_at_us

    def _times(self, folder: str) -> tuple[int, int | None]:
        try:
            on_cpu_ns, waiting_ns = parse_schedstat(read_bytes(f"{folder}/schedstat"))
        except FileNotFoundError:
            stat = parse_thread_stat(read_bytes(f"{folder}/stat"))
            return (stat.user_ticks + stat.system_ticks) * USEC_PER_TICK * 1000, None
        return on_cpu_ns, waiting_ns

    def _read_closely(self, tid: int, state: _ThreadState) -> None:
        folder = f"{self._proc}/{state.pid}/task/{tid}"
        state.stat = parse_thread_stat(read_bytes(f"{folder}/stat"))
        _add_to_name(state, state.stat.name)
        if tid == state.pid:
            state.process = state.name  # it may be another after exec
        try:
            state.sched = parse_sched(read_bytes(f"{folder}/sched"))
        except FileNotFoundError:
            state.sched = parse_switches(read_bytes(f"{folder}/status"))
        if self._proc == "/proc":
            state.allowed = format_cpu_list(os.sched_getaffinity(tid))
        state.read_at_cpu_ns = state.cpu_ns

    def _process_name(self, pid: int, tid: int) -> str:
        leader = self._living.get(pid)
        if leader is not None and leader.process:
            return leader.process
        return "" if tid == pid else parse_thread_stat(read_bytes(f"{self._proc}/{pid}/stat")).name

    def _end(self, tid: int) -> None:
        state = self._living.pop(tid)
        use = self._use_of(tid, state, ended_at_us=self._now_us())
        self._ended_cpu_ns += state.cpu_ns
        self._ended_wait_ns += state.wait_ns or 0
        self._ended_migrations = sum_of_known([self._ended_migrations, use.migrations])
        self._ended.append(use)
        if len(self._ended) > 2 * MOST_KEPT:
            self._ended = _hottest(self._ended)

    def _add_ended(self, use: ThreadUse) -> None:
        """Adds a thread that only another process has measured."""
        self._seen += 1
        self._ended_cpu_ns += use.cpu_usec * 1000
        self._ended_wait_ns += (use.wait_usec or 0) * 1000
        self._ended_migrations = sum_of_known([self._ended_migrations, use.migrations])
        self._ended.append(replace(use, is_alive=False))

    # ---- telling -------------------------------------------------------------------------------------

    def _table(self) -> ThreadTable:
        living = [self._use_of(tid, state) for tid, state in self._living.items()]
        waits = [state.wait_ns for state in self._living.values()]
        wait_ns = None if None in waits else self._ended_wait_ns + sum(wait or 0 for wait in waits)
        cpu_ns = self._ended_cpu_ns + sum(state.cpu_ns for state in self._living.values())
        table = ThreadTable(
            at_us=self._now_us(),
            threads=tuple(_hottest([*living, *self._ended])),
            seen=self._seen,
            unread=self._missed + len(self._unread),
            cpu_usec=cpu_ns // 1000,
            wait_usec=None if wait_ns is None else wait_ns // 1000,
            migrations=sum_of_known([self._ended_migrations, *(use.migrations for use in living)]),
            source=_SOURCE
            if len(self._living) < _MOST_WATCHED
            else f"{_SOURCE} (of {_MOST_WATCHED} threads at a time)",
        )
        return table if self._earlier is None else _not_below(table, self._earlier)

    def _use_of(self, tid: int, state: _ThreadState, ended_at_us: int | None = None) -> ThreadUse:
        use = _use_of(tid, state, is_alive=ended_at_us is None)
        if tid != state.pid:
            return use
        return replace(use, parent=state.parent, started_at_us=state.started_at_us, ended_at_us=ended_at_us)

    def _started_at_us(self, stat: ThreadStat) -> int:
        return self._booted_us + stat.start_ticks * USEC_PER_TICK


def _not_below(table: ThreadTable, earlier: ThreadTable) -> ThreadTable:
    """Keeps totals monotonic: threads only in an earlier table's totals may still live."""
    return replace(
        table,
        seen=max(table.seen, earlier.seen),
        cpu_usec=max(table.cpu_usec, earlier.cpu_usec),
        wait_usec=None if table.wait_usec is None else max(table.wait_usec, earlier.wait_usec or 0),
        migrations=None if table.migrations is None else max(table.migrations, earlier.migrations or 0),
    )


def _before_it_was_the_job(tid: int, files: Mapping[str, bytes]) -> _ThreadState:
    stat = parse_thread_stat(files["stat"])
    state = _ThreadState(pid=tid, process="", stat=stat, parent=stat.parent)
    if "schedstat" in files:
        state.cpu_ns, state.wait_ns = parse_schedstat(files["schedstat"])
    elif state.stat is not None:
        state.cpu_ns = (state.stat.user_ticks + state.stat.system_ticks) * USEC_PER_TICK * 1000
    state.sched = parse_sched(files["sched"]) if "sched" in files else parse_switches(files["status"])
    _take_base(state)
    return state


def _add_to_name(state: _ThreadState, name: str) -> None:
    """Adds use since the last reading to its current name."""
    if name != state.name_now:
        state.name_now, state.name_now_cpu_ns = name, 0
    state.name_now_cpu_ns += state.cpu_ns - max(0, state.read_at_cpu_ns)
    if name == state.name or state.name_now_cpu_ns >= state.name_cpu_ns:
        state.name, state.name_cpu_ns = name, max(state.name_cpu_ns, state.name_now_cpu_ns)


def _take_base(state: _ThreadState) -> None:
    """Excludes its use so far, which was not for the job."""
    state.base_cpu_ns, state.cpu_ns = state.cpu_ns, 0
    state.base_wait_ns, state.wait_ns = state.wait_ns or 0, 0 if state.wait_ns is not None else None
    state.read_at_cpu_ns = state.name_cpu_ns = -1
    state.name_now_cpu_ns = 0
    state.base_sched = state.sched
    if state.stat is not None:
        state.base_user_usec = state.stat.user_ticks * USEC_PER_TICK
        state.base_system_usec = state.stat.system_ticks * USEC_PER_TICK


def _use_of(tid: int, state: _ThreadState, *, is_alive: bool) -> ThreadUse:
    user = system = None
    if state.stat is not None:
        user, system = _divided(
            state.cpu_ns // 1000,
            state.stat.user_ticks * USEC_PER_TICK - state.base_user_usec,
            state.stat.system_ticks * USEC_PER_TICK - state.base_system_usec,
        )
    voluntary, involuntary, migrations = (
        None if value is None else value - (base or 0)
        for value, base in zip(state.sched, state.base_sched, strict=True)
    )
    return ThreadUse(
        pid=state.pid,
        tid=tid,
        process=state.process,
        name=state.name or (state.stat.name if state.stat is not None else ""),
        cpu_usec=state.cpu_ns // 1000,
        user_usec=user,
        system_usec=system,
        wait_usec=None if state.wait_ns is None else state.wait_ns // 1000,
        switches_voluntary=voluntary,
        switches_involuntary=involuntary,
        migrations=migrations,
        last_cpu=state.stat.last_cpu if state.stat is not None else None,
        cpus_allowed=state.allowed,
        is_alive=is_alive,
    )


def _divided(cpu_usec: int, user_usec: int, system_usec: int) -> tuple[int | None, int | None]:
    """Both in the proportion of the clock ticks, so that they add up; None: below a tick there is none."""
    if user_usec + system_usec <= 0:
        return None, None
    user = cpu_usec * user_usec // (user_usec + system_usec)
    return user, cpu_usec - user


def _hottest(threads: list[ThreadUse]) -> list[ThreadUse]:
    return sorted(threads, key=lambda use: -use.cpu_usec)[:MOST_KEPT]


def _without_time(table: ThreadTable) -> tuple[object, ...]:
    return table.threads, table.seen, table.unread


class _Budget:
    """Time budget of one sample."""

    def __init__(self) -> None:
        self._cpu_ns = time.thread_time_ns()
        self._wall_ns = time.monotonic_ns()

    def is_spent(self, cpu_ns: int) -> bool:
        if time.monotonic_ns() - self._wall_ns > _SCAN_WALL_NS:
            return True
        return time.thread_time_ns() - self._cpu_ns > cpu_ns
