"""Slurm's partitions, nodes and jobs as values. `analysis.slurm` reads them from its text."""

from msgspec import Struct, field

# Reasons of outcomes that Slurm decided.
CANCELLED_REASON = "slurm-cancelled"  # by scancel
WALLTIME_REASON = "slurm-walltime"  # the allocation reached its walltime
# States of jobs that are over and will not run again.
ENDED_STATES = frozenset(
    (
        *("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "PREEMPTED"),
        *("BOOT_FAIL", "DEADLINE", "REVOKED", "SPECIAL_EXIT", "LAUNCH_FAILED", "RECONFIG_FAIL", "EXPIRED"),
    )
)
WAITING_STATES = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "CONFIGURING", "SPECIAL_EXIT")
)


class QueuedJob(Struct, frozen=True, kw_only=True):
    """One line of squeue: a job, or one task of an array."""

    job_id: str  # 123, or 123_4 of an array
    raw_id: str = ""  # of an array's task: its own number
    state: str = ""  # PENDING, RUNNING, COMPLETED
    reason: str = ""  # why it waits, or how it ended; '' for Slurm's 'None'
    name: str = ""
    comment: str = ""
    user: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: tuple[str, ...] = ()
    node_count: int | None = None
    cpus: int | None = None
    submitted_at_us: int | None = None
    starts_at_us: int | None = None  # actual or expected
    time_limit_s: float | None = None
    time_left_s: float | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED_STATES


class Partition(Struct, frozen=True, kw_only=True):
    """A partition's nodes of one kind: sinfo has a line for each."""

    name: str
    is_default: bool = False
    max_time_s: float | None = None  # None: no limit
    default_time_s: float | None = None
    nodes: int = 0
    cpus_per_node: int = 0  # of the smallest node
    memory_per_node_bytes: int = 0
    gpus_per_node: int = 0
    state: str = ""  # of the nodes


class SlurmRow(Struct, frozen=True, kw_only=True):
    """One line of sacct: a job, or a step of one. None and '': not reported."""

    job_id: str  # 123, 123_4, 123+1; of a step: 123.batch, 123_4.0
    raw_id: str = ""
    cluster: str = ""
    name: str = ""
    user: str = ""
    group: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: str = ""  # without 'by UID'
    cancelled_by: str = ""
    exit_code: str = ""  # code:signal
    reason: str = ""
    comment: str = ""
    work_dir: str = ""
    submit_line: str = ""
    submitted_at_us: int | None = None
    started_at_us: int | None = None
    ended_at_us: int | None = None
    elapsed_s: float | None = None
    time_limit_s: float | None = None  # None: unknown or unlimited
    allocated_cpus: int | None = None
    asked_cpus: int | None = None
    node_count: int | None = None
    task_count: int | None = None
    nodes: tuple[str, ...] = ()
    asked_memory: str = ""  # as written: 200M, 4Gc, 2000Mn
    asked_tres: dict[str, str] = field(default_factory=dict)
    allocated_tres: dict[str, str] = field(default_factory=dict)
    user_cpu_usec: int | None = None
    system_cpu_usec: int | None = None
    total_cpu_usec: int | None = None
    max_rss_bytes: int | None = None  # of the largest task
    max_disk_read_bytes: int | None = None
    max_disk_write_bytes: int | None = None
    used_in_max: dict[str, str] = field(default_factory=dict)
    used_in_total: dict[str, str] = field(default_factory=dict)
    used_out_total: dict[str, str] = field(default_factory=dict)
    restarts: int | None = None

    @property
    def is_step(self) -> bool:
        return "." in self.job_id

    @property
    def of_job(self) -> str:
        """Returns the id of the job, also for a step."""
        return self.job_id.partition(".")[0]

    @property
    def step(self) -> str:
        """Returns batch, extern, 0; '' for a job."""
        return self.job_id.partition(".")[2]


class SlurmJob(Struct, frozen=True, kw_only=True):
    """A job with its steps, from sacct."""

    row: SlurmRow
    steps: tuple[SlurmRow, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.row.state in ENDED_STATES
