"""Requests that a run would make of a cluster, and the capacity of that cluster: for dry runs."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.model.clusters.placing import PlacementRequest

JOB, ARRAY, ALLOCATION, TASK, WORKER, QUEUE = "job", "array", "allocation", "task", "worker", "queue"


class Capacity(Struct, frozen=True, kw_only=True):
    """Of one node, worker or machine, or of each of `count` alike. None: unknown or not limited."""

    name: str  # of the partition, node or worker
    count: int = 1
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float = 0
    time_limit_s: float | None = None
    queues: tuple[str, ...] = ()  # that a worker serves
    resources: dict[str, float] = {}  # named by the cluster itself
    is_default: bool = False


class PlannedRequest(Struct, frozen=True, kw_only=True):
    """`count` equal requests to the cluster: one sbatch, one Ray task or placement group each."""

    stage: int  # 1, 2, … in which the run makes it
    kind: str
    name: str
    count: int = 1
    jobs: tuple[int, ...] = ()  # indexes in the plan; of an allocation, those that share it
    action: int | None = None  # index of the workflow's action that asks for it; None: its jobs are ready
    nodes: int = 1
    cpus: float | None = None  # of each node
    memory_bytes: int | None = None
    gpus: int = 0
    resources: dict[str, float] = {}  # named by the cluster itself, of each node
    walltime_s: float | None = None
    partition: str = ""
    at_once: int | None = None  # jobs that can run at a time; None: the cluster decides
    argv: tuple[str, ...] = ()  # of sbatch
    script: str = ""  # that sbatch reads from its standard input


class PreviewStep(Struct, frozen=True):
    """A stage of the plan: its actions fire, then its jobs are ready. Each uuid is the job's index."""

    stage: int
    actions: tuple[int, ...]  # that schedule nodes
    parcels: Sequence[PlacementRequest]


class ClusterPreview(Struct, frozen=True, kw_only=True):
    engine: str
    where: str  # one line about the cluster
    capacity: tuple[Capacity, ...] = ()
    requests: tuple[PlannedRequest, ...] = ()
