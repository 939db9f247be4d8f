"""Upkeep shared by all stores: problems in what a store holds, and samples that retention removes. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized

from joblens.model.errors import StoreCorrupt
from joblens.model.history import PruneReport
from joblens.stores.samples.packed_details import unpack_details
from joblens.stores.sql.batch import Sums

PIECES_CHECKED = 2000

# What the query of that name counts.
DANGLING = {
    "jobs_without_detail": "jobs have no detail row",
    "runs_only_heard_of": "runs are named by jobs or events and are not there themselves",
    "runs_without_workflow": "runs belong to no workflow that is there",
}


def damaged_samples(
    pieces: Iterable[tuple[int, int, int, bytes]], decode: Callable[[bytes], Sized], piece: str
) -> Iterator[str]:
    """`pieces`: number of the job, its first sample, how many there are, encoded. `piece`: what one is
    called."""
    for number, first, count, data in pieces:
        try:
            found = len(decode(data))
        except StoreCorrupt as error:
            yield f"job {number}, samples from {first} on: {error}"
            continue
        if found != count:
            yield f"job {number}, samples from {first} on: {found} in the {piece} instead of {count}"


def damaged_details(packed: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """By number of the job."""
    for number, data in packed:
        try:
            unpack_details(data)
        except StoreCorrupt as error:
            yield f"job {number}: {error}"


def wrong_sums(stored: Sums, true: Sums) -> Iterator[str]:
    for key in sorted(stored.keys() | true.keys()):
        if key not in stored or key not in true or not stored[key].agrees_with(true[key]):
            tool, status, metric = key
            yield f"the statistics of {metric} of {status} jobs of tool '{tool}' do not match the jobs"


_JOBS_AT_ONCE = 500  # pruned in one transaction, so that running jobs never wait long

Victim = tuple[int, str, int]  # number, uuid, bytes of samples


def victims(
    too_old: Sequence[Victim],
    oldest_first: Callable[[], Iterable[Victim]],
    total_bytes: int,
    max_bytes: int | None,
) -> Iterator[Victim]:
    """Oldest end first: all that are too old, then as many as it takes to fit."""
    yield from too_old
    if max_bytes is None:
        return
    left = total_bytes - sum(size for _, _, size in too_old)
    if left <= max_bytes:
        return
    gone = {number for number, _, _ in too_old}
    for number, uuid, size in oldest_first():
        if number not in gone:
            if left <= max_bytes:
                return
            left -= size
            yield number, uuid, size


def portions(found: Sequence[Victim]) -> Iterator[list[int]]:
    """Their numbers, as many at a time as are dropped in one transaction."""
    for start in range(0, len(found), _JOBS_AT_ONCE):
        yield [number for number, _, _ in found[start : start + _JOBS_AT_ONCE]]


def prune_report(found: Sequence[Victim], samples: int, total_bytes: int, *, dry_run: bool) -> PruneReport:
    freed = sum(size for _, _, size in found)
    return PruneReport(
        jobs=len(found),
        samples=samples,
        bytes=freed,
        uuids=tuple(uuid for _, uuid, _ in found),
        kept_bytes=total_bytes - freed,
        dry_run=dry_run,
    )
