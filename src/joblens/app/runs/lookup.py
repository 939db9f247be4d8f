"""Lookup of runs by typed names, and of their jobs."""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.runs.status import run_label
from joblens.app.jobs.queries import PREFIX as SLURM_PREFIX
from joblens.app.jobs.queries import (
    Note,
    find,
    is_array_element,
    may_be_slurm_id,
    newest_named,
    records_in,
    slurm_id,
)
from joblens.model.errors import AmbiguousJob, AmbiguousRun, InputError, UnknownJob, UnknownRun
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import (
    JobCancelled,
    JobResult,
    JobsReset,
    OutputsMissing,
    RecoveryRan,
    RequirementsRaised,
    Run,
    RunEvent,
    RunStatus,
)
from joblens.ports.store import Store

_JOB, _WORKFLOW = "job:", "workflow:"
_NUMBERED = re.compile(r"\d+\.\d+")  # run 2 of workflow 3
_SHOWN = 3


def find_run(store: Store, ident: str, run_number: int | None = None) -> Run:
    """`run_number`: of the workflow that `ident` names, instead of its newest. A Slurm id stands for the
    run whose jobs it had."""
    in_slurm = slurm_id(ident)
    if in_slurm is None and is_array_element(ident):
        in_slurm = ident.strip()
    if in_slurm is not None:
        return _run_in_slurm(store, in_slurm)
    if run_number is None:
        return _run_or_in_slurm(store, ident)
    workflow = store.find_workflow(ident)
    return store.find_run(f"{workflow.number}.{run_number}")


def _run_or_in_slurm(store: Store, ident: str) -> Run:
    try:
        return store.find_run(ident)
    except UnknownRun:
        if not may_be_slurm_id(ident) or not records_in(store, ident.strip()):
            raise
    return _run_in_slurm(store, ident.strip())


def _run_in_slurm(store: Store, job_id: str) -> Run:
    """All jobs of an allocation belong to one run."""
    for record in records_in(store, job_id):
        if record.job.run is not None:
            return store.find_run(record.job.run.run_uuid)
    raise UnknownRun(
        f"no job of a run was Slurm job {job_id}", hint=f"`joblens seff {job_id}` shows what Slurm knows"
    )


def find_named_run(store: Store, ident: str, note: Note, run_number: int | None = None) -> Run:
    """Like `find_run`; a name of several workflows stands for the newest, and a note says so."""
    found = find_run(store, ident, run_number)
    name = ident.strip().removeprefix(_WORKFLOW)
    others = [one for one in store.workflows() if one.name == name and one.uuid != found.workflow_uuid]
    if others and str(found.workflow_number) != name:
        numbers = ", ".join(str(one.number) for one in others[:_SHOWN]) + (", …" if others[_SHOWN:] else "")
        note(
            f"joblens: '{name}' is workflow {found.workflow_number}, the newest of that name;"
            f" {numbers} {'has' if len(others) == 1 else 'have'} it as well"
        )
    return found


def unfinished_run(store: Store, ident: str, found: Run, note: Note) -> Run:
    """Returns the unfinished run of a workflow's name or number, if any. `found`: the newest of them.
    Raises AmbiguousRun if there are several."""
    name = ident.strip().removeprefix(_WORKFLOW)
    under_way = [
        run
        for workflow in store.workflows()
        if name in (workflow.name, str(workflow.number))
        for run in store.runs(workflow.uuid)
        if run.status in (RunStatus.CREATED, RunStatus.RUNNING)
    ]
    labels = [run_label(run) for run in under_way]
    if len(under_way) > 1:
        raise AmbiguousRun(
            f"'{name}' has {len(under_way)} unfinished runs: {', '.join(labels)}",
            hint=f"all of them: joblens cancel {' '.join(labels)}",
        )
    if not under_way or under_way[0].uuid == found.uuid:
        return found
    note(f"joblens: '{name}' is run {labels[0]}, the only unfinished one of that name")
    return store.find_run(under_way[0].uuid)


def newest_run(store: Store) -> Run:
    """Returns the newest run of all workflows."""
    runs = [
        run
        for workflow in store.workflows()
        if not workflow.is_of_commands
        for run in store.runs(workflow.uuid)[-1:]
    ]
    if not runs:
        raise UnknownRun("no workflow has been run yet", hint="start one with `joblens run FILE`")
    newest = max(runs, key=lambda run: run.created_at_us)
    return store.find_run(newest.uuid)  # with its file, which lists omit


def find_job_or_run(
    store: Store, ident: str, note: Note | None = None, *, is_to_change: bool = False
) -> Record | Run:
    """For commands that take either. `job:3` and `workflow:3` decide where both fit. `note` and
    `is_to_change` as for `find`; a workflow's name takes precedence over a job's."""
    ident = ident.strip()
    if ident.startswith((_JOB, SLURM_PREFIX)) or is_array_element(ident):
        return find(store, ident, note, is_to_change=is_to_change)
    if ident.startswith(_WORKFLOW):
        return store.find_run(ident)
    job, run = _job_or_error(store, ident), _run_or_error(store, ident)
    if isinstance(job, Record) and isinstance(run, Run) and not run.is_command:
        raise InputError(
            f"'{ident}' is a job and a workflow", hint=f"write {_JOB}{ident} or {_WORKFLOW}{ident}"
        )
    if isinstance(job, Record):
        return find(store, ident, note, is_to_change=is_to_change)
    if isinstance(run, Run):
        return run
    if isinstance(job, UnknownJob) and isinstance(run, UnknownRun):
        named = None if note is None else newest_named(store, ident, note)
        if named is not None:
            return named
        if may_be_slurm_id(ident):
            return find(store, ident, note, is_to_change=is_to_change)
        if _NUMBERED.fullmatch(ident):
            raise run  # no job has this name
        raise UnknownRun(
            f"no job, workflow or run has the ID '{ident}'", hint=f"{run.hint}; `joblens history` lists jobs"
        )
    raise run if isinstance(job, UnknownJob) else job


def _job_or_error(store: Store, ident: str) -> Record | InputError:
    try:
        return store.find(ident)
    except (UnknownJob, AmbiguousJob) as error:
        return error


def _run_or_error(store: Store, ident: str) -> Run | InputError:
    try:
        return store.find_run(ident)
    except InputError as error:
        return error


def records_of_run(store: Store, run_uuid: str) -> Iterator[Record]:
    """Returns every attempt of its jobs, oldest first, without the commands of actions."""
    query = HistoryQuery(run_uuid=run_uuid, sort=SortKey.STARTED, ascending=True)
    for record in store.records(query):
        if record.job.run is not None and record.job.run.index >= 0:
            yield record


def records_of_whole_run(store: Store, run: Run) -> list[Record]:
    """Returns the same, preceded by the attempts of earlier runs whose results the run keeps."""
    reused = reused_results(store, run)
    earlier: list[Record] = []
    if reused is not None:
        uuids = {result.job_uuid for result in reused.results}
        for uuid in dict.fromkeys(reused.run_of.values()):
            earlier += [record for record in records_of_run(store, uuid) if record.job.uuid in uuids]
    return [*earlier, *records_of_run(store, run.uuid)]


class ReusedResults(Struct, frozen=True):
    """For a run that repeats part of an earlier one: the results that stay valid for the other jobs, and
    the run of each."""

    results: tuple[JobResult, ...]
    run_of: dict[int, str]
    made_at_us: int  # when the new run was created
    moved: frozenset[int] = frozenset()  # jobs of which only a success was kept; their index may differ


def reused_results(store: Store, run: Run) -> ReusedResults | None:
    """None: the run keeps no results. The earlier run may itself keep results of one before it."""
    if run.base_run_uuid is None or run.again is None:
        return None
    base_uuid = run.base_run_uuid
    base = _run_or_none(store, base_uuid)
    again = frozenset(run.again)
    earlier = None if base is None else reused_results(store, base)
    found = {} if earlier is None else _by_index(earlier.results)
    run_of = {} if earlier is None else dict(earlier.run_of)
    for index, attempts in _by_index(store.run_results(base_uuid)).items():
        found[index] = attempts
        run_of[index] = base_uuid
    moved = set() if earlier is None else {index for index in earlier.moved if run_of.get(index) != base_uuid}
    # Jobs that were added to the base may have another index here: `kept_from` names those that are kept.
    found = {index: attempts for index, attempts in found.items() if index < run.declared_jobs}
    for uuid, pairs in run.kept_from.items():
        there = _by_index(store.run_results(uuid))
        for index, other in pairs:
            found[index] = _successes(there.get(other, []), index)
            run_of[index] = uuid
            moved.add(index)
    reused = sorted(index for index in found if index not in again)
    results = tuple(result for index in reused for result in found[index])
    run_of = {index: run_of[index] for index in reused}
    return ReusedResults(results, run_of, run.created_at_us, frozenset(moved))


def _successes(results: list[JobResult], index: int) -> list[JobResult]:
    return [replace(result, index=index) for result in results if result.status is Status.SUCCESS]


def reused_events(store: Store, reused: ReusedResults) -> list[RunEvent]:
    """Returns events of the runs whose results are kept, in order. Events about a job whose outcome comes
    from another run are omitted, as are those about jobs of which a success was kept, and raised
    requests: the plan of the new run has them. Jobs that were reset later keep the outcome that they had
    then."""
    events = [
        narrowed
        for uuid in set(reused.run_of.values())
        for _, event in store.run_events(uuid)
        if (narrowed := _about_reused(event, reused)) is not None
    ]
    return sorted(events, key=lambda event: event.at_us)


def _about_reused(event: RunEvent, reused: ReusedResults) -> RunEvent | None:
    fact = event.fact
    if isinstance(fact, RequirementsRaised):
        return None
    if isinstance(fact, JobsReset):
        if event.at_us > reused.made_at_us:
            return None
        jobs = tuple(one for one in fact.jobs if _is_reused(one[0], event.run_uuid, reused))
        return replace(event, fact=replace(fact, jobs=jobs)) if jobs else None
    if isinstance(fact, OutputsMissing | RecoveryRan | JobCancelled):
        return event if _is_reused(fact.index, event.run_uuid, reused) else None
    return event


def _is_reused(index: int, run_uuid: str, reused: ReusedResults) -> bool:
    return reused.run_of.get(index) == run_uuid and index not in reused.moved


def _run_or_none(store: Store, uuid: str) -> Run | None:
    try:
        return store.find_run(uuid)
    except UnknownRun:
        return None


def _by_index(results: tuple[JobResult, ...] | list[JobResult]) -> dict[int, list[JobResult]]:
    found: dict[int, list[JobResult]] = {}
    for result in results:
        found.setdefault(result.index, []).append(result)
    return found
