"""Process tree of the calling process: threads and descendants, without joblens' own helpers.

For measuring inside a host program: it reaps nothing, adopts nothing and changes nothing, so a descendant is
found only through its living ancestors, or because it was found before they died.
"""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from msgspec import Struct

from joblens.analysis.numbers.attribution import NOTHING, Counters, Identity, LiveProcess, Snapshot
from joblens.probes.proc.kernel_files import (
    USEC_PER_TICK,
    ProcIo,
    ProcStat,
    kib_lines,
    names_in,
    parse_io,
    parse_smaps_rollup,
    parse_stat,
    parse_status,
    read_bytes,
)

# The kernel's CPU clock of any process, or of our threads (clock_getcpuclockid): nanoseconds, while a stat
# file has hundredths of a second.
PROCESS_CLOCK = 2
THREAD_CLOCK = 6


def clock_usec(task: int, kind: int) -> int | None:
    try:
        return time.clock_gettime_ns((~task << 3) | kind) // 1000
    except OSError:
        return None


def own_counters(cpu_usec: int | None, stat: ProcStat) -> Counters:
    """CPU by the clock where it could be read; its parts in the proportion of the ticks."""
    ticks = stat.user_ticks + stat.system_ticks
    if cpu_usec is None:
        cpu_usec = ticks * USEC_PER_TICK
    return Counters(
        cpu_usec=cpu_usec,
        cpu_user_usec=cpu_usec * stat.user_ticks // ticks if ticks else cpu_usec,
        faults_minor=stat.faults_minor,
        faults_major=stat.faults_major,
    )


def waited_counters(stat: ProcStat) -> Counters:
    """Of the children it has waited for."""
    return Counters(
        cpu_usec=(stat.user_ticks_reaped + stat.system_ticks_reaped) * USEC_PER_TICK,
        cpu_user_usec=stat.user_ticks_reaped * USEC_PER_TICK,
        faults_minor=stat.faults_minor_reaped,
        faults_major=stat.faults_major_reaped,
    )


def rusage_counters(usage: resource.struct_rusage) -> Counters:
    user_usec = round(usage.ru_utime * 1_000_000)
    return Counters(
        cpu_usec=user_usec + round(usage.ru_stime * 1_000_000),
        cpu_user_usec=user_usec,
        faults_minor=usage.ru_minflt,
        faults_major=usage.ru_majflt,
    )


def io_counters(io: ProcIo) -> Counters:
    return Counters(
        io_call_read_bytes=io.call_read_bytes,
        io_call_write_bytes=io.call_write_bytes,
        io_call_reads=io.call_reads,
        io_call_writes=io.call_writes,
        io_read_bytes=io.read_bytes,
        io_write_bytes=io.write_bytes,
    )


class OwnHelpers:
    """`lock` is held while this process's children are scanned, so that no helper comes or goes.

    `used`: what reaped helpers have added to this process's counters.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self.lock = threading.Lock()
        self.pids: set[int] = set()
        self.used: Counters = NOTHING

    def start(self, start: Callable[[], int]) -> int:
        """`start` gives the pid."""
        with self.lock:
            pid = start()
            self.pids.add(pid)
            return pid

    def ended(self, pid: int) -> int | None:
        """Returns its exit code, once; None: it still runs."""
        with self.lock:
            try:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return None
                io = NOTHING
                with suppress(OSError, ValueError):
                    io = io_counters(parse_io(read_bytes(f"/proc/{pid}/io")))
                _, status, usage = os.wait4(pid, 0)
            except ChildProcessError:  # the program we are in has waited for it
                self.pids.discard(pid)
                return 0
            self.pids.discard(pid)
            self.used += rusage_counters(usage) + io
            return os.waitstatus_to_exitcode(status)


HELPERS = OwnHelpers()
os.register_at_fork(after_in_child=HELPERS.forget)


# smaps_rollup walks all pages of a process; beyond this much time a sample has a lower bound.
_PAGE_WALK_BUDGET_S = 0.02
_TRIES = 5


class Level(Struct, frozen=True, kw_only=True):
    """State of all processes together, unless noted."""

    anon_bytes: int
    shmem_bytes: int
    kernel_bytes: int
    swap_bytes: int
    virtual_bytes: int
    own_rss_bytes: int
    own_peak_bytes: int  # of this process since it began, not since the measurement did
    own_file_bytes: int  # files that this process maps
    largest_child_bytes: int  # highest any living descendant has been
    largest_child_file_bytes: int  # files that one maps
    processes: int
    threads: int
    open_files: int | None
    is_lower_bound: bool  # memory shared by forked children could not be separated in time


class _ProcessState(Struct):
    """State of a descendant between samples."""

    thread: int | None
    io: Counters = NOTHING
    ignores_children: bool = False


class _Step(Struct, frozen=True):
    """A process still to be read on the way down the tree."""

    pid: int
    thread: int | None
    branch: Identity | None  # None: it is a child of ours and begins one
    is_adrift: bool


class OwnTree:
    """One for a process. Not safe for two threads at once; the caller holds a lock."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._pid = os.getpid()
        self._seen: dict[Identity, _ProcessState] = {}
        self._stats: dict[int, ProcStat] = {}
        self.scanned_mono_ns = 0  # time of the last sample
        self._has_children_files = os.path.exists(f"{proc}/self/task/{self._pid}/children")

    def forget(self) -> None:
        self._seen.clear()

    def scan(self, threads: Collection[int], overhead_usec: int = 0) -> Snapshot:
        with HELPERS.lock:
            return self._sample(threads, overhead_usec)

    def _sample(self, threads: Collection[int], overhead_usec: int) -> Snapshot:
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        live, io, again = self._living(), self._io("self"), resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(_TRIES):
            if again == waited:
                break
            # A child was waited for meanwhile: it may be in both readings, or in neither.
            waited = again
            live, io, again = self._living(), self._io("self"), resource.getrusage(resource.RUSAGE_CHILDREN)
        used_by = {thread: used for thread in threads if (used := self._thread(thread)) is not None}
        own = rusage_counters(resource.getrusage(resource.RUSAGE_SELF))
        # Reading files lets busy threads of the host program run in between, 5 ms each time: the CPU time
        # belongs to this moment, not to when everything has been read.
        self.scanned_mono_ns = time.monotonic_ns()
        return Snapshot(
            own=own,
            absorbed=rusage_counters(again) + (io or NOTHING) - HELPERS.used,
            threads=used_by,
            live=live,
            overhead_usec=overhead_usec,
        )

    def level(self) -> Level:
        """Returns the level of the processes that `scan` found."""
        own = kib_lines(self._read("self/status") or b"")
        stat = parse_stat(self._read("self/stat") or b"")
        sizes = [own]
        anon = own.get(b"RssAnon", 0)
        threads, files, is_lower_bound = stat.threads, self._open_files("self"), False
        families = {stat.stack_start: anon}
        walk_until = time.perf_counter() + _PAGE_WALK_BUDGET_S
        for (pid, _), state in self._seen.items():
            status, child = self._read(f"{pid}/status") or b"", self._stat(pid)
            found = kib_lines(status)
            if child is None or b"VmRSS" not in found:
                continue  # ended
            state.ignores_children = parse_status(status).ignores_sigchld
            child_anon, is_exact = self._anon(pid, found.get(b"RssAnon", 0), child, families, walk_until)
            anon += child_anon
            is_lower_bound |= not is_exact
            threads += child.threads
            child_files = self._open_files(str(pid))
            files = None if files is None or child_files is None else files + child_files
            sizes.append(found)
        largest = max(sizes[1:], key=lambda found: found.get(b"VmHWM", 0), default={})
        return Level(
            anon_bytes=anon,
            # Several processes may hold the same segment: the largest holding is surely used.
            shmem_bytes=max(found.get(b"RssShmem", 0) for found in sizes),
            kernel_bytes=sum(found.get(b"VmPTE", 0) for found in sizes),
            swap_bytes=sum(found.get(b"VmSwap", 0) for found in sizes),
            virtual_bytes=sum(found.get(b"VmSize", 0) for found in sizes),
            own_rss_bytes=own.get(b"VmRSS", 0),
            own_peak_bytes=own.get(b"VmHWM", 0),
            own_file_bytes=own.get(b"RssFile", 0),
            largest_child_bytes=largest.get(b"VmHWM", 0),
            largest_child_file_bytes=largest.get(b"RssFile", 0),
            processes=len(sizes),
            threads=threads,
            open_files=files,
            is_lower_bound=is_lower_bound,
        )

    def _living(self) -> dict[Identity, LiveProcess]:
        self._stats = {}
        before, self._seen = self._seen, {}
        live: dict[Identity, LiveProcess] = {}
        is_unwaited = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        for pid, thread in self._children_of_us():
            self._follow(_Step(pid, thread, None, is_unwaited), before, live)
        for identity, state in before.items():
            if identity not in live and self._is_alive(identity):
                # Its parent died and it was adopted by init: we will never reap it.
                self._follow(_Step(identity[0], state.thread, identity, is_adrift=True), before, live)
        return live

    def _follow(
        self, root: "_Step", before: dict[Identity, _ProcessState], live: dict[Identity, LiveProcess]
    ) -> None:
        """Read a process and all below it."""
        waiting = [root]
        while waiting:
            step = waiting.pop()
            stat = self._stat(step.pid)
            if stat is None or (step.pid, stat.start_ticks) in live:
                continue
            identity = (step.pid, stat.start_ticks)
            state = before.get(identity) or _ProcessState(thread=step.thread)
            state.io = self._io(str(step.pid)) or state.io
            self._seen[identity] = state
            branch = step.branch or identity
            live[identity] = LiveProcess(
                branch=branch,
                thread=state.thread,
                own=own_counters(clock_usec(step.pid, PROCESS_CLOCK), stat),
                absorbed=waited_counters(stat) + state.io,
                is_adrift=step.is_adrift,
            )
            if stat.state != "Z":
                waiting += [
                    _Step(child, state.thread, branch, state.ignores_children)
                    for child in self._children(step.pid)
                ]

    def _children_of_us(self) -> Iterable[tuple[int, int | None]]:
        if not self._has_children_files:
            return [(pid, None) for pid in self._scan(self._pid) if pid not in HELPERS.pids]
        return [
            (int(child), int(thread))
            for thread in names_in(f"{self._proc}/self/task")
            for child in (self._read(f"self/task/{thread}/children") or b"").split()
            if int(child) not in HELPERS.pids
        ]

    def _children(self, pid: int) -> list[int]:
        if not self._has_children_files:
            return self._scan(pid)
        found: list[int] = []
        for thread in names_in(f"{self._proc}/{pid}/task"):
            found += map(int, (self._read(f"{pid}/task/{thread}/children") or b"").split())
        return found

    def _scan(self, parent: int) -> list[int]:
        """For kernels without the children files."""
        if not self._stats:
            for name in os.listdir(self._proc):
                if name.isdigit() and (stat := self._stat(int(name))) is not None:
                    self._stats[int(name)] = stat
        return [pid for pid, stat in self._stats.items() if stat.parent_pid == parent]

    def _is_alive(self, identity: Identity) -> bool:
        stat = self._stat(identity[0])
        return stat is not None and stat.start_ticks == identity[1]

    def _thread(self, thread: int) -> Counters | None:
        text = self._read(f"self/task/{thread}/stat")
        if text is None:
            return None
        stat = parse_stat(text)
        own = own_counters(clock_usec(thread, THREAD_CLOCK), stat)
        return own + (self._io(f"self/task/{thread}") or NOTHING)

    def _anon(
        self, pid: int, anon: int, stat: ProcStat, families: dict[int, int], walk_until: float
    ) -> tuple[int, bool]:
        """Returns private memory, and whether it is exact.

        A forked child without exec also holds its parent's pages, which must not be counted twice.
        """
        family = stat.stack_start
        if not family or family not in families:
            families[family] = anon
            return anon, True
        if time.perf_counter() < walk_until and (text := self._read(f"{pid}/smaps_rollup")):
            return min(anon, parse_smaps_rollup(text).private_dirty), True
        return max(0, anon - families[family]), False

    def _open_files(self, who: str) -> int | None:
        try:
            # Linux 6.2 and later give the number as the size of the directory.
            return os.stat(f"{self._proc}/{who}/fd").st_size or len(os.listdir(f"{self._proc}/{who}/fd"))
        except OSError:
            return None

    def _stat(self, pid: int) -> ProcStat | None:
        text = self._read(f"{pid}/stat")
        return None if text is None else parse_stat(text)

    def _io(self, who: str) -> Counters | None:
        text = self._read(f"{who}/io")
        return None if text is None else io_counters(parse_io(text))

    def _read(self, path: str) -> bytes | None:
        """Returns None if the process has ended or the file is not readable."""
        try:
            return read_bytes(f"{self._proc}/{path}")
        except OSError:
            return None
