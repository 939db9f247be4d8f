"""Sample buffer: a bounded selection of all samples of a job, with the exact memory peak.

The kernel keeps the highest charge of a cgroup, including page cache, and the high-water mark of a process,
including mapped files. The samples before and after the peak tell its composition: the charge beyond the
larger number of file pages was memory that could not be reclaimed.
"""

import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from joblens.analysis.numbers.rates import cpu_percent, file_pages, unreclaimable_bytes
from joblens.model.jobs.sample import GpuReading, Sample, sample_from_row, within_64_bits

UNRECLAIMABLE = "unreclaimable"  # Usage.memory_peak_basis of peaks computed here
_TOLERANCE_BYTES = 1 << 20
_TOLERANCE_SHARE = 50  # one part in so many
_START_AND_END = 2  # samples


class Mark(Struct, frozen=True):
    """A high-water mark, and the state when it was read."""

    highest: int | None = None
    files: int | None = None  # pages of files
    read: int | None = None  # from devices since the start: they became pages of files


class Peak(Struct, frozen=True):
    """Memory without file pages at its highest. `least`: it was that much, unless file pages came and went
    between two samples. `most`: it cannot have been more."""

    least: int = 0
    most: int = 0


def step_peak(before: Mark, mark: Mark) -> Peak | None:
    """Returns the peak between a mark and the previous one; None: its file pages are unknown."""
    known = [pages for pages in (before.files, mark.files) if pages is not None]
    if mark.highest is None or not known:
        return None
    has_risen = mark.highest > (before.highest or 0)
    least = mark.highest - max(known) - _pages_between(before, mark) if has_risen else 0
    return Peak(max(0, least), max(0, mark.highest - min(known)))


def _pages_between(before: Mark, mark: Mark) -> int:
    """Returns how many more file pages there were than at either end."""
    if before.files is None or mark.files is None or before.read is None or mark.read is None:
        return 0
    come = max(0, mark.read - before.read)
    gone = max(0, before.files + come - mark.files)
    return min(come, gone, before.files)


def peak_of(marks: Iterable[Mark]) -> Peak | None:
    """Returns the peak of marks in order; None if there is none."""
    before = Mark()
    steps = []
    for mark in marks:
        step = step_peak(before, mark)
        if step is not None:
            steps.append(step)
        highest = max(before.highest or 0, mark.highest or 0)
        before = replace(mark if mark.files is not None else before, highest=highest)
    if not steps:
        return None
    return Peak(max(step.least for step in steps), max(step.most for step in steps))


def group_mark(sample: Sample) -> Mark:
    return Mark(sample.memory_kernel_peak_bytes, file_pages(sample), sample.io_read_bytes)


def process_mark(sample: Sample) -> Mark:
    return Mark(sample.memory_largest_process_bytes, sample.memory_largest_process_file_bytes)


def is_noticeable(gap_bytes: int, beside_bytes: int) -> bool:
    """Returns whether a difference is too large for rounding and delays of the kernel."""
    return gap_bytes > max(_TOLERANCE_BYTES, beside_bytes // _TOLERANCE_SHARE)


def quiet_peak(
    samples: Sequence[Sample], sampled: int, io_bytes: int, removed_bytes: int
) -> tuple[int, bool] | None:
    """Returns the same as `group_peak` at a fraction of its cost, for most short jobs: those with samples
    only at start and end, no I/O and hardly any file pages. None: another kind of job."""
    if len(samples) != _START_AND_END or io_bytes or removed_bytes:
        return None
    first, last = samples
    highest, files = last.memory_kernel_peak_bytes, file_pages(last)
    is_zero_at_start = first.memory_file_bytes == 0 and not (
        first.memory_slab_reclaimable_bytes or first.memory_kernel_peak_bytes
    )
    if not is_zero_at_start or highest is None or files is None or files > _TOLERANCE_BYTES:
        return None
    return max(sampled, highest - files), False


def group_peak(
    samples: Sequence[Sample], sampled: int, held_bytes: int | None, io_bytes: int, removed_bytes: int
) -> tuple[int, bool] | None:
    """Returns the peak of a cgroup, and whether it is estimated;

    None: not kept, or its file pages are unknown.

    `sampled`: the largest sample. `held_bytes`: maximum of its processes, by their high-water marks.
    `io_bytes`: read from devices and written to files; `removed_bytes` of them in files that it soon removed.
    """
    found = peak_of(map(group_mark, samples))
    if found is None:
        return None
    # A short job's writes to removed files may be in no sample.
    removed = removed_bytes if len(samples) <= _START_AND_END else 0
    peak, most = max(sampled, found.least - removed), max(sampled, found.most)
    if held_bytes is not None:
        held = max(sampled, held_bytes)
        most = min(most, held)
        # More than its processes had: shared memory, or, with that much I/O, file pages that were freed
        # before the next sample.
        if peak > held and io_bytes >= peak - held:
            peak = held
    most = max(peak, most)
    unseen = max(0, io_bytes - removed - max((file_pages(sample) or 0 for sample in samples), default=0))
    is_estimate = is_noticeable(most - peak, peak) or is_noticeable(min(unseen, peak - sampled), peak)
    return peak, is_estimate


_MOST_KEPT = 400
_MOST_AS_OBJECTS = 20  # the newest; an object takes two kilobytes
_PACKED_AT_ONCE = 16
_ROWS_A_CHUNK = 64
_WATCHED = (  # the sample with the highest value of each is never thinned out
    "memory_current_bytes",
    "memory_kernel_peak_bytes",
    "memory_largest_process_bytes",
    "memory_file_bytes",
    "memory_virtual_bytes",
    "memory_swap_bytes",
    "memory_pss_bytes",
    "memory_huge_bytes",
    "memory_rss_sum_bytes",
    "processes",
    "threads",
    "open_files",
    "host_memory_used_bytes",
    # counters: these are the last samples that had them
    "io_call_read_bytes",
    "network_rx_bytes",
    "instructions",
    "cpu_migrations",
    "host_energy_package_uj",
)
_watched_of = attrgetter(*_WATCHED)
_MARKS = {"group peak": group_mark, "process peak": process_mark}
_WATCHED_OF_EACH_GPU = (
    "utilization",
    "memory_used_bytes",
    "temperature_c",
    "power_mw",
    "job_utilization",
    "job_memory_bytes",
    "job_busy_usec",  # counters again
    "energy_mj",
)


class RunningSummary:
    """`samples` begins with the first and ends with the last sample there was, peaks included; `count`
    is how many there were in all."""

    def __init__(self) -> None:
        self.count = 0
        self._added = 0
        self._chunks: list[Chunk] = []  # older ones
        self._recent: list[Sample] = []
        self._champions: dict[str, tuple[float, tuple[int, ...]]] = {}  # value, and which samples hold it

    @property
    def samples(self) -> list[Sample]:
        """Decodes the samples; for the end of the job."""
        if not self._chunks:
            return list(self._recent)

        old = [unpacked(row) for chunk in self._chunks for row in chunk.rows()]
        return old + self._recent

    @property
    def last(self) -> Sample | None:
        return self._recent[-1] if self._recent else None

    def add(self, sample: Sample) -> None:
        self._compare(sample)
        self._recent.append(sample)
        self._added += 1
        self.count += 1
        if len(self._recent) > _MOST_AS_OBJECTS:
            self._pack()

    def add_unstored(self, sample: Sample) -> None:
        """Adds an intermediate sample that may have a peak; it is not stored."""
        self.add(sample)
        self.count -= 1

    def _compare(self, sample: Sample) -> None:
        this = (self._added,)
        champions = self._champions
        for name, value in zip(_WATCHED, _watched_of(sample), strict=True):
            # As `_challenge` does it, for every sample of every job.
            if value is not None and ((champion := champions.get(name)) is None or value >= champion[0]):
                champions[name] = (value, this)
        self._challenge("unreclaimable", unreclaimable_bytes(sample), this)
        if sample.gpus:
            self._compare_gpus(sample.gpus, this)
        if self._recent:
            # A rate belongs to two neighbours; both stay.
            rate = cpu_percent(self._recent[-1], sample)
            self._challenge("cpu_percent", rate, (self._added - 1, self._added))
            self._compare_peaks(self._recent[-1], sample)

    def _compare_peaks(self, before: Sample, sample: Sample) -> None:
        """Updates the samples to keep for the peaks, with those of the file pages around them."""
        for name, mark_of in _MARKS.items():
            step = step_peak(mark_of(before), mark_of(sample))
            if step is not None:
                self._challenge(f"{name} least", step.least, (self._added - 1, self._added))
                self._challenge(f"{name} most", step.most, (self._added - 1, self._added))

    def _compare_gpus(self, gpus: Mapping[str, GpuReading], this: tuple[int]) -> None:
        for name, reading in gpus.items():
            for field in _WATCHED_OF_EACH_GPU:
                self._challenge(f"{name} {field}", getattr(reading, field), this)
        together = sum(reading.job_memory_bytes or 0 for reading in gpus.values())
        self._challenge("gpu memory", together, this)

    def _challenge(self, name: str, value: float | None, numbers: tuple[int, ...]) -> None:
        champion = self._champions.get(name)
        if value is not None and (champion is None or value >= champion[0]):
            self._champions[name] = (value, numbers)

    def _pack(self) -> None:

        older, self._recent = self._recent[:_PACKED_AT_ONCE], self._recent[_PACKED_AT_ONCE:]
        first = self._added - len(self._recent) - len(older)
        self._chunks.append(
            packed_chunk([packed_row(first + offset, each) for offset, each in enumerate(older)])
        )
        if sum(len(chunk.numbers) for chunk in self._chunks) > _MOST_KEPT:
            rows = self._thinned_out([row for chunk in self._chunks for row in chunk.rows()])
            starts = range(0, len(rows), _ROWS_A_CHUNK)
            self._chunks = [packed_chunk(rows[start : start + _ROWS_A_CHUNK]) for start in starts]

    def _thinned_out(self, rows: "list[Row]") -> "list[Row]":
        """Drops every second row, except peaks. The newest quarter stays.

        GPUs are sampled less often: every second of those samples stays too.
        """
        protected = {number for _, numbers in self._champions.values() for number in numbers}
        remaining: list[Row] = []
        dropped: list[Row] = []  # since the last one that stays
        counts = {False: 0, True: 0}
        start_of_recent = len(rows) * 3 // 4
        for row in rows[:start_of_recent]:
            if counts[row.has_gpus] % 2 == 0 or row.number in protected:
                remaining += [*self._with_file_pages(remaining, dropped, row), row]
                dropped = []
            else:
                dropped.append(row)
            counts[row.has_gpus] += 1
        return remaining + rows[start_of_recent:]

    def _with_file_pages(self, remaining: "list[Row]", dropped: "list[Row]", row: "Row") -> "list[Row]":
        """Returns the sample among `dropped` that shows file pages which came and went; without it they would
        count as memory of the job."""
        if not remaining or not dropped:
            return []

        step = step_peak(group_mark(unpacked(remaining[-1])), group_mark(unpacked(row)))
        if step is None or step.least <= self._champions["group peak least"][0]:
            return []
        return [max(dropped, key=lambda each: file_pages(unpacked(each)) or 0)]


_LEVEL = 1  # quick: neighbours are alike
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any])


class Row(Struct, frozen=True):
    """One packed sample, with the facts needed to drop it."""

    number: int  # which of the job's samples it is
    has_gpus: bool
    data: bytes


class Chunk(Struct, frozen=True):
    """Samples that follow each other, compressed together."""

    numbers: "array[int]"
    lengths: "array[int]"
    with_gpus: bytes  # 1 where it has some
    data: bytes

    def rows(self) -> Iterator[Row]:
        data, position = zlib.decompress(self.data), 0
        for number, length, has_gpus in zip(self.numbers, self.lengths, self.with_gpus, strict=True):
            yield Row(number, bool(has_gpus), data[position : position + length])
            position += length


def packed_chunk(rows: Sequence[Row]) -> Chunk:
    return Chunk(
        array("Q", [row.number for row in rows]),
        array("I", [len(row.data) for row in rows]),
        bytes(row.has_gpus for row in rows),
        zlib.compress(b"".join(row.data for row in rows), _LEVEL),
    )


def packed_row(number: int, sample: Sample) -> Row:
    try:
        data = _encoder.encode(astuple(sample))
    except OverflowError:
        data = _encoder.encode(astuple(within_64_bits(sample)))
    return Row(number, sample.gpus is not None, data)


def unpacked(row: Row) -> Sample:
    return sample_from_row(_decoder.decode(row.data))
