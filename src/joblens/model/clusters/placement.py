"""Placement of jobs on a cluster: requests, allocations and their events, and previews for dry runs.

A cluster (Ray, Slurm) only decides where and when. It runs the command line of a *pilot* worker, which claims
the job's ticket in the store as every worker does."""

import enum
from collections.abc import Sequence

from msgspec import Struct, field

from joblens.model.jobs.job import Placement, Requirements, Status
from joblens.model.values.labels import queue_and_label

CLUSTER_MARK = "@"  # before names of queues


class PlacementRequest(Struct, frozen=True, kw_only=True):
    """Request to place one job that has a ticket."""

    uuid: str
    queue: str  # of its ticket
    name: str
    requirements: Requirements
    spec_job: int = 0  # index of its entry in the workflow file: jobs of a sweep share it
    scheduler: str = ""  # name of a Slurm scheduler in the spec
    priority: int = 0


class AllocationState(enum.StrEnum):
    """State of an allocation at the cluster."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"  # the pilot worker has exited
    GONE = "gone"  # killed from outside, lost with its machine, or never started


class Placed(Struct, frozen=True, kw_only=True):
    """A request accepted by the cluster, for these jobs or (an allocation) for a whole queue."""

    placement: Placement
    uuids: tuple[str, ...] = ()
    queue: str = ""


class AllocationEnding(Struct, frozen=True, kw_only=True):
    """Outcome of jobs whose allocation the cluster or a user ended: they do not run again."""

    status: Status  # cancelled or timeout
    reason: str  # of the outcome
    text: str  # for people: 'cancelled in Slurm by alice'


class AllocationEvent(Struct, frozen=True, kw_only=True):
    """Change of an allocation, as the cluster reports it."""

    job_id: str
    state: AllocationState
    word: str = ""  # the cluster's name for the state: PENDING, NODE_FAIL
    reason: str = ""  # Resources, Priority, QOSMaxJobsPerUserLimit
    uuids: tuple[str, ...] = ()
    is_by_others: bool = False  # ended by no fault of its jobs or the request
    ending: AllocationEnding | None = None  # of its jobs; None: they run again elsewhere


class NodeCapacity(Struct, frozen=True, kw_only=True):
    """Free capacity of a worker; None: not counted."""

    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    time_s: float | None = None  # until it has to end
    usual_s: float | None = None  # mean duration of jobs without a time limit so far


class WorkerConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Configuration of a pilot worker, in a private file: the store's URL may have a password in it."""

    store: str
    config: str = ""
    run_uuid: str = ""
    queues: tuple[str, ...] = ()  # it claims jobs from
    tickets: tuple[str, ...] = ()  # or only these; in an array, the one at its own index
    is_array: bool = False
    names: tuple[str, ...] = ()  # of the elements of an array, as shown by the cluster
    concurrency: int | None = None  # None: as detected in the allocation
    memory_bytes: int | None = None
    most_jobs: int | None = None  # at a time
    idle_s: float = 0.0  # exits after being idle for so long; 0: when its tickets have ended
    reserve_s: float = 60.0  # stops claiming so long before its time limit
    placement: Placement | None = None
    walltime_s: float | None = None  # of its allocation
    env: dict[str, str] = field(default_factory=dict)
    listen: str = (
        ""  # a socket on which it receives tickets one by one (runners.nodes.listener), until it is idle
    )
    user: str = ""  # owner of the jobs it runs; '': its own user
    boot_id: str = ""  # of the only machine that may open the store's file; '': any may
    # Folders that are not visible on its machine -> replacements there.
    elsewhere: dict[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] | None = None  # devices for its jobs; None: as detected in the allocation


def queue_of_run(engine: str, run_uuid: str, scheduler: str = "") -> str:
    """Returns the queue for pilot workers of one run. Names from users never begin with the mark."""
    return f"{CLUSTER_MARK}{engine}.{run_uuid}{'.' if scheduler else ''}{scheduler}"


def is_of_cluster(queue: str) -> bool:
    return queue.startswith(CLUSTER_MARK)


def is_for_any_worker(route: str) -> bool:
    """Returns whether the route is neither for pilot workers nor for workers with a label."""
    return not is_of_cluster(route) and not queue_and_label(route)[1]


JOB, ARRAY, ALLOCATION, TASK, WORKER, QUEUE = "job", "array", "allocation", "task", "worker", "queue"


class Capacity(Struct, frozen=True, kw_only=True):
    """Capacity of one node, worker or machine, or of each of `count` equal ones. None: unknown, unlimited."""

    name: str  # of the partition, node or worker
    count: int = 1
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float = 0
    time_limit_s: float | None = None
    queues: tuple[str, ...] = ()  # that a worker serves
    resources: dict[str, float] = {}  # custom resources of the cluster
    is_default: bool = False


class PlannedRequest(Struct, frozen=True, kw_only=True):
    """`count` equal requests to the cluster: one sbatch, one Ray task or placement group each."""

    stage: int  # 1, 2, … in which the run makes it
    kind: str
    name: str
    count: int = 1
    jobs: tuple[int, ...] = ()  # indexes in the plan; for an allocation, of the jobs that share it
    action: int | None = None  # index of the action that requests it; None: requested for ready jobs
    nodes: int = 1
    cpus: float | None = None  # of each node
    memory_bytes: int | None = None
    gpus: int = 0
    resources: dict[str, float] = {}  # custom resources of each node
    walltime_s: float | None = None
    partition: str = ""
    at_once: int | None = None  # jobs that can run at a time; None: the cluster decides
    argv: tuple[str, ...] = ()  # of sbatch
    script: str = ""  # standard input of sbatch


class PreviewStep(Struct, frozen=True):
    """A stage of the plan: its actions fire, then its jobs are ready. Each uuid is the job's index."""

    stage: int
    actions: tuple[int, ...]  # that schedule nodes
    requests: Sequence[PlacementRequest]


class ClusterPreview(Struct, frozen=True, kw_only=True):
    engine: str
    where: str  # one line about the cluster
    capacity: tuple[Capacity, ...] = ()
    requests: tuple[PlannedRequest, ...] = ()
