"""Claims of a worker: when it asks the store for tickets, for which, and what the broker has announced."""

import time
from collections import deque
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.queue.capacity import WorkerCapacity
from joblens.agent.queue.claimed_jobs import ClaimedJobs, WorkerPlan
from joblens.agent.queue.leases import TicketKeeping
from joblens.agent.queue.lost_workers import Leftovers
from joblens.agent.queue.store_client import AsyncStoreClient, lease_now_s
from joblens.agent.runtime.loop import Loop
from joblens.model.clusters.placement import NodeCapacity, is_for_any_worker
from joblens.model.delivery import Claim, WorkerInfo
from joblens.ports.store import Deliveries


class BrokerPresence:
    """Told on the thread that hears."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._has_been_lost = False
        self.is_there = False

    def comes(self) -> None:
        self.is_there = True
        if self._has_been_lost:
            self._has_been_lost = False
            self._note("the broker is back")

    def goes(self, why: str) -> None:
        self.is_there = False
        self._has_been_lost = True
        self._note(f"the broker is away: {why.rstrip('.')}; looks into the store every second")


Settled = Callable[[], None]
_MOST_LEFT = 1000


class HeardTickets:
    """Filled from the thread that hears."""

    def __init__(self) -> None:
        self._heard: deque[tuple[str, Settled]] = deque()
        # For which there was no room: their message has done its work, they are tried again.
        self._left: deque[str] = deque(maxlen=_MOST_LEFT)

    def __bool__(self) -> bool:
        return bool(self._heard)

    @property
    def are_left(self) -> bool:
        return bool(self._left)

    def put(self, uuid: str, settled: Settled) -> None:
        self._heard.append((uuid, settled))

    def take(self, most: int) -> list[tuple[str, Settled]]:
        return [self._heard.popleft() for _ in range(min(most, len(self._heard)))]

    def put_back(self, batch: Sequence[tuple[str, Settled]]) -> None:
        self._heard.extendleft(reversed(batch))

    def leave(self, uuids: Collection[str]) -> None:
        self._left.extend(uuids)

    def try_left(self) -> None:
        """Something is free again."""
        while self._left:
            self._heard.append((self._left.popleft(), _nothing))

    def forget(self, uuid: str) -> bool:
        """-> whether it was there"""
        before = len(self._heard) + len(self._left)
        self._heard = deque(one for one in self._heard if one[0] != uuid)
        self._left = deque((one for one in self._left if one != uuid), maxlen=_MOST_LEFT)
        return len(self._heard) + len(self._left) < before

    def clear(self) -> list[str]:
        """-> what was there"""
        uuids = [*(uuid for uuid, _ in self._heard), *self._left]
        self._heard.clear()  # the broker gives them to others
        self._left.clear()
        return uuids


def _nothing() -> None:
    pass


_PATIENCE_S = 30.0  # for which a job may be passed by others that fit


class Claimed(Struct, frozen=True):
    asked_at_s: float  # by the clock of leases
    claims: list[Claim]
    uncleared: frozenset[str] = frozenset()  # of which an earlier attempt has left a container here


class Claiming:
    def __init__(
        self, plan: WorkerPlan, keeping: TicketKeeping, maker: ClaimedJobs, leftovers: Leftovers
    ) -> None:
        self._plan = plan
        self._keeping = keeping
        self._maker = maker
        self._leftovers = leftovers
        self._last_patient_s = 0.0

    def these(self, uuids: Sequence[str], room: NodeCapacity | None, deliveries: Deliveries) -> Claimed:
        plan = self._plan
        return self._claim(lambda: deliveries.claim(plan.info, uuids, plan.lease_s, room=room))

    def oldest(
        self,
        most: int,
        older_than_s: float,
        rooms: tuple[NodeCapacity, NodeCapacity] | None,
        deliveries: Deliveries,
    ) -> Claimed:
        """`rooms`: what is free now, and what would be if nothing ran."""
        info = self._plan.info
        if self._plan.every_queue:
            waiting = (one.queue for one in deliveries.backlog() if one.waiting)
            info = replace(info, queues=tuple(queue for queue in waiting if is_for_any_worker(queue)))
        if not info.queues:
            return Claimed(0.0, [])
        return self._claim(lambda: self._ask(info, most, older_than_s, rooms, deliveries))

    def _ask(
        self,
        info: WorkerInfo,
        most: int,
        older_than_s: float,
        rooms: tuple[NodeCapacity, NodeCapacity] | None,
        deliveries: Deliveries,
    ) -> list[Claim]:
        lease_s = self._plan.lease_s
        if rooms is None:
            return deliveries.claim_waiting(info, most, lease_s, older_than_s=older_than_s)
        free, whole = rooms
        patient: list[Claim] = []
        if time.monotonic() - self._last_patient_s > _PATIENCE_S / 2:
            # One that has waited for long is not passed by smaller ones for ever: room is made for it.
            self._last_patient_s = time.monotonic()
            patient = deliveries.claim_waiting(
                info, 1, lease_s, older_than_s=max(older_than_s, _PATIENCE_S), room=whole
            )
        left = most - len(patient)
        if left <= 0:
            return patient
        more = deliveries.claim_waiting(info, left, lease_s, older_than_s=older_than_s, room=free)
        return [*patient, *more]

    def _claim(self, ask: Callable[[], list[Claim]]) -> Claimed:
        asked_at_s = lease_now_s()
        claims = ask()
        uncleared: set[str] = set()
        for claim in claims:
            if self._leftovers.may_exist(claim.lost_attempt):
                uncleared.add(claim.job.uuid)
            self._maker.look_for_programs(claim)
        self._keeping.were_granted(claims)
        return Claimed(asked_at_s, claims, frozenset(uncleared))


_MOST_AT_ONCE = 64  # tickets a claim asks for
_STORE_PATIENCE_S = 60.0
_LOOK_ALONE_S = 1.0  # between looks into the store where nobody rings

_Batch = Sequence[tuple[str, Callable[[], None]]]


class Seeker(Protocol):
    """The worker that it asks for."""

    def unplaced(self) -> int | None:
        """How many it has claimed that have no place yet. None: it takes nothing more."""
        ...

    def is_busy(self) -> bool:
        """NodeCapacity will become free."""
        ...

    def has_missed(self, uuids: Sequence[str]) -> None:
        """Others have them, or they have ended."""
        ...

    def has_claimed(self, claimed: Claimed) -> None: ...


class TicketSearch:
    def __init__(
        self,
        plan: WorkerPlan,
        desk: AsyncStoreClient,
        claiming: Claiming,
        places: WorkerCapacity,
        broker: BrokerPresence,
        loop: Loop,
        seeker: Seeker,
        claimed: Container[str],
    ) -> None:
        """`claimed`: jobs that the worker has, and has yet to see the end of."""
        self._plan = plan
        self._desk = desk
        self._claiming = claiming
        self._places = places
        self._broker = broker
        self._loop = loop
        self._seeker = seeker
        self._claimed = claimed
        self._may_be_more = False  # in the store than was heard of
        self._was_heard_last = False  # what was claimed last
        self._answered_at_s = time.monotonic()
        self.heard = HeardTickets()
        self.is_asking = False
        self.next_look_s = 0.0
        self.idle_since_s = time.monotonic()

    def begin(self) -> None:
        self.idle_since_s = self._answered_at_s = time.monotonic()

    def look_now(self) -> None:
        """From a signal handler, too."""
        self._may_be_more = True
        self.next_look_s = 0.0

    def wake(self) -> None:
        pause_s = self._plan.poll_s if self._broker.is_there else _LOOK_ALONE_S
        self.next_look_s = time.monotonic() + pause_s
        self._may_be_more = True
        self.claim_next()

    def has_more_room(self) -> None:
        self.heard.try_left()
        if not self._plan.takes_any and not self._broker.is_there:
            self._may_be_more = True  # that fits now

    def claim_next(self) -> None:
        """In turn what was heard of and the oldest that wait. However much is heard of, those whose message
        was lost are not passed by for ever."""
        unplaced = self._seeker.unplaced()
        if self.is_asking or unplaced is None:
            return
        most = min(_MOST_AT_ONCE, self._places.appetite - unplaced)
        if most <= 0:
            return
        if self._may_be_more and (self._was_heard_last or not self.heard):
            self._look(most)
        elif self.heard:
            self._claim_heard(most)

    def _claim_heard(self, most: int) -> None:
        batch = self.heard.take(most)
        uuids = [uuid for uuid, _ in batch if uuid not in self._claimed]
        self.is_asking = self._was_heard_last = True
        room = None if self._plan.takes_any else self._places.room()
        self._desk.ask(
            partial(self._claiming.these, uuids, room),
            partial(self._has_claimed, batch, room),
            partial(self._could_not_claim, batch),
        )

    def _has_claimed(self, batch: _Batch, room: NodeCapacity | None, claimed: Claimed) -> None:
        self.is_asking = False
        got = {claim.job.uuid for claim in claimed.claims}
        missed = [uuid for uuid, _ in batch if uuid not in got and uuid not in self._claimed]
        if missed and room is not None and self._seeker.is_busy():
            self.heard.leave(missed)  # perhaps there was only no room for them
        elif missed:
            self._seeker.has_missed(missed)
        for _, settled in batch:
            settled()
        self._seeker.has_claimed(claimed)

    def _could_not_claim(self, batch: _Batch) -> None:
        self.is_asking = False
        if self._seeker.unplaced() is not None:
            self.heard.put_back(batch)
            self._loop.call(self.claim_next)

    def _look(self, most: int) -> None:
        """For tickets whose message was lost, or for which there is none."""
        self.is_asking = True
        self._may_be_more = self._was_heard_last = False
        older_than_s = min(self._plan.poll_s, self._plan.lease_s) if self._broker.is_there else 0.0
        rooms = None if self._plan.takes_any else (self._places.room(), self._places.whole())
        self._desk.ask(
            partial(self._claiming.oldest, most, older_than_s, rooms),
            partial(self._has_looked, most),
            self._could_not_look,
        )

    def _has_looked(self, most: int, claimed: Claimed) -> None:
        self.is_asking = False
        self._answered_at_s = time.monotonic()
        if len(claimed.claims) >= most:
            self._may_be_more = True
        self._seeker.has_claimed(claimed)

    def _could_not_look(self) -> None:
        """Not idle: what waits there is not known. A store that stays away may be gone for good."""
        self.is_asking = False
        now_s = time.monotonic()
        if now_s - self._answered_at_s < _STORE_PATIENCE_S:
            self.idle_since_s = now_s
        if self.heard:
            self._loop.call(self.claim_next)
