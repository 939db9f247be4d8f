"""What is wrong with what a store holds, in words. Pure: each store reads its own tables."""

from collections.abc import Callable, Iterable, Iterator, Sized

from joblens.model.errors import StoreCorrupt
from joblens.stores.samples.packed_details import unpack_details
from joblens.stores.sql.rollup_sums import Sums

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
