"""Plan of a workflow after expansion: single jobs; errors for jobs that can never start.

Compact, because a plan may have a hundred thousand jobs: they share requirements, handlers and environments.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.model.errors import PlanError
from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost
from joblens.model.runs.workflow_spec import (
    ActionSpec,
    ExecutionSpec,
    FailureHandler,
    HashMode,
    MonitorSpec,
    Stdio,
    WhenBlockedFails,
)
from joblens.model.values.units import format_bytes, format_duration, more


class PlannedFile(Struct, frozen=True, gc=False):
    name: str
    path: str  # as written; relative to the directory the run is started in
    producer: int = -1  # index of the job that makes it; -1: it must exist


class PlannedData(Struct, frozen=True):
    """User data: JSON that jobs pass to each other."""

    name: str
    data: Any = None  # initial value in the spec
    is_ephemeral: bool = False
    producer: int = -1


class PlannedDataset(Struct, frozen=True):
    """A directory filled by jobs. It is finalized (counted and hashed) when all of them have succeeded; jobs
    that read it start after that."""

    name: str
    path: str  # as written; relative to the directory the run is started in
    hash_mode: HashMode = HashMode.MANIFEST
    producers: tuple[int, ...] = ()  # indexes of the jobs that fill it, ascending; (): it must exist
    description: str = ""


class PlannedJob(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`depends_on`: jobs that must succeed first: named, matched by a regex, or producers of inputs. Indexes
    in `Plan.jobs`, ascending, without duplicates.
    """

    name: str
    command: str  # with paths of files and datasets; `${user_data.input.N}` is resolved when it starts
    depends_on: tuple[int, ...] = ()
    invocation_script: str = ""
    requirements: Requirements = Requirements()
    requirements_name: str = ""  # '': none, or inline in the job
    failure_handler: FailureHandler | None = None
    when_blocked_fails: WhenBlockedFails = WhenBlockedFails.WAIT
    supports_termination: bool = False
    input_files: tuple[int, ...] = ()  # indexes in Plan.files
    output_files: tuple[int, ...] = ()
    input_user_data: tuple[int, ...] = ()  # indexes in Plan.user_data
    output_user_data: tuple[int, ...] = ()
    input_datasets: tuple[int, ...] = ()  # indexes in Plan.datasets
    output_datasets: tuple[int, ...] = ()
    env: dict[str, str] = field(default_factory=dict)  # of the workflow and of the job together
    priority: int = 0
    stdio: Stdio | None = None  # None: as in the workflow's execution_config
    label: str = ""
    spec_job: int = 0  # index of its entry in the file
    parameter_names: tuple[str, ...] = ()
    parameter_values: tuple[Any, ...] = ()  # smaller than one dictionary per job
    scheduler: str = ""
    queue: str = ""  # of its workers; '': as in the run
    retry_lost: RetryLost | None = None  # None: as in the settings
    spawned_by: int = -1  # the job that added it during the run; -1: it is in the file
    container: ContainerJob | None = None  # None: runs directly on the machine

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(zip(self.parameter_names, self.parameter_values, strict=True))


class PlannedAction(Struct, frozen=True):
    spec: ActionSpec
    jobs: tuple[int, ...] = ()  # named or matched; () with a workflow trigger


class Declared(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Named declarations of the file, used or not: jobs added later may refer to them."""

    entries: int = 0  # of `jobs` in the file
    requirements: dict[str, Requirements] = field(default_factory=dict)
    failure_handlers: dict[str, FailureHandler] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)  # of the workflow
    container: ContainerJob | None = None  # default of jobs


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    jobs: Sequence[PlannedJob]  # a tuple, or the list of a plan that grows
    description: str = ""
    user: str = ""
    files: tuple[PlannedFile, ...] = ()
    user_data: tuple[PlannedData, ...] = ()
    datasets: tuple[PlannedDataset, ...] = ()
    actions: tuple[PlannedAction, ...] = ()
    monitor: MonitorSpec = MonitorSpec()
    execution: ExecutionSpec = ExecutionSpec()
    use_pending_failed: bool = False
    slurm_schedulers: tuple[dict[str, Any], ...] = ()
    slurm_defaults: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
    declared: Declared = Declared()


def growing(plan: Plan) -> Plan:
    """Returns the plan with a list of jobs that `grow` extends in place."""
    return replace(plan, jobs=list(plan.jobs))


def grow(plan: Plan, jobs: Sequence[PlannedJob]) -> None:
    """Adds jobs to a plan made by `growing`."""
    assert isinstance(plan.jobs, list), "only a growing plan takes jobs"
    plan.jobs.extend(jobs)


_SHOWN = 20


class Lack(NamedTuple):
    """A job that could never start."""

    name: str
    what: str  # cpus, memory, gpus, time, nodes
    need: float
    have: float


def more_than_there_is(lacks: Sequence[Lack], hint: str = "") -> PlanError:
    lines = [_line(one) for one in lacks[:_SHOWN]]
    if len(lacks) > _SHOWN:
        lines.append(more(len(lacks) - _SHOWN))
    error = PlanError(
        "jobs request more than the capacity:\n  " + "\n  ".join(lines),
        hint=hint or _hint(lacks),
    )
    error.lacks = tuple(lacks)
    return error


def _hint(lacks: Sequence[Lack]) -> str:
    """Returns the remedy. Options can raise every capacity except the number of nodes."""
    flags = ", ".join(f"--{what}" for what in dict.fromkeys(one.what for one in lacks) if what != "nodes")
    if not flags:
        return "request fewer nodes in the file, or use a larger cluster"
    return f"request less in the file, or raise the capacity with {flags}"


def _line(one: Lack) -> str:
    if one.what == "memory":
        need, have = format_bytes(int(one.need)), format_bytes(int(one.have))
        return f"{one.name}: needs {need} of memory, {have} available"
    if one.what == "time":
        return f"{one.name}: needs {format_duration(one.need)}, {format_duration(one.have)} available"
    what = {"cpus": "CPUs", "gpus": "GPUs"}.get(one.what, one.what)
    if one.need == 1:
        what = what.removesuffix("s")
    return f"{one.name}: needs {one.need:g} {what}, {one.have:g} available"
