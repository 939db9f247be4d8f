"""Events and commands of the claim life cycle (`engine.life.claims`). Times are by the lease clock."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from joblens.engine.life.worker_capacity import Demand, Share
from joblens.model.clusters.placement import NodeCapacity
from joblens.model.delivery import Claim, Renewal
from joblens.model.jobs.job import Record


class Message(Struct, frozen=True):
    """An announcement of the broker. `ack` is opaque here: it comes back with `Ack`."""

    uuid: str
    ack: Callable[[], None]


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """Asks the store for announced jobs, or for the oldest queued ones if there are no `messages`."""

    limit: int
    messages: tuple[Message, ...] = ()
    uuids: tuple[str, ...] = ()  # of `messages`, without jobs that are claimed already
    older_than_s: float = 0.0
    free: NodeCapacity | None = None  # None: jobs of any size
    total: NodeCapacity | None = None


class Grant(Struct, frozen=True):
    claim: Claim
    needs_cleanup: bool = False  # an earlier attempt may have left processes on this machine


# ---- events: from the broker and the store ---------------------------------------------------------------


class Announced(Struct, frozen=True):
    message: Message


class BrokerChanged(Struct, frozen=True):
    is_connected: bool


class PollAsked(Struct, frozen=True):
    """The store may have jobs that were not announced."""


class Granted(Struct, frozen=True):
    """The store's answer. `asked_at_s`: time of the request, from which leases count."""

    request: ClaimRequest
    grants: tuple[Grant, ...]
    asked_at_s: float


class ClaimFailed(Struct, frozen=True):
    request: ClaimRequest


class Renewed(Struct, frozen=True):
    """`claims`: uuid -> fencing token, as asked."""

    claims: Mapping[str, int]
    renewal: Renewal
    asked_at_s: float


class RenewFailed(Struct, frozen=True):
    pass


class Confirmed(Struct, frozen=True):
    """`ended`: in the store. `lost`: another worker has the job, so this outcome was ignored."""

    claims: Mapping[str, int]
    ended: frozenset[str]
    lost: frozenset[str]


class ConfirmFailed(Struct, frozen=True):
    claims: Mapping[str, int]


class Returned(Struct, frozen=True):
    claims: Mapping[str, int]
    is_done: bool  # False: the store did not answer


class HoldingsRead(Struct, frozen=True):
    """Claims that the store ascribes to this worker."""

    claims: Mapping[str, int]


# ---- events: from this machine ---------------------------------------------------------------------------


class CleanedUp(Struct, frozen=True):
    uuid: str
    fence: int


class Prepared(Struct, frozen=True):
    uuid: str
    demand: Demand


class NotPrepared(Struct, frozen=True):
    """The job cannot start. Its outcome is being written."""

    uuid: str


class ServiceChanged(Struct, frozen=True):
    """Worker actions of a run. `is_ready`: its jobs may start; None: the worker does not serve the run."""

    run: str
    is_ready: bool | None


class Began(Struct, frozen=True):
    uuid: str
    at_us: int


class Ended(Struct, frozen=True):
    uuid: str
    duration_s: float | None


class Withdrawn(Struct, frozen=True):
    """Stopped before it started."""

    uuid: str


class Recorded(Struct, frozen=True):
    """The outcome is written, perhaps to the journal only. `is_spent`: the job must not run again when it
    is requeued, or it counts as a delivery."""

    record: Record
    is_spent: bool = False


class OutcomeDiscarded(Struct, frozen=True):
    """The outcome is not the job's own: the job is requeued once it has ended."""

    uuid: str


class Resized(Struct, frozen=True):
    concurrency: int


class DevicesAssigned(Struct, frozen=True):
    uuid: str
    devices: tuple[str, ...]


class SenderLeft(Struct, frozen=True):
    """The task that brought this job is gone: the job is requeued."""

    uuid: str


class StopAsked(Struct, frozen=True):
    """Jobs that end with the allocation."""

    uuids: frozenset[str]


class Drain(Struct, frozen=True):
    """Claim nothing more and finish running jobs."""


class Evict(Struct, frozen=True):
    """Requeue all running jobs except `keep`. `with_ended`: also jobs whose outcome is being written.
    `discarded`: jobs whose delayed outcomes are not written."""

    keep: frozenset[str] = frozenset()
    with_ended: bool = False
    discarded: frozenset[str] = frozenset()


class Abandon(Struct, frozen=True):
    """The process ends."""


Event = (
    Announced
    | BrokerChanged
    | PollAsked
    | Granted
    | ClaimFailed
    | Renewed
    | RenewFailed
    | Confirmed
    | ConfirmFailed
    | Returned
    | HoldingsRead
    | CleanedUp
    | Prepared
    | NotPrepared
    | ServiceChanged
    | Began
    | Ended
    | Withdrawn
    | Recorded
    | OutcomeDiscarded
    | Resized
    | DevicesAssigned
    | SenderLeft
    | StopAsked
    | Drain
    | Evict
    | Abandon
)


# ---- commands --------------------------------------------------------------------------------------------


class AskFor(Struct, frozen=True):
    """Answered by `Granted` or `ClaimFailed`."""

    request: ClaimRequest


class Ack(Struct, frozen=True):
    message: Message


class LetGo(Struct, frozen=True):
    """Drop announced jobs that this worker does not get."""

    uuids: tuple[str, ...]


class CleanUp(Struct, frozen=True):
    """Answered by `CleanedUp`."""

    claim: Claim


class Prepare(Struct, frozen=True):
    """Answered by `Prepared` or `NotPrepared`. Later writes have the fencing token."""

    claim: Claim


class Serve(Struct, frozen=True):
    """Serve the run of this job. Answered by `ServiceChanged`."""

    claim: Claim


class Start(Struct, frozen=True):
    """Answered by `Ended` and `Recorded`, or by `Withdrawn`."""

    uuid: str
    share: Share


class Kill(Struct, frozen=True):
    uuid: str
    at_once: bool  # with SIGKILL


class RecordCancelled(Struct, frozen=True):
    """Record that it was cancelled before it started. Answered by `Recorded`."""

    claim: Claim


class Suppress(Struct, frozen=True):
    """Write nothing more about this job."""

    uuid: str


class Return(Struct, frozen=True):
    """Return the claim to the store. Answered by `Returned`."""

    uuid: str
    fence: int
    is_spent: bool = False


class Renew(Struct, frozen=True):
    """Answered by `Renewed` or `RenewFailed`."""

    claims: Mapping[str, int]


class Confirm(Struct, frozen=True):
    """Check whether these jobs have ended in the store. Answered by `Confirmed` or `ConfirmFailed`."""

    claims: Mapping[str, int]


class ReportLost(Struct, frozen=True):
    """Another worker has the job; it is killed here."""

    uuid: str


class ReportStrays(Struct, frozen=True):
    """Claims of this worker that only the store knew are returned."""

    count: int


class Release(Struct, frozen=True):
    """The claim is over. `record`: the job ended here and is in the store; None: another worker has it."""

    uuid: str
    claim: Claim | None = None
    record: Record | None = None


Command = (
    AskFor
    | Ack
    | LetGo
    | CleanUp
    | Prepare
    | Serve
    | Start
    | Kill
    | RecordCancelled
    | Suppress
    | Return
    | Renew
    | Confirm
    | ReportLost
    | ReportStrays
    | Release
)
