"""The tickets a worker holds: renewed while it lives, let go of when the outcome of a job is in the store.
Those of workers that are gone are taken back, for somebody to take."""

import contextlib
import time
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.kit import Kit
from joblens.agent.lost_claims import end_what_is_left, lost_holdings
from joblens.agent.ticket_desk import TicketDesk
from joblens.model.delivery import Claim, Holding, Renewal, WorkerInfo
from joblens.model.errors import BrokerError, JoblensError
from joblens.model.job import Record, Status
from joblens.ports.bell import Bell
from joblens.ports.deliveries import Deliveries

_RENEWALS_A_LEASE = 4
_RENEW_BUSY_S, _RENEW_IDLE_S = 1.0, 5.0  # at the latest; who wants a job to end is heard of by it, too
_LOOKS_A_LEASE = 6
_LOOK_LEAST_S, _LOOK_MOST_S = 0.5, 5.0  # between looks for workers that are gone
_SETTLE_AGAIN_S = 0.5


class Keeper(Protocol):
    """The worker, as this sees it."""

    def drop(self, uuid: str) -> None: ...

    def cancel(self, uuid: str) -> None: ...

    def is_running(self, uuid: str) -> bool: ...

    def has_settled(self, record: Record, claim: Claim) -> None: ...

    def was_given_back(self, uuid: str) -> None: ...

    def look_now(self) -> None: ...

    def is_known(self) -> None: ...

    def note(self, text: str) -> None: ...


class _Found(Struct):
    """What a look for workers that are gone has brought."""

    queued: int = 0
    lost: int = 0
    workers: set[str] = set()
    is_more_to_come: bool = False  # leases ran out that cannot be judged yet


class TicketKeeping:
    def __init__(
        self,
        info: WorkerInfo,
        lease_s: float,
        desk: TicketDesk,
        kit: Kit,
        keeper: Keeper,
        bell: Bell | None,
    ) -> None:
        self._info = info
        self._lease_s = lease_s
        self._desk = desk
        self._kit = kit
        self._keeper = keeper
        self._bell = bell
        self.held: dict[str, int] = {}  # uuid -> fence
        self.waits_for_others = False
        self._settling: dict[str, tuple[Record, Claim]] = {}  # ended, perhaps not in the store yet
        self._suspects: frozenset[str] = frozenset()  # held no more, by the last renewal
        self._cancelled: set[str] = set()
        self._is_renewing = self._is_settling = self._is_looking = self._is_known = False
        self._next_renewal_s = self._next_settling_s = 0.0
        self._look_every_s = min(_LOOK_MOST_S, max(_LOOK_LEAST_S, lease_s / _LOOKS_A_LEASE))
        self._next_look_s = 0.0

    def hold(self, claim: Claim) -> None:
        self.held[claim.job.uuid] = claim.fence

    def has_ended(self, record: Record, claim: Claim) -> None:
        """It has been written; the store may be away, and the journal have it."""
        self._settling[claim.job.uuid] = (record, claim)
        self._settle()

    def give_back(self, held: Mapping[str, int]) -> None:
        """What has not begun, or was ended without a word. What is another's by now stays so."""
        if not held:
            return
        for uuid, fence in held.items():
            if self.held.get(uuid) == fence:
                del self.held[uuid]
                self._cancelled.discard(uuid)
        name, told = self._info.name, partial(self._was_given_back, list(held))
        self._desk.ask(lambda deliveries: deliveries.give_back(name, held), lambda _: told(), told)

    def _was_given_back(self, uuids: list[str]) -> None:
        for uuid in uuids:
            if uuid not in self.held:  # else it has come back meanwhile
                self._keeper.was_given_back(uuid)

    def say_goodbye(self) -> None:
        """Nothing is held any more, or this process cannot go on."""
        name = self._info.name
        self._desk.ask(lambda deliveries: deliveries.forget_worker(name), lambda _: None)

    # ---- timed -------------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        due = [self._next_look_s]
        if not self._is_renewing:
            due.append(self._next_renewal_s)
        if self._settling and not self._is_settling:
            due.append(self._next_settling_s)
        return min(due)

    def wake(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_renewal_s and not self._is_renewing:
            self._renew(now_s)
        if now_s >= self._next_settling_s and self._settling:
            self._settle()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + self._look_every_s
            self._look_for_lost(now_s)

    # ---- renewing ----------------------------------------------------------------------------------------

    def _renew(self, now_s: float) -> None:
        longest_s = _RENEW_BUSY_S if self.held else _RENEW_IDLE_S
        self._next_renewal_s = now_s + min(self._lease_s / _RENEWALS_A_LEASE, longest_s)
        self._is_renewing = True
        held, info = dict(self.held), replace(self._info, running=len(self.held))
        self._desk.ask(
            lambda deliveries: deliveries.renew(info, held, self._lease_s), self._renewed, self._not_renewed
        )

    def _not_renewed(self) -> None:
        self._is_renewing = False
        self._next_renewal_s = 0.0

    def _renewed(self, renewal: Renewal) -> None:
        self._is_renewing = False
        if not self._is_known:
            self._is_known = True
            self._keeper.is_known()
        for uuid in renewal.cancelled - self._cancelled:
            if self._keeper.is_running(uuid):
                self._cancelled.add(uuid)
                self._keeper.cancel(uuid)
        # Twice: it may have ended between the question and the answer, and this hear of it a moment later.
        fenced = renewal.fenced & self.held.keys()
        for uuid in fenced & self._suspects:
            self._is_anothers(uuid)
        self._suspects = fenced
        if fenced:
            self._next_renewal_s = min(self._next_renewal_s, time.monotonic() + _SETTLE_AGAIN_S)

    def _is_anothers(self, uuid: str) -> None:
        if uuid in self._settling:
            self._settle()  # ended in the store, or never to be
            return
        del self.held[uuid]
        self._keeper.note(f"job {uuid} was taken by another worker; it is ended here")
        self._keeper.drop(uuid)

    # ---- outcomes ----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._is_settling or not self._settling:
            return
        self._is_settling = True
        self._next_settling_s = time.monotonic() + _SETTLE_AGAIN_S
        asked = {uuid: claim.fence for uuid, (_, claim) in self._settling.items()}
        self._desk.ask(partial(self._look_at_ended, asked), partial(self._settled, asked), self._not_settled)

    def _look_at_ended(
        self, asked: Mapping[str, int], deliveries: Deliveries
    ) -> tuple[set[str], set[str], bool]:
        """-> those that have ended in the store, those that are another's, whether others may begin now"""
        states = deliveries.states(list(asked))
        ended = {uuid for uuid in asked if states.get(uuid, Status.LOST).is_final}
        anothers: set[str] = set()
        if len(ended) < len(asked):
            with contextlib.suppress(JoblensError):  # reading brings in what waits in the journal
                self._kit.recorder.read(lambda store: store.cancel_requests())
            mine = {(one.uuid, one.fence) for one in deliveries.holdings() if one.worker == self._info.name}
            open_ = {uuid: fence for uuid, fence in asked.items() if uuid not in ended}
            states = deliveries.states(list(open_))
            anothers = {
                uuid
                for uuid, fence in open_.items()
                if (uuid, fence) not in mine and not states.get(uuid, Status.LOST).is_final
            }
        return ended, anothers, self._release_after(ended, deliveries)

    def _release_after(self, ended: set[str], deliveries: Deliveries) -> bool:
        """Those that waited for these may go."""
        released = deliveries.released_by(sorted(ended))
        if released and self._bell is not None:
            try:
                self._bell.ring(released)
            except BrokerError as error:
                self._keeper.note(f"{error}; jobs that may begin now are found in the store")
        return bool(released)

    def _settled(self, asked: Mapping[str, int], found: tuple[set[str], set[str], bool]) -> None:
        ended, anothers, has_released = found
        self._is_settling = False
        for uuid in ended | anothers:
            record, claim = self._settling.pop(uuid)
            self._cancelled.discard(uuid)
            if self.held.get(uuid) == asked[uuid]:
                del self.held[uuid]
            if uuid in ended:
                self._keeper.has_settled(record, claim)
            elif uuid not in self.held:  # else it has come back meanwhile
                self._keeper.was_given_back(uuid)
        if has_released:
            self._keeper.look_now()
        if any(uuid not in asked for uuid in self._settling):
            self._settle()

    def _not_settled(self) -> None:
        self._is_settling = False

    # ---- workers that are gone ---------------------------------------------------------------------------

    def _look_for_lost(self, now_s: float) -> None:
        if self._is_looking:
            return
        self._is_looking = True
        since_s = self._desk.answers_since_s
        may_judge = since_s is not None and now_s - since_s > self._lease_s
        self._desk.ask(partial(self._take_back, may_judge), self._took_back, self._could_not_look)

    def _take_back(self, may_judge: bool, deliveries: Deliveries) -> _Found:  # noqa: FBT001 - by partial
        found = _Found(workers=set())
        holdings = deliveries.holdings()
        if not any(one.worker != self._info.name for one in holdings):
            return found
        workers = deliveries.workers()
        host = self._kit.host
        lost = lost_holdings(holdings, workers, host, me=self._info.name, may_judge=may_judge)
        for holding in lost:
            self._take_one_back(holding, deliveries, found)
        taken = {holding.uuid for holding in lost}
        found.is_more_to_come = any(
            one.expired_us > 0 and one.uuid not in taken and one.worker != self._info.name for one in holdings
        )
        return found

    def _take_one_back(self, holding: Holding, deliveries: Deliveries, found: _Found) -> None:
        end_what_is_left(holding.uuid, holding.attempt, self._kit.spool_dir, self._kit.host)
        status = deliveries.take_back(holding.uuid, holding.fence)
        found.workers.add(holding.worker)
        if status is Status.QUEUED:
            found.queued += 1
        elif status.is_final:
            found.lost += status is Status.LOST
            self._release_after({holding.uuid}, deliveries)

    def _took_back(self, found: _Found) -> None:
        self._is_looking = False
        self.waits_for_others = found.is_more_to_come
        if not found.workers:
            return
        names = ", ".join(sorted(found.workers))
        ended = f", {found.lost} ended as lost" if found.lost else ""
        self._keeper.note(f"worker {names} is gone: {found.queued} of its jobs queued again{ended}")
        if found.queued:
            self._keeper.look_now()

    def _could_not_look(self) -> None:
        self._is_looking = False
