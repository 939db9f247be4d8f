"""Upkeep shared by all stores: consistency problems, selection of samples to remove, paths of backups."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized

from joblens.model.errors import InputError, StoreCorrupt
from joblens.model.history import PruneReport
from joblens.stores.samples.packed_details import unpack_details
from joblens.stores.sql.batch import Sums

PIECES_CHECKED = 2000

# Counted by the query of that name.
DANGLING = {
    "jobs_without_detail": "jobs have no detail row",
    "runs_only_heard_of": "runs are named by jobs or events but not stored",
    "runs_without_workflow": "runs belong to a workflow that is not stored",
}


def damaged_samples(
    pieces: Iterable[tuple[int, int, int, bytes]], decode: Callable[[bytes], Sized], piece: str
) -> Iterator[str]:
    """Yields problems. `pieces`: job number, first sample, count, data. `piece`: its name in messages."""
    for number, first, count, data in pieces:
        try:
            found = len(decode(data))
        except StoreCorrupt as error:
            yield f"job {number}, samples from {first} on: {error}"
            continue
        if found != count:
            yield f"job {number}, samples from {first} on: {found} in the {piece} instead of {count}"


def damaged_details(packed: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """Yields problems of details, by job number."""
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


_JOBS_AT_ONCE = 500  # pruned per transaction, so that running jobs never wait long

Victim = tuple[int, str, int]  # number, uuid, bytes of samples


def victims(
    too_old: Sequence[Victim],
    oldest_first: Callable[[], Iterable[Victim]],
    total_bytes: int,
    max_bytes: int | None,
) -> Iterator[Victim]:
    """Selects jobs by oldest end: all that are too old, then as many as needed to fit the size limit."""
    yield from too_old
    if max_bytes is None:
        return
    remaining_bytes = total_bytes - sum(size for _, _, size in too_old)
    if remaining_bytes <= max_bytes:
        return
    gone = {number for number, _, _ in too_old}
    for number, uuid, size in oldest_first():
        if number not in gone:
            if remaining_bytes <= max_bytes:
                return
            remaining_bytes -= size
            yield number, uuid, size


def portions(found: Sequence[Victim]) -> Iterator[list[int]]:
    """Splits job numbers into portions of one transaction each."""
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


def check_backup_path(path: str) -> None:
    """Raises InputError if a backup cannot go there."""
    if os.path.lexists(path):
        raise InputError(
            f"{path} exists already", hint="name a new file for the backup, or remove the old one"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise InputError(f"{path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: {folder} cannot be written", hint="name a file in another directory")
