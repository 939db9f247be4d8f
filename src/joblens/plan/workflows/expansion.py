"""Expansion of a workflow to its plan: single jobs and resolved names, or all problems."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert, structs

from joblens.model.jobs.containers import container_problems
from joblens.model.jobs.job import ContainerJob, Requirements
from joblens.model.runs.plan import (
    Declared,
    Plan,
    PlannedAction,
    PlannedData,
    PlannedDataset,
    PlannedFile,
    PlannedJob,
)
from joblens.model.runs.workflow_spec import (
    NO_NODES,
    ActionType,
    DatasetSpec,
    FailureHandler,
    FileSpec,
    JobSpec,
    RequirementsSpec,
    UserDataSpec,
    WorkflowSpec,
)
from joblens.model.values.labels import label_problem
from joblens.plan.commands.names import NameIndex
from joblens.plan.workflows.checks import check_identifiers
from joblens.plan.workflows.graph import describe_cycle, find_cycles
from joblens.plan.workflows.linking import Linker, Links, Things, index_of
from joblens.plan.workflows.problems import NOTHING_UNREAD, Path, PlanProblem, Problems, Unread
from joblens.plan.workflows.slurm import check_nodes, warn_of_amounts
from joblens.plan.workflows.sweeps import Entries, Expanded, Sweeps, variables_of

_NONE: dict[str, Any] = {}
_NO_REQUIREMENTS = Requirements()


class PlanReading(Struct, frozen=True):
    """`plan` is None when there are problems."""

    plan: Plan | None
    problems: tuple[PlanProblem, ...] = ()
    warnings: tuple[PlanProblem, ...] = ()


def make_plan(
    spec: WorkflowSpec,
    *,
    tables: Mapping[str, Any] = _NONE,
    parameters: Mapping[str, Any] = _NONE,
    unread: Unread = NOTHING_UNREAD,
) -> PlanReading:
    """Expands a workflow. `tables`: rows of each parameters_file by its path as written, and values of each
    `@file`. `parameters`: overrides of parameters and variables. `unread`: unreadable parts; problems that
    they may cause are not reported."""
    problems = Problems()
    variables = variables_of(spec, parameters, problems)
    sweeps = Sweeps(spec, tables, parameters, variables, problems, unread)
    sweeps.check_overrides()
    entries = Entries(sweeps, variables, problems, unread)
    plan = _Planning(spec, entries, problems, unread).plan()
    found = tuple(one for one in problems.all() if not unread.hides(one.path))
    warnings = tuple(PlanProblem(path, message) for path, message in problems.warnings.items())
    return PlanReading(None if found else plan, found, warnings)


def expand_files(
    spec: WorkflowSpec, *, tables: Mapping[str, Any] = _NONE, parameters: Mapping[str, Any] = _NONE
) -> list[FileSpec]:
    """Returns only the expanded files, with all their fields."""
    entries = _entries_of_valid(spec, tables, parameters)
    return [each.value for each in entries.expand("files", spec.files)]


def expand_env(
    spec: WorkflowSpec, *, tables: Mapping[str, Any] = _NONE, parameters: Mapping[str, Any] = _NONE
) -> dict[str, str]:
    """Returns only the environment of the workflow, with variables and shared parameters filled in."""
    return _entries_of_valid(spec, tables, parameters).shared_env(spec)


def _entries_of_valid(
    spec: WorkflowSpec, tables: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Entries:
    """Returns the entries of a valid spec."""
    problems = Problems()
    variables = variables_of(spec, parameters, problems)
    return Entries(Sweeps(spec, tables, parameters, variables, problems), variables, problems)


class _Planning:
    def __init__(self, spec: WorkflowSpec, entries: Entries, problems: Problems, unread: Unread) -> None:
        self._spec = spec
        self._unread = unread
        self._entries = entries
        self._problems = problems
        self._note_duplicates()
        self._requirements = {each.name: requirements_of(each) for each in spec.requirements}
        self._inline: dict[int, Requirements] = {}  # by entry, whose jobs share them
        self._equal: dict[Requirements, Requirements] = {}  # as do equal entries
        self._handlers = {each.name: self._handler(each, at) for at, each in enumerate(spec.failure_handlers)}
        self._schedulers = {str(each["name"]) for each in spec.slurm_schedulers if each.get("name")}
        self._env = entries.shared_env(spec)
        self._envs: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._containers: dict[ContainerJob, ContainerJob] = {}  # shared by equal jobs
        self._container = self._container_of(entries.literal(spec.container, ("container",)), ("container",))

    def _note_duplicates(self) -> None:
        """Reports duplicate names that jobs refer to."""
        named: list[tuple[str, str, list[str]]] = [
            ("resource_requirements", "resource requirement", [one.name for one in self._spec.requirements]),
            ("failure_handlers", "failure handler", [one.name for one in self._spec.failure_handlers]),
            ("slurm_schedulers", "scheduler", [one.get("name", "") for one in self._spec.slurm_schedulers]),
        ]
        for section, kind, names in named:
            for index, name in enumerate(names):
                if name and name in names[:index]:
                    message = f"duplicate {kind} '{name}'"
                    self._problems.note((section, index, "name"), message)

    def plan(self) -> Plan:
        files = self._entries.expand("files", self._spec.files)
        user_data = self._entries.expand("user_data", self._spec.user_data)
        datasets = self._entries.expand("datasets", self._spec.datasets)
        jobs = self._entries.expand("jobs", self._spec.jobs)
        paths = [each.value.path for each in files]
        file_things = Things("file", self._index("file", "files", files), paths)
        data_things = Things("user data", self._index("user data", "user_data", user_data))
        directories = [each.value.path for each in datasets]
        dataset_things = Things("dataset", self._index("dataset", "datasets", datasets), directories)
        things = {"files": file_things, "user_data": data_things, "datasets": dataset_things}
        linker = Linker(jobs, self._index("job", "jobs", jobs), things, self._problems)
        links = linker.links()
        planned = [
            self._job(each, links[index], linker.depends_on(index, links[index]))
            for index, each in enumerate(jobs)
        ]
        self._note_cycles(planned)
        check_identifiers(
            files,
            planned,
            uses_crate=self._spec.other.get("enable_ro_crate") is True,
            problems=self._problems,
        )
        return Plan(
            name=self._entries.literal(self._spec.name, ("name",)),
            jobs=tuple(planned),
            description=self._entries.literal(self._spec.description or "", ("description",)),
            user=self._spec.user or "",
            files=tuple(
                PlannedFile(each.value.name, each.value.path, file_things.maker_of(index))
                for index, each in enumerate(files)
            ),
            user_data=tuple(
                _planned_data(each.value, data_things.maker_of(index)) for index, each in enumerate(user_data)
            ),
            datasets=tuple(
                _planned_dataset(each.value, tuple(dataset_things.makers_of(index)))
                for index, each in enumerate(datasets)
            ),
            actions=self._actions(linker, planned),
            monitor=self._spec.monitor,
            execution=self._spec.execution,
            use_pending_failed=self._spec.use_pending_failed,
            slurm_schedulers=self._entries.literal(self._spec.slurm_schedulers, ("slurm_schedulers",)),
            slurm_defaults=self._entries.literal(self._spec.slurm_defaults, ("slurm_defaults",)),
            other=self._spec.other,
            declared=Declared(
                entries=len(self._spec.jobs),
                requirements=self._requirements,
                failure_handlers=self._handlers,
                env=self._env,
                container=self._container,
            ),
        )

    def _index(self, kind: str, section: str, entries: list[Expanded]) -> NameIndex:
        not_made = self._entries.incomplete.get(section, ())
        return index_of(kind, section, entries, not_made, self._problems)

    def _job(self, expanded: Expanded, links: Links, depends_on: tuple[int, ...]) -> PlannedJob:
        job: JobSpec = expanded.value
        path: Path = ("jobs", expanded.entry)
        requirements, requirements_name = self._needs(job, expanded.entry, path)
        if job.scheduler:
            self._check_scheduler(job.scheduler, path)
        handler = None
        if job.failure_handler is not None:
            handler = self._handlers.get(job.failure_handler)
            if handler is None and not self._unread.may_have("failure_handlers", job.failure_handler):
                where = (*path, "failure_handler")
                self._problems.unknown(where, "failure handler", job.failure_handler, self._handlers)
        check_label(job, path, self._problems)
        return PlannedJob(
            name=job.name,
            command=links.command,
            depends_on=depends_on,
            invocation_script=links.script,
            requirements=requirements,
            requirements_name=requirements_name,
            failure_handler=handler,
            when_blocked_fails=job.when_blocked_fails,
            supports_termination=job.supports_termination,
            input_files=links.input_files,
            output_files=links.output_files,
            input_user_data=links.input_user_data,
            output_user_data=links.output_user_data,
            input_datasets=links.input_datasets,
            output_datasets=links.output_datasets,
            env=self._env_of(job),
            priority=job.priority,
            stdio=job.stdio,
            label=job.label or "",
            spec_job=expanded.entry,
            parameter_names=expanded.names,
            parameter_values=expanded.values,
            scheduler=job.scheduler or "",
            queue=job.queue or "",
            retry_lost=job.retry_lost,
            container=self._job_container(job, requirements, path),
        )

    def _job_container(self, job: JobSpec, needs: Requirements, path: Path) -> ContainerJob | None:
        """Returns the job's container, which replaces that of the workflow completely."""
        if job.container is None:
            found = self._container
        else:
            found = self._container_of(job.container, (*path, "container"))
        if found is not None:
            check_container_nodes(job, needs, path, self._problems)
        return found

    def _container_of(self, written: dict[str, Any] | None, path: Path) -> ContainerJob | None:
        made = container_of(written)
        if made is None or made in self._containers:
            return made and self._containers[made]
        check_container(made, path, self._problems)
        return self._containers.setdefault(made, made)

    def _needs(self, job: JobSpec, entry: int, path: Path) -> tuple[Requirements, str]:
        written = job.requirements
        if written is None:
            return _NO_REQUIREMENTS, ""
        if isinstance(written, RequirementsSpec):
            shared = self._inline.get(entry)
            if shared is None:
                shared = requirements_of(written)
                shared = self._inline[entry] = self._equal.setdefault(shared, shared)
            return shared, ""
        found = self._requirements.get(written)
        if found is None:
            where = (*path, "resource_requirements")
            if self._unread.may_have("resource_requirements", written):
                return _NO_REQUIREMENTS, written
            self._problems.unknown(where, "resource requirement", written, self._requirements)
            return _NO_REQUIREMENTS, written
        return found, written

    def _env_of(self, job: JobSpec) -> dict[str, str]:
        """Returns the environment of workflow and job, shared between jobs with the same."""
        if not job.env:
            return self._env or _NONE
        key = tuple(job.env.items())
        shared = self._envs.get(key)
        if shared is None:
            shared = self._envs[key] = {**self._env, **job.env}
        return shared

    def _check_scheduler(self, name: str, path: Path) -> None:
        if name not in self._schedulers and not self._unread.may_have("slurm_schedulers", name):
            self._problems.unknown((*path, "scheduler"), "scheduler", name, sorted(self._schedulers))

    def _handler(self, handler: FailureHandler, index: int) -> FailureHandler:
        path: Path = ("failure_handlers", index)
        rules = tuple(
            structs.replace(
                rule, recovery_script=self._entries.literal(rule.recovery_script, (*path, "rules", which))
            )
            for which, rule in enumerate(handler.rules)
        )
        return structs.replace(handler, rules=rules)

    def _actions(self, linker: Linker, jobs: list[PlannedJob]) -> tuple[PlannedAction, ...]:
        planned = []
        asked = set()
        for index, written in enumerate(self._spec.actions):
            path: Path = ("actions", index)
            action = structs.replace(
                written,
                **{
                    key: self._entries.literal(getattr(written, key), (*path, key))
                    for key in ("jobs", "job_name_regexes", "commands", "scheduler")
                },
            )
            if action.scheduler and action.scheduler_type != "local":
                self._check_scheduler(action.scheduler, path)
            mode = self._spec.execution.mode
            if action.start_one_worker_per_node and mode != "direct":
                message = f"start_one_worker_per_node needs mode direct in execution_config, not {mode}"
                self._problems.note((*path, "start_one_worker_per_node"), message)
            planned.append(
                PlannedAction(action, linker.jobs_named(action.jobs, action.job_name_regexes, path))
            )
            if action.action_type is ActionType.SCHEDULE_NODES:
                if action.scheduler_type == "slurm":
                    asked.add(action.scheduler)
                if action.trigger_type in NO_NODES:
                    message = f"schedule_nodes has no effect with trigger_type {action.trigger_type}"
                    self._problems.warn((*path, "trigger_type"), message)
        schedulers = [each for each in self._spec.slurm_schedulers if each.get("name") in asked]
        check_nodes(schedulers, jobs, self._problems)
        warn_of_amounts(self._spec.slurm_schedulers, jobs, self._problems)
        return tuple(planned)

    def _note_cycles(self, jobs: list[PlannedJob]) -> None:
        for ring in find_cycles([job.depends_on for job in jobs]):
            message = describe_cycle([jobs[index].name for index in ring])
            self._problems.note(("jobs", jobs[ring[0]].spec_job), message)


def _planned_data(written: UserDataSpec, maker: int) -> PlannedData:
    return PlannedData(written.name, written.data, written.is_ephemeral, maker)


def _planned_dataset(written: DatasetSpec, producers: tuple[int, ...]) -> PlannedDataset:
    return PlannedDataset(written.name, written.path, written.hash_mode, producers, written.description or "")


def check_label(job: JobSpec, path: Path, problems: Problems) -> None:
    if job.label is not None and (problem := label_problem(job.label)):
        problems.note((*path, "label"), f"label {job.label!r} {problem}")


def requirements_of(written: RequirementsSpec) -> Requirements:
    return Requirements(
        cpus=written.num_cpus,
        memory_bytes=written.memory_bytes,
        gpus=written.num_gpus,
        timeout_s=written.runtime_s,
        nodes=written.num_nodes,
    )


def container_of(written: dict[str, Any] | None) -> ContainerJob | None:
    """Returns the container. `written`: as in JobSpec, also a stored one; None and {}: none."""
    return convert(written, ContainerJob) if written else None


def check_container(container: ContainerJob, path: Path, problems: Problems) -> None:
    for key, problem in container_problems(container):
        problems.note((*path, key), f"{key} in container: {problem}")


def check_container_nodes(job: JobSpec, needs: Requirements, path: Path, problems: Problems) -> None:
    if (needs.nodes or 1) > 1:
        message = f"job '{job.name}' has {needs.nodes} nodes, but a container runs on one"
        problems.note((*path, "container") if job.container else path, message)
