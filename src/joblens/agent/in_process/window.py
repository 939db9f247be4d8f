"""One measurement under way inside the host program, and what is noted about it at every look."""

import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from joblens.agent.in_process.instruments import WindowInstruments
from joblens.analysis.numbers.attribution import NOTHING, Counters
from joblens.analysis.numbers.memory_peak import Mark, step_peak
from joblens.model.jobs.sample import Sample
from joblens.probes.proc.own_tree import Level

_MOST_KEPT = 4096


class Window(Struct, eq=False, kw_only=True):
    """Only the meter changes it, under its lock."""

    thread: int
    interval_ns: int
    enclosing: tuple["Window", ...]  # begun before it in the same context (call stack or asyncio task)
    started_at_us: int
    started_mono_ns: int
    due_mono_ns: int
    on_samples: Callable[[int, tuple[Sample, ...]], None]  # (index of the first, samples)
    base_waited: resource.struct_rusage
    base_own: resource.struct_rusage
    base_own_peak_bytes: int
    had_children: bool  # some were alive at the start
    is_whole: bool = False  # of the whole process whatever else is measured; nobody's rival
    instruments: WindowInstruments | None = None
    used: Counters = NOTHING
    peak_bytes: int = 0
    peak_is_lower_bound: bool = False
    largest_bytes: int = 0
    own_mark: Mark = Mark()
    child_mark: Mark = Mark()
    file_peak_bytes: int = 0  # files that one of the processes maps
    processes_peak: int = 1
    threads_peak: int = 1
    open_files_peak: int | None = None
    rivals: int = 0  # most at once of the others that neither enclose it nor are enclosed by it
    has_rival_on_thread: bool = False
    has_thread_ended: bool = False
    estimated_usec: int = 0
    unclaimed_usec: int = 0
    samples: int = 0
    first_pending: int = 0
    pending: list[Sample] = field(default_factory=list)  # taken, not yet handed over
    kept: list[Sample] = field(default_factory=list)  # for the profile: all, or evenly thinned out
    written_mono_ns: int = 0
    last_mono_ns: int = 0

    def own_bytes(self, level: Level) -> tuple[int, bool]:
        """The most this process held since the start, and whether that is exact: its high-water mark is
        of its whole life, and tells about this window only when it rose within it."""
        if level.own_peak_bytes > self.base_own_peak_bytes:
            return level.own_peak_bytes, True
        return level.own_rss_bytes, False

    def take_sample(
        self, at_mono_ns: int, level: Level, host: dict[str, Any], *, final: bool = False
    ) -> None:
        """`at_mono_ns`: when `used` was looked at."""
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
            self.instruments.look(final=final)
        self.samples += 1
        self.pending.append(sample)
        self.kept.append(sample)
        if len(self.kept) >= _MOST_KEPT:
            # Counters are cumulative, so every other sample tells the same story, less finely.
            self.kept = self.kept[::2]

    def _find_spike(self, level: Level) -> None:
        """High-water marks that have risen since the last sample, less the files that are mapped."""
        own = Mark(level.own_peak_bytes, level.own_file_bytes)
        before = self.own_mark._replace(highest=self.own_mark.highest or self.base_own_peak_bytes)
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
        """Those under way that neither enclose it nor are enclosed by it."""
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
