"""When a worker asks the store for tickets, and for which: those it has heard of and, where it is time to
look, the oldest that wait. All on the loop."""

import time
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Protocol

from joblens.agent.queue.broker_presence import BrokerPresence
from joblens.agent.queue.capacity import WorkerCapacity
from joblens.agent.queue.claiming import Claimed, Claiming
from joblens.agent.queue.heard_tickets import HeardTickets
from joblens.agent.queue.store_client import AsyncStoreClient
from joblens.agent.queue.worker_plan import WorkerPlan
from joblens.agent.runtime.loop import Loop
from joblens.model.clusters.placing import NodeCapacity

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
