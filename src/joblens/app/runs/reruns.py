"""Reruns that repeat part of an earlier run: which of its jobs run again, and why.

Jobs whose orchestrator keeps its success are included: those that succeeded keep that, the others run.
Jobs of an orchestrator that runs again are excluded: it adds its jobs again.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.provenance.datasets import dataset_now
from joblens.agent.provenance.file_stamps import digest_of
from joblens.analysis.runs.status import run_label
from joblens.app.runs.lookup import records_of_run
from joblens.app.runs.state import RunState, failed_actions, state_of_run
from joblens.app.workflows.loader import LoadedSpec, loaded_run
from joblens.model.errors import PlanError
from joblens.model.jobs.job import FileStamp, Record, Status
from joblens.model.runs.plan import Plan, PlannedDataset, growing
from joblens.model.runs.run import JobsSpawned, JobState, OutputsMissing, RaisedRequest, Run, Workflow
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.plan_document import still_valid
from joblens.plan.workflows.selection import FilesNow, LastSuccess, find_jobs, jobs_to_run_again
from joblens.plan.workflows.spawning import PlanExtender
from joblens.ports.store import Store


class FoundSuccess(Struct, frozen=True):
    """`index`: the index of the job in that run."""

    run_uuid: str
    index: int
    success: LastSuccess


class Successes(Struct, frozen=True):
    """Successes by name of job. `failed`: why jobs did not succeed the last time: their earlier outputs may
    no longer exist."""

    found: dict[str, FoundSuccess]
    failed: dict[str, str]


def find_successes(store: Store, runs: Sequence[Run], names: set[str], cwd: str) -> Successes:
    """`runs`: oldest first. A failure in another directory than `cwd` has spoilt nothing here."""
    past = Successes({}, {})
    for run in reversed(runs):
        open_names = names - past.found.keys() - past.failed.keys()
        if not open_names:
            break
        is_here = run.options.cwd == cwd
        for name, (record, is_success) in _last_attempts(store, run, open_names).items():
            if is_success and record.job.run is not None:
                past.found[name] = FoundSuccess(run.uuid, record.job.run.index, success_of(record))
            elif is_here:
                past.failed[name] = f"did not succeed in run {run_label(run)}, its last attempt"
    return past


def success_of(record: Record) -> LastSuccess:
    return LastSuccess(record.job.command_digest, record.job.inputs)


def _last_attempts(store: Store, run: Run, names: set[str]) -> dict[str, tuple[Record, bool]]:
    """Returns the last started attempt of each job, and whether the job succeeded with it."""
    facts = [event.fact for _, event in store.run_events(run.uuid)]
    without_output = {(fact.index, fact.attempt) for fact in facts if isinstance(fact, OutputsMissing)}
    found: dict[str, tuple[Record, bool]] = {}
    for record in records_of_run(store, run.uuid):
        link = record.job.run
        if link is None or record.job.name not in names or record.attempt is None:
            continue
        before = found.get(record.job.name)
        if before is not None and before[1]:
            continue  # a success is final
        is_whole = (link.index, link.attempt) not in without_output
        found[record.job.name] = (record, record.status is Status.SUCCESS and is_whole)
    return found


_CANNOT_KEEP = "jobs that it added cannot be reused"


class Carried(Struct, frozen=True):
    """`plan`: with the included jobs. `reasons`: by index in it, why each runs again."""

    plan: Plan
    spawned: tuple[JobsSpawned, ...]
    reasons: dict[int, str]
    kept_from: dict[str, tuple[tuple[int, int], ...]]
    raised: tuple[RaisedRequest, ...]  # of included jobs, by index in the plan


def carry(
    state: RunState, plan: Plan, decide: Callable[[Plan, Mapping[int, str]], dict[int, str]]
) -> Carried:
    """`state`: of the base; `plan`: of the new run's file. `decide` returns why jobs of a plan run again;
    it gets those that must, by index."""
    batches, must = list(state.run.spawned), dict[str, str]()
    while True:
        made = _Rebased(state, plan, batches)
        must |= dict.fromkeys(made.lost, _CANNOT_KEEP)
        known = {index: must[job.name] for index, job in enumerate(made.plan.jobs) if job.name in must}
        reasons = decide(made.plan, known)
        remaining = [old for old, new in made.kept if new.orchestrator not in reasons]
        if len(remaining) == len(batches):
            break
        batches = remaining
    spawned = tuple(new for _, new in made.kept)
    return Carried(made.plan, spawned, reasons, _kept_from(state, made, reasons), _raised(state.run, made))


def _raised(base: Run, made: "_Rebased") -> tuple[RaisedRequest, ...]:
    here = {there: index for index, there in made.indexes.items()}
    return tuple(replace(one, index=here[one.index]) for one in base.raised if one.index in here)


class _Rebased:
    """Batches of a run on another plan: indices are those of the new plan."""

    def __init__(self, state: RunState, plan: Plan, batches: Iterable[JobsSpawned]) -> None:
        self.plan = growing(plan) if batches else plan
        self.kept: list[tuple[JobsSpawned, JobsSpawned]] = []
        self.lost: list[str] = []  # orchestrators
        self.indexes: dict[int, int] = {}  # indices in the base, by index here
        extender = PlanExtender(self.plan)
        counts: dict[str, int] = {}
        for batch in batches:
            name = state.plan.jobs[batch.orchestrator].name
            orchestrator = extender.index_of(name)
            if orchestrator is None:
                continue
            iteration = counts.get(batch.lineage, 0) + bool(batch.jobs)
            new = replace(batch, orchestrator=orchestrator, first=len(self.plan.jobs), iteration=iteration)
            if batch.jobs and not extender.add(new):
                self.lost.append(name)
                continue
            counts[batch.lineage] = iteration
            self.kept.append((batch, new))
            self.indexes |= {new.first + index: batch.first + index for index in range(len(batch.jobs))}


def _kept_from(
    state: RunState, made: _Rebased, reasons: Mapping[int, str]
) -> dict[str, tuple[tuple[int, int], ...]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for here, there in made.indexes.items():
        standing = state.jobs[there]
        if here in reasons or standing.state is not JobState.COMPLETED:
            continue
        run, index = state.run.uuid, there
        if standing.kept_from is not None:
            run, index = standing.kept_from, _index_in(state.run, standing.kept_from, there)
        found.setdefault(run, []).append((here, index))
    return {run: tuple(indexes) for run, indexes in found.items()}


def _index_in(base: Run, uuid: str, index: int) -> int:
    """Returns the index of a base job in the run whose success it keeps."""
    return dict(base.kept_from.get(uuid, ())).get(index, index)


class RerunSelection(Struct, frozen=True):
    """Which part of `base` a new run repeats; the others keep their outcome. All actions of the new run
    are executed. `has_failed_actions`: a reason to run even if no job has to run again."""

    base: Run
    indexes: tuple[int, ...]
    reasons: dict[int, str]
    has_failed_actions: bool = False
    kept_from: dict[str, tuple[tuple[int, int], ...]] = {}  # as of Run
    spawned: tuple[JobsSpawned, ...] = ()  # jobs that were added to the base and are included
    raised: tuple[RaisedRequest, ...] = ()  # of these, by index in the new run

    @property
    def is_empty(self) -> bool:
        return not self.indexes and not self.has_failed_actions


def failed_of(store: Store, run: Run) -> RerunSelection:
    """Returns jobs of the run that have not succeeded, and their dependents; actions, if one failed."""
    run = store.find_run(run.uuid)
    state = state_of_run(store, run)
    failed = {
        job.name: job.why or job.state.label
        for job in state.jobs
        if job.state not in (JobState.COMPLETED, JobState.DISABLED)
    }
    return _again_of(state, failed, has_failed_actions=bool(failed_actions(store, run.uuid)))


def selected_of(store: Store, run: Run, words: Sequence[str]) -> RerunSelection:
    """Returns the jobs that the words name, and their dependents. Raises PlanError for words that match
    no job, and for jobs that cannot run because of others."""
    state = state_of_run(store, store.find_run(run.uuid))
    found = find_jobs(state.plan, "--only", words)
    if found.problems:
        raise PlanError("\n  ".join(found.problems), hint=f"joblens results {run_label(run)} lists the jobs")
    named = set(found.indexes)
    _refuse_impossible(state, named, Graph(state.plan).behind(sorted(named)))
    return _again_of(state, {state.jobs[index].name: "named by --only" for index in sorted(named)})


def _again_of(state: RunState, why: Mapping[str, str], *, has_failed_actions: bool = False) -> RerunSelection:
    """`why`: by name, why each job runs again; their dependents do, too."""

    def decide(plan: Plan, must: Mapping[int, str]) -> dict[int, str]:
        reasons = {index: why[job.name] for index, job in enumerate(plan.jobs) if job.name in why}
        reasons |= must
        for offset in sorted(Graph(plan).behind(sorted(reasons)) - reasons.keys()):
            reasons[offset] = "needs a job that runs again"
        return reasons

    run = state.run
    plan = loaded_run(run).plan if run.spawned else state.plan
    carried = carry(state, plan, decide)
    return RerunSelection(
        run,
        tuple(sorted(carried.reasons)),
        carried.reasons,
        has_failed_actions,
        carried.kept_from,
        carried.spawned,
        carried.raised,
    )


def _refuse_impossible(state: RunState, named: set[int], indexes: set[int]) -> None:
    jobs, label = state.jobs, run_label(state.run)
    problems = [
        f"--only: {jobs[index].name} was skipped in run {label}"
        for index in sorted(named)
        if jobs[index].state is JobState.DISABLED
    ]
    final = (JobState.COMPLETED, JobState.DISABLED)
    problems += [
        f"{jobs[index].name} needs {jobs[needed].name}, which has not succeeded in run {label}"
        for index in sorted(indexes)
        for needed in state.plan.jobs[index].depends_on
        if needed not in indexes and jobs[needed].state not in final
    ]
    if problems:
        raise PlanError("\n  ".join(problems), hint="add them with --only, or use --failed")


def changed_of(store: Store, base: Run, loaded: LoadedSpec, cwd: str) -> RerunSelection:
    """Returns jobs whose command or inputs have changed since they succeeded in `base`, those that have
    not succeeded there, and their dependents."""
    state = state_of_run(store, base)
    last = _last_successes(store, state)
    added = {state.plan.jobs[index].name: one for index, one in last.items() if index >= base.declared_jobs}
    why = f"has not succeeded in run {run_label(base)}"

    def decide(plan: Plan, must: Mapping[int, str]) -> dict[int, str]:
        # A job is identified by its index: one with the index of another has not succeeded there.
        same = {
            index: success
            for index, success in last.items()
            if index < min(len(plan.jobs), base.declared_jobs)
            and plan.jobs[index].name == state.plan.jobs[index].name
        }
        same |= {
            index: added[job.name]
            for index, job in enumerate(plan.jobs)
            if job.spawned_by >= 0 and job.name in added
        }
        for index in must:
            same.pop(index, None)
        return jobs_to_run_again(
            plan, same, _files_in(cwd), without_success=lambda one: must.get(one, why), shown=_shown(loaded)
        )

    carried = carry(state, loaded.plan, decide)
    return RerunSelection(
        base,
        tuple(sorted(carried.reasons)),
        carried.reasons,
        kept_from=carried.kept_from,
        spawned=carried.spawned,
        raised=carried.raised,
    )


def changed_since_last(
    store: Store, workflow: Workflow | None, loaded: LoadedSpec, cwd: str
) -> RerunSelection | None:
    """Compares with the last success of each job in any run of the workflow. None: there is no run yet."""
    runs = store.runs(workflow.uuid) if workflow is not None else []
    tried = [run for run in runs if run.started_at_us is not None]
    if not tried:
        return None
    plan, base = loaded.plan, tried[-1]
    past = find_successes(store, tried, {job.name for job in plan.jobs}, cwd)
    known = {index: past.found[job.name] for index, job in enumerate(plan.jobs) if job.name in past.found}

    def without_success(index: int) -> str:
        return past.failed.get(plan.jobs[index].name, "has not succeeded yet")

    adds_jobs = _orchestrators(store, known)
    last = {index: one.success for index, one in known.items() if index not in adds_jobs}

    def why(index: int) -> str:
        return (
            "adds jobs, which it has to add to this run as well"
            if index in adds_jobs
            else without_success(index)
        )

    reasons = jobs_to_run_again(plan, last, _files_in(cwd), without_success=why, shown=_shown(loaded))
    kept: dict[str, list[tuple[int, int]]] = {}
    for index, one in known.items():
        if index not in reasons and (one.run_uuid, one.index) != (base.uuid, index):
            kept.setdefault(one.run_uuid, []).append((index, one.index))
    kept_from = {uuid: tuple(indexes) for uuid, indexes in kept.items()}
    return RerunSelection(store.find_run(base.uuid), tuple(sorted(reasons)), reasons, kept_from=kept_from)


def _orchestrators(store: Store, known: Mapping[int, FoundSuccess]) -> set[int]:
    """Returns jobs that had added others when they last succeeded: a new run has none of those yet."""
    added = {
        (uuid, event.fact.orchestrator)
        for uuid in {one.run_uuid for one in known.values()}
        for _, event in store.run_events(uuid)
        if isinstance(event.fact, JobsSpawned) and event.fact.jobs
    }
    return {index for index, one in known.items() if (one.run_uuid, one.index) in added}


def carry_raised_requests(base: Run, loaded: LoadedSpec) -> None:
    """The present file starts with requests that were raised for jobs of `base` unless it changed them."""
    if base.raised:
        before = loaded_run(replace(base, raised=())).plan
        loaded.raise_requests(still_valid(base.raised, before, loaded.plan))


def _shown(loaded: LoadedSpec) -> Callable[[str], str]:
    return loaded.secrets.hide if loaded.secrets else str


def _last_successes(store: Store, state: RunState) -> dict[int, LastSuccess]:
    completed = {
        job.results[-1].job_uuid: job for job in state.jobs if job.state is JobState.COMPLETED and job.results
    }
    uuids = dict.fromkeys([state.run.uuid, *(job.kept_from for job in completed.values() if job.kept_from)])
    found: dict[int, LastSuccess] = {}
    for run_uuid in uuids:
        for record in records_of_run(store, run_uuid):
            job = completed.get(record.job.uuid)
            if job is not None:
                found[job.index] = success_of(record)
    return found


def _files_in(cwd: str) -> FilesNow:
    def stamp_of(path: str) -> FileStamp:
        try:
            found = os.stat(os.path.join(cwd, path))
        except OSError:
            return FileStamp(path)
        return FileStamp(path, found.st_size, found.st_mtime_ns)

    def digest(path: str) -> str | None:
        whole = os.path.join(cwd, path)
        try:
            return digest_of(whole, os.stat(whole).st_size)
        except OSError:
            return None

    def dataset(planned: PlannedDataset) -> FileStamp:
        return dataset_now(planned.path, planned.hash_mode.value, cwd)

    return FilesNow(stamp_of, digest, dataset)
