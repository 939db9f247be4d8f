"""Right-sizing advice from earlier jobs: for a workflow's groups, single commands and Compose services."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.findings.sweeps import sweep_findings
from joblens.analysis.sizing.amounts import memory_like, runtime_like
from joblens.analysis.sizing.compose import (
    JobUse,
    ServiceAdvice,
    advise_service,
    compose_text,
    service_name,
    use_of_profile,
    use_of_record,
)
from joblens.analysis.sizing.observations import Observation, Strategy, observation_of
from joblens.analysis.sizing.rightsizing import Advice, Group, GroupAdvice, advise
from joblens.app.reports.rightsize_files import SpecFile, position_of
from joblens.app.runs.lookup import records_of_run
from joblens.app.workflows.loader import loaded_run
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Finding, Record, Requirements
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import OutputsMissing, Run, Workflow
from joblens.model.runs.workflow_spec import JobSpec, RequirementsSpec
from joblens.model.values.units import parse_duration, parse_size
from joblens.plan.workflows.expansion import requirements_of
from joblens.plan.workflows.spawning import extended
from joblens.ports.store import Store

MAX_READ = 100_000  # all are in memory at once


class JobsSizing(Struct, frozen=True, kw_only=True):
    groups: tuple[GroupAdvice, ...]
    jobs: int  # that were read


def records_named(store: Store, names: Sequence[str], *, most: int = MAX_READ) -> Iterator[Record]:
    """Returns the newest ones, oldest first; '*' and '?' are wildcards. Raises InputError if there is
    none."""
    return reversed(list(_newest_named(store, names, most)))


def _newest_named(store: Store, names: Sequence[str], most: int) -> Iterator[Record]:
    """Yields them, newest first. Raises InputError."""
    query = HistoryQuery(names=tuple(names), sort=SortKey.STARTED, include_unfinished=False, limit=most)
    is_any = False
    for record in store.records(query):
        if record.job.name:
            is_any = True
            yield record
    if not is_any:
        raise InputError(
            f"no ended job has the name {' or '.join(names)}",
            hint="joblens history lists names; '*' and '?' are wildcards",
        )


def size_jobs(
    store: Store,
    names: Sequence[str],
    *,
    strategy: Strategy = Strategy.MAX_SEEN,
    most: int = MAX_READ,
) -> JobsSizing:
    """The newest job of a name has the present request; each job counts as a run of its own. Returns only
    the numbers that advice uses."""
    observed: dict[str, list[Observation]] = {}
    requested: dict[str, Requirements] = {}
    count = 0
    for before_newest, record in enumerate(_newest_named(store, names, most)):
        count = before_newest + 1
        requested.setdefault(record.job.name, record.job.requirements)
        observation = observation_of(record, most - before_newest)
        if observation is not None:
            observed.setdefault(record.job.name, []).append(observation)
    groups = (
        Group(
            name=name,
            current=requested[name],
            observations=tuple(
                replace(one, run=one.run - (most - count)) for one in reversed(observed.get(name, ()))
            ),
            is_named=True,
        )
        for name in sorted(requested)
    )
    return JobsSizing(groups=tuple(advise(groups, strategy)), jobs=count)


_PARAMETER = "{"
_STYLES: dict[str, tuple[Callable[[Any, Any], str], Callable[[str], float]]] = {
    "memory": (memory_like, parse_size),
    "runtime": (runtime_like, parse_duration),
}


class Sizing(Struct, frozen=True, kw_only=True):
    workflow: Workflow
    run: Run  # the newest one that counts
    runs: tuple[int, ...]  # numbers of runs that were read
    groups: tuple[GroupAdvice, ...]
    unseen: tuple[str, ...] = ()  # groups of the file without measurements
    findings: tuple[Finding, ...] = ()


def size_workflow(
    store: Store,
    run: Run,
    *,
    strategy: Strategy = Strategy.MAX_SEEN,
    most_runs: int | None = None,
    file: SpecFile | None = None,
) -> Sizing:
    """`run` with its spec. `file`: as it is now, if it differs from the run's."""
    workflow = store.find_workflow(run.workflow_uuid)
    runs = [one for one in store.runs(workflow.uuid) if one.created_at_us <= run.created_at_us]
    selected = runs[-most_runs:] if most_runs else runs
    groups_of_file = _GroupPositions(run, file)
    observed: dict[str, list[Observation]] = {}
    for one in selected:
        for key, observation in _observations(store, one, groups_of_file):
            observed.setdefault(key, []).append(observation)
    groups = [groups_of_file.group(key, observed.get(key, ())) for key in groups_of_file.in_order()]
    return Sizing(
        workflow=workflow,
        run=run,
        runs=tuple(one.number or 0 for one in selected),
        groups=tuple(map(groups_of_file.as_written, advise(groups, strategy))),
        unseen=tuple(group.name for group in groups if not group.observations),
        findings=tuple(sweep_findings(groups)),
    )


def _observations(
    store: Store, run: Run, groups_of_file: "_GroupPositions"
) -> Iterator[tuple[str, Observation]]:
    entries: dict[int, str] | None = None
    missing_outputs = {
        (event.fact.index, event.fact.attempt)
        for _, event in store.run_events(run.uuid)
        if isinstance(event.fact, OutputsMissing)
    }
    for record in records_of_run(store, run.uuid):
        link = record.job.run
        is_unmade = link is not None and (link.index, link.attempt) in missing_outputs
        observation = observation_of(record, run.number or 0, is_unmade=is_unmade)
        if observation is None:
            continue
        key = groups_of_file.key_of_job(record.job.name)
        if key is None and record.job.run is not None:
            # a job that the newest run does not have, such as one of a larger sweep
            entries = entries if entries is not None else groups_of_file.keys_of_run(store.find_run(run.uuid))
            key = entries.get(record.job.run.index)
        if key is not None:
            yield key, observation


class _GroupPositions:
    """Group of the file that a job belongs to. Jobs are identified by name, groups by theirs or by the
    name of the entry that has them inline."""

    def __init__(self, run: Run, file: SpecFile | None) -> None:
        loaded = loaded_run(run, keeps_spec=True)
        own = loaded.spec
        self._spec = own if file is None else file.spec
        self._value = loaded.document.value if file is None else file.value
        self._entries = {job.name: number for number, job in enumerate(self._spec.jobs)}
        self._named = {one.name: one for one in self._spec.requirements}
        self._keys = {
            job.name: key
            for job in loaded.plan.jobs
            if (key := self._key(own.jobs[job.spec_job], job.requirements_name)) is not None
        }
        self._keys |= {
            job.name: key
            for job in extended(loaded.plan, run.spawned).jobs
            if job.spawned_by >= 0 and (key := self._key_of_added(job)) is not None
        }

    def in_order(self) -> list[str]:
        """Returns groups of the newest run in the order of the file."""
        used = set(self._keys.values())
        named = [f"@{one.name}" for one in self._spec.requirements]
        return [key for key in [*named, *(job.name for job in self._spec.jobs)] if key in used]

    def key_of_job(self, name: str) -> str | None:
        return self._keys.get(name)

    def keys_of_run(self, run: Run) -> dict[int, str]:
        loaded = loaded_run(run, keeps_spec=True)
        found = {
            index: key
            for index, job in enumerate(extended(loaded.plan, run.spawned).jobs)
            if job.spawned_by >= 0 and (key := self._key_of_added(job)) is not None
        }
        for index, job in enumerate(loaded.plan.jobs):
            key = self._key(loaded.spec.jobs[job.spec_job], job.requirements_name)
            if key is not None:
                found[index] = key
        return found

    def _key_of_added(self, job: PlannedJob) -> str | None:
        """For a job that was added during the run: by the requirements of the file it names."""
        return f"@{job.requirements_name}" if job.requirements_name in self._named else None

    def _key(self, entry: JobSpec, requirements_name: str) -> str | None:
        """Returns '@name' for a named group, otherwise the entry's name; None: the file has neither."""
        number = self._entries.get(entry.name)
        if number is None:
            return None
        written = self._spec.jobs[number].requirements
        if not isinstance(written, str):
            return entry.name
        name = requirements_name if _PARAMETER in written else written
        return f"@{name}" if name in self._named else None

    def as_written(self, found: GroupAdvice) -> GroupAdvice:
        """Writes amounts in the form of the file."""
        number = position_of(self._value, found.group)
        written = {} if number is None else number[1]
        return replace(found, advice=tuple(_like(written, part) for part in found.advice))

    def group(self, key: str, observed: "list[Observation] | tuple[()]") -> Group:
        if key.startswith("@"):
            named = self._named[key[1:]]
            return Group(name=named.name, current=requirements_of(named), observations=tuple(observed))
        number = self._entries[key]
        inline = self._spec.jobs[number].requirements
        return Group(
            name=key,
            current=requirements_of(inline) if isinstance(inline, RequirementsSpec) else Requirements(),
            observations=tuple(observed),
            is_named=False,
            spec_job=number,
            has_requirements=inline is not None,
        )


def _like(written: Mapping[str, Any], part: Advice) -> Advice:
    style, parse = _STYLES.get(part.resource, (None, None))
    before = written.get(part.resource)
    if style is None or parse is None or before is None or parse(str(before)) != part.current:
        return part
    return replace(part, current_text=str(before), recommended_text=style(before, part.recommended))


_UNNAMED = "job"


def compose_advice(profiles: Iterable[Any], service: str | None = None) -> str:
    """Returns the text of a Compose file with `deploy: resources:` for each tool. `profiles` are
    profiles, or records of JobMonitor and the history; profiles without a tool are the service `service`.
    A limit is above the highest use (rightsize's numbers), a reservation is the median of the averages."""
    if isinstance(profiles, Mapping):
        profiles = [profiles]
    uses: dict[str, list[JobUse]] = {}
    for number, item in enumerate(profiles):
        name, use = _use_of(item, number, service)
        if use is not None:
            uses.setdefault(name, []).append(use)
    return compose_text(_advised(uses))


def advise_stored(store: Store, query: HistoryQuery) -> list[ServiceAdvice]:
    """Returns a service per tool of the jobs, or per name if they have none."""
    uses: dict[str, list[JobUse]] = {}
    for number, record in enumerate(store.records(query)):
        use = use_of_record(record, number)
        if use is not None:
            uses.setdefault(_service_of(record), []).append(use)
    return _advised(uses)


def _advised(uses: Mapping[str, list[JobUse]]) -> list[ServiceAdvice]:
    return [advise_service(name, uses[name]) for name in sorted(uses)]


def _service_of(record: Record) -> str:
    return service_name(record.job.tool or record.job.name)


def _use_of(item: Any, number: int, service: str | None) -> tuple[str, JobUse | None]:
    if isinstance(item, Record):
        return service_name(service or _service_of(item)), use_of_record(item, number)
    if not isinstance(item, Mapping):
        raise InputError(f"item {number} is not a profile or a record, but {type(item).__name__}")
    if "resource_usage" in item:
        from joblens.analysis.formats.history import from_history_record

        record = from_history_record(dict(item))
        return service_name(service or _service_of(record)), use_of_record(record, number)
    profile = item.get("detailed_profile", item)
    name = service_name(service or str(item.get("tool") or _UNNAMED))
    return name, use_of_profile(dict(profile or {}), name, number)
