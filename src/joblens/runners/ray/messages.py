"""Messages between a run and its proxy at Ray, and inputs and messages of Ray's tasks.

The proxy is a separate process: a program that uses Ray ends with its cluster, and a run must not."""

import msgspec
from msgspec import Struct, field

from joblens.model.clusters.allocation import NodeDoorAddress
from joblens.model.clusters.placement import AllocationState

NODE_PREFIX = "node:"  # prefix of a resource that every node of Ray has


class Need(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources that one job requests of Ray, on each of its nodes."""

    cpus: float = 1.0
    memory_bytes: int = 0
    gpus: int = 0
    nodes: int = 1
    more: tuple[tuple[str, float], ...] = ()  # resources of the cluster's own


class Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Job to place."""

    uuid: str
    need: Need = Need()
    kind: int = 0  # jobs of one kind have similar durations
    priority: int = 0


class NodeOffer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    node_id: str
    name: str = ""
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0
    more: dict[str, float] = field(default_factory=dict)


# ---- to the proxy -----------------------------------------------------------------------------------------


class Open(Struct, frozen=True, kw_only=True, tag="open", omit_defaults=True):
    """First message of a run that begins or is resumed."""

    address: str = ""
    own: NodeOffer | None = None  # capacity of a cluster that is started for the run
    config: str = field(default="", name="hire")  # JSON of WorkerConfig, for every worker on a node
    argv: tuple[str, ...] = ()  # command that starts a worker
    folder: str = ""  # output folder of the run
    mark: str = ""  # name of a file in it: a node with the file shares the folder
    is_ranked: bool = False  # some of its jobs have priority


class PlaceJobs(Struct, frozen=True, tag="place"):
    jobs: tuple[Wanted, ...]


class Withdraw(Struct, frozen=True, tag="withdraw"):
    uuids: tuple[str, ...]


class Follow(Struct, frozen=True, tag="follow"):
    """Jobs that were reported as placed to an earlier driver."""

    uuids: tuple[str, ...]


class Close(Struct, frozen=True, tag="close"):
    is_over: bool


# ---- from the proxy ---------------------------------------------------------------------------------------


class Opened(Struct, frozen=True, kw_only=True, tag="opened", omit_defaults=True):
    """Sent again whenever nodes join or leave."""

    nodes: tuple[NodeOffer, ...]
    address: str = ""


class Refused(Struct, frozen=True, kw_only=True, tag="refused", omit_defaults=True):
    """There is no such cluster, and the proxy has closed."""

    why: str
    is_missing: bool = False  # Ray is not installed


class AllocationReport(Struct, frozen=True, kw_only=True, tag="told", omit_defaults=True):
    state: AllocationState
    uuids: tuple[str, ...]
    word: str = ""
    reason: str = ""
    is_by_others: bool = False  # as in model.clusters.placement.AllocationEvent


class Warned(Struct, frozen=True, tag="warned"):
    text: str


ToProxy = Open | PlaceJobs | Withdraw | Follow | Close
FromProxy = Opened | Refused | AllocationReport | Warned


# ---- inputs and messages of tasks
# ---------------------------------------------------------------------------


class TaskInput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    uuids: tuple[str, ...]
    need: Need
    run_uuid: str
    config: str = field(name="hire")
    argv: tuple[str, ...]
    folder: str = ""
    mark: str = ""
    doors: tuple[NodeDoorAddress, ...] = ()  # to the other nodes of a multi-node job
    token: str = ""  # of these doors


class Begun(Struct, frozen=True, kw_only=True, tag="begun", omit_defaults=True):
    node_id: str
    host: str


class WorkerNotStarted(Struct, frozen=True, tag="cannot"):
    """No worker could be started on the node."""

    why: str


class Finished(Struct, frozen=True, kw_only=True, tag="finished", omit_defaults=True):
    ended: tuple[str, ...]
    let_go: tuple[str, ...] = ()
    seconds: float = 0.0


class Printed(Struct, frozen=True, kw_only=True, tag="printed"):
    """Part of an output file on the node, and its destination."""

    path: str
    offset: int
    data: bytes
    is_whole: bool = False  # replaces everything sent before


FromTask = Begun | WorkerNotStarted | Finished | Printed

task_inputs = msgspec.msgpack.Decoder(TaskInput)
from_task = msgspec.msgpack.Decoder(FromTask)
packed = msgspec.msgpack.encode
