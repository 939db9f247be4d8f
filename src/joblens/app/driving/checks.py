"""Checks before a run exists, in one order for all commands and dry runs; capacity of its engine.

Nothing is written before all of them have passed, so no run is created that could never start.
"""

import errno
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from joblens.agent.launcher.launch import is_inside_a_job
from joblens.app.runs.control import refuse_driven, refuse_other_engine, refuse_unfinished_base
from joblens.app.runs.records import jobs_to_run
from joblens.app.runs.reruns import RerunSelection
from joblens.app.wiring.drivers import Warn
from joblens.app.workflows.loader import LoadedSpec
from joblens.engine.schedule.capacity import RunCapacity
from joblens.files.private import make_private_folder
from joblens.model.clusters.placement import ClusterPreview
from joblens.model.errors import InputError, PlanError, SupervisorError
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run, RunOptions, Workflow
from joblens.model.settings import Settings
from joblens.plan.workflows.graph import Stage
from joblens.plan.workflows.slurm import srun_signal
from joblens.ports.store import Store


class EngineCapacity(Protocol):
    """Used before a run exists: it writes nothing, submits nothing and starts nothing."""

    def check(self, indices: Collection[int]) -> None:
        """Raises PlanError for jobs that could never start, PlacingError if the engine does not answer."""
        ...

    def preview(
        self, stages: Sequence[Stage], indices: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        """Returns capacity and requests of a run of these jobs. `expected_s`: durations in earlier runs."""
        ...

    def offer(self) -> RunCapacity:
        """Returns the capacity for a rehearsal of the run, after `preview`."""
        ...

    def close(self) -> None: ...


def open_engine(
    plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
) -> EngineCapacity:
    """Raises MissingExtra if a library is not installed, InputError for an invalid broker or address."""
    if options.engine == "local":
        from joblens.app.wiring.machine import MachineCapacity

        return MachineCapacity(plan, options)
    from joblens.app.clusters.engine import ClusterCapacity, is_cluster
    from joblens.app.queue.notifiers import settings_of_run

    settings = settings_of_run(settings, options)
    if is_cluster(options.engine):
        return ClusterCapacity(plan, options, settings, config, warn)
    from joblens.app.clusters.engine import QueueCapacity

    return QueueCapacity(plan, options, settings, warn)


_SHOWN = 20


class RunRequest(Struct, frozen=True, kw_only=True):
    """A requested run. `workflow`: a new run of it is created; a path: of the workflow of that file;
    None: `resumed` is driven itself. `again`: it repeats these jobs of an earlier run, whose other
    outcomes it keeps. `left`: jobs of `resumed` that have not ended."""

    loaded: LoadedSpec
    options: RunOptions
    workflow: Workflow | str | None = None
    again: RerunSelection | None = None
    base: Run | None = None  # its jobs must have ended, or they would run twice at once
    resumed: Run | None = None
    is_held: bool = False  # this process holds the lock of `resumed`
    left: tuple[int, ...] | None = None
    detach: bool = False

    @property
    def plan(self) -> Plan:
        return self.loaded.plan


class CheckedRun(Struct, frozen=True):
    """`indices`: jobs that the run starts."""

    request: RunRequest
    indices: frozenset[int]
    engine: EngineCapacity


@contextmanager
def checked_run(
    request: RunRequest, settings: Settings, config: str | None, store: Store | None, warn: Warn
) -> Iterator[CheckedRun]:
    """The engine is open within it. `store`: None if there is none yet. Raises InputError (PlanError,
    RunIsDriven) for an impossible run, PlacingError for a cluster that does not answer."""
    options, plan = request.options, request.plan
    if request.detach:
        refuse_inside_a_job()
    if store is not None:
        _refuse_busy(request, store, settings)
    check_folders(options)
    srun_signal(plan.execution)
    again = request.left if request.again is None else request.again.indexes
    indices = jobs_to_run(plan, options, again)
    engine = open_engine(plan, options, settings, config, warn)
    try:
        engine.check(indices)
        _check_inputs(plan, options.cwd, indices)
        yield CheckedRun(request, indices, engine)
    finally:
        engine.close()


def _refuse_busy(request: RunRequest, store: Store, settings: Settings) -> None:
    if request.resumed is not None:
        if not request.is_held:
            refuse_driven(request.resumed, settings)
        refuse_other_engine(request.resumed, request.options, store)
    base = request.again.base if request.again is not None else request.base
    if base is not None:
        refuse_unfinished_base(base, store, settings)


# ---- folders --------------------------------------------------------------------------------------------


def _output_folder(options: RunOptions) -> str:
    return os.path.normpath(os.path.join(options.cwd, options.output_dir, "job_output"))


def make_output_folder(options: RunOptions) -> None:
    """Raises InputError."""
    try:
        make_private_folder(_output_folder(options))
    except OSError as error:
        raise _unusable(options, f"cannot be created: {error.strerror}") from error


def check_folders(options: RunOptions) -> None:
    """Raises InputError if the run has no directory, or no output folder can be created."""
    if not os.path.isdir(options.cwd or "."):
        raise InputError(f"the directory of the run, {options.cwd}, does not exist")
    folder = _output_folder(options)
    above = os.path.abspath(folder)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise _unusable(options, f"cannot be created: {os.strerror(errno.ENOTDIR)}")
    if not os.access(above, os.W_OK | os.X_OK):
        what = "cannot be written" if above == os.path.abspath(folder) else "cannot be created"
        is_read_only = os.statvfs(above).f_flag & os.ST_RDONLY
        raise _unusable(options, f"{what}: {os.strerror(errno.EROFS if is_read_only else errno.EACCES)}")


def _unusable(options: RunOptions, what: str) -> InputError:
    return InputError(
        f"output directory {options.output_dir}: {what}",
        hint="job output goes there; give a writable directory with -o DIR",
    )


# ---- jobs and other processes ---------------------------------------------------------------------------


def refuse_inside_a_job() -> None:
    if is_inside_a_job():
        raise SupervisorError(
            "this command runs inside a job; a background run would end with that job",
            hint="run it in the foreground, or outside the job",
        )


# ---- inputs ---------------------------------------------------------------------------------------------


def _check_inputs(plan: Plan, cwd: str, indices: frozenset[int]) -> None:
    made = {number for index in indices for number in plan.jobs[index].output_files}
    files: dict[str, int] = {}
    datasets: dict[str, int] = {}
    for index in sorted(indices):
        for number in plan.jobs[index].input_files:
            if plan.files[number].producer not in indices and number not in made:
                files.setdefault(plan.files[number].path, index)
        for number in plan.jobs[index].input_datasets:
            if indices.isdisjoint(plan.datasets[number].producers):
                datasets.setdefault(plan.datasets[number].path, index)
    missing = [
        [
            f"{path}, which {plan.jobs[index].name} reads"
            for path, index in inputs.items()
            if not os.path.exists(os.path.join(cwd, path))
        ]
        for inputs in (files, datasets)
    ]
    if any(missing):
        kinds = [kind for kind, paths in zip(("files", "datasets"), missing, strict=True) if paths]
        paths = [*missing[0], *missing[1]]
        more = [f"and {len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else []
        raise PlanError(
            f"input {' and '.join(kinds)} are missing:\n  " + "\n  ".join([*paths[:_SHOWN], *more]),
            hint=f"paths are relative to {cwd or os.getcwd()}",
        )
