"""Processes in /proc: lists, counters, and their sums as readings of a sample.

Forked processes share their parent's anonymous pages until they write to them, and shared memory belongs to
all that map it; summing resident sizes would count such pages many times. The kernel's proportional shares
add up correctly but are expensive (it walks every page), so they are read within a time budget and kept as
ratios in between.
"""

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import astuple

from joblens.probes.proc.kernel_files import (
    LAST_CHUNK_BELOW,
    LargestProcess,
    ProcIo,
    parse_io,
    parse_smaps_rollup,
    parse_soft_open_files,
    parse_statm,
    parse_status,
    pread_whole,
)

if TYPE_CHECKING:
    from joblens.ports.probe import Probe


class DescriptorBudget:
    """A share of the process's descriptors. Beyond it, files are opened and closed at every reading."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self, count: int) -> bool:
        if self.taken + count > self.limit:
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        self.taken -= count


def half_of_the_allowed() -> DescriptorBudget:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorBudget(1 << 20 if soft == resource.RLIM_INFINITY else soft // 2)


BUDGET = half_of_the_allowed()


_READ_SIZE = 4096
_KEPT_FILES = 5  # for files read at every tick
_GONE = (FileNotFoundError, ProcessLookupError)


class WatchedProcess:
    """Raises ProcessLookupError from any reading once the process has ended."""

    __slots__ = ("_budget", "_descriptors", "_directory", "_path", "_share", "pid")

    def __init__(self, pid: int, proc: str = "/proc", budget: DescriptorBudget = BUDGET) -> None:
        self.pid = pid
        self._path = f"{proc}/{pid}"
        self._budget = budget
        self._descriptors: dict[str, int] = {}
        self._directory: int | None = None
        self._share = 1 + _KEPT_FILES if budget.take(1 + _KEPT_FILES) else int(budget.take(1))
        if self._share:
            try:
                self._directory = os.open(self._path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                self.close()
                if isinstance(error, _GONE):
                    raise ProcessLookupError(self._path) from None
                raise

    def read(self, name: str) -> bytes:
        descriptor = self._descriptors.get(name)
        try:
            if descriptor is not None:
                return os.pread(descriptor, _READ_SIZE, 0)
            descriptor = self._open(name, os.O_RDONLY)
            if len(self._descriptors) + 1 < self._share:
                self._descriptors[name] = descriptor
                return os.pread(descriptor, _READ_SIZE, 0)
            try:
                return os.pread(descriptor, _READ_SIZE, 0)
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def read_whole(self, name: str) -> bytes:
        """For a file that may be longer than the kernel hands out at once."""
        data = self.read(name)
        return data if len(data) < LAST_CHUNK_BELOW else self.read_once(name)

    def read_once(self, name: str) -> bytes:
        """Reads a file without keeping the descriptor, for rare readings."""
        try:
            descriptor = self._open(name, os.O_RDONLY)
            try:
                return pread_whole(descriptor)
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def names_in(self, name: str) -> list[str]:
        """Of a directory such as 'task'."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
            try:
                return os.listdir(descriptor)
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def size_of(self, name: str) -> int:
        """st_size; for 'fd' the kernel puts the number of open descriptors there since Linux 6.2."""
        descriptor = self._descriptors.get(name)
        try:
            if descriptor is not None:
                return os.stat(descriptor).st_size
            descriptor = self._open(name, os.O_PATH)
            if len(self._descriptors) + 1 < self._share:
                self._descriptors[name] = descriptor
                return os.stat(descriptor).st_size
            try:
                return os.stat(descriptor).st_size
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def close(self) -> None:
        descriptors = list(self._descriptors.values())
        if self._directory is not None:
            descriptors.append(self._directory)
        self._descriptors, self._directory = {}, None
        self._budget.give_back(self._share)
        self._share = 0
        for descriptor in descriptors:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        if self._directory is None:
            return os.open(f"{self._path}/{name}", flags | os.O_CLOEXEC)
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._directory)


_PEAKS_A_READING = 4  # /proc/PID/status is dear: the processes take turns
_DENIED = "no permission to read a process of the job"

IO_FIELDS = (
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "io_read_bytes",
    "io_write_bytes",
)
_NO_IO = ProcIo(0, 0, 0, 0, 0, 0)


class ProcessesProbe:
    """`pids` lists the living processes. I/O is their sum, including reaped children.

    The launcher adds processes that ended unreaped. A field is omitted if one process refuses it. The cost of
    a reading grows with the number of processes: the caller decides how often.
    """

    name = "processes"

    def __init__(
        self, pids: Callable[[], Sequence[int]], *, proc: str = "/proc", budget: DescriptorBudget = BUDGET
    ) -> None:
        self.sources: Mapping[str, str] = {
            "io": "/proc/PID/io",
            "io_calls": "/proc/PID/io",
            "open_files": "/proc/PID/fd",
            "open_files_limit": "/proc/PID/limits",
            "memory_largest_process": "/proc/PID/status VmHWM",
            "memory_virtual": "/proc/PID/statm",
        }
        self.unknown: dict[str, str] = {}
        self._pids = pids
        self._proc = proc
        self._budget = budget
        self._watched: dict[int, WatchedProcess] = {}
        self._turn = 0
        self._largest = LargestProcess()
        self._open_files_limit: int | None = None
        self._fd_has_size = has_descriptor_counts(proc)

    def read(self) -> dict[str, Any]:
        living = self._refresh(self._pids())
        ios: list[ProcIo] = []
        virtual = open_files = 0
        denied: set[str] = set()
        for process in living:
            try:
                virtual += parse_statm(process.read("statm")).virtual_bytes
                ios.append(_read_io(process, denied))
                open_files += count_open_files(process, denied, has_size=self._fd_has_size)
            except ProcessLookupError:
                self._forget(process)
        self._take_turns(living)
        fields: dict[str, Any] = {"memory_virtual_bytes": virtual, "open_files": open_files}
        fields.update(sum_io(ios))
        fields.update(self._largest.fields())
        if self._open_files_limit is not None:
            fields["open_files_limit"] = self._open_files_limit
        for name in denied:
            fields.pop(name, None)
            self.unknown[name] = _DENIED
        return fields

    @property
    def round_length(self) -> int:
        """Readings until each process has had its turn."""
        return -(-len(self._watched) // _PEAKS_A_READING)

    def forget_peaks(self) -> None:
        """Discards peaks of processes that had not become the job yet."""
        self._largest.forget()

    def close(self) -> None:
        for process in self._watched.values():
            process.close()
        self._watched.clear()

    def _refresh(self, pids: Sequence[int]) -> list[WatchedProcess]:
        watched = self._watched
        for pid in watched.keys() - set(pids):
            watched.pop(pid).close()
        for pid in pids:
            if pid not in watched:
                try:
                    watched[pid] = WatchedProcess(pid, self._proc, self._budget)
                except OSError:
                    continue
        return list(watched.values())

    def _forget(self, process: WatchedProcess) -> None:
        self._watched.pop(process.pid, None)
        process.close()

    def _take_turns(self, living: list[WatchedProcess]) -> None:
        """A few processes a reading: the largest so far is a maximum, so nothing is lost by waiting."""
        for _ in range(min(_PEAKS_A_READING, len(living))):
            process = living[self._turn % len(living)]
            self._turn += 1
            try:
                self._largest.add(process.pid, parse_status(process.read_once("status")))
                if self._open_files_limit is None:
                    self._open_files_limit = parse_soft_open_files(process.read_once("limits"))
            except OSError:
                continue


def has_descriptor_counts(proc: str) -> bool:
    """Linux 6.2 and later give the number of open descriptors as the size of /proc/PID/fd."""
    try:
        return os.stat(f"{proc}/self/fd").st_size > 0
    except OSError:
        return False


def count_open_files(process: WatchedProcess, denied: set[str], *, has_size: bool) -> int:
    try:
        return process.size_of("fd") if has_size else len(process.names_in("fd"))
    except PermissionError:
        denied.add("open_files")
        return 0


def sum_io(ios: Sequence[ProcIo]) -> dict[str, int]:
    return dict(zip(IO_FIELDS, map(sum, zip(*map(astuple, ios or (_NO_IO,)), strict=True)), strict=True))


def _read_io(process: WatchedProcess, denied: set[str]) -> ProcIo:
    try:
        return parse_io(process.read("io"))
    except PermissionError:
        denied.update(IO_FIELDS)
        return _NO_IO


_BUDGET_A_READING_NS = 2_000_000
_REST_PER_COST = 50  # a reading that took 1 ms is not repeated for 50 ms: 2 % of one core at the most


class Resident(Struct, frozen=True):
    """Resident memory of one process, including shared pages."""

    process: WatchedProcess
    origin: int  # equal for processes that forked from one another without exec
    anon_bytes: int
    shmem_bytes: int


class _Share(Struct, frozen=True):
    anon_ratio: float
    shmem_bytes: int
    next_at_ns: int


class SharedPages:
    """`is_lower_bound`: some shares could not be read, so only the largest of a family was counted."""

    def __init__(self) -> None:
        self.is_lower_bound = False
        self._shares: dict[WatchedProcess, _Share] = {}

    def sum_up(self, residents: Iterable[Resident]) -> tuple[int, int]:
        """(anonymous, shared memory) bytes of all of them, each page once."""
        families: dict[int, list[Resident]] = {}
        mappers = []
        anon_bytes = 0
        for resident in residents:
            families.setdefault(resident.origin, []).append(resident)
            if resident.shmem_bytes:
                mappers.append(resident)
        alone = [family[0] for family in families.values() if len(family) == 1]
        anon_bytes += sum(resident.anon_bytes for resident in alone)
        related = [family for family in families.values() if len(family) > 1]
        self._refresh([resident for family in related for resident in family], mappers)
        anon_bytes += sum(self._family_anon(family) for family in related)
        return anon_bytes, self._shmem(mappers)

    def forget(self, process: WatchedProcess) -> None:
        self._shares.pop(process, None)

    def _refresh(self, relatives: list[Resident], mappers: list[Resident]) -> None:
        chosen = {resident.process for resident in relatives}
        if len(mappers) > 1:
            chosen.update(resident.process for resident in mappers)
        started_ns = now_ns = time.monotonic_ns()
        due = [(self._next_at_ns(process), process) for process in chosen]
        for next_at_ns, process in sorted(due, key=lambda pair: pair[0]):
            if next_at_ns > now_ns or now_ns - started_ns > _BUDGET_A_READING_NS:
                return
            before_ns = now_ns
            share = _read_share(process)
            now_ns = time.monotonic_ns()
            if share is not None:
                rest_until_ns = now_ns + _REST_PER_COST * (now_ns - before_ns)
                self._shares[process] = _Share(share[0], share[1], rest_until_ns)

    def _next_at_ns(self, process: WatchedProcess) -> int:
        share = self._shares.get(process)
        return share.next_at_ns if share else 0

    def _family_anon(self, family: list[Resident]) -> int:
        """Returns at least the largest member's memory, whatever the earlier ratios say."""
        shares = [self._shares.get(resident.process) for resident in family]
        if None in shares:
            self.is_lower_bound = True
        proportional = sum(
            round(resident.anon_bytes * share.anon_ratio)
            for resident, share in zip(family, shares, strict=True)
            if share
        )
        return max(proportional, *(resident.anon_bytes for resident in family))

    def _shmem(self, mappers: list[Resident]) -> int:
        if not mappers:
            return 0
        largest = max(resident.shmem_bytes for resident in mappers)
        if len(mappers) == 1:
            return largest
        shares = [self._shares.get(resident.process) for resident in mappers]
        if None in shares:
            self.is_lower_bound = True
        return max(largest, sum(share.shmem_bytes for share in shares if share))


def _read_share(process: WatchedProcess) -> tuple[float, int] | None:
    """Returns the share of its anonymous memory that counts as its own, and its part of shared memory."""
    try:
        rollup = parse_smaps_rollup(process.read_once("smaps_rollup"))
    except OSError:
        return None
    if rollup.pss_anon is None or rollup.pss_shmem is None:
        return None
    return (rollup.pss_anon / rollup.anon if rollup.anon else 1.0), rollup.pss_shmem


_PRESSURE = tuple(
    f"{share}_{part}" for share in ("some", "full") for part in ("avg10", "avg60", "avg300", "usec")
)

FIELD_GROUPS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_total_usec", "cpu_user_usec", "cpu_system_usec"),
    "throttling": ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_usec"),
    "cpu_pressure": tuple(f"cpu_{part}" for part in _PRESSURE),
    "memory_pressure": tuple(f"memory_{part}" for part in _PRESSURE),
    "io_pressure": tuple(f"io_{part}" for part in _PRESSURE),
    "memory": ("memory_current_bytes",),
    "memory_kernel_peak": ("memory_kernel_peak_bytes",),
    "memory_parts": (
        "memory_anon_bytes",
        "memory_file_bytes",
        "memory_shmem_bytes",
        "memory_file_mapped_bytes",
        "memory_file_dirty_bytes",
        "memory_file_writeback_bytes",
        "memory_huge_bytes",
    ),
    "memory_kernel": ("memory_kernel_bytes",),
    "memory_kernel_parts": (
        "memory_kernel_stack_bytes",
        "memory_slab_bytes",
        "memory_slab_reclaimable_bytes",
        "memory_sock_bytes",
    ),
    "memory_swap": ("memory_swap_bytes",),
    "memory_limit": ("memory_limit_bytes",),
    "memory_largest_process": ("memory_largest_process_bytes", "memory_largest_process_file_bytes"),
    "memory_virtual": ("memory_virtual_bytes",),
    "faults": ("faults_minor", "faults_major"),
    "oom_events": ("oom_events",),
    "oom_kills": ("oom_kills",),
    "memory_limit_events": ("memory_limit_events",),
    "io": ("io_read_bytes", "io_write_bytes"),
    "io_ops": ("io_read_ops", "io_write_ops"),
    "io_devices": ("devices",),
    "io_calls": ("io_call_read_bytes", "io_call_write_bytes", "io_call_reads", "io_call_writes"),
    "processes": ("processes",),
    "threads": ("threads",),
    "open_files": ("open_files",),
    "open_files_limit": ("open_files_limit",),
    "pids_limit": ("pids_limit",),
    "pids_limit_events": ("pids_limit_events",),
    "host_cpu": ("host_cpu_busy_usec", "host_cpu_total_usec"),
    "host_memory": ("host_memory_used_bytes", "host_memory_total_bytes"),
    "host_load": ("host_load1", "host_load5", "host_load15"),
    "host_network": ("host_network_rx_bytes", "host_network_tx_bytes"),
}


def unknown_fields(reasons: dict[str, str]) -> dict[str, str]:
    """Group -> reason becomes field -> reason."""
    return {field: reason for group, reason in reasons.items() for field in FIELD_GROUPS[group]}


_FRESH_NS = 20_000_000


class RecentReading:
    """Shares readings that are the same for jobs sampled one after the other."""

    def __init__(self, probe: "Probe", mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.name = probe.name
        self._probe = probe
        self._mono_ns = mono_ns
        self._reading: dict[str, Any] = {}
        self._read_at_ns: int | None = None

    @property
    def sources(self) -> Mapping[str, str]:
        return self._probe.sources

    @property
    def unknown(self) -> Mapping[str, str]:
        return self._probe.unknown

    def read(self) -> dict[str, Any]:
        now_ns = self._mono_ns()
        if self._read_at_ns is None or now_ns - self._read_at_ns >= _FRESH_NS:
            self._reading = self._probe.read()
            self._read_at_ns = now_ns
        return dict(self._reading)

    def close(self) -> None:
        self._probe.close()
