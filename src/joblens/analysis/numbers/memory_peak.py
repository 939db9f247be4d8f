"""Peak memory without file pages.

The kernel keeps the highest charge of a control group, page cache included, and the high-water mark of a
process, mapped files included. Neither says what it was made of. The samples before and after the peak do:
the charge beyond the larger number of file pages was memory that the kernel could not take back."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from joblens.analysis.numbers.rates import file_pages
from joblens.model.jobs.sample import Sample

UNRECLAIMABLE = "unreclaimable"  # what Usage.memory_peak_basis says of peaks that are made here
_TOLERANCE_BYTES = 1 << 20
_TOLERANCE_SHARE = 50  # one part in so many
_START_AND_END = 2  # samples


class Mark(NamedTuple):
    """A high-water mark, and how things stood when it was read."""

    highest: int | None = None
    files: int | None = None  # pages of files
    read: int | None = None  # from devices since the start: they became pages of files


class Peak(Struct, frozen=True):
    """Memory without file pages at its highest. `least`: it was that much, unless file pages came and went
    between two samples. `most`: it cannot have been more."""

    least: int = 0
    most: int = 0


def step_peak(before: Mark, mark: Mark) -> Peak | None:
    """The peak between a mark and the one before it; None: its file pages are not known."""
    known = [pages for pages in (before.files, mark.files) if pages is not None]
    if mark.highest is None or not known:
        return None
    has_risen = mark.highest > (before.highest or 0)
    least = mark.highest - max(known) - _pages_between(before, mark) if has_risen else 0
    return Peak(max(0, least), max(0, mark.highest - min(known)))


def _pages_between(before: Mark, mark: Mark) -> int:
    """By how much there were more file pages than at either end: some had come that were read, others had not
    gone yet that were there before."""
    if before.files is None or mark.files is None or before.read is None or mark.read is None:
        return 0
    come = max(0, mark.read - before.read)
    gone = max(0, before.files + come - mark.files)
    return min(come, gone, before.files)


def peak_of(marks: Iterable[Mark]) -> Peak | None:
    """`marks` in their order; None where none of them says anything."""
    before = Mark()
    steps = []
    for mark in marks:
        step = step_peak(before, mark)
        if step is not None:
            steps.append(step)
        highest = max(before.highest or 0, mark.highest or 0)
        before = (
            mark._replace(highest=highest) if mark.files is not None else before._replace(highest=highest)
        )
    if not steps:
        return None
    return Peak(max(step.least for step in steps), max(step.most for step in steps))


def group_mark(sample: Sample) -> Mark:
    return Mark(sample.memory_kernel_peak_bytes, file_pages(sample), sample.io_read_bytes)


def process_mark(sample: Sample) -> Mark:
    return Mark(sample.memory_largest_process_bytes, sample.memory_largest_process_file_bytes)


def is_noticeable(gap_bytes: int, beside_bytes: int) -> bool:
    """Two peaks that are further apart than this are not the same number."""
    return gap_bytes > max(_TOLERANCE_BYTES, beside_bytes // _TOLERANCE_SHARE)


def quiet_peak(
    samples: Sequence[Sample], sampled: int, io_bytes: int, removed_bytes: int
) -> tuple[int, bool] | None:
    """As `group_peak`, at a fraction of its cost, for most short jobs: seen at start and end alone, with no
    I/O and hardly any file pages. None: not such a job."""
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
    """The peak of a control group, and whether it is an estimate; None: the kernel kept none, or its file
    pages are not known. `sampled`: the largest sample. `held_bytes`: what its processes can have held at
    most, by their high-water marks. `io_bytes` it has read from devices and written to files; `removed_bytes`
    of them lay in files that it removed soon."""
    found = peak_of(map(group_mark, samples))
    if found is None:
        return None
    # No sample of a short job can have seen what it wrote and removed.
    removed = removed_bytes if len(samples) <= _START_AND_END else 0
    peak, most = max(sampled, found.least - removed), max(sampled, found.most)
    if held_bytes is not None:
        held = max(sampled, held_bytes)
        most = min(most, held)
        # More than its processes had: shared memory, or, if it read or wrote that much, pages of files that
        # were gone before the next sample.
        if peak > held and io_bytes >= peak - held:
            peak = held
    most = max(peak, most)
    unseen = max(0, io_bytes - removed - max((file_pages(sample) or 0 for sample in samples), default=0))
    is_estimate = is_noticeable(most - peak, peak) or is_noticeable(min(unseen, peak - sampled), peak)
    return peak, is_estimate
