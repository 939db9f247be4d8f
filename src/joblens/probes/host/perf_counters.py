"""Performance counters of a job by perf_event_open: instructions, cycles, migrations, context switches.

A counter is opened on the process that is about to become the job. It starts with the job's first instruction
and is inherited by everything the job starts, so its value covers the whole tree, including ended processes.
"""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.probes.host.machine_load import CostLimit
from joblens.probes.proc.kernel_files import call, read_text

_SYSTEM_CALLS = {  # machine -> number of perf_event_open
    "x86_64": 298,
    "aarch64": 241,
    "riscv64": 241,
    "loongarch64": 241,
    "ppc64le": 319,
    "ppc64": 319,
    "s390x": 331,
}
_HARDWARE, _SOFTWARE = 0, 1  # kinds of counters
_ATTRIBUTES_SIZE = 112  # fifth version of the structure, Linux 4.1
_TIMES = 1 | 2  # with the time it was enabled, and the time it really counted
_DISABLED, _INHERIT = 1 << 0, 1 << 1
_EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 5, 1 << 6
_ENABLE_ON_EXEC = 1 << 12
_CLOSE_ON_EXEC = 8
_READ_SIZE = 24
_DEVICES = "/sys/bus/event_source/devices"
_NO_PROCESSORS = frozenset({"breakpoint", "kprobe", "msr", "software", "tracepoint", "uprobe"})

# A reading interrupts every CPU that runs a thread of the job: with many threads, some samples skip it.
_COST_SHARE = 1 / 2000
_CHEAP_NS = 100_000
_MOST_THREADS = 64  # of a running job; each thread needs descriptors of its own


class Counter(Struct, frozen=True):
    field: str
    group: str  # under which its source is named
    kind: int
    number: int
    label: str


COUNTERS = (
    Counter("instructions", "processor_counters", _HARDWARE, 1, "instructions"),
    Counter("cycles", "processor_counters", _HARDWARE, 0, "cpu-cycles"),
    Counter("cpu_migrations", "cpu_migrations", _SOFTWARE, 4, "cpu-migrations"),
    Counter("context_switches", "context_switches", _SOFTWARE, 3, "context-switches"),
)


class PerfCountersProbe:
    """Counts a job from its start: `main_pid` is the process that becomes the job. None: the job is running
    and is counted from now on."""

    name = "counters"

    def __init__(self, main_pid: int | None, pids: Callable[[], Sequence[int]]) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        # Neither use before the first sample nor that of newborn threads is counted.
        self.lower_bounds = () if main_pid is not None else tuple(counter.field for counter in COUNTERS)
        self._pids = pids
        self._descriptors: dict[str, list[int]] = {}
        self._limit = CostLimit(_COST_SHARE, _CHEAP_NS)
        self.is_stable = False
        threads = [main_pid] if main_pid is not None else _threads_of(pids())
        if not threads:
            self._give_up("all of its processes have ended")
        elif len(threads) > _MOST_THREADS:
            self._give_up(f"it already had {len(threads)} threads when measuring started")
        else:
            for counter in COUNTERS:
                self._open(counter, threads, on_exec=main_pid is not None)

    def read(self) -> dict[str, Any]:
        self.is_stable = self._limit.is_due() or not self._descriptors
        if not self._descriptors or (not self.is_stable and self._pids()):
            return {}  # the last reading, after the end, is never skipped
        with self._limit:
            return {field: sum(map(_count, descriptors)) for field, descriptors in self._descriptors.items()}

    def close(self) -> None:
        opened, self._descriptors = self._descriptors, {}
        for descriptors in opened.values():
            for descriptor in descriptors:
                os.close(descriptor)

    def _open(self, counter: Counter, threads: Sequence[int], *, on_exec: bool) -> None:
        """Opens a counter. If kernel counting is denied, hardware counters count the user part.

        Software counters count only in the kernel: without permission they would stay at 0.
        """
        is_hardware = counter.kind == _HARDWARE
        number, opened = _open_all(counter, threads, on_exec=on_exec, user_only=False)
        user_only = number in (errno.EACCES, errno.EPERM) and is_hardware
        if user_only:
            number, opened = _open_all(counter, threads, on_exec=on_exec, user_only=True)
        if number:
            self.unknown[counter.field] = _why_not(number, is_hardware=is_hardware)
            return
        self._descriptors[counter.field] = opened
        part = " (user mode only)" if user_only else ""
        self.sources.setdefault(counter.group, f"perf_event_open {counter.label}{part}")

    def _give_up(self, why: str) -> None:
        self.unknown.update({counter.field: why for counter in COUNTERS})


def _open_all(
    counter: Counter, threads: Sequence[int], *, on_exec: bool, user_only: bool
) -> tuple[int, list[int]]:
    """Returns 0 and descriptors, or an error number and [] if one of the threads could not be counted."""
    if counter.kind == _HARDWARE and not _has_processor_counters():
        return errno.ENOENT, []
    attributes = perf_attributes(counter, on_exec=on_exec, user_only=user_only)
    opened: list[int] = []
    for thread in threads:
        descriptor = _perf_event_open(attributes, thread)
        if descriptor >= 0:
            opened.append(descriptor)
        elif -descriptor != errno.ESRCH or on_exec:  # a thread that has just ended counts nothing
            for other in opened:
                os.close(other)
            return -descriptor, []
    return (0, opened) if opened else (errno.ESRCH, [])


def perf_attributes(counter: Counter, *, on_exec: bool, user_only: bool) -> bytes:
    """Builds struct perf_event_attr: type, size, config, sample_period, sample_type, read_format, flags, …"""
    flags = _INHERIT
    if on_exec:
        flags |= _DISABLED | _ENABLE_ON_EXEC
    if user_only:
        flags |= _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    heads = (counter.kind, _ATTRIBUTES_SIZE)
    body = (counter.number, 0, 0, _TIMES, flags)
    return _joined(heads, 4) + _joined(body, 8) + bytes(_ATTRIBUTES_SIZE - 48)


def _joined(numbers: Sequence[int], size: int) -> bytes:
    return b"".join(number.to_bytes(size, sys.byteorder) for number in numbers)


def scaled_count(value: int, enabled_ns: int, running_ns: int) -> int:
    """Extrapolates a counter that shared the processor's few counters with others: the time that was not
    counted is assumed to be like the rest."""
    if running_ns == 0 or running_ns >= enabled_ns:
        return value
    return value * enabled_ns // running_ns


def _count(descriptor: int) -> int:
    value, enabled_ns, running_ns = memoryview(os.read(descriptor, _READ_SIZE)).cast("Q")
    return scaled_count(value, enabled_ns, running_ns)


def _perf_event_open(attributes: bytes, thread: int) -> int:
    """Returns a descriptor, or a negative error number."""
    number = _SYSTEM_CALLS.get(os.uname().machine)
    if number is None:
        return -errno.ENOSYS
    try:
        # On any CPU; in no group: an inherited group cannot be read as one.
        return call(number, attributes, thread, -1, -1, _CLOSE_ON_EXEC)
    except OSError as error:
        return -(error.errno or errno.EINVAL)


def _has_processor_counters() -> bool:
    """Returns False to skip an open that would fail, which costs every job's start a little."""
    try:
        return not _NO_PROCESSORS.issuperset(os.listdir(_DEVICES))
    except OSError:
        return True


def _why_not(number: int, *, is_hardware: bool) -> str:
    if number in (errno.EACCES, errno.EPERM):
        level = (read_text("/proc/sys/kernel/perf_event_paranoid") or "?").strip()
        return (
            f"counting needs CAP_PERFMON, or kernel.perf_event_paranoid at {'2' if is_hardware else '1'} or "
            f"below (it is {level})"
        )
    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "the processor's counters are unavailable here (most virtual machines hide them)"
    if number == errno.ENOSYS:
        return "this kernel has no perf_event_open (CONFIG_PERF_EVENTS)"
    if number == errno.EMFILE:
        return "no descriptors left for counters"
    return f"perf_event_open: {os.strerror(number)}"


def _threads_of(pids: Sequence[int]) -> list[int]:
    threads: list[int] = []
    for pid in pids:
        try:
            threads += map(int, os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return threads


def open_own_counter() -> int:
    """Opens an unused counter of the calling thread. Returns its descriptor, negative on failure."""
    return _perf_event_open(perf_attributes(COUNTERS[2], on_exec=False, user_only=False), 0)


def could_count(pid: int) -> Mapping[str, str]:
    """Returns for each counter why it could not be opened on that process; '' if it could."""
    answers = {}
    for counter in COUNTERS:
        number, opened = _open_all(counter, [pid], on_exec=False, user_only=counter.kind == _HARDWARE)
        for descriptor in opened:
            os.close(descriptor)
        answers[counter.field] = _why_not(number, is_hardware=counter.kind == _HARDWARE) if number else ""
    return answers
