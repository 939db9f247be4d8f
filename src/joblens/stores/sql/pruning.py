"""Whose samples go when they are old or too much. Pure: each store says what it has, and drops it."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from joblens.model.history import PruneReport

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
