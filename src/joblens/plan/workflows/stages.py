"""Stages of a plan: jobs that become ready together, and the actions that fire with them."""

import re
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from joblens.model.runs.plan import Plan, PlannedAction
from joblens.model.runs.workflow_spec import NO_NODES, ActionSpec, ActionType, TriggerType
from joblens.plan.workflows.graph import Graph

_NUMBERS = re.compile(r"\d+")


class Stage(Struct, frozen=True, kw_only=True):
    """`needs`: jobs of earlier stages that the jobs of this one wait for. The last stage of a plan may have
    no jobs: only actions that fire when everything has ended."""

    number: int  # from 1
    jobs: tuple[int, ...]
    needs: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()


def stages_of(plan: Plan, places: Collection[int] | None = None) -> list[Stage]:
    """`places`: jobs that are to run; None: all. The others count as done."""
    depths = _depths(plan, places)
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
    """Whether the action asks for allocations. When the workflow is complete nodes have nothing to do, and
    workers ask for none."""
    return spec.action_type is ActionType.SCHEDULE_NODES and spec.trigger_type not in NO_NODES


def jobs_by_kind(plan: Plan, places: Iterable[int]) -> list[tuple[int, ...]]:
    """Groups jobs by the entry of the workflow file they came from, in the order of the first of each."""
    kinds: dict[int, list[int]] = {}
    for index in places:
        kinds.setdefault(plan.jobs[index].spec_job, []).append(index)
    return [tuple(some) for some in kinds.values()]


def kind_name(plan: Plan, jobs: Sequence[int]) -> str:
    """Name of one kind: of a sweep with stars for numbers, or the first and the last."""
    first, last = plan.jobs[jobs[0]].name, plan.jobs[jobs[-1]].name
    if len(jobs) == 1:
        return first
    patterns = {_NUMBERS.sub("*", plan.jobs[index].name) for index in jobs}
    return patterns.pop() if len(patterns) == 1 else f"{first} … {last}"


def _depths(plan: Plan, places: Collection[int] | None) -> dict[int, int]:
    chosen = None if places is None else frozenset(places)
    depths: dict[int, int] = {}
    for index in Graph(plan).order():
        if chosen is None or index in chosen:
            depths[index] = 1 + max((depths.get(one, -1) for one in plan.jobs[index].depends_on), default=-1)
    return depths


def _needs(plan: Plan, jobs: Iterable[int], depths: dict[int, int]) -> tuple[int, ...]:
    return tuple(sorted({one for index in jobs for one in plan.jobs[index].depends_on if one in depths}))


def _stage_of_action(action: PlannedAction, depths: dict[int, int], count: int) -> int:
    """An action on jobs fires when the last of them is ready, or has ended."""
    match action.spec.trigger_type:
        case TriggerType.ON_WORKFLOW_START:
            return 0
        case TriggerType.ON_WORKFLOW_COMPLETE:
            return count
    latest = max((depths.get(index, -1) for index in action.jobs), default=-1)
    is_at_end = action.spec.trigger_type is TriggerType.ON_JOBS_COMPLETE
    return max(0, latest + 1 if is_at_end else latest)
