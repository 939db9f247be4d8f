"""Details of a job besides its samples: tables updated while it runs, facts, and its provenance."""

from typing import Any, TypeVar

from msgspec import Struct, field, json

from joblens.model.jobs.job import Usage
from joblens.model.values.ids import blake2b


class ThreadUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thread since its first sample; ended threads keep their last values."""

    pid: int
    tid: int
    process: str = ""  # name of its process
    name: str = ""
    cpu_usec: int = 0
    user_usec: int | None = None
    system_usec: int | None = None
    wait_usec: int | None = None  # ready to run, without a CPU
    switches_voluntary: int | None = None
    switches_involuntary: int | None = None
    migrations: int | None = None  # migrations between CPUs
    last_cpu: int | None = None
    cpus_allowed: str = ""  # as the kernel lists them: 0-3,8
    is_alive: bool = True
    # of a process, so only for its first thread
    parent: int | None = None  # the process that started it, as first seen
    started_at_us: int | None = None
    ended_at_us: int | None = None  # when it was first missing; None: alive at the last reading


class ThreadTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at_us: int
    threads: tuple[ThreadUse, ...] = ()  # the hottest, hottest first
    seen: int = 0  # number of threads measured
    unread: int = 0  # further threads, never read
    cpu_usec: int = 0  # of all measured threads
    wait_usec: int | None = None
    migrations: int | None = None
    source: str = ""


class Endpoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Traffic of the job with one remote address and port, as far as its sockets were sampled."""

    protocol: str  # tcp, udp
    address: str
    port: int
    sockets: int = 0  # so far
    gone: int = 0  # of these, closed since: traffic after the last sample is missing
    is_listener: bool = False  # the job accepts connections at this port
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    retransmits: int | None = None
    rtt_usec: int | None = None  # of the last sample


class EndpointTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at_us: int
    endpoints: tuple[Endpoint, ...] = ()  # the busiest, busiest first
    seen: int = 0
    open_at_us: int | None = None  # the last sample with an open connection
    source: str = ""


class ProcessMemory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    pid: int
    name: str = ""
    pss_bytes: int | None = None
    rss_bytes: int | None = None
    private_bytes: int | None = None
    shared_bytes: int | None = None
    swap_bytes: int | None = None
    huge_bytes: int | None = None


class MemoryDepth(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Detailed memory at one instant."""

    at_us: int
    pss_bytes: int | None = None
    anon_bytes: int | None = None
    page_cache_bytes: int | None = None
    shmem_bytes: int | None = None
    kernel_bytes: int | None = None
    huge_bytes: int | None = None  # in transparent huge pages
    hugetlb_bytes: int | None = None  # in pages of hugetlbfs
    numa_bytes: dict[str, int] = {}  # node -> bytes
    processes: tuple[ProcessMemory, ...] = ()  # the largest, largest first
    seen: int = 0
    unknown: dict[str, str] = {}


class GpuFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Constant facts."""

    id: str  # stable name of the device: its UUID, or its PCI address
    vendor: str  # nvidia, amd, intel
    index: int
    name: str = ""
    uuid: str = ""
    pci: str = ""
    driver: str = ""
    driver_version: str = ""
    compute_capability: str = ""
    memory_total_bytes: int | None = None
    power_limit_mw: int | None = None
    compute_mode: str = ""
    ecc_enabled: bool | None = None
    parent: str = ""  # of a MIG instance: id of its GPU
    sources: dict[str, str] = {}  # group of numbers -> where they are read
    unknown: dict[str, str] = {}  # number -> why it is unknown for this device


class ContainerFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    engine: str  # docker, podman
    engine_version: str = ""
    id: str
    name: str = ""
    image: str = ""
    image_id: str = ""
    cgroup: str = ""
    network_mode: str = ""
    started_at_us: int | None = None
    cpus: float | None = None  # limits in force; None: none
    cpu_list: str = ""
    memory_bytes: int | None = None
    memory_swap_bytes: int | None = None
    pids: int | None = None
    volumes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    startup_s: float | None = None  # from the request to its first instruction
    overhead: dict[str, float] = {}  # resources of the engine's own processes, by number
    unknown: dict[str, str] = {}


class OperatorUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operator of a recipe over all partitions, with its checkpoints.

    Lost and repeated work counts each time.
    """

    index: int  # index in the recipe, from 0
    name: str
    wall_s: float = 0.0  # summed over all partitions, which ran in parallel
    cpu_usec: int | None = None
    memory_peak_bytes: int | None = None  # of the worker that needed the most
    read_bytes: int | None = None
    written_bytes: int | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int = 0
    partitions: int = 0  # completed ones


class StepUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work of a recipe's job outside operators: splitting, reading, exporting, coordinating."""

    name: str
    wall_s: float | None = None  # None: in parallel with everything else
    cpu_usec: int | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


OTHER_REASONS = "other reasons"  # each of a few rows, counted together


class RejectReason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a recipe's job that were rejected for one reason."""

    operator: str = ""  # "": the rows could not be read
    reason: str  # of the first of them
    rows: int

    @property
    def is_unread(self) -> bool:
        """Returns whether the rows failed before the first operator."""
        return not self.operator and self.reason != OTHER_REASONS


class OperatorTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resource use of a recipe's operators."""

    at_us: int
    operators: tuple[OperatorUse, ...] = ()  # in the order of the recipe
    steps: tuple[StepUse, ...] = ()  # in order
    workers: int = 0
    partitions: int = 0
    largest_partition_bytes: int | None = None
    job_dir: str = ""
    runs: int = 0  # of the job, all included here
    rejects: tuple[RejectReason, ...] = ()  # the most frequent first


class NodePart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resource use of a multi-node job on one node."""

    node: str
    usage: Usage = Usage()
    processes: int | None = None  # included ones
    tasks: tuple[int, ...] = ()  # ranks
    is_first: bool = False  # the command was started here
    accounting: str = ""
    error: str = ""  # why numbers are missing


class NodeTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at_us: int
    nodes: tuple[NodePart, ...] = ()


class ClusterAccount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster's accounting of a job. It is sampled, so it never replaces the numbers of joblens."""

    source: str  # sacct
    job_id: str
    state: str = ""
    exit_code: str = ""  # in its notation: 3:0
    elapsed_s: float | None = None
    time_limit_s: float | None = None
    cpu_usec: int | None = None
    max_rss_bytes: int | None = None
    asked_memory_bytes: int | None = None
    allocated_cpus: int | None = None
    nodes: tuple[str, ...] = ()
    read_bytes: int | None = None
    written_bytes: int | None = None
    submitted_at_us: int | None = None
    started_at_us: int | None = None
    ended_at_us: int | None = None
    is_shared: bool = False  # of a whole allocation that other jobs used too
    fields: dict[str, str] = {}  # other numbers, by the cluster's names


class Details(Struct, frozen=True, kw_only=True, omit_defaults=True):
    threads: ThreadTable | None = None
    endpoints: EndpointTable | None = None
    memory: MemoryDepth | None = None
    gpus: tuple[GpuFacts, ...] | None = None
    container: ContainerFacts | None = None
    operators: OperatorTable | None = None  # of a recipe
    nodes: NodeTable | None = None  # of a job of several nodes
    cluster: ClusterAccount | None = None
    unknown: dict[str, str] = {}  # part -> why it is missing

    def updated(self, newer: "Details") -> "Details":
        """Replaces parts by those of `newer`, unless they are older: writes from a journal may be late."""
        parts: dict[str, Any] = {
            "threads": _latest(self.threads, newer.threads),
            "endpoints": _latest(self.endpoints, newer.endpoints),
            "memory": _latest(self.memory, newer.memory),
            "gpus": self.gpus if newer.gpus is None else newer.gpus,
            "container": newer.container or self.container,
            "operators": _latest(self.operators, newer.operators),
            "nodes": _latest(self.nodes, newer.nodes),
            "cluster": newer.cluster or self.cluster,
        }
        unknown = {**self.unknown, **newer.unknown}
        # The reason why a part was missing is dropped once the part exists.
        return Details(
            **parts, unknown={part: why for part, why in unknown.items() if parts.get(part) is None}
        )


_Table = TypeVar("_Table", ThreadTable, EndpointTable, MemoryDepth, OperatorTable, NodeTable)


def _latest(ours: _Table | None, theirs: _Table | None) -> _Table | None:
    if ours is None or theirs is None:
        return theirs or ours
    return ours if theirs.at_us < ours.at_us else theirs


class CodeVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The repository that a job was started in."""

    commit: str
    is_dirty: bool | None = None  # changed files known to git; None: not checked
    branch: str = ""
    remote: str = ""  # without user and password
    root: str = ""
    changes_digest: str = ""  # of the changes, if any


class Program(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that the command starts: a program, or a script of an interpreter."""

    path: str
    sha256: str = ""
    bytes: int | None = None
    version: str = ""  # of an interpreter, if file names show it


class Hardware(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cpu_model: str = ""
    architecture: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()  # models


class Provenance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    host: str = ""
    system: str = ""  # Debian GNU/Linux 12, kernel 6.1
    kernel: str = ""
    hardware: Hardware = Hardware()
    code: CodeVersion | None = None
    programs: tuple[Program, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)  # joblens, python, packages the command can import
    environment: dict[str, str] = field(default_factory=dict)  # by allow-list, without secrets
    limits: dict[str, str] = field(default_factory=dict)  # umask, stack, open files
    unknown: dict[str, str] = field(default_factory=dict)  # part -> why it is missing


def digest_of(provenance: Provenance) -> str:
    """Returns its key in a store: equal for equal provenance."""
    text = json.encode(provenance, order="deterministic")
    return blake2b(text, 16).hexdigest()
