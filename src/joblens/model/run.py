"""A workflow that was created, one run of it, and the facts that are appended while it runs.

The state of a run is never stored: it is its plan, the records of its jobs and its events, put together again
(`engine.replay`). So a run that was killed at any moment goes on from what had been recorded."""

import enum
from typing import Any

from msgspec import Struct, field

from joblens.model.job import Owner, Status
from joblens.model.placing import Placed

COMMAND = "command"  # format of a run that is one command on a cluster, and of the workflow that has them


class JobState(enum.IntEnum):
    """Of a job within a run. The numbers are those other tools know."""

    UNINITIALIZED = 0
    BLOCKED = 1  # waits for other jobs, files or user data
    READY = 2  # could start; resources are not free yet, or it waits for its next attempt
    PENDING = 3  # handed to the agent, not begun
    RUNNING = 4
    COMPLETED = 5
    FAILED = 6
    CANCELED = 7  # never ran: something it needs failed, or the run was ended
    TERMINATED = 8  # ended by joblens: its time was up, or someone asked
    DISABLED = 9  # left out of this run by --only, --skip or --until
    PENDING_FAILED = 10  # failed in a way no handler knows; someone has to decide

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def is_final(self) -> bool:
        return self >= JobState.COMPLETED


class RunStatus(enum.StrEnum):
    CREATED = "created"
    RUNNING = "running"
    COMPLETED = "completed"  # every job that was to run succeeded
    FAILED = "failed"  # some did not
    STOPPED = "stopped"  # someone asked for its end before all was done; `joblens resume` goes on


class Workflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A spec that was brought in. A file that is run again under the same name is the same workflow."""

    uuid: str
    name: str
    created_at_us: int
    number: int | None = None  # given by the store
    user: str = ""
    description: str = ""
    source: str = ""  # absolute path of the file; '' when there was none
    format: str = "yaml"

    @property
    def is_of_commands(self) -> bool:
        """It holds single commands that ran on a cluster: lists of workflows leave it out."""
        return self.format == COMMAND


class SlurmChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run asks Slurm for places, as far as it was said on the command line; the spec says the rest."""

    packing: str = ""  # jobs: one sbatch each (arrays for sweeps); allocations: many in each; '': what suits
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: int | None = None  # of each allocation
    allocations: int | None = None
    time_s: float | None = None  # walltime of each allocation
    options: tuple[str, ...] = ()  # more for sbatch, as written: --constraint=ib


class RunOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As asked for when the run was created; `resume` uses them again."""

    output_dir: str = "output"
    cwd: str = ""
    most_jobs: int | None = None
    cpus: float | None = None  # offered; None: what the machine has
    memory_bytes: int | None = None
    gpus: tuple[str, ...] | None = None  # devices offered
    time_s: float | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    enforce: bool = True
    monitor: bool = True
    probes: str | None = None  # as model.probe_choice reads it; None: as the settings say
    interrupt: str = "drain"  # what the first Ctrl-C does: drain or kill
    engine: str = "local"  # who carries out its jobs: this process, workers of a queue (celery), ray, slurm
    queue: str = ""  # for jobs that name none; '': as the settings say
    address: str = ""  # of a Ray cluster; '': as the settings say, else one of its own
    slurm: SlurmChoice = SlurmChoice()


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    uuid: str
    workflow_uuid: str
    created_at_us: int
    number: int | None = None  # 1, 2, … within its workflow, given by the store
    workflow_number: int | None = None  # filled when read
    spec_text: str = ""  # the file as it was, without what is secret in it
    is_redacted: bool = False  # something was taken out of it, its tables or its parameters
    spec_format: str = "yaml"
    tables: dict[str, Any] = field(default_factory=dict)  # files the spec names for parameters, as they were
    jobs: int = 0  # how many the plan has
    options: RunOptions = RunOptions()
    # A run that repeats part of an earlier one: the others keep the outcome they had there.
    base_run_uuid: str | None = None
    again: tuple[int, ...] | None = None  # places of the jobs to run again; None: all
    # Jobs that keep a success of yet another run: its UUID, and (place here, place there) of each.
    kept_from: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    user: str = ""
    host: str = ""
    # Filled from its events when read:
    status: RunStatus = RunStatus.CREATED
    started_at_us: int | None = None
    ended_at_us: int | None = None
    owner: Owner | None = None  # of the last start

    @property
    def is_command(self) -> bool:
        return self.spec_format == COMMAND


# ---- facts that are appended to a run -------------------------------------------------------------------


class RunStarted(Struct, frozen=True, tag="started", omit_defaults=True):
    owner: Owner
    cpus: float = 0.0  # offered
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()


class StopAskedFor(Struct, frozen=True, tag="stop", omit_defaults=True):
    """`how`: drain (start nothing more) or kill. `ended`: (index, attempt) of what was under way and is ended
    with the run: it has to run again when the run goes on."""

    how: str
    by: str = ""
    ended: tuple[tuple[int, int], ...] = ()


class JobCancelled(Struct, frozen=True, tag="job-cancelled", omit_defaults=True):
    """Someone wants this job gone, whether it runs or waits: it is not started any more in this run."""

    index: int
    by: str = ""


class OutputsMissing(Struct, frozen=True, tag="outputs-missing"):
    """The job succeeded but did not make what it was to make: it counts as failed."""

    index: int
    attempt: int
    paths: tuple[str, ...]


class UserDataSet(Struct, frozen=True, tag="user-data"):
    name: str
    data: Any
    job_uuid: str = ""  # who set it
    private: str = ""  # the file in the store's spool folder that has the value where it is secret


class ActionRan(Struct, frozen=True, tag="action"):
    """One command of an action has ended."""

    action: int
    command: int
    job_uuid: str
    status: Status


class RecoveryRan(Struct, frozen=True, tag="recovery"):
    index: int
    attempt: int  # the one that had failed
    job_uuid: str
    status: Status


class WorkPlaced(Struct, frozen=True, tag="placed", omit_defaults=True):
    """A cluster was asked for places: for these jobs, or for an allocation that serves a queue."""

    placed: tuple[Placed, ...]


class PlacesWait(Struct, frozen=True, tag="places-wait"):
    """Why the cluster lets these wait, by its own id of each; told when it is another reason than before."""

    whys: dict[str, str]


class PlaceEnded(Struct, frozen=True, tag="place-ended", omit_defaults=True):
    """One of them is over, by the cluster's own word."""

    job_id: str
    word: str = ""
    is_gone: bool = False  # it did not come to its own end
    others: tuple[str, ...] = ()  # that are over as well, in the same way

    @property
    def job_ids(self) -> tuple[str, ...]:
        return (self.job_id, *self.others)


class RunEnded(Struct, frozen=True, tag="ended"):
    status: RunStatus


RunFact = (
    RunStarted
    | StopAskedFor
    | JobCancelled
    | OutputsMissing
    | UserDataSet
    | ActionRan
    | RecoveryRan
    | WorkPlaced
    | PlacesWait
    | PlaceEnded
    | RunEnded
)


class RunEvent(Struct, frozen=True):
    """`uuid` makes applying it twice harmless."""

    uuid: str
    run_uuid: str
    at_us: int
    fact: RunFact


class JobResult(Struct, frozen=True, omit_defaults=True):
    """The little that putting a run together needs of each attempt, read without the whole record."""

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
