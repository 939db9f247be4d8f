"""Job as requested, how it was started, how it ended, and the record of all three."""

import enum
from typing import Any

from msgspec import Struct, field


class Severity(enum.StrEnum):
    INFO = "info"
    WARNING = "warning"
    PROBLEM = "problem"


class Code:
    """Kind of a finding; docs/findings.md has a section for each. Constants: an enum of so many members would
    cost every start of joblens 0.6 ms."""

    # end
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    PIDS_LIMIT = "pids-limit"
    CANCELLED = "cancelled"
    STOPPED_BY_SYSTEMD = "stopped-by-systemd"
    LOST = "lost"
    NOT_STARTED = "not-started"
    # events while it ran
    CHILD_OUT_OF_MEMORY = "child-out-of-memory"
    LEFTOVERS = "leftovers"
    LEAK_SUSPECTED = "leak-suspected"
    TAKEN_UP_AGAIN = "taken-up-again"
    # waits
    CPU_THROTTLED = "cpu-throttled"
    CPU_PRESSURE = "cpu-pressure"
    IO_PRESSURE = "io-pressure"
    MEMORY_PRESSURE = "memory-pressure"
    SWAPPED = "swapped"
    MAJOR_FAULTS = "major-faults"
    GPU_THROTTLED = "gpu-throttled"
    # start-up time
    SLOW_START = "slow-start"
    MANY_PROCESSES = "many-processes"
    SHORT_JOBS = "short-jobs"
    # requests and use
    MEMORY_NEAR_LIMIT = "memory-near-limit"
    MEMORY_UNUSED = "memory-unused"
    CPUS_UNUSED = "cpus-unused"
    ONE_CORE_ONLY = "one-core-only"
    MOSTLY_WAITING = "mostly-waiting"
    GPU_UNUSED = "gpu-unused"
    GPU_IDLE = "gpu-idle"
    MORE_THAN_THERE_IS = "more-than-there-is"
    LIMIT_NOT_ENFORCED = "limit-not-enforced"
    # quality of the numbers
    LOWER_BOUNDS = "lower-bounds"
    SHARED = "shared-measurement"


class Finding(Struct, frozen=True, omit_defaults=True):
    """`code` is stable and listed in docs/findings.md; `text` says what happened, `advice` what to do."""

    code: str
    severity: Severity
    text: str
    advice: str = ""


class RunLink(Struct, frozen=True, omit_defaults=True):
    """The run and job that a record is an attempt of."""

    run_uuid: str
    index: int  # index in the plan; -1: a command of an action or a recovery script
    attempt: int = 1
    is_command: bool = False  # its run is this single command, shown as a job, not as a workflow


class FileStamp(Struct, frozen=True, omit_defaults=True):
    """State of a file or dataset before or after a job."""

    path: str
    size: int | None = None  # None: missing, or a folder
    mtime_ns: int | None = None  # None: missing
    digest: str | None = None  # sha256 of the content, if it was read (formerly 32 digits of blake2b)
    is_guess: bool = False  # named in the command, not declared as input
    files: int | None = None  # in a dataset, which is a directory; None: not a dataset
    hash_mode: str = ""  # of a dataset: input of its digest


BY_AFFINITY = "CPU affinity"  # prefix of the mechanism that gives a job whole CPUs
LOGOUT, SHUTDOWN = "logout", "shutdown"  # reasons of outcomes that systemd decided


class Status(enum.StrEnum):
    QUEUED = "queued"  # known, not started
    RUNNING = "running"  # started, not ended
    SUCCESS = "success"  # ended with exit code 0
    FAILED = "failed"  # ended with another exit code or by a signal, including out of memory
    TIMEOUT = "timeout"  # stopped by joblens at its time limit
    ERROR = "error"  # could not be started, or its host program raised
    CANCELLED = "cancelled"  # by a user, or with the login session or the machine
    MEASURED = "measured"  # only observed (attach): its end is unknown, or it still runs
    LOST = "lost"  # its owner died and the outcome is unknown

    @property
    def is_final(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING)

    @property
    def is_failure(self) -> bool:
        """Returns whether it ended without success; False if its end is unknown."""
        return self.is_final and self not in (Status.SUCCESS, Status.MEASURED)


class Accounting(enum.StrEnum):
    AUTO = "auto"
    CGROUP = "cgroup"
    PROCESS_TREE = "process_tree"


class Granularity(enum.StrEnum):
    SUMMARY = "summary"
    TIME_SERIES = "time_series"


class RetryLost(enum.StrEnum):
    """Policy for jobs whose worker was lost after it may have started them."""

    NEVER = "never"  # must not run twice: ends as `lost`
    SAFE = "safe"  # another worker runs it again


class Requirements(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements as written; None: not written, so not limited."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    pids: int | None = None
    timeout_s: float | None = None
    nodes: int | None = None  # on a cluster; elsewhere it runs on one


class EarlySignal(Struct, frozen=True, omit_defaults=True):
    """A signal to send some time before the time-out (`--signal USR1@60`)."""

    signal: int
    lead_s: float
    is_grace: bool = False  # the lead is the grace period: at the time-out it is killed


class ContainerJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Container of a job, created by joblens."""

    image: str
    engine: str = ""  # docker, podman, apptainer; '': the first available one
    socket: str = ""
    name: str = ""
    volumes: tuple[str, ...] = ()  # SOURCE:TARGET[:ro]
    devices: tuple[str, ...] = ()  # PATH[:PATH[:rwm]]
    network: str = ""
    user: str = ""
    workdir: str = ""
    entrypoint: str = ""
    pull: bool = False  # fetch the image first if it is missing


class Owner(Struct, frozen=True):
    """Process that manages a job. Start time and boot id detect a reused pid."""

    host: str
    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int = 0  # of the pid; 0: unknown


EVERY_GPU = "all"  # of a job's devices


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command with its requirements. Stored values are already redacted (model.redaction)."""

    uuid: str
    argv: tuple[str, ...]
    created_at_us: int
    external_id: str | None = None
    name: str = ""
    tool: str = ""
    script: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    is_shell: bool = False  # argv[0] is a shell line
    cwd: str = ""
    # recorded variables of the environment, and additional ones
    env: dict[str, str] = field(default_factory=dict)
    env_given: tuple[str, ...] = ()  # requested names in `env`
    requirements: Requirements = Requirements()
    enforce: bool = True
    accounting: Accounting = Accounting.AUTO
    monitor: bool = True
    granularity: Granularity = Granularity.SUMMARY
    interval_s: float = 1.0
    grace_s: float = 10.0
    early_signal: EarlySignal | None = None
    output_dir: str = ""
    notify: tuple[str, ...] = ()
    user: str = ""
    background: bool = False  # waits in the store for the supervisor
    created_by: Owner | None = None  # process that starts it; of a background job: that submitted it
    run: RunLink | None = None  # of a workflow
    inputs: tuple[FileStamp, ...] = ()  # state of its input files at the start
    gpu_devices: tuple[str, ...] = ()  # assigned ones; EVERY_GPU: all of the machine
    command_digest: str = ""  # of everything that determines its result; if it changes, the job runs again
    limits_resources: bool = True  # False: of its requirements only the time-out is enforced
    timeout_exit_code: int = 124  # exit code in its record after a time-out
    oom_exit_code: int = 137
    probes: tuple[str, ...] | None = None  # measured besides CPU, memory, I/O; None: the default
    cpu_list: str = ""  # CPU affinity: 0-3,8
    container: ContainerJob | None = None
    attached: str = ""  # target of attach: process 42, container web, control group /x
    grid_co2_g_per_kwh: float | None = None  # of its electricity, from the settings
    rerun_of: str = ""  # uuid of the job that it repeats
    queue: str = ""  # for workers of this queue; its owner is the holder of its ticket
    label: str = ""  # of workers that may run it; '': only workers without one
    artifacts: tuple[str, ...] = ()  # patterns of output files, relative to its working directory
    outputs: tuple[str, ...] = ()  # paths of its declared outputs
    # random seeds in parameters, arguments and environment
    seeds: dict[str, str] = field(default_factory=dict)


def is_of_workflow(job: Job) -> bool:
    """Returns whether it is shown as a job of a workflow. A single command on a cluster has a run too."""
    return job.run is not None and not job.run.is_command


class Placement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Allocation of a job on a cluster."""

    engine: str  # ray, slurm
    job_id: str = ""  # id at the cluster: 123, 123_4; of a Ray task
    cluster: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: tuple[str, ...] = ()
    node_id: str = ""  # of Ray
    is_allocation: bool = False  # shared with other jobs, in parallel or in sequence
    asked: dict[str, str] = field(default_factory=dict)  # requested resources: --mem=2G, CPU=2


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a job: where it runs, and how to find it after a crash."""

    number: int = 1
    started_at_us: int
    started_mono_ns: int | None = None  # in the boot of `owner`
    owner: Owner
    pid: int | None = None
    pid_start_ticks: int | None = None
    launcher_pid: int | None = None
    launcher_start_ticks: int | None = None
    accounting: str = ""  # cgroup-v2, cgroup-hybrid, cgroup-v1, process-tree, none, in-process
    accounting_reason: str = ""  # why it has no control groups with all controllers; empty: it has them
    groups: dict[str, str] = field(default_factory=dict)  # hierarchy -> directory of the job's group
    base: dict[str, int] = field(default_factory=dict)  # counters of reused groups at the start
    enforced_by: dict[str, str] = field(default_factory=dict)  # limit -> mechanism
    logs_dir: str = ""  # holds stdout.log and stderr.log
    kernel: str = ""
    cpu_count: int | None = None
    memory_total_bytes: int | None = None
    gpu_count: int | None = None  # measured if GPUs were requested
    gpu_devices: tuple[str, ...] = ()  # assigned ones, also if the worker chose them
    placement: Placement | None = None  # on a cluster
    provenance: str = ""  # digest of its Provenance


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resource use of the whole job, exact unless in `lower_bounds` or `estimates`. None: unknown."""

    cpu_total_usec: int | None = None
    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    cpu_throttled_usec: int | None = None
    memory_peak_bytes: int | None = None  # cannot be reclaimed
    memory_kernel_peak_bytes: int | None = None  # as charged, page cache included
    memory_largest_process_bytes: int | None = None
    memory_mean_bytes: int | None = None
    memory_file_peak_bytes: int | None = None  # page cache, which can be reclaimed
    faults_minor: int | None = None
    faults_major: int | None = None
    oom_kills: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    io_read_ops: int | None = None
    io_write_ops: int | None = None
    io_call_read_bytes: int | None = None
    io_call_write_bytes: int | None = None
    io_call_reads: int | None = None
    io_call_writes: int | None = None
    processes_peak: int | None = None
    threads_peak: int | None = None
    open_files_peak: int | None = None
    context_switches_voluntary: int | None = None
    context_switches_involuntary: int | None = None
    cpu_pressure_usec: int | None = None
    memory_pressure_usec: int | None = None
    io_pressure_usec: int | None = None
    pids_limit_events: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    network_rx_packets: int | None = None
    network_tx_packets: int | None = None
    gpu_memory_peak_bytes: int | None = None  # the job's own, over all its GPUs at once
    gpu_busy_usec: int | None = None  # added up over its GPUs
    gpu_energy_uj: int | None = None  # its share of its GPUs' energy
    energy_package_uj: int | None = None  # its share, by CPU time, of the processors' energy
    energy_dram_uj: int | None = None
    co2_mg: int | None = None  # with the job's grid factor
    instructions: int | None = None
    cycles: int | None = None
    cpu_migrations: int | None = None
    memory_rss_sum_peak_bytes: int | None = None  # imported jobs only; shared pages count several times
    sources: dict[str, str] = field(default_factory=dict)  # number or group of numbers -> where read
    unknown: dict[str, str] = field(default_factory=dict)  # number -> why it is None
    lower_bounds: tuple[str, ...] = ()
    estimates: tuple[str, ...] = ()  # numbers that may be above or below the truth
    # 'unreclaimable'; '': includes mapped files (from an older joblens or another system)
    memory_peak_basis: str = ""
    shared: bool = False  # in-process measurements that overlapped


# Every number of Usage, in order.
USAGE_NUMBERS: tuple[str, ...] = tuple(
    name
    for name in Usage.__struct_fields__
    if name not in ("sources", "unknown", "lower_bounds", "estimates", "memory_peak_basis", "shared")
)


class Artifact(Struct, frozen=True, omit_defaults=True):
    path: str  # relative to the working directory
    bytes: int
    sha256: str = ""  # '' for large files


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How it ended. Written once."""

    status: Status
    ended_at_us: int
    duration_s: float
    exit_code: int | None = None
    signal: int | None = None
    # exited, signal, timeout, out-of-memory, limit, cancelled, logout, shutdown, not-started, measured, lost
    reason: str = ""
    error: str | None = None
    has_result: bool = False
    usage: Usage = Usage()
    profile: dict[str, Any] | None = None  # analysis.numbers.profile
    findings: tuple[Finding, ...] = ()
    samples: int = 0
    sampling_interval_s: float | None = None  # as measured
    leftovers: int = 0  # processes that outlived the main one
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    stderr_tail: str = ""
    stdout_tail: str = ""  # of jobs that ran on a worker
    artifacts: tuple[Artifact, ...] = ()  # files that matched its patterns and are newer than its start
    worker: str = ""
    work_dir: str = ""  # on the worker's machine, if the job had its own folder
    outputs: tuple[FileStamp, ...] = ()  # state of declared outputs at its end
    inputs: tuple[FileStamp, ...] = ()  # input files that were hashed while it ran


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything known about one job."""

    number: int | None = None  # small integer, given by the store
    status: Status
    job: Job
    attempt: Attempt | None = None
    outcome: Outcome | None = None

    @property
    def began_at_us(self) -> int:
        """Returns its start; before that, its creation."""
        return self.job.created_at_us if self.attempt is None else self.attempt.started_at_us

    @property
    def gpu_devices(self) -> tuple[str, ...]:
        """Returns its GPUs; a queued job was recorded before its worker chose them."""
        return (self.attempt.gpu_devices if self.attempt is not None else ()) or self.job.gpu_devices

    @property
    def inputs(self) -> tuple[FileStamp, ...]:
        """Returns its input files, with digests if hashed.

        A file that is only named in its command and that it wrote is an output.
        """
        outcome = self.outcome
        if outcome is None:
            return self.job.inputs
        read = {each.path: each for each in outcome.inputs}
        made = {each.path for each in outcome.outputs}
        kept = (each for each in self.job.inputs if not (each.is_guess and each.path in made))
        return tuple(read.get(each.path, each) for each in kept)


class ExitUsage(Struct, frozen=True, kw_only=True):
    """Sum over all processes the launcher reaped (the main one, and orphans), with their descendants.

    `max_rss_bytes` is the largest single process. I/O is from the launcher's /proc/self/io, None if
    unreadable. Processes whose parent ignores SIGCHLD are not included.
    """

    user_usec: int = 0
    system_usec: int = 0
    max_rss_bytes: int = 0
    rss_floor_bytes: int = 0  # max_rss of the launcher: values up to this are not the job's
    faults_minor: int = 0
    faults_major: int = 0
    context_switches_voluntary: int = 0
    context_switches_involuntary: int = 0
    io_call_read_bytes: int | None = None
    io_call_write_bytes: int | None = None
    io_call_reads: int | None = None
    io_call_writes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    io_removed_bytes: int | None = (
        None  # of these: in files removed or truncated before they reached a device
    )
    reaped: int = 0


# While the job's first processes live: known to be zero, not unknown.
NOTHING_REAPED = ExitUsage(
    io_call_read_bytes=0,
    io_call_write_bytes=0,
    io_call_reads=0,
    io_call_writes=0,
    io_read_bytes=0,
    io_write_bytes=0,
)
