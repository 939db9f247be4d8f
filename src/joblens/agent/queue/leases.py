"""The tickets a worker holds: renewed while it lives, let go of when the outcome of a job is in the store or
when it does not want them any more."""

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from joblens.agent.queue.store_client import AsyncStoreClient, lease_now_s
from joblens.agent.session.context import AgentContext
from joblens.model.delivery import Claim, Holding, Renewal, WorkerInfo
from joblens.model.errors import BrokerError, JoblensError
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import Deliveries
from joblens.ports.workers import Notifier

_RENEWALS_A_LEASE = 4
_RENEW_BUSY_S, _RENEW_IDLE_S = 1.0, 5.0  # at the latest; who wants a job to end is heard of by it, too
_RENEWALS_A_SECOND = 250  # of all workers together, as far as their leases allow it
_SETTLE_AGAIN_S = 0.5
_SURE = 0.9  # of a lease: what is begun later may be another's by then


def renew_every_s(lease_s: float, *, is_busy: bool, workers: int) -> float:
    """The more workers there are, the less often each says that it is alive: together they must not keep the
    store from its work."""
    soonest_s = _RENEW_BUSY_S if is_busy else _RENEW_IDLE_S
    return min(lease_s / _RENEWALS_A_LEASE, max(soonest_s, workers / _RENEWALS_A_SECOND))


class Keeper(Protocol):
    """The worker, as this sees it."""

    def drop(self, uuid: str) -> None: ...

    def cancel(self, uuid: str) -> None: ...

    def is_running(self, uuid: str) -> bool: ...

    def has_settled(self, record: Record, claim: Claim) -> None: ...

    def was_given_back(self, uuid: str) -> None: ...

    def look_now(self) -> None: ...

    def has_renewed(self) -> None: ...

    def is_known(self) -> None: ...

    def note(self, text: str) -> None: ...


class TicketKeeping:
    def __init__(
        self,
        info: WorkerInfo,
        lease_s: float,
        desk: AsyncStoreClient,
        context: AgentContext,
        keeper: Keeper,
        bell: Notifier | None,
        ends_wait_s: float = 0.0,
    ) -> None:
        """`ends_wait_s`: for so long it is not written how a job has ended."""
        self._info = info
        self._lease_s = lease_s
        self._desk = desk
        self._context = context
        self._keeper = keeper
        self._bell = bell
        self.held: dict[str, int] = {}  # uuid -> fence
        self._sure_until_s: dict[str, float] = {}  # of those held, by the clock of leases
        # On the desk's thread: what the store has said that this worker holds, and what it has let go of
        # that must not run a second time.
        self._granted: dict[str, int] = {}
        self._spent: set[tuple[str, int]] = set()
        self._settling: dict[str, tuple[Record, Claim]] = {}  # ended, perhaps not in the store yet
        self._ends_wait_s = ends_wait_s
        self._written_at_s: dict[str, float] = {}  # of those, where that takes a while
        self._suspects: frozenset[str] = frozenset()  # held no more, by the last renewal
        self._cancelled: set[str] = set()
        self._is_renewing = self._is_settling = self._is_known = False
        self._next_renewal_s = self._next_settling_s = 0.0
        self.workers = 0  # how many there are, as far as it is known

    def were_granted(self, claims: Iterable[Claim]) -> None:
        """The store has answered. On the desk's thread."""
        self._granted.update((claim.job.uuid, claim.fence) for claim in claims)

    def hold(self, claim: Claim, asked_at_s: float) -> None:
        """`asked_at_s`: by the clock of leases, before the store was asked for it."""
        self.held[claim.job.uuid] = claim.fence
        self._is_sure_from(claim.job.uuid, asked_at_s)
        # One that was idle would ask much later only, and whoever wants the job to end wait for that.
        self._next_renewal_s = min(self._next_renewal_s, time.monotonic() + self._renew_every_s)

    def _is_sure_from(self, uuid: str, asked_at_s: float) -> None:
        self._sure_until_s[uuid] = asked_at_s + _SURE * self._lease_s

    def may_begin(self, uuid: str) -> bool:
        """Nobody can have taken it: its lease has not run out. Else the store is asked, and the keeper told
        (`has_renewed`)."""
        if lease_now_s() < self._sure_until_s.get(uuid, 0.0):
            return True
        self._next_renewal_s = 0.0
        return False

    def _let_go(self, uuid: str) -> None:
        del self.held[uuid]
        self._sure_until_s.pop(uuid, None)
        self._cancelled.discard(uuid)

    def has_ended(self, record: Record, claim: Claim) -> None:
        """It has been written; the store may be away, and the journal have it."""
        uuid = claim.job.uuid
        if self._ends_wait_s:
            self._written_at_s[uuid] = time.monotonic() + self._ends_wait_s
        self._settling[uuid] = (record, claim)
        self._settle()

    @property
    def settling(self) -> dict[str, Claim]:
        """Returns jobs that have ended and may not be in the store yet."""
        return {uuid: claim for uuid, (_, claim) in self._settling.items()}

    def forget_end(self, uuid: str) -> tuple[Record, Claim] | None:
        """It was not written, and will not be. -> what it was"""
        self._written_at_s.pop(uuid, None)
        return self._settling.pop(uuid, None)

    def give_back(self, held: Mapping[str, int], spent: Collection[str] = ()) -> None:
        """What has not begun, or was ended without a word. What is another's by now stays so. `spent`: those
        of them that have begun and must not run twice."""
        if not held:
            return
        for uuid, fence in held.items():
            if self.held.get(uuid) == fence:
                self._let_go(uuid)
        told = partial(self._was_given_back, list(held))
        gone = {(uuid, held[uuid]) for uuid in spent}
        # Where the store did not hear of it, the next look finds them.
        self._desk.ask(partial(self._return, held, gone), lambda _: told(), told)

    def _was_given_back(self, uuids: list[str]) -> None:
        for uuid in uuids:
            if uuid not in self.held:  # else it has come back meanwhile
                self._keeper.was_given_back(uuid)

    def _return(
        self, held: Mapping[str, int], spent: Collection[tuple[str, int]], deliveries: Deliveries
    ) -> None:
        self._spent.update(spent)
        for uuid, fence in held.items():
            self._forget_grant(uuid, fence)
        deliveries.give_back(
            self._info.name, {uuid: fence for uuid, fence in held.items() if (uuid, fence) not in self._spent}
        )
        for uuid, fence in held.items():
            if (uuid, fence) in self._spent:
                deliveries.take_back(uuid, fence)
                self._spent.discard((uuid, fence))
                self.release_after({uuid}, deliveries)

    def _forget_grant(self, uuid: str, fence: int) -> None:
        if self._granted.get(uuid) == fence:
            del self._granted[uuid]

    def return_strays(self, holdings: Iterable[Holding], deliveries: Deliveries) -> int:
        """What the store believes to be held here and is not: its answer to a claim was lost, or what was to
        be given back did not arrive. On the desk's thread, where nothing else is under way."""
        strays = {
            one.uuid: one.fence
            for one in holdings
            if one.worker == self._info.name and self._granted.get(one.uuid) != one.fence
        }
        if strays:
            self._return(strays, (), deliveries)
        return len(strays)

    def say_goodbye(self) -> None:
        """Nothing is held any more, or this process cannot go on."""
        name = self._info.name
        self._desk.ask(lambda deliveries: deliveries.forget_worker(name), lambda _: None)

    # ---- timed -------------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        due: list[float] = []
        if not self._is_renewing:
            due.append(self._next_renewal_s)
        if self._settling and not self._is_settling:
            due.append(self._next_settling_s)
        return min(due, default=None)

    def wake(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_renewal_s and not self._is_renewing:
            self._renew(now_s)
        if now_s >= self._next_settling_s and self._settling:
            self._settle()

    # ---- renewing ----------------------------------------------------------------------------------------

    @property
    def _renew_every_s(self) -> float:
        return renew_every_s(self._lease_s, is_busy=bool(self.held), workers=self.workers)

    def _renew(self, now_s: float) -> None:
        self._next_renewal_s = now_s + self._renew_every_s
        self._is_renewing = True
        held, info = dict(self.held), replace(self._info, running=len(self.held))

        def renew(deliveries: Deliveries) -> tuple[float, Renewal]:
            asked_at_s = lease_now_s()
            return asked_at_s, deliveries.renew(info, held, self._lease_s)

        self._desk.ask(renew, partial(self._renewed, held), self._not_renewed)

    def _not_renewed(self) -> None:
        self._is_renewing = False
        self._next_renewal_s = 0.0

    def _renewed(self, asked: Mapping[str, int], answer: tuple[float, Renewal]) -> None:
        asked_at_s, renewal = answer
        self._is_renewing = False
        self.workers = renewal.workers or self.workers
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
        for uuid, fence in asked.items():
            if uuid not in renewal.fenced and self.held.get(uuid) == fence:
                self._is_sure_from(uuid, asked_at_s)
        self._keeper.has_renewed()

    def _is_anothers(self, uuid: str) -> None:
        if uuid in self._settling:
            self._settle()  # ended in the store, or never to be
            return
        self._let_go(uuid)
        self._keeper.note(f"job {uuid} was taken by another worker; it is ended here")
        self._keeper.drop(uuid)

    # ---- outcomes ----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._is_settling or not self._settling:
            return
        now_s, written_at_s = time.monotonic(), self._written_at_s
        asked = {
            uuid: claim.fence
            for uuid, (_, claim) in self._settling.items()
            if written_at_s.get(uuid, 0.0) <= now_s
        }
        if not asked:
            self._next_settling_s = min(written_at_s[uuid] for uuid in self._settling)
            return
        self._is_settling = True
        self._next_settling_s = now_s + _SETTLE_AGAIN_S
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
                self._context.recorder.read(lambda store: store.cancel_requests())
            held = deliveries.holdings(near=self._info)
            mine = {(one.uuid, one.fence) for one in held if one.worker == self._info.name}
            open_ = {uuid: fence for uuid, fence in asked.items() if uuid not in ended}
            states = deliveries.states(list(open_))
            anothers = {
                uuid
                for uuid, fence in open_.items()
                if (uuid, fence) not in mine and not states.get(uuid, Status.LOST).is_final
            }
        for uuid in ended | anothers:
            self._forget_grant(uuid, asked[uuid])
        return ended, anothers, self.release_after(ended, deliveries)

    def release_after(self, ended: set[str], deliveries: Deliveries) -> bool:
        """Those that waited for these may go. On the desk's thread."""
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
        for uuid in (ended | anothers) & self._settling.keys():
            record, claim = self._settling.pop(uuid)
            self._written_at_s.pop(uuid, None)
            self._cancelled.discard(uuid)
            if self.held.get(uuid) == asked[uuid]:
                self._let_go(uuid)
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
