"""Events and commands of a run: `engine.schedule` decides, the agent feeds events and executes commands."""

import enum

from msgspec import Struct

from joblens.model.jobs.job import Requirements, Status


class StopMode(enum.StrEnum):
    DRAIN = "drain"  # start nothing more, let running jobs finish
    KILL = "kill"


# ---- events ---------------------------------------------------------------------------------------------


class AttemptBegan(Struct, frozen=True):
    index: int


class AttemptEnded(Struct, frozen=True):
    """`outputs_missing`: it succeeded, but an output file is missing."""

    index: int
    attempt: int
    status: Status
    exit_code: int | None = None
    reason: str = ""  # as in Outcome
    duration_s: float = 0.0
    outputs_missing: bool = False


class DataChanged(Struct, frozen=True):
    """User data was set; `index`: index in Plan.user_data."""

    index: int


class FinalizationEnded(Struct, frozen=True):
    """A dataset was counted and hashed; `index`: index in Plan.datasets. `error`: why that failed."""

    index: int
    error: str = ""


class CommandEnded(Struct, frozen=True):
    """A command of an action, or the recovery script of a job (`index` >= 0) has ended."""

    status: Status
    action: int = -1
    command: int = 0
    index: int = -1


class StopWanted(Struct, frozen=True):
    mode: StopMode


class CancelWanted(Struct, frozen=True):
    """Cancel one job, running or not."""

    index: int


class OfferGrew(Struct, frozen=True):
    """New capacity. Less than before changes nothing."""

    cpus: float
    memory_bytes: int


class JobsAdded(Struct, frozen=True):
    """The plan has grown; `first`: the index of its first new job."""

    first: int


class JobsAsked(Struct, frozen=True):
    """Answers AskForJobs: every job that was added until then has been reported as JobsAdded."""


class Tick(Struct, frozen=True):
    pass


Event = (
    AttemptBegan
    | AttemptEnded
    | DataChanged
    | FinalizationEnded
    | CommandEnded
    | StopWanted
    | CancelWanted
    | OfferGrew
    | JobsAdded
    | JobsAsked
    | Tick
)


# ---- commands -------------------------------------------------------------------------------------------


class StartAttempt(Struct, frozen=True):
    """`requirements`: of this attempt (a handler may have raised them). `behind`: it gets the capacity of a
    running job of the same shape, so it may be started before that job has ended."""

    index: int
    attempt: int
    requirements: Requirements
    gpus: tuple[str, ...] = ()
    behind: bool = False


class StopAttempt(Struct, frozen=True):
    index: int
    at_once: bool = False  # KILL


class RunActionCommand(Struct, frozen=True):
    action: int
    command: int


class AskForNodes(Struct, frozen=True):
    """Request the nodes of an action from the cluster, if there is one."""

    action: int


class RunRecovery(Struct, frozen=True):
    index: int
    attempt: int  # the one that failed
    script: str


class FinalizeDataset(Struct, frozen=True):
    """Count and hash a dataset; answered by one FinalizationEnded."""

    index: int


class StateChanged(Struct, frozen=True):
    """For views; `why` is text for people."""

    index: int
    why: str = ""


class AskForJobs(Struct, frozen=True):
    """Nothing is left to do: did ended jobs add others? Answered by one JobsAsked."""


class RunIsOver(Struct, frozen=True):
    pass


Command = (
    StartAttempt
    | StopAttempt
    | RunActionCommand
    | AskForNodes
    | RunRecovery
    | FinalizeDataset
    | StateChanged
    | AskForJobs
    | RunIsOver
)
