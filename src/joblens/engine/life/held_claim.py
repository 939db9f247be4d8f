"""A claim of a worker and its phases, and how often its lease is renewed."""

import enum

from msgspec import Struct

from joblens.engine.life.worker_capacity import Demand
from joblens.model.delivery import Claim
from joblens.model.jobs.job import Record

_RENEWALS_PER_LEASE = 4
_RENEW_BUSY_S, _RENEW_IDLE_S = 1.0, 5.0  # at most: renewals also fetch requests to cancel
_RENEWALS_PER_SECOND = 250  # of all workers together, if their leases allow it


def renew_every_s(lease_s: float, *, is_busy: bool, workers: int) -> float:
    """Returns the interval of renewals. It grows with the number of workers, so that together they do not
    overload the store."""
    soonest_s = _RENEW_BUSY_S if is_busy else _RENEW_IDLE_S
    return min(lease_s / _RENEWALS_PER_LEASE, max(soonest_s, workers / _RENEWALS_PER_SECOND))


class Phase(enum.StrEnum):
    CLEANING = "cleaning"  # processes of an earlier attempt are being removed from this machine
    PREPARING = "preparing"
    WAITING = "waiting"  # for capacity
    RUNNING = "running"
    ENDED = "ended"  # its outcome is being written
    RECORDED = "recorded"  # the store has yet to confirm the outcome


UNSTARTED = (Phase.CLEANING, Phase.PREPARING, Phase.WAITING)


class HeldClaim(Struct, frozen=True, kw_only=True):
    """A claim of this worker. `is_revoked`: it is returned, and nothing is written about it."""

    claim: Claim
    phase: Phase
    safe_until_s: float  # no other worker can have claimed it before
    has_lease: bool = True
    is_suspect: bool = False  # the last renewal did not find it
    is_revoked: bool = False
    # fencing token of a second grant of the same job, which is returned with this one
    newer_fence: int | None = None
    is_cancelled: bool = False
    is_spent: bool = False
    demand: Demand | None = None
    began_us: int | None = None  # while it runs
    record: Record | None = None
    confirm_at_s: float = 0.0

    @property
    def uuid(self) -> str:
        return self.claim.job.uuid

    @property
    def fence(self) -> int:
        return self.claim.fence
