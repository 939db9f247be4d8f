"""Graph of jobs: order, cycles, stages, and jobs bound to labelled workers."""

import re
import shlex
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from joblens.model.errors import PlanError
from joblens.model.runs.plan import Plan, PlannedAction
from joblens.model.runs.workflow_spec import NO_NODES, ActionSpec, ActionType, TriggerType

_MOST_CYCLES = 10
_LONGEST_CYCLE = 8  # names that are listed


class Graph:
    """`dependents[i]`: indexes of the jobs that wait for job i, ascending."""

    def __init__(self, plan: Plan) -> None:
        self.depends_on: list[tuple[int, ...]] = [job.depends_on for job in plan.jobs]
        self.dependents: list[tuple[int, ...]] = dependents_of(self.depends_on)
        self._order: list[int] | None = None

    def order(self) -> list[int]:
        """Returns jobs in topological order, stage by stage, within a stage in the order of the file."""
        if self._order is None:
            self._order, _ = _levels(self.depends_on, self.dependents)
        return self._order

    def stages(self) -> list[list[int]]:
        """Returns jobs that could run in parallel with enough capacity: stage n depends on stage n-1."""
        order, starts = _levels(self.depends_on, self.dependents)
        ends = [*starts[1:], len(order)]
        return [order[start:end] for start, end in zip(starts, ends, strict=True) if end > start]

    def needed_by(self, indexes: Sequence[int]) -> set[int]:
        """Returns the jobs and all their direct and indirect dependencies."""
        return _reached(indexes, self.depends_on)

    def behind(self, indexes: Sequence[int]) -> set[int]:
        """Returns the jobs and all their direct and indirect dependents."""
        return _reached(indexes, self.dependents)


def dependents_of(depends_on: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    gathered: list[list[int] | None] = [None] * len(depends_on)
    for index, earlier in enumerate(depends_on):
        for one in earlier:
            waiting = gathered[one]
            if waiting is None:
                gathered[one] = [index]
            else:
                waiting.append(index)
    # Jobs of a stage often have the same dependents: they share one tuple.
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    result: list[tuple[int, ...]] = []
    for waiting in gathered:
        each = tuple(waiting) if waiting else ()
        result.append(shared.setdefault(each, each))
    return result


def depths_behind(added: Sequence[tuple[int, ...]], first: int, depths: Sequence[int]) -> list[int]:
    """Returns the stage of each added job, after all its dependencies. `first`: index of the first one;
    `depths`: stages of earlier jobs."""
    found = [1 + max((depths[one] for one in earlier if one < first), default=-1) for earlier in added]
    inside = [tuple(one - first for one in earlier if one >= first) for earlier in added]
    order, _ = _levels(inside, dependents_of(inside))
    for index in order:
        found[index] = max([found[index], *(1 + found[one] for one in inside[index])])
    return found


def find_cycles(depends_on: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Returns disjoint cycles: every job depends on the next, the last on the first."""
    dependents = dependents_of(depends_on)
    order, _ = _levels(depends_on, dependents)
    if len(order) == len(depends_on):
        return []
    remaining = set(range(len(depends_on))) - set(order)
    cycles: list[list[int]] = []
    while remaining and len(cycles) < _MOST_CYCLES:
        cycle = _ring(remaining, depends_on)
        if not cycle:
            break
        cycles.append(cycle)
        remaining -= set(cycle)
    return cycles


def describe_cycle(names: Sequence[str]) -> str:
    """Returns "jobs wait for each other: 'a' needs 'b' needs 'a'"; of a long cycle, both ends."""
    quoted = [f"'{name}'" for name in names]
    shown = quoted if len(quoted) <= _LONGEST_CYCLE else [*quoted[:4], "…", *quoted[-3:]]
    return f"jobs wait for each other: {' needs '.join([*shown, quoted[0]])}"


def _ring(remaining: set[int], depends_on: Sequence[tuple[int, ...]]) -> list[int]:
    """Walks from job to job until one repeats; removes dead ends from `remaining`."""
    while remaining:
        path, positions = [min(remaining)], {min(remaining): 0}
        while True:
            onward = next((one for one in depends_on[path[-1]] if one in remaining), None)
            if onward is None:
                remaining.discard(path[-1])
                break
            if onward in positions:
                ring = path[positions[onward] :]
                first = ring.index(min(ring))
                return ring[first:] + ring[:first]
            positions[onward] = len(path)
            path.append(onward)
    return []


def _levels(
    depends_on: Sequence[tuple[int, ...]], dependents: Sequence[tuple[int, ...]]
) -> tuple[list[int], list[int]]:
    """Returns jobs in topological order, and the start of each stage. Excludes jobs in or after a cycle."""
    waits_for = [len(earlier) for earlier in depends_on]
    order = [index for index, count in enumerate(waits_for) if count == 0]
    starts, position = [0], 0
    while position < len(order):
        stage_end = len(order)
        ready = []
        for index in order[position:stage_end]:
            for later in dependents[index]:
                waits_for[later] -= 1
                if waits_for[later] == 0:
                    ready.append(later)
        position = stage_end
        if ready:
            ready.sort()
            starts.append(position)
            order += ready
    return order, starts


def _reached(indexes: Sequence[int], onward: Sequence[tuple[int, ...]]) -> set[int]:
    found, waiting = set(indexes), list(indexes)
    while waiting:
        for one in onward[waiting.pop()]:
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


_NUMBERS = re.compile(r"\d+")


class Stage(Struct, frozen=True, kw_only=True):
    """`needs`: jobs of earlier stages that its jobs depend on. The last stage may have no jobs, only actions
    that fire at the end."""

    number: int  # from 1
    jobs: tuple[int, ...]
    needs: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()


def stages_of(plan: Plan, indexes: Collection[int] | None = None) -> list[Stage]:
    """Returns stages. `indexes`: jobs to run; None: all. Other jobs count as done."""
    depths = _depths(plan, indexes)
    jobs: list[list[int]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for index in sorted(depths):
        jobs[depths[index]].append(index)
    fired: dict[int, list[int]] = {}
    for number, action in enumerate(plan.actions):
        fired.setdefault(_stage_of_action(action, depths, len(jobs)), []).append(number)
    count = max(len(jobs), *(depth + 1 for depth in fired)) if fired else len(jobs)
    return [
        Stage(
            number=depth + 1,
            jobs=tuple(jobs[depth]) if depth < len(jobs) else (),
            needs=_needs(plan, jobs[depth], depths) if depth < len(jobs) else (),
            actions=tuple(fired.get(depth, ())),
        )
        for depth in range(count)
    ]


def schedules_nodes(spec: ActionSpec) -> bool:
    """Returns whether the action requests allocations: not at the end of the workflow, and not on workers."""
    return spec.action_type is ActionType.SCHEDULE_NODES and spec.trigger_type not in NO_NODES


def jobs_by_kind(plan: Plan, indexes: Iterable[int]) -> list[tuple[int, ...]]:
    """Groups jobs by their entry in the workflow file, in the order of the first job of each."""
    kinds: dict[int, list[int]] = {}
    for index in indexes:
        kinds.setdefault(plan.jobs[index].spec_job, []).append(index)
    return [tuple(some) for some in kinds.values()]


def kind_name(plan: Plan, jobs: Sequence[int]) -> str:
    """Returns the name of a group: with stars for numbers, or the first and the last name."""
    first, last = plan.jobs[jobs[0]].name, plan.jobs[jobs[-1]].name
    if len(jobs) == 1:
        return first
    patterns = {_NUMBERS.sub("*", plan.jobs[index].name) for index in jobs}
    return patterns.pop() if len(patterns) == 1 else f"{first} … {last}"


def _depths(plan: Plan, indexes: Collection[int] | None) -> dict[int, int]:
    chosen = None if indexes is None else frozenset(indexes)
    depths: dict[int, int] = {}
    for index in Graph(plan).order():
        if chosen is None or index in chosen:
            depths[index] = 1 + max((depths.get(one, -1) for one in plan.jobs[index].depends_on), default=-1)
    return depths


def _needs(plan: Plan, jobs: Iterable[int], depths: dict[int, int]) -> tuple[int, ...]:
    return tuple(sorted({one for index in jobs for one in plan.jobs[index].depends_on if one in depths}))


def _stage_of_action(action: PlannedAction, depths: dict[int, int], count: int) -> int:
    """Returns the stage in which an action fires: when the last of its jobs is ready, or has ended."""
    match action.spec.trigger_type:
        case TriggerType.ON_WORKFLOW_START:
            return 0
        case TriggerType.ON_WORKFLOW_COMPLETE:
            return count
    latest = max((depths.get(index, -1) for index in action.jobs), default=-1)
    is_at_end = action.spec.trigger_type is TriggerType.ON_JOBS_COMPLETE
    return max(0, latest + 1 if is_at_end else latest)


_SHOWN = 5


def jobs_elsewhere(
    plan: Plan, served: Collection[str], indexes: Iterable[int] | None = None
) -> frozenset[int]:
    """Returns jobs whose label the workers of the run do not serve. `indexes`: jobs to run; None: all."""
    chosen = range(len(plan.jobs)) if indexes is None else indexes
    return frozenset(
        index for index in chosen if plan.jobs[index].label and plan.jobs[index].label not in served
    )


def refuse_elsewhere(plan: Plan, served: Collection[str], indexes: Iterable[int]) -> None:
    """Raises PlanError if jobs need a label and only this process runs jobs."""
    by_label: dict[str, list[str]] = {}
    for index in sorted(jobs_elsewhere(plan, served, indexes)):
        by_label.setdefault(plan.jobs[index].label, []).append(plan.jobs[index].name)
    if not by_label:
        return
    lines = [f"{_named(names)} the label '{label}'" for label, names in by_label.items()]
    options = " ".join(f"--label {shlex.quote(label)}" for label in by_label)
    first = shlex.quote(next(iter(by_label)))
    raise PlanError(
        "; ".join(lines) + f"; no worker of this run serves {'it' if len(by_label) == 1 else 'them'}",
        hint=f"{options} runs them here; --engine celery leaves them to joblens worker --label {first}",
    )


def _named(names: list[str]) -> str:
    if len(names) == 1:
        return f"job '{names[0]}' has"
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return f"{len(names)} jobs ({shown}{', …' if len(names) > _SHOWN else ''}) have"
