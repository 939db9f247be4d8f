"""Claims whose earlier attempt ran on this machine and was lost: they are held until its processes and its
container are gone, then begin."""

from collections.abc import Callable
from functools import partial

from joblens.agent.queue.leases import TicketKeeping
from joblens.agent.queue.leftovers import Leftovers
from joblens.model.delivery import Claim


class ClearedClaims:
    """On the loop."""

    def __init__(
        self, leftovers: Leftovers, keeping: TicketKeeping, then: Callable[[Claim, float], None]
    ) -> None:
        self._leftovers = leftovers
        self._keeping = keeping
        self._then = then
        self._claims: dict[str, Claim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._claims

    def clear(self, claim: Claim, asked_at_s: float) -> None:
        uuid = claim.job.uuid
        self._claims[uuid] = claim
        self._keeping.hold(claim, asked_at_s)
        self._leftovers.take_away(uuid, claim.lost_attempt, partial(self._has_cleared, claim, asked_at_s))

    def _has_cleared(self, claim: Claim, asked_at_s: float) -> None:
        if self._claims.get(claim.job.uuid) is claim:  # else it was let go of meanwhile
            del self._claims[claim.job.uuid]
            self._then(claim, asked_at_s)

    def give_back(self, uuid: str) -> None:
        self._keeping.give_back({uuid: self._claims.pop(uuid).fence})

    def give_back_all(self) -> None:
        self._keeping.give_back({uuid: claim.fence for uuid, claim in self._claims.items()})
        self._claims.clear()
