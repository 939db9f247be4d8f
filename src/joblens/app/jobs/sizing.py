"""Right-sizing of jobs that belong to no workflow, put together by their names: commands that were run one by
one, and the imported past of a cluster."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from joblens.analysis.sizing.allocation import Strategy
from joblens.analysis.sizing.observations import Observation, observation_of
from joblens.analysis.sizing.rightsizing import Group, GroupAdvice, advise
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record
from joblens.ports.store import Store

MOST_LOOKED_AT = 100_000  # all are held in memory at once


class JobsSizing(Struct, frozen=True, kw_only=True):
    groups: tuple[GroupAdvice, ...]
    jobs: int  # that were looked at


def records_named(store: Store, names: Sequence[str], *, most: int = MOST_LOOKED_AT) -> Iterator[Record]:
    """The newest, oldest first; '*' and '?' stand for letters. Raises InputError when there is none."""
    query = HistoryQuery(names=tuple(names), sort=SortKey.STARTED, include_unfinished=False, limit=most)
    records = [record for record in store.records(query) if record.job.name]
    if not records:
        raise InputError(
            f"no job that has ended is called {' or '.join(names)}",
            hint="joblens history shows names; '*' and '?' stand for letters",
        )
    return reversed(records)


def size_jobs(
    store: Store,
    names: Sequence[str],
    *,
    strategy: Strategy = Strategy.MAX_SEEN,
    most: int = MOST_LOOKED_AT,
) -> JobsSizing:
    """What the newest of a name asked for is what it asks for now; each job counts as a run of its own."""
    seen: dict[str, list[Observation]] = {}
    newest: dict[str, Record] = {}
    count = 0
    for place, record in enumerate(records_named(store, names, most=most), start=1):
        count = place
        newest[record.job.name] = record
        observation = observation_of(record, place)
        if observation is not None:
            seen.setdefault(record.job.name, []).append(observation)
    groups = [
        Group(
            name=name,
            current=record.job.requirements,
            observations=tuple(seen.get(name, ())),
            is_named=True,
        )
        for name, record in sorted(newest.items())
    ]
    return JobsSizing(groups=tuple(advise(groups, strategy)), jobs=count)
