"""Added jobs: plans batches of jobs that a running job adds to its run.
Deterministic: a plan and the batches of its run, in order, always give the same jobs."""

from collections.abc import Iterable, Sequence
from itertools import chain
from posixpath import normpath
from typing import Any

from msgspec import Struct

from joblens.model.jobs.job import ContainerJob, Requirements
from joblens.model.runs.plan import Plan, PlannedJob, grow, growing
from joblens.model.runs.run import JobsSpawned
from joblens.model.runs.workflow_spec import JobSpec, ParameterMode, RequirementsSpec
from joblens.plan.commands.references import check_user_data, resolve_paths
from joblens.plan.workflows.expansion import (
    check_container,
    check_container_nodes,
    check_label,
    container_of,
    requirements_of,
)
from joblens.plan.workflows.graph import describe_cycle, find_cycles
from joblens.plan.workflows.problems import Path, PlanProblem, Problems

LINEAGE_VARIABLES = ("JOBLENS_ORCHESTRATOR_LINEAGE_ID", "TORC_ORCHESTRATOR_LINEAGE_ID")
DEFAULT_ITERATIONS = 1000
MOST_JOBS = 10_000  # of one batch
MOST_STATE_BYTES = 1 << 20
_ONLY_IN_FILES = (
    "depends_on_regexes", "input_file_regexes", "output_file_regexes", "input_user_data_regexes",
    "output_user_data_regexes", "parameters", "use_parameters", "parameters_file", "use_parameters_file",
    "output_datasets",
)  # fmt: skip
# The producers of a dataset are known from the start, because it is complete when all have ended.
_ONLY_IN_FILES_HINTS = {"output_datasets": "use output_files"}
_KEYS = (
    "input_files", "output_files", "input_user_data", "output_user_data", "input_datasets",
)  # fmt: skip
_NOUNS = {"files": "file", "user_data": "user data", "datasets": "dataset"}


class BatchReading(Struct, frozen=True):
    """`jobs` is empty if there are problems, whose paths are within the batch."""

    jobs: tuple[PlannedJob, ...]
    problems: tuple[PlanProblem, ...] = ()


def most_iterations(plan: Plan) -> int:
    """Returns how often a lineage may add jobs."""
    written = (plan.other.get("dynamic_jobs") or {}).get("max_iterations")
    return DEFAULT_ITERATIONS if written is None else int(written)


def extended(plan: Plan, batches: Iterable[JobsSpawned]) -> Plan:
    """Returns the plan with the jobs of all batches."""
    batches = [batch for batch in batches if batch.jobs]
    if not batches:
        return plan
    plan = growing(plan)
    extender = PlanExtender(plan)
    for batch in batches:
        extender.add(batch)
    return plan


class PlanExtender:
    """Adds batches to a growing plan. The cost depends on the batch, not on the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.index = {job.name: index for index, job in enumerate(plan.jobs)}
        self._indexes: dict[str, dict[str, int]] = {
            kind: {one.name: position for position, one in enumerate(getattr(plan, kind))} for kind in _NOUNS
        }
        self.schedulers = {str(each["name"]) for each in plan.slurm_schedulers if each.get("name")}
        self._kinds = {name: 1 + position for position, name in enumerate(plan.declared.requirements)}
        self._file_makers: dict[str, int] = {}  # by path: two names of one path are one file
        self.data_makers: dict[int, int] = {}
        for file in plan.files:
            if file.producer >= 0:
                self._file_makers[normpath(file.path)] = file.producer
        for position, data in enumerate(plan.user_data):
            if data.producer >= 0:
                self.data_makers[position] = data.producer
        for index, job in enumerate(plan.jobs):
            if job.spawned_by >= 0:
                self._note_outputs(index, job)
        self._envs: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._equal: dict[Requirements, Requirements] = {}
        self._containers: dict[ContainerJob, ContainerJob] = {}

    def index_of(self, name: str) -> int | None:
        return self.index.get(name)

    def add(self, batch: JobsSpawned) -> tuple[PlannedJob, ...]:
        """Returns the new jobs; () for a batch that is already in the plan or does not fit it. All readers of
        the run decide equally."""
        if batch.first != len(self._plan.jobs) or batch.orchestrator >= batch.first:
            return ()
        jobs = self.read(batch.jobs, batch.orchestrator, batch.lineage).jobs
        for index, job in enumerate(jobs, batch.first):
            self.index[job.name] = index
            self._note_outputs(index, job)
        grow(self._plan, jobs)
        return jobs

    def read(self, jobs: Sequence[JobSpec], orchestrator: int, lineage: str) -> BatchReading:
        """Plans the jobs of a batch, without adding them."""
        return _Batch(self, self._plan, jobs, orchestrator, lineage).reading()

    def _note_outputs(self, index: int, job: PlannedJob) -> None:
        for position in job.output_files:
            self._file_makers[normpath(self._plan.files[position].path)] = index
        for position in job.output_user_data:
            self.data_makers[position] = index

    # ---- for the current batch ------------------------------------------------------------------------

    def find(self, kind: str, name: str) -> int | None:
        """Returns the index of a name. `kind`: files, user_data or datasets."""
        return self._indexes[kind].get(name)

    def path_of(self, kind: str, name: str) -> str | None:
        position = None if kind == "user_data" else self._indexes[kind].get(name)
        return None if position is None else getattr(self._plan, kind)[position].path

    def maker_of_file(self, position: int) -> int | None:
        return self._file_makers.get(normpath(self._plan.files[position].path))

    def kind_of(self, requirements_name: str) -> int:
        """Returns the entry number of jobs with the same requirements: like jobs of one entry of the file,
        they share expected durations and arrays."""
        return self._plan.declared.entries + self._kinds.get(requirements_name, 0)

    def shared_env(self, own: dict[str, str], lineage: str) -> dict[str, str]:
        env = {**self._plan.declared.env, **own, **dict.fromkeys(LINEAGE_VARIABLES, lineage)}
        return self._envs.setdefault(tuple(env.items()), env)

    def shared_requirements(self, written: RequirementsSpec) -> Requirements:
        asked = requirements_of(written)
        return self._equal.setdefault(asked, asked)

    def shared_container(self, made: ContainerJob | None) -> ContainerJob | None:
        return made and self._containers.setdefault(made, made)


class _Batch:
    def __init__(
        self, around: PlanExtender, plan: Plan, jobs: Sequence[JobSpec], orchestrator: int, lineage: str
    ) -> None:
        self._around = around
        self._plan = plan
        self._jobs = jobs
        self._orchestrator = orchestrator
        self._lineage = lineage
        self._first = len(plan.jobs)
        self._problems = Problems()
        self._siblings: dict[str, int] = {}
        self._file_makers: dict[str, int] = {}
        self._data_makers: dict[int, int] = {}

    def reading(self) -> BatchReading:
        for position, job in enumerate(self._jobs):
            path: Path = ("jobs", position, "name")
            if job.name in self._siblings:
                self._problems.note(path, f"two jobs of the batch are named '{job.name}'")
            elif job.name in self._around.index:
                self._problems.note(path, f"the run already has a job '{job.name}'")
            self._siblings.setdefault(job.name, self._first + position)
        linked = [self._linked(position, job) for position, job in enumerate(self._jobs)]
        planned = [self._planned(position, job, *linked[position]) for position, job in enumerate(self._jobs)]
        self._note_cycles(planned)
        problems = self._problems.all()
        return BatchReading(() if problems else tuple(planned), problems)

    def _planned(
        self, position: int, job: JobSpec, texts: tuple[str, str], indexes: Sequence[tuple[int, ...]]
    ) -> PlannedJob:
        path: Path = ("jobs", position)
        declared = self._plan.declared
        written = [key for key in _ONLY_IN_FILES if getattr(job, key)]
        if job.parameter_mode is not ParameterMode.PRODUCT:
            written.append("parameter_mode")
        for key in written:
            hint = _ONLY_IN_FILES_HINTS.get(key, "name each job")
            self._problems.note((*path, key), f"{key} is only for jobs of a workflow file; {hint}")
        name = job.requirements if isinstance(job.requirements, str) else ""
        handler = None
        if job.failure_handler is not None:
            handler = declared.failure_handlers.get(job.failure_handler)
            if handler is None:
                self._unknown(
                    (*path, "failure_handler"),
                    "failure handler",
                    job.failure_handler,
                    declared.failure_handlers,
                )
        if job.scheduler and job.scheduler not in self._around.schedulers:
            self._unknown((*path, "scheduler"), "scheduler", job.scheduler, sorted(self._around.schedulers))
        check_label(job, path, self._problems)
        requirements = self._requirements(job, path)
        return PlannedJob(
            name=job.name,
            command=texts[0],
            depends_on=self._depends_on(path, job, indexes),
            invocation_script=texts[1],
            requirements=requirements,
            requirements_name=name,
            failure_handler=handler,
            when_blocked_fails=job.when_blocked_fails,
            supports_termination=job.supports_termination,
            input_files=indexes[0],
            output_files=indexes[1],
            input_user_data=indexes[2],
            output_user_data=indexes[3],
            input_datasets=indexes[4],
            env=self._around.shared_env(job.env, self._lineage),
            priority=job.priority,
            stdio=job.stdio,
            label=job.label or "",
            spec_job=self._around.kind_of(name),
            scheduler=job.scheduler or "",
            queue=job.queue or "",
            retry_lost=job.retry_lost,
            spawned_by=self._orchestrator,
            container=self._container(job, requirements, path),
        )

    def _container(self, job: JobSpec, needs: Requirements, path: Path) -> ContainerJob | None:
        """Returns the job's container, which replaces that of the workflow completely."""
        found = self._plan.declared.container
        if job.container is not None:
            found = self._around.shared_container(container_of(job.container))
            if found is not None:
                check_container(found, (*path, "container"), self._problems)
        if found is not None:
            check_container_nodes(job, needs, path, self._problems)
        return found

    def _requirements(self, job: JobSpec, path: Path) -> Requirements:
        written = job.requirements
        if written is None:
            return Requirements()
        if isinstance(written, RequirementsSpec):
            return self._around.shared_requirements(written)
        known = self._plan.declared.requirements
        if written not in known:
            self._unknown((*path, "resource_requirements"), "resource requirement", written, known)
            return Requirements()
        return known[written]

    # ---- linking -------------------------------------------------------------------------------------

    def _linked(self, position: int, job: JobSpec) -> tuple[tuple[str, str], list[tuple[int, ...]]]:
        """Returns command and script with paths of files, and indexes of the job's inputs and outputs."""
        path: Path = ("jobs", position)
        command = resolve_paths(job.command, self._around.path_of)
        script = resolve_paths(job.invocation_script or "", self._around.path_of)
        for text in (*command.unclear, *script.unclear):
            message = f"'${{{text}}}' is not a valid reference; write it as ${{files.input.NAME}}"
            self._problems.note((*path, "command"), message, text)
        unclear = check_user_data(f"{script.text} {command.text}".strip())
        if unclear is not None:
            self._problems.note((*path, "command"), " ".join(unclear), "unclear user data")
        if any(("datasets", "output") in one.names for one in (command, script)):
            self._problems.note(
                (*path, "command"), "${datasets.output.…} is only for jobs of a workflow file", "dataset"
            )
        found = []
        for key in _KEYS:
            way, kind = key.split("_", 1)
            written = (one.names.get((kind, way), ()) for one in (command, script))
            names = dict.fromkeys([*getattr(job, key), *chain.from_iterable(written)])
            found.append(self._indexes((*path, key), names, kind))
        for one in found[1]:
            self._note_maker(
                position,
                self._file_makers,
                normpath(self._plan.files[one].path),
                self._around.maker_of_file(one),
                self._plan.files[one].name,
            )
        for one in found[3]:
            self._note_maker(
                position,
                self._data_makers,
                one,
                self._around.data_makers.get(one),
                self._plan.user_data[one].name,
            )
        return (command.text, script.text), found

    def _indexes(self, path: Path, names: Iterable[str], kind: str) -> tuple[int, ...]:
        indexes = []
        for which, name in enumerate(names):
            found = self._around.find(kind, name)
            if found is None:
                known = [one.name for one in getattr(self._plan, kind)]
                self._unknown(path, _NOUNS[kind], name, known, which)
            else:
                indexes.append(found)
        return tuple(indexes)

    def _note_maker(
        self, position: int, makers: dict[Any, int], key: Any, earlier: int | None, name: str
    ) -> None:
        other = makers.get(key, earlier)
        if other is not None:
            message = f"'{name}' is already made by '{self._name_of(other)}'"
            self._problems.note(("jobs", position, "output_files"), message, name)
        makers.setdefault(key, self._first + position)

    def _name_of(self, index: int) -> str:
        return self._plan.jobs[index].name if index < self._first else self._jobs[index - self._first].name

    def _depends_on(self, path: Path, job: JobSpec, indexes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        found = {self._orchestrator}
        for which, name in enumerate(job.depends_on):
            index = self._siblings.get(name)
            index = self._around.index_of(name) if index is None else index
            if index is None:
                known = [*self._siblings, *self._around.index]
                self._unknown((*path, "depends_on", which), "job", name, known)
            else:
                found.add(index)
        for position in indexes[0]:
            key = normpath(self._plan.files[position].path)
            found.add(self._file_makers.get(key, self._or_self(self._around.maker_of_file(position))))
        for position in indexes[2]:
            found.add(self._data_makers.get(position, self._or_self(self._around.data_makers.get(position))))
        for position in indexes[4]:
            found.update(self._plan.datasets[position].producers)
        return tuple(sorted(found))

    def _or_self(self, maker: int | None) -> int:
        """Returns the maker, or the orchestrator, which is a dependency anyway."""
        return self._orchestrator if maker is None else maker

    def _note_cycles(self, planned: Sequence[PlannedJob]) -> None:
        first = self._first
        inside = [tuple(one - first for one in job.depends_on if one >= first) for job in planned]
        for ring in find_cycles(inside):
            message = describe_cycle([planned[position].name for position in ring])
            self._problems.note(("jobs", ring[0], "depends_on"), message)

    def _unknown(self, path: Path, kind: str, name: str, known: Iterable[str], part: int | str = "") -> None:
        self._problems.unknown(path, kind, name, list(known), part)
