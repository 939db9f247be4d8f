"""Workflow, its runs, and the facts appended while one runs.

The state of a run is never stored: it is derived from its plan, the records of its jobs and its events
(`engine.schedule`). So a run that was killed at any moment continues from its records.
"""

import enum
from typing import Any

from msgspec import Struct, field

from joblens.model.clusters.placement import Placed
from joblens.model.jobs.job import Owner, Status
from joblens.model.runs.workflow_spec import HashMode, JobSpec

COMMAND = "command"  # format of a run that is one command on a cluster, and of the workflow that has them


class JobState(enum.IntEnum):
    """State of a job within a run. The numbers are those of other tools."""

    UNINITIALIZED = 0
    BLOCKED = 1  # waits for other jobs, files or user data
    READY = 2  # waits for free resources, or for its next attempt
    PENDING = 3  # passed to the agent, not started
    RUNNING = 4
    COMPLETED = 5
    FAILED = 6
    CANCELED = 7  # never ran: a dependency failed, or the run was cancelled
    TERMINATED = 8  # stopped by joblens: time limit or cancellation
    DISABLED = 9  # excluded from this run by --only, --skip or --until
    PENDING_FAILED = 10  # failed, no rule of a handler matches; a user has to decide

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def is_final(self) -> bool:
        return self >= JobState.COMPLETED


class RunStatus(enum.StrEnum):
    CREATED = "created"
    RUNNING = "running"
    COMPLETED = "completed"  # every selected job succeeded
    FAILED = "failed"  # some jobs did not succeed
    STOPPED = "stopped"  # stopped before all jobs ended; `joblens resume` continues


class Workflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named workflow with its runs. A file that is run again under the same name is the same workflow."""

    uuid: str
    name: str
    created_at_us: int
    number: int | None = None  # given by the store
    user: str = ""
    description: str = ""
    source: str = ""  # absolute path of the file; '': not from a file
    format: str = "yaml"

    @property
    def is_of_commands(self) -> bool:
        """Returns whether it holds single commands on a cluster; lists of workflows omit it."""
        return self.format == COMMAND


class SlurmChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of the command line for Slurm allocations; the spec has the rest."""

    # jobs: one sbatch per job (arrays for sweeps); allocations: several jobs in each; '': automatic
    packing: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""  # features that nodes must have
    nodes: int | None = None  # of each allocation
    allocations: int | None = None
    time_s: float | None = None  # walltime of each allocation
    options: tuple[str, ...] = ()  # additional options of sbatch, as written: --constraint=ib


class RunOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a run. Recorded when it is created and at every start (`RunStarted`), so that the
    next driver starts with the latest ones."""

    output_dir: str = "output"
    cwd: str = ""
    most_jobs: int | None = None
    cpus: float | None = None  # available; None: all of the machine
    memory_bytes: int | None = None
    gpus: tuple[str, ...] | None = None  # devices offered
    time_s: float | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    enforce: bool = True
    monitor: bool = True
    probes: str | None = None  # as model.jobs.probe_choice reads it; None: as in the settings
    interrupt: str = "drain"  # what the first Ctrl-C does: drain or kill
    engine: str = "local"  # local, celery (workers of a queue), ray, slurm
    queue: str = ""  # for jobs without one; '': as in the settings
    broker: str = ""  # without password and other secrets; '': as in the settings
    retry_lost: str = ""  # safe or never, for jobs without one; '': as in the settings
    labels: tuple[str, ...] = ()  # of jobs that its own workers run, besides jobs without a label
    notify: str = ""  # command to run at its end; not recorded if it contains a secret
    address: str = ""  # of a Ray cluster; '': as in the settings, otherwise a local one
    slurm: SlurmChoice = SlurmChoice()


class RaisedRequest(Struct, frozen=True, omit_defaults=True):
    """Memory and time that replace those in the file for all attempts after `attempt` (0: for all). None:
    unchanged."""

    index: int
    attempt: int
    memory_bytes: int | None = None
    timeout_s: float | None = None
    why: str = ""


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    uuid: str
    workflow_uuid: str
    created_at_us: int
    number: int | None = None  # 1, 2, … within its workflow, given by the store
    workflow_number: int | None = None  # filled when read
    spec_text: str = ""  # the file as it was, redacted
    is_redacted: bool = False  # the file, its tables or its parameters were redacted
    spec_format: str = "yaml"
    tables: dict[str, Any] = field(default_factory=dict)  # parameter files of the spec, as they were
    jobs: int = 0  # number of jobs in the plan
    selected: int | None = None  # of these, by --only, --skip and --until; None: all
    options: RunOptions = RunOptions()
    # Set if the run repeats a part of an earlier one; other jobs keep their outcome of that run.
    base_run_uuid: str | None = None
    again: tuple[int, ...] | None = None  # indexes of the jobs to run again; None: all
    # Jobs that keep a success of another run: its UUID, and (index here, index there) of each.
    kept_from: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    user: str = ""
    host: str = ""
    # Filled from its events when read:
    status: RunStatus = RunStatus.CREATED
    started_at_us: int | None = None
    ended_at_us: int | None = None
    owner: Owner | None = None  # of the last start
    logs_dir: str = ""  # absolute, with a folder for each attempt; '': not started, or by an earlier version
    # Jobs that were added while it ran, batch by batch; `jobs` counts them.
    spawned: "tuple[JobsSpawned, ...]" = ()
    raised: tuple[RaisedRequest, ...] = ()  # oldest first; lists of runs leave it out

    @property
    def declared_jobs(self) -> int:
        """Returns the number of jobs in the file alone."""
        return self.spawned[0].first if self.spawned else self.jobs

    @property
    def is_command(self) -> bool:
        return self.spec_format == COMMAND


# ---- facts that are appended to a run -------------------------------------------------------------------


class RunStarted(Struct, frozen=True, tag="started", omit_defaults=True):
    owner: Owner
    cpus: float = 0.0  # offered
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    logs_dir: str = ""  # for the output of its jobs; '' in events of earlier versions
    options: RunOptions | None = None  # in effect from now on, without parameters, which do not change


class StopAskedFor(Struct, frozen=True, tag="stop", omit_defaults=True):
    """`how`: drain (start nothing more) or kill. `ended`: (index, attempt) of running jobs that are stopped
    with the run and run again when it is resumed."""

    how: str
    by: str = ""
    ended: tuple[tuple[int, int], ...] = ()


class JobCancelled(Struct, frozen=True, tag="job-cancelled", omit_defaults=True):
    """A user cancelled this job, running or waiting: it is not started again in this run."""

    index: int
    by: str = ""


class RequirementsRaised(Struct, frozen=True, tag="raised", omit_defaults=True):
    """Jobs get more memory or time from their next attempt on."""

    jobs: tuple[RaisedRequest, ...]
    by: str = ""


class JobsReset(Struct, frozen=True, tag="reset", omit_defaults=True):
    """These jobs run again when the run is resumed, whatever their outcome: (index, last attempt; 0: none in
    this run)."""

    jobs: tuple[tuple[int, int], ...]
    by: str = ""


class OutputsMissing(Struct, frozen=True, tag="outputs-missing"):
    """The job succeeded but its outputs are missing: it counts as failed."""

    index: int
    attempt: int
    paths: tuple[str, ...]


class UserDataSet(Struct, frozen=True, tag="user-data"):
    name: str
    data: Any
    job_uuid: str = ""  # of the job that set it
    private: str = ""  # file in the store's spool folder with the value, if it is secret


class DatasetFinalized(Struct, frozen=True, tag="dataset-finalized", omit_defaults=True):
    """A dataset was counted and hashed after its producers had succeeded; or `error` says why that failed."""

    index: int = field(name="place")  # in Plan.datasets
    name: str
    path: str
    hash_mode: HashMode
    files: int = 0
    bytes: int = 0
    sha256: str = ""  # '' with HashMode.NONE
    duration_s: float = 0.0
    error: str = ""


class JobsSpawned(Struct, frozen=True, kw_only=True, tag="spawned", omit_defaults=True):
    """A running job, the orchestrator, added jobs to its run. Without jobs: its lineage's final state."""

    orchestrator: int  # index in the plan
    attempt: int
    lineage: str
    iteration: int  # number of batches of the lineage, including this one
    first: int  # index in the plan of the first job
    jobs: tuple[JobSpec, ...] = ()  # without secrets
    state: Any = None  # of the lineage
    token: str = ""  # distinguishes batches written at the same moment
    job_uuid: str = ""  # the attempt that added them
    private: str = ""  # file in the store's spool folder with jobs and state, if they hold secrets


class ActionRan(Struct, frozen=True, tag="action"):
    """One command of an action has ended."""

    action: int
    command: int
    job_uuid: str
    status: Status
    worker: str = ""  # '': the driver of the run ran it


class RecoveryRan(Struct, frozen=True, tag="recovery"):
    index: int
    attempt: int  # the failed one
    job_uuid: str
    status: Status


class WorkPlaced(Struct, frozen=True, tag="placed", omit_defaults=True):
    """Allocations were requested: for these jobs, or for a queue."""

    placed: tuple[Placed, ...]


class AllocationsWait(Struct, frozen=True, tag="places-wait"):
    """Reasons why allocations wait, by id at the cluster; recorded when a reason changes."""

    whys: dict[str, str]


class AllocationEnded(Struct, frozen=True, tag="place-ended", omit_defaults=True):
    """An allocation has ended, according to the cluster."""

    job_id: str
    word: str = ""
    is_gone: bool = False  # killed, lost, or never started
    others: tuple[str, ...] = ()  # further allocations that ended in the same way

    @property
    def job_ids(self) -> tuple[str, ...]:
        return (self.job_id, *self.others)


class RunEnded(Struct, frozen=True, tag="ended"):
    status: RunStatus


RunFact = (
    RunStarted
    | StopAskedFor
    | JobCancelled
    | RequirementsRaised
    | JobsReset
    | OutputsMissing
    | UserDataSet
    | DatasetFinalized
    | JobsSpawned
    | ActionRan
    | RecoveryRan
    | WorkPlaced
    | AllocationsWait
    | AllocationEnded
    | RunEnded
)


class RunEvent(Struct, frozen=True):
    """`uuid` makes applying it twice harmless."""

    uuid: str
    run_uuid: str
    at_us: int
    fact: RunFact


class JobResult(Struct, frozen=True, omit_defaults=True):
    """Summary of an attempt: enough to restore a run without reading whole records."""

    index: int
    attempt: int
    number: int
    job_uuid: str
    status: Status
    exit_code: int | None = None
    reason: str = ""
    began_at_us: int = 0
    duration_s: float | None = None
    cpu_usec: int | None = None
    memory_bytes: int | None = None
    tries: int = 1  # 1 + number of workers that did not finish it

    @property
    def is_deleted(self) -> bool:
        """Returns whether only its state is left; `began_at_us` is then the time of deletion."""
        return self.status.is_final and self.duration_s is None
