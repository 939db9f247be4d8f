"""Jobs that were added to a run, in a later run that repeats only a part of it.

Jobs whose orchestrator keeps its success come along: those that succeeded keep that, the others run. Jobs of
an orchestrator that runs again are left out: it adds its jobs again."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from joblens.app.runs.state import RunState
from joblens.model.runs.plan import Plan, growing
from joblens.model.runs.run import JobsSpawned, JobState, RaisedRequest, Run
from joblens.plan.workflows.spawning import PlanExtender

_CANNOT_KEEP = "jobs that it added cannot be kept"


class Carried(Struct, frozen=True):
    """`plan`: with the jobs that come along. `reasons`: by index in it, why each runs again."""

    plan: Plan
    spawned: tuple[JobsSpawned, ...]
    reasons: dict[int, str]
    kept_from: dict[str, tuple[tuple[int, int], ...]]
    raised: tuple[RaisedRequest, ...]  # of jobs that come along, by index in the plan


def carry(
    state: RunState, plan: Plan, decide: Callable[[Plan, Mapping[int, str]], dict[int, str]]
) -> Carried:
    """`state`: of the base; `plan`: of the new run's file. `decide` returns why jobs of a plan run again; it
    gets those that must, by index."""
    batches, must = list(state.run.spawned), dict[str, str]()
    while True:
        made = _Rebased(state, plan, batches)
        must |= dict.fromkeys(made.lost, _CANNOT_KEEP)
        known = {index: must[job.name] for index, job in enumerate(made.plan.jobs) if job.name in must}
        reasons = decide(made.plan, known)
        left = [old for old, new in made.kept if new.orchestrator not in reasons]
        if len(left) == len(batches):
            break
        batches = left
    spawned = tuple(new for _, new in made.kept)
    return Carried(made.plan, spawned, reasons, _kept_from(state, made, reasons), _raised(state.run, made))


def _raised(base: Run, made: "_Rebased") -> tuple[RaisedRequest, ...]:
    here = {there: index for index, there in made.places.items()}
    return tuple(replace(one, index=here[one.index]) for one in base.raised if one.index in here)


class _Rebased:
    """Batches of a run on another plan: indexes are those of there."""

    def __init__(self, state: RunState, plan: Plan, batches: Iterable[JobsSpawned]) -> None:
        self.plan = growing(plan) if batches else plan
        self.kept: list[tuple[JobsSpawned, JobsSpawned]] = []
        self.lost: list[str] = []  # orchestrators
        self.places: dict[int, int] = {}  # there, by index here
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
            self.places |= {new.first + place: batch.first + place for place in range(len(batch.jobs))}


def _kept_from(
    state: RunState, made: _Rebased, reasons: Mapping[int, str]
) -> dict[str, tuple[tuple[int, int], ...]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for here, there in made.places.items():
        standing = state.jobs[there]
        if here in reasons or standing.state is not JobState.COMPLETED:
            continue
        run, place = state.run.uuid, there
        if standing.kept_from is not None:
            run, place = standing.kept_from, _place_in(state.run, standing.kept_from, there)
        found.setdefault(run, []).append((here, place))
    return {run: tuple(places) for run, places in found.items()}


def _place_in(base: Run, uuid: str, index: int) -> int:
    """The index that a job of the base had in the run whose success it keeps."""
    return dict(base.kept_from.get(uuid, ())).get(index, index)
