"""Jobs of a run that run in allocations of a cluster. Their tickets are in the store before they are placed.
The cluster starts pilot workers (`app.clusters.pilot_worker`), which claim as all workers do. So messages
here only decide where workers start: a job that was placed twice runs once; one whose allocation is gone is
placed again."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct

from joblens.agent.clusters.allocations import (
    AllocationRetryLimit,
    AsyncPlacer,
    LiveAllocations,
    ReplacedAllocations,
)
from joblens.agent.queue.lost_workers import Journals, RunLostTickets
from joblens.agent.queue.store_client import AsyncStoreClient, StoreWatch
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext
from joblens.engine.progress.allocations import JobAllocation
from joblens.model.clusters.placement import (
    AllocationEvent,
    NodeCapacity,
    Placed,
    PlaceEnding,
    PlacementRequest,
    PlaceState,
)
from joblens.model.errors import InputError, JoblensError, PlanError
from joblens.model.jobs.job import Status
from joblens.model.runs.run import PlaceEnded, PlacesWait, RunFact, WorkPlaced
from joblens.ports.cluster import ClusterBackend
from joblens.views.runs.cluster_waits import WaitReasons, describe_wait

_POLL_SOON_S, _POLL_LATE_S = 0.5, 2.0
_PAUSE_FIRST_S, _PAUSE_LONGEST_S = 1.0, 30.0  # after the cluster could not be asked
_UNCOVERED_S = 3.0  # before what the cluster took but gave no allocation is requested again
_LOST_EVERY_S = 2.0
_WITHOUT_ALLOCATION = (Status.CANCELLED, Status.ERROR, Status.LOST)  # ends of jobs that no worker started


class ClusterSide(Struct, frozen=True, kw_only=True):
    """Parts of a run on a cluster."""

    placer: ClusterBackend
    lease_s: float
    journals: Journals
    placed: tuple[Placed, ...] = ()  # by an earlier driver of the run, and not over as far as is known


class PlacementEvents(Struct, frozen=True, kw_only=True):
    """Callbacks to the run, on its loop."""

    on_warning: Callable[[str], None]
    on_message: Callable[[str], None]
    on_fact: Callable[[RunFact], None]
    on_capacity: Callable[[NodeCapacity], None]  # of the run, altogether
    on_waiting: Callable[[str, str], None]  # (uuid, why): a job waits at the cluster
    on_requeued: Callable[[], None]
    on_unplaceable: Callable[[Sequence[str], str], None]  # these jobs will never get an allocation, and why
    # These jobs end with the allocation of this id.
    on_ended: Callable[[Collection[str], str, PlaceEnding], None]


class RunPlacing:
    """RunCalling."""

    def __init__(
        self, context: AgentContext, side: ClusterSide, store: AsyncStoreClient, events: PlacementEvents
    ) -> None:
        self._context = context
        self._side = side
        self._store = store
        self._events = events
        self._client = AsyncPlacer(side.placer, context.loop)
        self._lost = RunLostTickets(StoreWatch(side.lease_s, _LOST_EVERY_S), context.host, side.journals)
        self._allocations = LiveAllocations()
        self._parcels: dict[str, PlacementRequest] = {}  # of jobs that have not ended
        self._waiting: set[str] = set()  # of them, those that no worker has started
        self._in_hand: set[str] = set()  # of those, the ones that are being placed
        self._placed_at_s: dict[str, float] = {}  # when the cluster last took it
        self._began_in: dict[str, str] = {}  # uuid -> id of the allocation where it last began
        self._in_vain = AllocationRetryLimit(side.placer.engine, lambda uuid: self._parcels[uuid].name)
        self._whys: dict[str, str] = {}  # by place
        self._wait_reasons = WaitReasons(side.placer.engine)
        self._told: set[str] = set()
        self._replaced = ReplacedAllocations(side.placer.engine)
        self._is_polling = self._is_placing = self._is_seeking = False
        self._next_poll_s = self._next_placing_s = self._next_seeking_s = 0.0
        self._pause_s = 0.0

    # ---- what the run tells ----------------------------------------------------------------------------

    def start(self) -> None:
        self._client.start()
        for placed in self._side.placed:
            self._add(placed)
        if self._side.placed:
            self._client.ask(lambda placer: placer.follow(self._side.placed), lambda _: None, self._is_away)
        self._context.loop.add_timed(self)

    def call(self, parcels: Sequence[PlacementRequest]) -> None:
        for parcel in parcels:
            self._parcels[parcel.uuid] = parcel
            self._waiting.add(parcel.uuid)
        self._next_placing_s = min(self._next_placing_s, mono_s(self._context.clock) + self._pause_s)

    def follow(self, parcels: Sequence[PlacementRequest]) -> None:
        self.call(parcels)

    def is_now(self, uuid: str, status: Status) -> None:
        parcel = self._parcels.get(uuid)
        if parcel is None:
            return
        if status is Status.QUEUED:
            self._waiting.add(uuid)  # once more: its worker was lost, or gave it back
            return
        if status.is_final and uuid in self._waiting and self._may_be_expected(uuid, status):
            self.withdraw(uuid)
        self._waiting.discard(uuid)
        self._whys.pop(uuid, None)
        self._in_vain.forget(uuid)
        self._allocations.has_begun(uuid, parcel.queue)
        if status.is_final:
            self._forget(uuid)

    def began_in(self, uuid: str, job_id: str) -> None:
        """Notes where a job runs: once a worker has returned it, its record no longer says so."""
        if uuid in self._parcels:
            self._began_in[uuid] = job_id

    def _may_be_expected(self, uuid: str, status: Status) -> bool:
        """Returns whether its allocation still counts: it may have ended elsewhere, or have another one."""
        return status in _WITHOUT_ALLOCATION or self._allocations.has_several(uuid)

    def _forget(self, uuid: str) -> None:
        self._parcels.pop(uuid, None)
        self._began_in.pop(uuid, None)
        self._waiting.discard(uuid)
        self._placed_at_s.pop(uuid, None)
        self._in_vain.forget(uuid)

    def remind(self) -> None:
        pass  # it looks by itself

    def withdraw(self, uuid: str) -> None:
        if uuid in self._parcels:
            self._client.ask(lambda placer: placer.withdraw([uuid]), lambda _: None, self._is_away)

    def ask_for_nodes(self, action: int) -> None:
        self._client.ask(
            lambda placer: placer.ask_for_nodes(action),
            partial(self._has_placed, ()),
            lambda error: self._no_nodes(action, error),
        )

    def _no_nodes(self, action: int, error: JoblensError) -> None:
        if isinstance(error, PlanError):
            self._events.on_warning(f"action {action + 1}: {error}")
            return
        self._is_away(error)
        self._context.loop.call(lambda: self.ask_for_nodes(action))

    def close(self, *, is_over: bool) -> None:
        self._context.loop.remove_timed(self)
        self._client.close(is_over=is_over)
        if is_over:
            self._note_ended(self._allocations.live, "closed")

    def wait(self) -> None:
        self._client.wait()

    # ---- timed -----------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        due = []
        if self._waiting and not self._is_placing:
            due.append(self._next_placing_s)
        if self._parcels and not self._is_polling:
            due.append(self._next_poll_s)
        if self._parcels and not self._is_seeking:
            due.append(self._next_seeking_s)
        if self._parcels and (replacing_s := self._replaced.due_at_s()) is not None:
            due.append(replacing_s)
        return min(due, default=None)

    def wake(self) -> None:
        now_s = mono_s(self._context.clock)
        if self._waiting and not self._is_placing and now_s >= self._next_placing_s:
            self._next_placing_s = now_s + _POLL_SOON_S
            self._place(self._uncovered(now_s))
        if self._parcels and not self._is_polling and now_s >= self._next_poll_s:
            self._is_polling = True
            busy = frozenset(parcel.queue for parcel in self._parcels.values())
            self._client.ask(partial(_poll, busy), self._take_news, self._poll_failed)
        if self._parcels and not self._is_seeking and now_s >= self._next_seeking_s:
            self._seek(now_s)
        if self._parcels:
            self._replace_lost(now_s)

    def _seek(self, now_s: float) -> None:
        """Tickets whose workers are gone without the cluster having said so."""
        self._is_seeking = True
        self._next_seeking_s = now_s + min(_LOST_EVERY_S, self._side.lease_s / 4)
        own = frozenset(self._parcels)
        self._store.ask(
            partial(self._lost.take_back_expired, own), self._has_sought, lambda: self._has_sought(0)
        )

    def _has_sought(self, count: int) -> None:
        self._is_seeking = False
        if count:
            self._events.on_requeued()

    # ---- placing ---------------------------------------------------------------------------------------

    def _uncovered(self, now_s: float) -> list[PlacementRequest]:
        """Returns waiting jobs without an allocation that the cluster was not just asked for."""
        return [
            self._parcels[uuid]
            for uuid in self._waiting
            if uuid not in self._in_hand
            and not self._allocations.are_for(uuid, self._parcels[uuid].queue)
            and now_s - self._placed_at_s.get(uuid, -_UNCOVERED_S) >= _UNCOVERED_S
        ]

    def _place(self, parcels: Sequence[PlacementRequest]) -> None:
        if not parcels:
            return
        self._is_placing = True
        self._in_hand |= {parcel.uuid for parcel in parcels}
        self._client.ask(
            lambda placer: placer.place(parcels),
            partial(self._has_placed, parcels),
            partial(self._placing_failed, parcels),
        )

    def _has_placed(self, parcels: Sequence[PlacementRequest], placed: Sequence[Placed]) -> None:
        self._is_there()
        now_s = mono_s(self._context.clock)
        self._no_longer_in_hand(parcels)
        for parcel in parcels:
            self._placed_at_s[parcel.uuid] = now_s
        for one in placed:
            self._add(one)
        if placed:
            self._events.on_fact(WorkPlaced(tuple(placed)))
        self._next_poll_s = min(self._next_poll_s, now_s + _POLL_SOON_S)

    def _add(self, placed: Placed) -> None:
        self._allocations.add(placed)
        self._replaced.added(placed, self._allocations.serving(placed.queue))

    def _replace_lost(self, now_s: float) -> None:
        """Allocations that ended while jobs are left."""
        allocations = self._side.placer.allocations
        waiting = Counter(self._parcels[uuid].queue for uuid in self._waiting)
        for one in self._replaced.due(waiting, self._allocations.serving, now_s):
            self._events.on_warning(one.message)
            if one.count and allocations is not None:
                self._client.ask(
                    partial(_more_allocations, one.queue, one.count),
                    partial(self._has_placed, ()),
                    self._is_away,
                )

    def _no_longer_in_hand(self, parcels: Sequence[PlacementRequest]) -> None:
        if parcels:
            self._is_placing = False
        self._in_hand -= {parcel.uuid for parcel in parcels}

    def _placing_failed(self, parcels: Sequence[PlacementRequest], error: JoblensError) -> None:
        self._no_longer_in_hand(parcels)
        if not isinstance(error, InputError):
            self._is_away(error)
            return
        if not isinstance(error, PlanError):
            self._cannot_be(parcels, error)
            return
        kinds: dict[tuple[object, ...], list[PlacementRequest]] = {}
        for parcel in parcels:
            kinds.setdefault((parcel.requirements, parcel.scheduler, parcel.spec_job), []).append(parcel)
        if len(kinds) == 1:
            self._cannot_be(parcels, error)
            return
        for alike in kinds.values():  # only one of them may be at fault
            self._place(alike)

    def _cannot_be(self, parcels: Sequence[PlacementRequest], error: JoblensError) -> None:
        self._events.on_unplaceable([parcel.uuid for parcel in parcels], str(error))
        now_s = mono_s(self._context.clock)
        self._placed_at_s.update((parcel.uuid, now_s) for parcel in parcels)

    def _is_away(self, error: JoblensError) -> None:
        self._pause_s = min(_PAUSE_LONGEST_S, self._pause_s * 2 or _PAUSE_FIRST_S)
        self._next_placing_s = mono_s(self._context.clock) + self._pause_s
        if str(error) not in self._told:
            self._told.add(str(error))
            self._events.on_warning(f"{error}; jobs wait, and the cluster is asked again")

    def _is_there(self) -> None:
        self._pause_s = 0.0
        self._told.clear()

    # ---- what the cluster says -------------------------------------------------------------------------

    def _poll_failed(self, error: JoblensError) -> None:
        self._is_polling = False
        if isinstance(error, InputError):  # asking again does not help
            self._cannot_be([self._parcels[uuid] for uuid in self._waiting], error)
        else:
            self._is_away(error)
        self._next_poll_s = mono_s(self._context.clock) + max(_POLL_LATE_S, self._pause_s)

    def _take_news(self, answer: tuple[Sequence[AllocationEvent], NodeCapacity | None]) -> None:
        self._is_polling = False
        news, capacity = answer
        if capacity is not None:
            self._events.on_capacity(capacity)
        whys: dict[str, str] = {}
        in_vain: list[tuple[AllocationEvent, list[str]]] = []
        ended: dict[tuple[str, bool], list[str]] = {}
        for one in news:
            if one.state in (PlaceState.ENDED, PlaceState.GONE):
                if one.job_id in self._allocations.live:
                    ended.setdefault((one.word, self._is_gone(one)), []).append(one.job_id)
                in_vain.append((one, self._has_ended(one)))
            elif one.state is PlaceState.WAITING:
                whys.update(self._report_wait(one))
            else:
                self._replaced.runs(one.job_id, mono_s(self._context.clock))
                self._whys.pop(one.job_id, None)
        for (word, is_gone), job_ids in ended.items():
            self._note_ended(job_ids, word, is_gone=is_gone)
        self._tell_of(in_vain)
        if whys:
            self._events.on_fact(PlacesWait(whys))
            for line in self._wait_reasons.lines(self._labelled(whys)):
                self._events.on_message(line)
        for line in self._wait_reasons.nothing_waits() if not self._whys else ():
            self._events.on_message(line)
        self._next_poll_s = mono_s(self._context.clock) + (_POLL_SOON_S if news else _POLL_LATE_S)

    def _is_gone(self, news: AllocationEvent) -> bool:
        """An allocation that failed after its job had ended ended with the exit code of the job."""
        return news.state is PlaceState.GONE and not (
            news.uuids and not any(uuid in self._parcels for uuid in news.uuids)
        )

    def _report_wait(self, news: AllocationEvent) -> dict[str, str]:
        """-> what is new of it"""
        why = news.reason
        placed = self._allocations.live.get(news.job_id)
        if placed is None or not why or self._whys.get(news.job_id) == why:
            return {}
        self._whys[news.job_id] = why
        place = JobAllocation(
            engine=self._side.placer.engine,
            job_id="" if news.job_id in self._parcels else news.job_id,  # one that the cluster knows
            why=why,
            is_shared=not placed.uuids,
        )
        text = describe_wait(place)
        for uuid in self._waiting_for(placed):
            self._events.on_waiting(uuid, text)
        return {news.job_id: why}

    def _waiting_for(self, placed: Placed) -> list[str]:
        return self._allocations.waiting_for(placed, self._waiting, lambda uuid: self._parcels[uuid].queue)

    def _labelled(self, whys: Mapping[str, str]) -> dict[str, str]:
        """Returns the reasons by the names of allocations, or of jobs where the cluster has no names."""
        parcels = self._parcels
        return {parcels[one].name if one in parcels else one: why for one, why in whys.items()}

    def _has_ended(self, news: AllocationEvent) -> list[str]:
        """Returns the jobs that waited for it."""
        was_used = self._allocations.was_used(news.job_id)
        placed = self._allocations.remove(news.job_id)
        self._whys.pop(news.job_id, None)
        if placed is not None:
            self._replaced.ended(placed, news, mono_s(self._context.clock))
        named = frozenset(news.uuids or (placed.uuids if placed is not None else ()))
        if news.ending is not None:
            self._end_with_place(news.job_id, news.ending, named)
        if news.state is PlaceState.GONE:
            own = frozenset(self._parcels)
            self._store.ask(
                partial(self._lost.take_back_of_place, news.job_id, named, own),
                self._has_sought_place,
                lambda: None,  # by their leases, then
            )
        for uuid in named & self._waiting if news.ending is None else ():
            self._placed_at_s.pop(uuid, None)
        self._next_placing_s = min(self._next_placing_s, mono_s(self._context.clock) + self._pause_s)
        if placed is None or was_used or (not placed.uuids and self._allocations.serving(placed.queue)):
            return []  # others serve the same jobs
        return [uuid for uuid in self._waiting_for(placed) if news.ending is None or uuid not in named]

    def _end_with_place(self, job_id: str, ending: PlaceEnding, named: Collection[str]) -> None:
        """Ends the job of an allocation of its own, and those that had begun in a shared one. Comes before
        tickets are taken back: the store is asked in order."""
        began = {uuid for uuid, place in self._began_in.items() if place == job_id}
        uuids = (set(named) or began) & self._parcels.keys()
        now_s = mono_s(self._context.clock)
        self._placed_at_s.update((uuid, now_s) for uuid in uuids)  # none is placed again meanwhile
        if not named:
            count = f"{len(uuids)} job{'' if len(uuids) == 1 else 's'}"
            self._events.on_warning(
                f"allocation {job_id} was {ending.text}: {count} that ran there ended with it,"
                " jobs that had not begun go elsewhere"
            )
        self._events.on_ended(uuids, job_id, ending)

    def _note_ended(self, job_ids: Collection[str], word: str, *, is_gone: bool = False) -> None:
        """Writes one event for all: at Ray every job has an allocation of its own."""
        if job_ids:
            first, *others = job_ids
            self._events.on_fact(PlaceEnded(first, word, is_gone, tuple(others)))

    def _has_sought_place(self, count: int) -> None:
        if count:
            self._events.on_requeued()

    def _tell_of(self, in_vain: Sequence[tuple[AllocationEvent, Sequence[str]]]) -> None:
        for one in self._in_vain.count(in_vain):
            if one.warning:
                self._events.on_warning(one.warning)
            if one.hopeless:
                self._events.on_unplaceable(one.hopeless, one.why)
                now_s = mono_s(self._context.clock)
                self._placed_at_s.update((uuid, now_s) for uuid in one.hopeless)


def _more_allocations(queue: str, count: int, placer: ClusterBackend) -> list[Placed]:
    return placer.allocations.more_allocations(queue, count) if placer.allocations is not None else []


def _poll(
    busy: Collection[str], placer: ClusterBackend
) -> tuple[Sequence[AllocationEvent], NodeCapacity | None]:
    if placer.allocations is not None:
        placer.allocations.are_busy(busy)
    return placer.poll(), placer.capacity()
