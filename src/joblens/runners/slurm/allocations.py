"""What a run has asked of Slurm and is not over, and what Slurm says of it."""

import time
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from joblens.model.clusters.placing import AllocationEvent, Placed, PlaceEnding, PlaceState
from joblens.model.clusters.slurm import QueuedJob
from joblens.model.errors import InputError, PlacingError
from joblens.model.jobs.job import Status
from joblens.plan.slurm.answers import ending_of, place_state
from joblens.plan.slurm.terms import seconds_asked
from joblens.runners.slurm.commands import SlurmCommands
from joblens.runners.slurm.ending import user_name

_FORGOTTEN_S = 60.0  # after which something that neither squeue nor sacct know is given up
_SOON_S = 1.0  # between looks, while something has just changed
_MANY_IDS = 200  # beyond which all of the user's jobs are asked for: the line would be too long
GONE_WORD = "FORGOTTEN"
_BY_OTHERS = ("NODE_FAIL", "PREEMPTED")  # ended neither by what ran there nor for how it was asked for


class LivePlace(Struct):
    placed: Placed
    hire: str = ""  # path of its file; '': an earlier driver had it
    output: str = ""  # file of what it prints
    queues: tuple[str, ...] = ()  # it serves
    asked: dict[str, str] = field(default_factory=dict)
    state: PlaceState = PlaceState.WAITING
    told: tuple[str, str] = ("", "")
    missing_since_s: float | None = None

    @property
    def is_allocation(self) -> bool:
        return self.placed.placement.is_allocation


class SlurmPlaces:
    def __init__(self, commands: SlurmCommands, poll_s: float) -> None:
        self._commands = commands
        self._poll_s = poll_s
        self._next_ask_s = 0.0
        self.live: dict[str, LivePlace] = {}
        self._of: dict[str, set[str]] = {}  # uuid -> ids

    def add(self, place: LivePlace) -> None:
        job_id = place.placed.placement.job_id
        self.live[job_id] = place
        for uuid in place.placed.uuids:
            self._of.setdefault(uuid, set()).add(job_id)
        self._next_ask_s = min(self._next_ask_s, time.monotonic() + _SOON_S)

    def serving(self, queue: str) -> list[LivePlace]:
        return [place for place in self.live.values() if queue in place.queues]

    def only_for(self, uuids: Iterable[str]) -> list[str]:
        """Ids of places that are for nothing but these."""
        wanted = set(uuids)
        ids = {job_id for uuid in wanted for job_id in self._of.get(uuid, ())}
        return sorted(one for one in ids if set(self.live[one].placed.uuids) <= wanted)

    def remove(self, job_id: str) -> LivePlace | None:
        place = self.live.pop(job_id, None)
        for uuid in place.placed.uuids if place is not None else ():
            left = self._of.get(uuid, set())
            left.discard(job_id)
            if not left:
                self._of.pop(uuid, None)
        return place

    def look(self) -> list[tuple[AllocationEvent, LivePlace]]:
        """Those that stand differently. Slurm is asked seldom: it serves many."""
        now_s = time.monotonic()
        if not self.live or now_s < self._next_ask_s:
            return []
        jobs = {job.job_id: job for job in self._ask()}
        missing = [job_id for job_id in self.live if job_id not in jobs]
        jobs |= self._ask_accounts(missing, now_s)
        news = []
        for job_id, place in list(self.live.items()):
            job = jobs.get(job_id)
            one = self._news(place, job) if job is not None else self._forgotten(place, now_s)
            if one is not None:
                news.append((one, place))
        self._next_ask_s = now_s + (min(_SOON_S, self._poll_s) if news else self._poll_s)
        return news

    def _ask(self) -> list[QueuedJob]:
        ids = sorted({job_id.partition("_")[0] for job_id in self.live})
        return self._commands.squeue(ids if len(ids) <= _MANY_IDS else None)

    def _ask_accounts(self, missing: Sequence[str], now_s: float) -> dict[str, QueuedJob]:
        """What squeue knows no more. Not every site keeps accounts."""
        if not missing:
            return {}
        for job_id in missing:
            place = self.live[job_id]
            place.missing_since_s = place.missing_since_s or now_s
        try:
            accounts = self._commands.sacct(missing)
        except PlacingError:
            return {}
        rows = [account.row for account in accounts if account.is_over]
        return {
            row.job_id: QueuedJob(job_id=row.job_id, state=row.state, reason=row.reason, nodes=row.nodes)
            for row in rows
            if row.job_id in self.live
        }

    def _news(self, place: LivePlace, job: QueuedJob) -> AllocationEvent | None:
        place.missing_since_s = None
        state = place_state(job.state)
        told = (job.state, job.reason if state is PlaceState.WAITING else "")
        if told == place.told:
            return None
        place.told, place.state = told, state
        return AllocationEvent(
            job_id=job.job_id,
            state=state,
            word=job.state,
            reason=job.reason,
            uuids=place.placed.uuids,
            is_by_others=job.state in _BY_OTHERS,
            ending=self._ending(place, job) if state is PlaceState.GONE else None,
        )

    def _ending(self, place: LivePlace, job: QueuedJob) -> PlaceEnding | None:
        """A walltime ends the job that had all of it; jobs that shared it run again."""
        walltime_s = job.time_limit_s or seconds_asked(place.asked)
        ending = ending_of(job.state, job.job_id, walltime_s=walltime_s)
        if ending is None or (ending.status is Status.TIMEOUT and place.is_allocation):
            return None
        if ending.status is Status.CANCELLED:
            return ending_of(job.state, job.job_id, cancelled_by=self._who_cancelled(job.job_id))
        return ending

    def _who_cancelled(self, job_id: str) -> str:
        """Only the accounts know."""
        try:
            jobs = self._commands.sacct([job_id])
        except (PlacingError, InputError):
            return ""
        return user_name(jobs[-1].row.cancelled_by) if jobs and jobs[-1].row.cancelled_by else ""

    def _forgotten(self, place: LivePlace, now_s: float) -> AllocationEvent | None:
        if place.missing_since_s is None or now_s - place.missing_since_s < _FORGOTTEN_S:
            return None
        return AllocationEvent(
            job_id=place.placed.placement.job_id,
            state=PlaceState.GONE,
            word=GONE_WORD,
            reason="neither squeue nor sacct know it",
            uuids=place.placed.uuids,
            is_by_others=True,
        )
