"""Store side of a worker's claims: claim, renew, confirm, return. Everything here runs on the thread of the
store client and returns events of `engine.life.claims`."""

import contextlib
from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from joblens.agent.queue.claimed_jobs import ClaimedJobs, WorkerPlan
from joblens.agent.queue.lost_workers import Leftovers
from joblens.agent.session.context import AgentContext
from joblens.engine.life.claim_events import ClaimRequest, Confirmed, Grant, Granted, Renewed, Return
from joblens.model.clusters.placement import is_for_any_worker
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.errors import BrokerError, JoblensError
from joblens.model.jobs.job import Status
from joblens.ports.store import Deliveries
from joblens.ports.workers import Notifier

_MAX_OVERTAKE_S = 30.0  # time in which smaller jobs may overtake one


class ClaimStore:
    def __init__(
        self,
        plan: WorkerPlan,
        context: AgentContext,
        maker: ClaimedJobs,
        leftovers: Leftovers,
        notifier: Notifier | None,
        log: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._info = plan.info
        self._context = context
        self._maker = maker
        self._leftovers = leftovers
        self._notifier = notifier
        self._log = log
        self._last_overdue_s = 0.0

    def _now_s(self) -> float:
        return self._context.clock.boot_ns() / 1e9

    # ---- claims ------------------------------------------------------------------------------------------

    def claim(self, request: ClaimRequest, deliveries: Deliveries) -> Granted:
        asked_at_s = self._now_s()
        if request.messages:
            claims = deliveries.claim(self._info, request.uuids, self._plan.lease_s, capacity=request.free)
        else:
            claims = self._claim_oldest(request, deliveries)
        grants: list[Grant] = []
        for claim in claims:
            self._maker.find_programs(claim)
            grants.append(Grant(claim, self._leftovers.may_exist(claim.lost_attempt)))
        return Granted(request, tuple(grants), asked_at_s)

    def _claim_oldest(self, request: ClaimRequest, deliveries: Deliveries) -> list[Claim]:
        info, lease_s = self._info, self._plan.lease_s
        if self._plan.every_queue:
            waiting = (one.queue for one in deliveries.backlog() if one.waiting)
            info = replace(info, queues=tuple(queue for queue in waiting if is_for_any_worker(queue)))
        if not info.queues:
            return []
        overdue = self._claim_overdue(info, request, deliveries)
        limit = request.limit - len(overdue)
        if limit <= 0:
            return overdue
        older_than_s = request.older_than_s
        more = deliveries.claim_waiting(
            info, limit, lease_s, older_than_s=older_than_s, capacity=request.free
        )
        return [*overdue, *more]

    def _claim_overdue(self, info: WorkerInfo, request: ClaimRequest, deliveries: Deliveries) -> list[Claim]:
        """Claims a job that has waited for long: capacity is kept free, so that smaller jobs do not overtake
        it indefinitely."""
        if request.total is None or self._now_s() - self._last_overdue_s <= _MAX_OVERTAKE_S / 2:
            return []
        self._last_overdue_s = self._now_s()
        older_than_s = max(request.older_than_s, _MAX_OVERTAKE_S)
        return deliveries.claim_waiting(
            info, 1, self._plan.lease_s, older_than_s=older_than_s, capacity=request.total
        )

    def renew(self, claims: Mapping[str, int], deliveries: Deliveries) -> Renewed:
        asked_at_s = self._now_s()
        info = replace(self._info, running=len(claims))
        return Renewed(claims, deliveries.renew(info, claims, self._plan.lease_s), asked_at_s)

    def give_back(self, returns: Collection[Return], deliveries: Deliveries) -> None:
        deliveries.give_back(self._info.name, {one.uuid: one.fence for one in returns if not one.is_spent})
        for one in returns:
            if one.is_spent:
                deliveries.take_back(one.uuid, one.fence)
                self.notify_after({one.uuid}, deliveries)

    # ---- outcomes ----------------------------------------------------------------------------------------

    def confirm(self, claims: Mapping[str, int], deliveries: Deliveries) -> tuple[Confirmed, bool]:
        """Returns also whether other jobs may start now."""
        ended = _ended(claims, deliveries)
        lost: set[str] = set()
        if len(ended) < len(claims):
            with contextlib.suppress(JoblensError):  # reading also replays the journal
                self._context.recorder.read(lambda store: store.cancel_requests())
            held = deliveries.holdings(near=self._info)
            mine = {(one.uuid, one.fence) for one in held if one.worker == self._info.name}
            unended = {uuid: fence for uuid, fence in claims.items() if uuid not in ended}
            has_ended = _ended(unended, deliveries)
            lost = {uuid for uuid, fence in unended.items() if (uuid, fence) not in mine} - has_ended
        return Confirmed(claims, frozenset(ended), frozenset(lost)), self.notify_after(ended, deliveries)

    def notify_after(self, ended: Collection[str], deliveries: Deliveries) -> bool:
        """Notifies workers of jobs that waited for these. Returns whether there are any."""
        released = deliveries.released_by(sorted(ended))
        if released and self._notifier is not None:
            try:
                self._notifier.notify(released)
            except BrokerError as error:
                self._log(f"{error}; jobs that may begin now are found in the store")
        return bool(released)


def _ended(uuids: Collection[str], deliveries: Deliveries) -> set[str]:
    states = deliveries.states(list(uuids))
    return {uuid for uuid in uuids if states.get(uuid, Status.LOST).is_final}
