"""Places of a run that ended before anything began in them: how often a job may have that before it is given
up, and what people are told. Knows nothing but what it is told."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.model.clusters.placing import AllocationEvent

_MOST = 3  # places of one job
_MOST_NAMES = 5


class FailedAllocation(Struct, frozen=True):
    """All that ended for one reason, seen at the same look."""

    hopeless: tuple[str, ...]  # jobs for which no other place is asked
    why: str  # of them
    warning: str  # of the others; '': there are none


class AllocationRetryLimit:
    def __init__(self, engine: str, name_of: Callable[[str], str]) -> None:
        self._engine = engine
        self._name_of = name_of
        self._counts: Counter[str] = Counter()

    def forget(self, uuid: str) -> None:
        self._counts.pop(uuid, None)

    def count(self, ended: Iterable[tuple[AllocationEvent, Sequence[str]]]) -> list[FailedAllocation]:
        """`ended`: places, and the jobs that wait which each was for. A cluster or a node that goes away says
        nothing of the jobs that it had: they may have any number of places."""
        alike: dict[tuple[str, bool], dict[str, list[str]]] = {}
        for news, uuids in ended:
            if uuids:
                key = (_words(news), news.is_by_others)
                alike.setdefault(key, {})[news.job_id] = list(uuids)
        return [
            self._all_of(places, words, is_by_others=is_by_others)
            for (words, is_by_others), places in alike.items()
        ]

    def _all_of(self, places: Mapping[str, list[str]], words: str, *, is_by_others: bool) -> FailedAllocation:
        uuids = list(dict.fromkeys(uuid for some in places.values() for uuid in some))
        if not is_by_others:
            self._counts.update(uuids)
        hopeless = tuple(uuid for uuid in uuids if self._counts[uuid] >= _MOST)
        again = [uuid for uuid in uuids if self._counts[uuid] < _MOST]
        how = f"ended before anything began there ({words})"
        what = f"{self._named(places)} {how}"
        its = what if len(places) == 1 else f"its place at {self._engine} {how}"
        return FailedAllocation(
            hopeless,
            f"{its}, and so did {_MOST - 1} before it",
            f"{what}: {self._listed(again)} placed again" if again else "",
        )

    def _named(self, places: Mapping[str, list[str]]) -> str:
        if len(places) > 1:
            return f"{len(places)} places at {self._engine}"
        ((job_id, uuids),) = places.items()
        return f"a place at {self._engine}" if job_id in uuids else f"{self._engine} job {job_id}"

    def _listed(self, uuids: Sequence[str]) -> str:
        names = ", ".join(map(self._name_of, uuids[:_MOST_NAMES]))
        return names if len(uuids) <= _MOST_NAMES else f"{names}, … ({len(uuids)} jobs)"


def _words(news: AllocationEvent) -> str:
    return ": ".join(word for word in (news.word, news.reason) if word) or news.state.value
