"""Where the jobs of a run wait at a cluster, by what its driver has noted."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.model.clusters.placement import Placed
from joblens.model.runs.run import PlaceEnded, PlacesWait, RunEvent, WorkPlaced

_SHOWN = 3


class PlaceOfJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    engine: str
    job_id: str  # the cluster's own; '': it has none while the job waits
    why: str = ""  # it waits, by the cluster's word
    is_shared: bool = False  # an allocation that serves other jobs as well

    def in_words(self) -> str:
        name = f" {'allocation' if self.is_shared else 'job'} {self.job_id}" if self.job_id else ""
        what = f"{self.engine}{name}"
        return f"waits at {what}: {self.why}" if self.why else f"waits at {what}"


class TellsWhy:
    """A line for each new reason for which a cluster lets jobs wait, not one for each job."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._told: set[str] = set()
        self._is_last = False  # what was told last: that something waits

    def lines(self, whys: Mapping[str, str]) -> list[str]:
        places: dict[str, list[str]] = {}
        for job_id, why in whys.items():
            if why not in self._told:
                places.setdefault(why, []).append(job_id)
        self._told |= places.keys()
        self._is_last |= bool(places)
        return [
            f"{'waits' if len(ids) == 1 else 'wait'} at {self._engine} {_listed(ids)}: {why}"
            for why, ids in places.items()
        ]

    def nothing_waits(self) -> list[str]:
        """Once after such lines, so that the last of them is not taken for what is so now."""
        was_last, self._is_last = self._is_last, False
        return [f"nothing waits at {self._engine} now"] if was_last else []


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:_SHOWN])
    return f"job {shown}" if len(ids) == 1 else f"jobs {shown}{', …' if len(ids) > _SHOWN else ''}"


class ClusterPlaces:
    """Of one run. Later events may be added at any time."""

    def __init__(self, events: Iterable[RunEvent] = ()) -> None:
        self._live: dict[str, Placed] = {}
        self._of: dict[str, str] = {}  # uuid -> its newest place
        self._serving: dict[str, str] = {}  # queue -> its newest place
        self._whys: dict[str, str] = {}
        self._words: dict[str, str] = {}  # of those that did not come to their own end
        for event in events:
            self.take(event)

    def take(self, event: RunEvent) -> None:
        fact = event.fact
        if isinstance(fact, WorkPlaced):
            for placed in fact.placed:
                self._add(placed)
        elif isinstance(fact, PlacesWait):
            self._whys.update(fact.whys)
        elif isinstance(fact, PlaceEnded):
            for job_id in fact.job_ids:
                if fact.is_gone:
                    self._words[job_id] = fact.word
                self._live.pop(job_id, None)
                self._whys.pop(job_id, None)

    def _add(self, placed: Placed) -> None:
        job_id = placed.placement.job_id
        self._live[job_id] = placed
        self._of.update(dict.fromkeys(placed.uuids, job_id))
        if placed.queue and not placed.uuids:
            self._serving[placed.queue] = job_id

    @property
    def live(self) -> tuple[Placed, ...]:
        """Those of whose end nobody has told."""
        return tuple(self._live.values())

    def last_word(self, uuid: str) -> str:
        """The cluster's, on the newest place that was for this job; '' unless it ended that."""
        return self._words.get(self._of.get(uuid, ""), "")

    def of(self, uuid: str, queue: str = "") -> PlaceOfJob | None:
        """`queue`: of its ticket; '': where there is only one it is that."""
        job_id = self._of.get(uuid, "")
        if job_id not in self._live:
            only = next(iter(self._serving.values()), "") if len(self._serving) == 1 else ""
            job_id = self._serving.get(queue, "") if queue else only
        placed = self._live.get(job_id)
        if placed is None:
            return None
        return PlaceOfJob(
            engine=placed.placement.engine,
            job_id=job_id if job_id != uuid else "",
            why=self._whys.get(job_id, ""),
            is_shared=not placed.uuids,
        )
