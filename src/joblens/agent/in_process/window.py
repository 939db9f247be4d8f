"""Window of measurement inside a host program: its instruments, what is recorded with every sample, and
the resulting usage."""

import contextlib
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.agent.instruments.table import DetailTaker, InstrumentSet, OtherProbes
from joblens.agent.measuring.meter import COUNTERS
from joblens.analysis.numbers.attribution import NOTHING, Counters
from joblens.analysis.numbers.sample_buffer import UNRECLAIMABLE, Mark, step_peak
from joblens.analysis.numbers.usage import mean_unreclaimable, total_usage
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import USAGE_NUMBERS, Code, Finding, Severity, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken
from joblens.probes.proc.own_tree import Level
from joblens.probes.proc.processes import IO_FIELDS

# Numbers of Usage that only instruments provide.
NUMBERS = (
    "network_rx_bytes",
    "network_tx_bytes",
    "network_rx_packets",
    "network_tx_packets",
    "gpu_memory_peak_bytes",
    "gpu_busy_usec",
    "gpu_energy_uj",
    "energy_package_uj",
    "energy_dram_uj",
    "co2_mg",
    "instructions",
    "cycles",
    "cpu_migrations",
)


_DETAILS_PER_WRITE = 16  # each replaces the one before it


class WindowInstruments:
    """Instruments of one window. `read` and `read_details` are called with every sample, by one thread at a
    time."""

    def __init__(self, uuid: str, opened: InstrumentSet) -> None:
        self._news: deque[DetailsTaken] = deque()
        self._others = OtherProbes(opened.probes)
        self._taker = DetailTaker(uuid, opened.details, self._news.extend)
        self._base: dict[str, int] = {}

    @property
    def details(self) -> Details:
        return self._taker.latest

    def read(self) -> dict[str, Any]:
        """Returns sample fields; counters since they were first read."""
        fields = self._others.read()
        for name in COUNTERS.intersection(fields):
            fields[name] = max(0, fields[name] - self._base.setdefault(name, fields[name]))
        return fields

    def take_news(self) -> list[DetailsTaken]:
        """Returns new details once; from any thread."""
        taken: deque[DetailsTaken] = deque(maxlen=_DETAILS_PER_WRITE)
        with contextlib.suppress(IndexError):  # none is left, or another thread has just taken the last
            while True:
                taken.append(self._news.popleft())
        return list(taken)

    def read_details(self, *, final: bool = False) -> None:
        self._taker.tick(final=final)

    def add_to(self, usage: Usage, samples: Sequence[Sample]) -> Usage:
        """Returns `usage` with the numbers of the instruments, and why the rest is unknown."""
        sources, reasons, lower = self._others.origins()
        totals = total_usage(
            samples,
            None,
            accounting="in-process",
            sources=sources,
            unknown=reasons,
            lower_bounds=lower,
        )
        known = {name: value for name in NUMBERS if (value := getattr(totals, name)) is not None}
        # CPU, memory and I/O of a host program have other sources.
        more = {group: source for group, source in totals.sources.items() if group not in usage.sources}
        unknown = usage.unknown | {name: totals.unknown[name] for name in NUMBERS if name in totals.unknown}
        return replace(
            usage,
            **known,
            sources=usage.sources | more if known else usage.sources,
            unknown={name: why for name, why in unknown.items() if name not in known},
            lower_bounds=usage.lower_bounds + tuple(name for name in totals.lower_bounds if name in known),
        )

    def close(self) -> None:
        self._others.close()
        self._taker.close()


_MOST_KEPT = 4096


class Window(Struct, eq=False, kw_only=True):
    """Changed only by the meter, under its lock."""

    thread: int
    interval_ns: int
    enclosing: tuple["Window", ...]  # windows around it in the same context (call stack or asyncio task)
    started_at_us: int
    started_mono_ns: int
    due_mono_ns: int
    on_samples: Callable[[int, tuple[Sample, ...]], None]  # (index of the first, samples)
    base_waited: resource.struct_rusage
    base_own: resource.struct_rusage
    base_own_peak_bytes: int
    had_children: bool  # some were alive at the start
    is_whole: bool = False  # measures the whole process; never a rival of other windows
    instruments: WindowInstruments | None = None
    used: Counters = NOTHING
    peak_bytes: int = 0
    peak_is_lower_bound: bool = False
    largest_bytes: int = 0
    own_mark: Mark = Mark()
    child_mark: Mark = Mark()
    file_peak_bytes: int = 0  # files mapped by one of the processes
    processes_peak: int = 1
    threads_peak: int = 1
    open_files_peak: int | None = None
    rivals: int = 0  # largest number of other windows at once that neither enclose it nor are enclosed by it
    has_rival_on_thread: bool = False
    has_thread_ended: bool = False
    estimated_usec: int = 0
    unclaimed_usec: int = 0
    samples: int = 0
    first_pending: int = 0
    pending: list[Sample] = field(default_factory=list)  # not yet passed on
    kept: list[Sample] = field(default_factory=list)  # for the profile: all, or an evenly spaced selection
    written_mono_ns: int = 0
    last_mono_ns: int = 0

    def own_bytes(self, level: Level) -> tuple[int, bool]:
        """Returns the peak memory of this process since the start, and whether it is exact: the high-water
        mark covers its whole life, so it counts for this window only if it rose within it."""
        if level.own_peak_bytes > self.base_own_peak_bytes:
            return level.own_peak_bytes, True
        return level.own_rss_bytes, False

    def take_sample(
        self, at_mono_ns: int, level: Level, host: dict[str, Any], *, final: bool = False
    ) -> None:
        """`at_mono_ns`: time of the reading in `used`."""
        self.last_mono_ns = max(at_mono_ns, self.started_mono_ns)
        self.peak_bytes = max(self.peak_bytes, level.anon_bytes + level.shmem_bytes + level.kernel_bytes)
        self.peak_is_lower_bound |= level.is_lower_bound
        self.largest_bytes = max(self.largest_bytes, self.own_bytes(level)[0], level.largest_child_bytes)
        self._find_spike(level)
        self.processes_peak = max(self.processes_peak, level.processes)
        self.threads_peak = max(self.threads_peak, level.threads)
        if level.open_files is not None:
            self.open_files_peak = max(self.open_files_peak or 0, level.open_files)
        beside = {} if self.instruments is None else self.instruments.read()
        sample = self._sample(level, {**host, **beside})
        if self.instruments is not None:
            self.instruments.read_details(final=final)
        self.samples += 1
        self.pending.append(sample)
        self.kept.append(sample)
        if len(self.kept) >= _MOST_KEPT:
            # Counters are cumulative, so every other sample is enough, at lower resolution.
            self.kept = self.kept[::2]

    def _find_spike(self, level: Level) -> None:
        """Adds high-water marks that have risen since the last sample, minus mapped files."""
        own = Mark(level.own_peak_bytes, level.own_file_bytes)
        before = replace(self.own_mark, highest=self.own_mark.highest or self.base_own_peak_bytes)
        highest_child = max(self.child_mark.highest or 0, level.largest_child_bytes)
        child = Mark(highest_child, level.largest_child_file_bytes)
        for step in (step_peak(before, own), step_peak(self.child_mark, child)):
            if step is not None:
                self.peak_bytes = max(self.peak_bytes, step.least)
        self.own_mark = own
        if level.largest_child_bytes:
            self.child_mark = child
        self.file_peak_bytes = max(self.file_peak_bytes, level.own_file_bytes, level.largest_child_file_bytes)

    def take_pending(self) -> tuple[int, tuple[Sample, ...]]:
        first, samples = self.first_pending, tuple(self.pending)
        self.pending = []
        self.first_pending += len(samples)
        self.written_mono_ns = time.monotonic_ns()
        return first, samples

    def rivals_among(self, others: Sequence["Window"]) -> list["Window"]:
        """Returns open windows that neither enclose it nor are enclosed by it."""
        if self.is_whole:
            return []
        return [
            other
            for other in others
            if other is not self
            and not other.is_whole
            and other not in self.enclosing
            and self not in other.enclosing
        ]

    def _sample(self, level: Level, others: dict[str, Any]) -> Sample:
        used = self.used
        return Sample(
            at_us=time.time_ns() // 1000,
            elapsed_us=(self.last_mono_ns - self.started_mono_ns) // 1000,
            cpu_total_usec=used.cpu_usec,
            cpu_user_usec=min(used.cpu_user_usec, used.cpu_usec),
            cpu_system_usec=max(0, used.cpu_usec - used.cpu_user_usec),
            memory_largest_process_bytes=self.largest_bytes,
            memory_anon_bytes=level.anon_bytes,
            memory_shmem_bytes=level.shmem_bytes,
            memory_kernel_bytes=level.kernel_bytes,
            memory_swap_bytes=level.swap_bytes,
            memory_virtual_bytes=level.virtual_bytes,
            faults_minor=used.faults_minor,
            faults_major=used.faults_major,
            io_read_bytes=used.io_read_bytes,
            io_write_bytes=used.io_write_bytes,
            io_call_read_bytes=used.io_call_read_bytes,
            io_call_write_bytes=used.io_call_write_bytes,
            io_call_reads=used.io_call_reads,
            io_call_writes=used.io_call_writes,
            processes=level.processes,
            threads=level.threads,
            open_files=level.open_files,
            **others,
        )


_KIB = 1024
_NOTICEABLE_USEC = 20_000  # CPU below this is not worth a finding
_NOT_ASKED = "not requested"
_NO_GROUP = "the host program's control group has more than this measurement"


def usage_of(window: Window, level: Level, *, has_children: bool) -> Usage:
    """`level`: at the end; `has_children`: some were alive then."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    numbers: dict[str, int | None] = {
        "cpu_total_usec": window.used.cpu_usec,
        "cpu_user_usec": min(window.used.cpu_user_usec, window.used.cpu_usec),
        "cpu_system_usec": max(0, window.used.cpu_usec - window.used.cpu_user_usec),
        "faults_minor": window.used.faults_minor,
        "faults_major": window.used.faults_major,
        "memory_mean_bytes": _mean_memory(window),
        "memory_file_peak_bytes": window.file_peak_bytes,
        "processes_peak": window.processes_peak,
        "threads_peak": window.threads_peak,
        "open_files_peak": window.open_files_peak,
        **{name: getattr(window.used, name) for name in IO_FIELDS},
    }
    lower = _lower_counters(window)
    has_waited = waited.ru_minflt > window.base_waited.ru_minflt
    lower += _add_memory(numbers, window, level, waited, has_waited=has_waited)
    if has_waited or has_children:
        lower.append("processes_peak")
    has_switches = not (has_children or window.had_children or window.rivals)
    if has_switches:
        numbers |= _context_switches(window, waited)
    unknown = {
        name: _NOT_ASKED if name in NUMBERS else _NO_GROUP
        for name in USAGE_NUMBERS
        if numbers.get(name) is None
    }
    if not has_switches:
        for name in ("context_switches_voluntary", "context_switches_involuntary"):
            unknown[name] = "the kernel provides it only for reaped processes, and not by thread"
    usage = Usage(
        **{name: value for name, value in numbers.items() if value is not None},
        sources=_sources(window, has_switches=has_switches),
        unknown=unknown,
        lower_bounds=tuple(lower),
        estimates=(),
        memory_peak_basis=UNRECLAIMABLE,
        shared=bool(window.rivals) or _has_earlier_children(window),
    )
    return usage if window.instruments is None else window.instruments.add_to(usage, window.kept)


def findings_of(window: Window) -> tuple[Finding, ...]:
    """Returns a finding about numbers that could not be separated, if any."""
    sentences: list[str] = []
    if window.has_rival_on_thread:
        sentences.append(
            "another measurement ran on the same thread at the same time, so both have its CPU time"
        )
    if window.estimated_usec > _NOTICEABLE_USEC:
        sentences.append(
            f"{window.estimated_usec / 1e6:.2f}s of child processes' CPU time is an estimate:"
            " children of overlapping measurements ended together"
        )
    if window.unclaimed_usec > _NOTICEABLE_USEC:
        sentences.append(
            f"{window.unclaimed_usec / 1e6:.2f}s of CPU time of threads without a measurement"
            " during the overlap is in no record"
        )
    if window.has_thread_ended:
        sentences.append("the thread it was started on ended before it did")
    if not window.rivals and _has_earlier_children(window):
        sentences.append("child processes of the enclosing measurement were running when it started")
    if not sentences:
        return ()
    return (
        Finding(
            code=Code.SHARED,
            severity=Severity.INFO,
            text="Measurements overlapped in one process: " + "; ".join(sentences) + ".",
            advice="Run such work as a separate command (joblens.run) to count it separately.",
        ),
    )


def _mean_memory(window: Window) -> int:
    """Returns the mean. Unlike a launched job, a host program is complete at its first and at its last
    sample."""
    return mean_unreclaimable(window.kept, window.kept) or 0


def _lower_counters(window: Window) -> list[str]:
    if not window.rivals:
        return []
    # I/O of reaped children is added to the process as a whole.
    lower = [*IO_FIELDS]
    if window.unclaimed_usec > _NOTICEABLE_USEC or window.has_thread_ended:
        lower += ["cpu_total_usec", "cpu_user_usec", "cpu_system_usec", "faults_minor", "faults_major"]
    return lower


def _add_memory(
    numbers: dict[str, int | None],
    window: Window,
    level: Level,
    waited: resource.struct_rusage,
    *,
    has_waited: bool,
) -> list[str]:
    """Returns the names of lower bounds."""
    own_bytes, own_is_exact = window.own_bytes(level)
    largest = max(window.largest_bytes, own_bytes)
    is_exact, spike_bytes = own_is_exact, 0
    # A child's own peak begins with the size of the process it was forked from, this one: it counts for the
    # child only if it exceeds our own peak. And it is the largest of all children ever reaped.
    child_bytes = waited.ru_maxrss * _KIB
    if child_bytes > level.own_peak_bytes and waited.ru_maxrss > window.base_waited.ru_maxrss:
        largest, is_exact = max(largest, child_bytes), True
        # Mapped files are known for children that were sampled.
        spike = step_peak(window.child_mark, Mark(child_bytes))
        spike_bytes = child_bytes if spike is None else spike.least
    numbers["memory_largest_process_bytes"] = largest
    numbers["memory_peak_bytes"] = max(window.peak_bytes, spike_bytes)
    lower = [] if is_exact else ["memory_largest_process_bytes"]
    was_alone = window.processes_peak == 1 and not has_waited
    if not (is_exact and was_alone) or window.peak_is_lower_bound:
        lower.append("memory_peak_bytes")
    return lower


def _context_switches(window: Window, waited: resource.struct_rusage) -> dict[str, int | None]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "context_switches_voluntary": own.ru_nvcsw
        + waited.ru_nvcsw
        - window.base_own.ru_nvcsw
        - window.base_waited.ru_nvcsw,
        "context_switches_involuntary": own.ru_nivcsw
        + waited.ru_nivcsw
        - window.base_own.ru_nivcsw
        - window.base_waited.ru_nivcsw,
    }


def _has_earlier_children(window: Window) -> bool:
    return bool(window.enclosing) and window.had_children


def _sources(window: Window, *, has_switches: bool) -> dict[str, str]:
    if window.rivals:
        cpu = "CPU clock of its thread and of the children that thread started, while others overlapped"
        faults = "/proc/self/task/TID/stat and its children, while others overlapped"
        io = "/proc/self/task/TID/io and living children, while others overlapped"
    else:
        cpu = faults = "getrusage of the process and of children waited for; living children's CPU clocks"
        faults = "getrusage of the process and of children waited for; /proc/PID/stat of living children"
        io = "/proc/self/io, which takes over what is waited for, and /proc/PID/io of living children"
    memory = "/proc/PID/status of the host program and its descendants"
    sources = {
        "cpu": cpu,
        "faults": faults,
        "io": io,
        "io_calls": io,
        "memory_peak": f"samples of {memory}, high-water marks where they rose, less file pages",
        "memory_file_peak": f"RssFile in {memory}, the largest of one process",
        "memory_largest_process": f"high-water marks in {memory}, getrusage of children",
        "memory_parts": memory,
        "processes": "/proc/PID/task/TID/children",
        "threads": "/proc/PID/stat",
        "open_files": "/proc/PID/fd",
    }
    if has_switches:
        sources["context_switches"] = "getrusage of the process and of children waited for"
    return sources
