"""A workflow after expansion: every job by itself, names resolved to places in the lists.

Made to be small: a hundred thousand jobs wait in memory. Requirements, handlers and environments are
shared between jobs, never copied."""

from typing import Any

from msgspec import Struct, field

from joblens.model.delivery import RetryLost
from joblens.model.job import ContainerJob, Requirements
from joblens.model.workflow_spec import (
    ActionSpec,
    ExecutionSpec,
    FailureHandler,
    MonitorSpec,
    Stdio,
    WhenBlockedFails,
)


class PlannedFile(Struct, frozen=True, gc=False):
    name: str
    path: str  # as written; relative to the directory the run is started in
    producer: int = -1  # the job that makes it; -1: it has to be there


class PlannedData(Struct, frozen=True):
    """User data: JSON that jobs hand to each other."""

    name: str
    data: Any = None  # what the spec says it is at the start
    is_ephemeral: bool = False
    producer: int = -1


class PlannedJob(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`depends_on` has everything that must succeed first, whether named, matched by a regex, or the maker of
    a file or of user data: places in `Plan.jobs`, ascending, each once."""

    name: str
    command: str  # `${files.…}` is resolved; `${user_data.input.N}` is resolved when it starts
    depends_on: tuple[int, ...] = ()
    invocation_script: str = ""
    requirements: Requirements = Requirements()
    requirements_name: str = ""  # '': none written, or written in the job itself
    failure_handler: FailureHandler | None = None
    when_blocked_fails: WhenBlockedFails = WhenBlockedFails.WAIT
    supports_termination: bool = False
    input_files: tuple[int, ...] = ()  # places in Plan.files
    output_files: tuple[int, ...] = ()
    input_user_data: tuple[int, ...] = ()  # places in Plan.user_data
    output_user_data: tuple[int, ...] = ()
    env: dict[str, str] = field(default_factory=dict)  # of the workflow and of the job together
    priority: int = 0
    stdio: Stdio | None = None  # None: as the workflow's execution_config says
    label: str = ""
    spec_job: int = 0  # which entry of the file it came from
    parameter_names: tuple[str, ...] = ()
    parameter_values: tuple[Any, ...] = ()  # it was expanded with; a dictionary for each job would be large
    scheduler: str = ""
    queue: str = ""  # of the workers it is for; '': whatever the run says
    retry_lost: RetryLost | None = None  # None: as the settings say
    container: ContainerJob | None = None  # None: it runs on the machine itself

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(zip(self.parameter_names, self.parameter_values, strict=True))


class PlannedAction(Struct, frozen=True):
    spec: ActionSpec
    jobs: tuple[int, ...] = ()  # named or matched; () with a workflow trigger


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    jobs: tuple[PlannedJob, ...]
    description: str = ""
    user: str = ""
    files: tuple[PlannedFile, ...] = ()
    user_data: tuple[PlannedData, ...] = ()
    actions: tuple[PlannedAction, ...] = ()
    monitor: MonitorSpec = MonitorSpec()
    execution: ExecutionSpec = ExecutionSpec()
    use_pending_failed: bool = False
    slurm_schedulers: tuple[dict[str, Any], ...] = ()
    slurm_defaults: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
