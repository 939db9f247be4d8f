"""Placement of a run's jobs in allocations of a cluster. Their tickets are in the store before they are
placed. The cluster starts pilot workers (`app.clusters.pilot_worker`), which claim as all workers do. So this
only decides where workers start: a job that was placed twice runs once; a job whose allocation is gone is
resubmitted."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct

from joblens.agent.clusters.allocations import (
    AllocationRetryLimit,
    AsyncBackend,
    LiveAllocations,
    ReplacedAllocations,
)
from joblens.agent.queue.lost_workers import Journals, RunLostTickets
from joblens.agent.queue.store_client import AsyncStoreClient, StoreWatch
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext
from joblens.engine.progress.allocations import JobAllocation
from joblens.model.clusters.placement import (
    AllocationEnding,
    AllocationEvent,
    AllocationState,
    NodeCapacity,
    Placed,
    PlacementRequest,
)
from joblens.model.errors import InputError, JoblensError, PlanError
from joblens.model.jobs.job import Status
from joblens.model.runs.run import AllocationEnded, AllocationsWait, RunFact, WorkPlaced
from joblens.ports.cluster import ClusterBackend
from joblens.views.runs.cluster_waits import WaitReasons, describe_wait

_POLL_SOON_S, _POLL_LATE_S = 0.5, 2.0
_PAUSE_FIRST_S, _PAUSE_LONGEST_S = 1.0, 30.0  # after a failed request to the cluster
_UNCOVERED_S = 3.0  # before jobs that the cluster accepted without an allocation are requested again
_LOST_EVERY_S = 2.0
_WITHOUT_ALLOCATION = (Status.CANCELLED, Status.ERROR, Status.LOST)  # ends of jobs that no worker started


class ClusterSide(Struct, frozen=True, kw_only=True):
    """Parts of a run on a cluster."""

    backend: ClusterBackend
    lease_s: float
    journals: Journals
    placed: tuple[Placed, ...] = ()  # by an earlier driver of the run, and not over as far as is known


class PlacementEvents(Struct, frozen=True, kw_only=True):
    """Callbacks to the run, on its loop."""

    on_warning: Callable[[str], None]
    on_message: Callable[[str], None]
    on_fact: Callable[[RunFact], None]
    on_capacity: Callable[[NodeCapacity], None]  # of the whole run
    on_waiting: Callable[[str, str], None]  # (uuid, why): a job waits at the cluster
    on_requeued: Callable[[], None]
    on_unplaceable: Callable[[Sequence[str], str], None]  # these jobs will never get an allocation, and why
    # These jobs end with the allocation of this id.
    on_ended: Callable[[Collection[str], str, AllocationEnding], None]


class RunPlacement:
    """WorkerNotification of a cluster."""

    def __init__(
        self, context: AgentContext, side: ClusterSide, store: AsyncStoreClient, events: PlacementEvents
    ) -> None:
        self._context = context
        self._side = side
        self._store = store
        self._events = events
        self._client = AsyncBackend(side.backend, context.loop)
        self._lost = RunLostTickets(StoreWatch(side.lease_s, _LOST_EVERY_S), context.host, side.journals)
        self._allocations = LiveAllocations()
        self._requests: dict[str, PlacementRequest] = {}  # of jobs that have not ended
        self._waiting: set[str] = set()  # of them, those that no worker has started
        self._being_placed: set[str] = set()  # of those, the ones that are being placed
        self._placed_at_s: dict[str, float] = {}  # when the cluster last accepted it
        self._began_in: dict[str, str] = {}  # uuid -> id of the allocation in which it last began
        self._retry_limit = AllocationRetryLimit(side.backend.engine, lambda uuid: self._requests[uuid].name)
        self._reasons: dict[str, str] = {}  # by allocation
        self._wait_reasons = WaitReasons(side.backend.engine)
        self._reported: set[str] = set()
        self._replaced = ReplacedAllocations(side.backend.engine)
        self._is_polling = self._is_placing = self._is_finding_lost = False
        self._next_poll_s = self._next_placing_s = self._next_finding_s = 0.0
        self._pause_s = 0.0

    # ---- requests of the run -------------------------------------------------------------------------

    def start(self) -> None:
        self._client.start()
        for placed in self._side.placed:
            self._add(placed)
        if self._side.placed:
            self._client.ask(
                lambda backend: backend.follow(self._side.placed), lambda _: None, self._on_unreachable
            )
        self._context.loop.add_timed(self)

    def call(self, requests: Sequence[PlacementRequest]) -> None:
        for request in requests:
            self._requests[request.uuid] = request
            self._waiting.add(request.uuid)
        self._next_placing_s = min(self._next_placing_s, mono_s(self._context.clock) + self._pause_s)

    def follow(self, requests: Sequence[PlacementRequest]) -> None:
        self.call(requests)

    def set_status(self, uuid: str, status: Status) -> None:
        request = self._requests.get(uuid)
        if request is None:
            return
        if status is Status.QUEUED:
            self._waiting.add(uuid)  # again: its worker was lost, or returned it
            return
        if status.is_final and uuid in self._waiting and self._may_be_expected(uuid, status):
            self.withdraw(uuid)
        self._waiting.discard(uuid)
        self._reasons.pop(uuid, None)
        self._retry_limit.forget(uuid)
        self._allocations.mark_used(uuid, request.queue)
        if status.is_final:
            self._forget(uuid)

    def began_in(self, uuid: str, job_id: str) -> None:
        """Notes the allocation of a job: once a worker has returned it, its record no longer has it."""
        if uuid in self._requests:
            self._began_in[uuid] = job_id

    def _may_be_expected(self, uuid: str, status: Status) -> bool:
        """Returns whether its allocation still counts: it may have ended elsewhere, or have another one."""
        return status in _WITHOUT_ALLOCATION or self._allocations.has_several(uuid)

    def _forget(self, uuid: str) -> None:
        self._requests.pop(uuid, None)
        self._began_in.pop(uuid, None)
        self._waiting.discard(uuid)
        self._placed_at_s.pop(uuid, None)
        self._retry_limit.forget(uuid)

    def remind(self) -> None:
        pass  # it polls by itself

    def withdraw(self, uuid: str) -> None:
        if uuid in self._requests:
            self._client.ask(lambda backend: backend.withdraw([uuid]), lambda _: None, self._on_unreachable)

    def ask_for_nodes(self, action: int) -> None:
        self._client.ask(
            lambda backend: backend.ask_for_nodes(action),
            partial(self._on_placed, ()),
            lambda error: self._no_nodes(action, error),
        )

    def _no_nodes(self, action: int, error: JoblensError) -> None:
        if isinstance(error, PlanError):
            self._events.on_warning(f"action {action + 1}: {error}")
            return
        self._on_unreachable(error)
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
        if self._requests and not self._is_polling:
            due.append(self._next_poll_s)
        if self._requests and not self._is_finding_lost:
            due.append(self._next_finding_s)
        if self._requests and (replacing_s := self._replaced.due_at_s()) is not None:
            due.append(replacing_s)
        return min(due, default=None)

    def wake(self) -> None:
        now_s = mono_s(self._context.clock)
        if self._waiting and not self._is_placing and now_s >= self._next_placing_s:
            self._next_placing_s = now_s + _POLL_SOON_S
            self._place(self._uncovered(now_s))
        if self._requests and not self._is_polling and now_s >= self._next_poll_s:
            self._is_polling = True
            busy = frozenset(request.queue for request in self._requests.values())
            self._client.ask(partial(_poll, busy), self._take_news, self._poll_failed)
        if self._requests and not self._is_finding_lost and now_s >= self._next_finding_s:
            self._find_lost(now_s)
        if self._requests:
            self._replace_lost(now_s)

    def _find_lost(self, now_s: float) -> None:
        """Takes back tickets whose workers are gone without a report of the cluster."""
        self._is_finding_lost = True
        self._next_finding_s = now_s + min(_LOST_EVERY_S, self._side.lease_s / 4)
        own = frozenset(self._requests)
        self._store.ask(
            partial(self._lost.take_back_expired, own), self._on_lost_found, lambda: self._on_lost_found(0)
        )

    def _on_lost_found(self, count: int) -> None:
        self._is_finding_lost = False
        if count:
            self._events.on_requeued()

    # ---- placing ---------------------------------------------------------------------------------------

    def _uncovered(self, now_s: float) -> list[PlacementRequest]:
        """Returns waiting jobs without an allocation that were not requested just now."""
        return [
            self._requests[uuid]
            for uuid in self._waiting
            if uuid not in self._being_placed
            and not self._allocations.has_allocation(uuid, self._requests[uuid].queue)
            and now_s - self._placed_at_s.get(uuid, -_UNCOVERED_S) >= _UNCOVERED_S
        ]

    def _place(self, requests: Sequence[PlacementRequest]) -> None:
        if not requests:
            return
        self._is_placing = True
        self._being_placed |= {request.uuid for request in requests}
        self._client.ask(
            lambda backend: backend.place(requests),
            partial(self._on_placed, requests),
            partial(self._on_placing_failed, requests),
        )

    def _on_placed(self, requests: Sequence[PlacementRequest], placed: Sequence[Placed]) -> None:
        self._on_reachable()
        now_s = mono_s(self._context.clock)
        self._end_placing(requests)
        for request in requests:
            self._placed_at_s[request.uuid] = now_s
        for one in placed:
            self._add(one)
        if placed:
            self._events.on_fact(WorkPlaced(tuple(placed)))
        self._next_poll_s = min(self._next_poll_s, now_s + _POLL_SOON_S)

    def _add(self, placed: Placed) -> None:
        self._allocations.add(placed)
        self._replaced.added(placed, self._allocations.serving(placed.queue))

    def _replace_lost(self, now_s: float) -> None:
        """Requests allocations in place of those that ended while jobs are left."""
        allocations = self._side.backend.allocations
        waiting = Counter(self._requests[uuid].queue for uuid in self._waiting)
        for one in self._replaced.due(waiting, self._allocations.serving, now_s):
            self._events.on_warning(one.message)
            if one.count and allocations is not None:
                self._client.ask(
                    partial(_more_allocations, one.queue, one.count),
                    partial(self._on_placed, ()),
                    self._on_unreachable,
                )

    def _end_placing(self, requests: Sequence[PlacementRequest]) -> None:
        if requests:
            self._is_placing = False
        self._being_placed -= {request.uuid for request in requests}

    def _on_placing_failed(self, requests: Sequence[PlacementRequest], error: JoblensError) -> None:
        self._end_placing(requests)
        if not isinstance(error, InputError):
            self._on_unreachable(error)
            return
        if not isinstance(error, PlanError):
            self._fail_unplaceable(requests, error)
            return
        kinds: dict[tuple[object, ...], list[PlacementRequest]] = {}
        for request in requests:
            kinds.setdefault((request.requirements, request.scheduler, request.spec_job), []).append(request)
        if len(kinds) == 1:
            self._fail_unplaceable(requests, error)
            return
        for alike in kinds.values():  # only one of them may be at fault
            self._place(alike)

    def _fail_unplaceable(self, requests: Sequence[PlacementRequest], error: JoblensError) -> None:
        self._events.on_unplaceable([request.uuid for request in requests], str(error))
        now_s = mono_s(self._context.clock)
        self._placed_at_s.update((request.uuid, now_s) for request in requests)

    def _on_unreachable(self, error: JoblensError) -> None:
        self._pause_s = min(_PAUSE_LONGEST_S, self._pause_s * 2 or _PAUSE_FIRST_S)
        self._next_placing_s = mono_s(self._context.clock) + self._pause_s
        if str(error) not in self._reported:
            self._reported.add(str(error))
            self._events.on_warning(f"{error}; jobs wait for the next attempt")

    def _on_reachable(self) -> None:
        self._pause_s = 0.0
        self._reported.clear()

    # ---- news of the cluster -------------------------------------------------------------------------

    def _poll_failed(self, error: JoblensError) -> None:
        self._is_polling = False
        if isinstance(error, InputError):  # a retry does not help
            self._fail_unplaceable([self._requests[uuid] for uuid in self._waiting], error)
        else:
            self._on_unreachable(error)
        self._next_poll_s = mono_s(self._context.clock) + max(_POLL_LATE_S, self._pause_s)

    def _take_news(self, answer: tuple[Sequence[AllocationEvent], NodeCapacity | None]) -> None:
        self._is_polling = False
        news, capacity = answer
        if capacity is not None:
            self._events.on_capacity(capacity)
        whys: dict[str, str] = {}
        failed: list[tuple[AllocationEvent, list[str]]] = []
        ended: dict[tuple[str, bool], list[str]] = {}
        for one in news:
            if one.state in (AllocationState.ENDED, AllocationState.GONE):
                if one.job_id in self._allocations.live:
                    ended.setdefault((one.word, self._is_gone(one)), []).append(one.job_id)
                failed.append((one, self._has_ended(one)))
            elif one.state is AllocationState.WAITING:
                whys.update(self._report_wait(one))
            else:
                self._replaced.runs(one.job_id, mono_s(self._context.clock))
                self._reasons.pop(one.job_id, None)
        for (word, is_gone), job_ids in ended.items():
            self._note_ended(job_ids, word, is_gone=is_gone)
        self._report_failed(failed)
        if whys:
            self._events.on_fact(AllocationsWait(whys))
            for line in self._wait_reasons.lines(self._labelled(whys)):
                self._events.on_message(line)
        for line in self._wait_reasons.nothing_waits() if not self._reasons else ():
            self._events.on_message(line)
        self._next_poll_s = mono_s(self._context.clock) + (_POLL_SOON_S if news else _POLL_LATE_S)

    def _is_gone(self, news: AllocationEvent) -> bool:
        """Returns whether the allocation failed. One that failed after the end of its job has only the exit
        code of the job."""
        return news.state is AllocationState.GONE and not (
            news.uuids and not any(uuid in self._requests for uuid in news.uuids)
        )

    def _report_wait(self, news: AllocationEvent) -> dict[str, str]:
        """Returns the reasons that are new."""
        why = news.reason
        placed = self._allocations.live.get(news.job_id)
        if placed is None or not why or self._reasons.get(news.job_id) == why:
            return {}
        self._reasons[news.job_id] = why
        place = JobAllocation(
            engine=self._side.backend.engine,
            job_id="" if news.job_id in self._requests else news.job_id,  # as named by the cluster
            why=why,
            is_shared=not placed.uuids,
        )
        text = describe_wait(place)
        for uuid in self._waiting_for(placed):
            self._events.on_waiting(uuid, text)
        return {news.job_id: why}

    def _waiting_for(self, placed: Placed) -> list[str]:
        return self._allocations.waiting_for(placed, self._waiting, lambda uuid: self._requests[uuid].queue)

    def _labelled(self, whys: Mapping[str, str]) -> dict[str, str]:
        """Returns the reasons by the names of allocations, or of jobs if the cluster has no names."""
        requests = self._requests
        return {requests[one].name if one in requests else one: why for one, why in whys.items()}

    def _has_ended(self, news: AllocationEvent) -> list[str]:
        """Returns the jobs that waited for it."""
        is_used = self._allocations.is_used(news.job_id)
        placed = self._allocations.remove(news.job_id)
        self._reasons.pop(news.job_id, None)
        if placed is not None:
            self._replaced.ended(placed, news, mono_s(self._context.clock))
        named = frozenset(news.uuids or (placed.uuids if placed is not None else ()))
        if news.ending is not None:
            self._end_with_allocation(news.job_id, news.ending, named)
        if news.state is AllocationState.GONE:
            own = frozenset(self._requests)
            self._store.ask(
                partial(self._lost.take_back_of_allocation, news.job_id, named, own),
                self._on_requeued,
                lambda: None,  # by their leases, then
            )
        for uuid in named & self._waiting if news.ending is None else ():
            self._placed_at_s.pop(uuid, None)
        self._next_placing_s = min(self._next_placing_s, mono_s(self._context.clock) + self._pause_s)
        if placed is None or is_used or (not placed.uuids and self._allocations.serving(placed.queue)):
            return []  # others serve the same jobs
        return [uuid for uuid in self._waiting_for(placed) if news.ending is None or uuid not in named]

    def _end_with_allocation(self, job_id: str, ending: AllocationEnding, named: Collection[str]) -> None:
        """Ends the job of an allocation of its own, and jobs that had begun in a shared one. Call it before
        tickets are taken back: the store is queried in order."""
        began = {uuid for uuid, place in self._began_in.items() if place == job_id}
        uuids = (set(named) or began) & self._requests.keys()
        now_s = mono_s(self._context.clock)
        self._placed_at_s.update((uuid, now_s) for uuid in uuids)  # none is resubmitted meanwhile
        if not named:
            count = f"{len(uuids)} job{'' if len(uuids) == 1 else 's'}"
            self._events.on_warning(
                f"allocation {job_id} was {ending.text}: {count} running there ended,"
                " jobs that had not started are resubmitted"
            )
        self._events.on_ended(uuids, job_id, ending)

    def _note_ended(self, job_ids: Collection[str], word: str, *, is_gone: bool = False) -> None:
        """Writes one event for all: at Ray every job has an allocation of its own."""
        if job_ids:
            first, *others = job_ids
            self._events.on_fact(AllocationEnded(first, word, is_gone, tuple(others)))

    def _on_requeued(self, count: int) -> None:
        if count:
            self._events.on_requeued()

    def _report_failed(self, failed: Sequence[tuple[AllocationEvent, Sequence[str]]]) -> None:
        for one in self._retry_limit.count(failed):
            if one.warning:
                self._events.on_warning(one.warning)
            if one.exhausted:
                self._events.on_unplaceable(one.exhausted, one.why)
                now_s = mono_s(self._context.clock)
                self._placed_at_s.update((uuid, now_s) for uuid in one.exhausted)


def _more_allocations(queue: str, count: int, backend: ClusterBackend) -> list[Placed]:
    return backend.allocations.more_allocations(queue, count) if backend.allocations is not None else []


def _poll(
    busy: Collection[str], backend: ClusterBackend
) -> tuple[Sequence[AllocationEvent], NodeCapacity | None]:
    if backend.allocations is not None:
        backend.allocations.are_busy(busy)
    return backend.poll(), backend.capacity()
