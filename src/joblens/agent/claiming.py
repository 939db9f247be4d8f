"""Asks the store for tickets, on the desk's thread."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.claimed_jobs import ClaimedJobs
from joblens.agent.leftovers import Leftovers
from joblens.agent.store_watch import lease_now_s
from joblens.agent.ticket_keeping import TicketKeeping
from joblens.agent.worker_plan import WorkerPlan
from joblens.model.delivery import Claim
from joblens.ports.deliveries import Deliveries


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

    def these(self, uuids: Sequence[str], deliveries: Deliveries) -> Claimed:
        plan = self._plan
        return self._claim(lambda: deliveries.claim(plan.info, uuids, plan.lease_s))

    def oldest(self, most: int, older_than_s: float, deliveries: Deliveries) -> Claimed:
        info = self._plan.info
        if self._plan.every_queue:
            queues = tuple(one.queue for one in deliveries.backlog() if one.waiting)
            info = replace(info, queues=queues)
            if not queues:
                return Claimed(0.0, [])
        return self._claim(
            lambda: deliveries.claim_waiting(info, most, self._plan.lease_s, older_than_s=older_than_s)
        )

    def _claim(self, ask: Callable[[], list[Claim]]) -> Claimed:
        asked_at_s = lease_now_s()
        claims = ask()
        uncleared: set[str] = set()
        for claim in claims:
            if claim.lost_attempt is not None:
                uuid = claim.job.uuid
                if self._leftovers.are_there(uuid, claim.lost_attempt):
                    uncleared.add(uuid)
            self._maker.look_for_programs(claim)
        self._keeping.were_granted(claims)
        return Claimed(asked_at_s, claims, frozenset(uncleared))
