"""Runs that repeat part of an earlier one: which of its jobs run again, and why."""

import os
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.provenance.dataset_summary import dataset_now
from joblens.agent.provenance.file_stamps import digest_of
from joblens.analysis.runs.workflow_rows import run_label
from joblens.app.runs.actions import failed_actions
from joblens.app.runs.carried_jobs import carry
from joblens.app.runs.last_successes import FoundSuccess, find_successes, success_of
from joblens.app.runs.lookup import records_of_run
from joblens.app.runs.state import RunState, state_of_run
from joblens.app.workflows.loading import LoadedSpec, loaded_run
from joblens.model.errors import PlanError
from joblens.model.jobs.run_link import FileStamp
from joblens.model.runs.plan import Plan, PlannedDataset
from joblens.model.runs.run import JobsSpawned, JobState, RaisedRequest, Run, Workflow
from joblens.plan.commands.raised_requests import still_valid
from joblens.plan.workflows.changes import FilesNow, LastSuccess, jobs_to_run_again
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.selection import find_jobs
from joblens.ports.store import Store


class RerunSelection(Struct, frozen=True):
    """What a new run repeats of `base`; the others keep their outcome. Actions are those of the new run: all
    of them run. `has_failed_actions`: there is a reason for it also where no job has to run again."""

    base: Run
    places: tuple[int, ...]
    reasons: dict[int, str]
    has_failed_actions: bool = False
    kept_from: dict[str, tuple[tuple[int, int], ...]] = {}  # as of Run
    spawned: tuple[JobsSpawned, ...] = ()  # jobs that were added to the base and come along
    raised: tuple[RaisedRequest, ...] = ()  # of these, by index in the new run

    @property
    def is_empty(self) -> bool:
        return not self.places and not self.has_failed_actions


def failed_of(store: Store, run: Run) -> RerunSelection:
    """Jobs of the run that have not succeeded, and everything that needs them; actions, when one failed."""
    run = store.find_run(run.uuid)
    state = state_of_run(store, run)
    failed = {
        job.name: job.why or job.state.label
        for job in state.jobs
        if job.state not in (JobState.COMPLETED, JobState.DISABLED)
    }
    return _again_of(state, failed, has_failed_actions=bool(failed_actions(store, run.uuid)))


def selected_of(store: Store, run: Run, words: Sequence[str]) -> RerunSelection:
    """The jobs that the words name, and everything that needs them. Raises PlanError for words that name no
    job, and for jobs that cannot run because of others."""
    state = state_of_run(store, store.find_run(run.uuid))
    found = find_jobs(state.plan, "--only", words)
    if found.problems:
        raise PlanError("\n  ".join(found.problems), hint=f"joblens results {run_label(run)} lists the jobs")
    chosen = set(found.places)
    _refuse_impossible(state, chosen, Graph(state.plan).behind(sorted(chosen)))
    return _again_of(state, {state.jobs[place].name: "named by --only" for place in sorted(chosen)})


def _again_of(
    state: RunState, chosen: Mapping[str, str], *, has_failed_actions: bool = False
) -> RerunSelection:
    """`chosen`: jobs by name, and why each runs again; everything that needs them does, too."""

    def decide(plan: Plan, must: Mapping[int, str]) -> dict[int, str]:
        reasons = {index: chosen[job.name] for index, job in enumerate(plan.jobs) if job.name in chosen}
        reasons |= must
        for place in sorted(Graph(plan).behind(sorted(reasons)) - reasons.keys()):
            reasons[place] = "needs a job that runs again"
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


def _refuse_impossible(state: RunState, chosen: set[int], places: set[int]) -> None:
    jobs, label = state.jobs, run_label(state.run)
    problems = [
        f"--only: {jobs[place].name} was left out of run {label}"
        for place in sorted(chosen)
        if jobs[place].state is JobState.DISABLED
    ]
    done = (JobState.COMPLETED, JobState.DISABLED)
    problems += [
        f"{jobs[place].name} needs {jobs[needed].name}, which has not succeeded in run {label}"
        for place in sorted(places)
        for needed in state.plan.jobs[place].depends_on
        if needed not in places and jobs[needed].state not in done
    ]
    if problems:
        raise PlanError("\n  ".join(problems), hint="name those with --only too, or use --failed")


def changed_of(store: Store, base: Run, loaded: LoadedSpec, cwd: str) -> RerunSelection:
    """Jobs whose command or inputs have changed since they succeeded in `base`, those that have not succeeded
    there, and everything that needs them."""
    state = state_of_run(store, base)
    last = _last_successes(store, state)
    added = {state.plan.jobs[place].name: one for place, one in last.items() if place >= base.declared_jobs}
    why = f"has not succeeded in run {run_label(base)}"

    def decide(plan: Plan, must: Mapping[int, str]) -> dict[int, str]:
        # A job is known by its place: one that stands where another stood has not succeeded there.
        same = {
            place: success
            for place, success in last.items()
            if place < min(len(plan.jobs), base.declared_jobs)
            and plan.jobs[place].name == state.plan.jobs[place].name
        }
        same |= {
            place: added[job.name]
            for place, job in enumerate(plan.jobs)
            if job.spawned_by >= 0 and job.name in added
        }
        for place in must:
            same.pop(place, None)
        return jobs_to_run_again(
            plan, same, _files_in(cwd), without_success=lambda one: must.get(one, why), shown=_shown(loaded)
        )

    kept = carry(state, loaded.plan, decide)
    return RerunSelection(
        base,
        tuple(sorted(kept.reasons)),
        kept.reasons,
        kept_from=kept.kept_from,
        spawned=kept.spawned,
        raised=kept.raised,
    )


def changed_since_last(
    store: Store, workflow: Workflow | None, loaded: LoadedSpec, cwd: str
) -> RerunSelection | None:
    """By the last success of each job in any run of the workflow. None: there is no run yet."""
    runs = store.runs(workflow.uuid) if workflow is not None else []
    tried = [run for run in runs if run.started_at_us is not None]
    if not tried:
        return None
    plan, base = loaded.plan, tried[-1]
    past = find_successes(store, tried, {job.name for job in plan.jobs}, cwd)
    known = {place: past.found[job.name] for place, job in enumerate(plan.jobs) if job.name in past.found}

    def without_success(place: int) -> str:
        return past.failed.get(plan.jobs[place].name, "has not succeeded yet")

    adds_jobs = _that_add_jobs(store, known)
    last = {place: one.success for place, one in known.items() if place not in adds_jobs}

    def why(place: int) -> str:
        return (
            "adds jobs, which it has to add to this run as well"
            if place in adds_jobs
            else without_success(place)
        )

    reasons = jobs_to_run_again(plan, last, _files_in(cwd), without_success=why, shown=_shown(loaded))
    kept: dict[str, list[tuple[int, int]]] = {}
    for place, one in known.items():
        if place not in reasons and (one.run_uuid, one.index) != (base.uuid, place):
            kept.setdefault(one.run_uuid, []).append((place, one.index))
    kept_from = {uuid: tuple(places) for uuid, places in kept.items()}
    return RerunSelection(store.find_run(base.uuid), tuple(sorted(reasons)), reasons, kept_from=kept_from)


def _that_add_jobs(store: Store, known: Mapping[int, FoundSuccess]) -> set[int]:
    """Jobs that had added others when they last succeeded: a new run has none of those yet."""
    added = {
        (uuid, event.fact.orchestrator)
        for uuid in {one.run_uuid for one in known.values()}
        for _, event in store.run_events(uuid)
        if isinstance(event.fact, JobsSpawned) and event.fact.jobs
    }
    return {place for place, one in known.items() if (one.run_uuid, one.index) in added}


def carry_raised_requests(base: Run, loaded: LoadedSpec) -> None:
    """A file as it is now begins with what was raised for jobs of `base` whose request it has not changed."""
    if base.raised:
        before = loaded_run(replace(base, raised=())).plan
        loaded.raise_requests(still_valid(base.raised, before, loaded.plan))


def _shown(loaded: LoadedSpec) -> Callable[[str], str]:
    return loaded.secrets.hide if loaded.secrets else str


def _last_successes(store: Store, state: RunState) -> dict[int, LastSuccess]:
    done = {
        job.results[-1].job_uuid: job for job in state.jobs if job.state is JobState.COMPLETED and job.results
    }
    uuids = dict.fromkeys([state.run.uuid, *(job.kept_from for job in done.values() if job.kept_from)])
    found: dict[int, LastSuccess] = {}
    for run_uuid in uuids:
        for record in records_of_run(store, run_uuid):
            job = done.get(record.job.uuid)
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
