"""Asks the store for tickets, on the desk's thread."""

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.queue.claimed_jobs import ClaimedJobs
from joblens.agent.queue.leases import TicketKeeping
from joblens.agent.queue.leftovers import Leftovers
from joblens.agent.queue.store_watch import lease_now_s
from joblens.agent.queue.worker_plan import WorkerPlan
from joblens.model.clusters.placing import NodeCapacity, is_for_any_worker
from joblens.model.delivery import Claim, WorkerInfo
from joblens.ports.deliveries import Deliveries

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
