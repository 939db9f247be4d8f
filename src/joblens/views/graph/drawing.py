"""A workflow's graph as boxes and arrows, before it becomes text or a picture.

A box is one job, or the jobs of a stage that are one entry of the file or differ only in numbers."""

import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobState
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.stages import stages_of
from joblens.views.runs.stages import action_text

# Beyond this many boxes a picture is not readable any more.
MOST_BOXES = 300
_NUMBERS = re.compile(r"\d+")


class Grouping(enum.IntEnum):
    """What a box stands for, from the finest on."""

    JOB = 0
    ENTRY = 1  # a sweep
    PATTERN = 2  # jobs written one by one and numbered in their names


class Box(Struct, frozen=True):
    """`title`: the job's name, or the entry's name as written when it stands for several."""

    title: str
    jobs: int
    stage: int
    states: dict[JobState, int]


class Arrow(Struct, frozen=True):
    """From what is needed to what needs it. `jobs`: how many of the first box are needed."""

    source: int
    target: int
    jobs: int


class DrawnAction(Struct, frozen=True):
    """`number`: of the action in the file, from 1. The stage may be one after the last job."""

    number: int
    stage: int
    text: str


class Drawing(Struct, frozen=True):
    name: str
    jobs: int
    stages: int
    boxes: tuple[Box, ...]  # stage by stage
    arrows: tuple[Arrow, ...]
    actions: tuple[DrawnAction, ...] = ()  # stage by stage


def fitting_drawing(
    plan: Plan,
    entries: Sequence[str],
    finest: Grouping,
    states: Mapping[int, JobState] | None = None,
) -> Drawing:
    """The finest grouping that still can be looked at."""
    for grouping in list(Grouping)[finest:-1]:
        drawing = drawing_of(plan, entries, grouping, states)
        if len(drawing.boxes) <= MOST_BOXES:
            return drawing
    return drawing_of(plan, entries, Grouping.PATTERN, states)


def drawing_of(
    plan: Plan,
    entries: Sequence[str],
    grouping: Grouping,
    states: Mapping[int, JobState] | None = None,
) -> Drawing:
    """`entries`: the names of the file's jobs as written. `states`: of a run's jobs, by place."""
    stages = Graph(plan).stages()
    keys = _keys(plan, grouping)
    box_of = [0] * len(plan.jobs)
    members: list[list[int]] = []
    stage_of: list[int] = []
    for stage, places in enumerate(stages):
        boxes: dict[int | str, int] = {}
        for place in places:
            box = boxes.setdefault(keys[place], len(members))
            if box == len(members):
                members.append([])
                stage_of.append(stage)
            members[box].append(place)
            box_of[place] = box
    return Drawing(
        plan.name,
        len(plan.jobs),
        len(stages),
        tuple(
            Box(
                _title(plan, entries, places, grouping),
                len(places),
                stage_of[box],
                dict(sorted(Counter(states[place] for place in places).items())) if states else {},
            )
            for box, places in enumerate(members)
        ),
        _arrows(plan, box_of),
        tuple(
            DrawnAction(index + 1, stage.number - 1, action_text(plan, plan.actions[index].spec))
            for stage in (stages_of(plan) if plan.actions else ())
            for index in stage.actions
        ),
    )


def _keys(plan: Plan, grouping: Grouping) -> Sequence[int | str]:
    match grouping:
        case Grouping.JOB:
            return range(len(plan.jobs))
        case Grouping.ENTRY:
            return [job.spec_job for job in plan.jobs]
    return [_NUMBERS.sub("*", job.name) for job in plan.jobs]


def _title(plan: Plan, entries: Sequence[str], places: list[int], grouping: Grouping) -> str:
    first = plan.jobs[places[0]]
    if len(places) == 1:
        return first.name
    if grouping is Grouping.ENTRY and first.spec_job < len(entries):
        return entries[first.spec_job]
    return _NUMBERS.sub("*", first.name)


def _arrows(plan: Plan, box_of: list[int]) -> tuple[Arrow, ...]:
    needed: dict[tuple[int, int], set[int]] = {}
    seen: set[tuple[int, int]] = set()
    for place, job in enumerate(plan.jobs):
        target = box_of[place]
        # jobs of a sweep often wait for the very same ones
        if (target, id(job.depends_on)) in seen:
            continue
        seen.add((target, id(job.depends_on)))
        for earlier in job.depends_on:
            needed.setdefault((box_of[earlier], target), set()).add(earlier)
    return tuple(Arrow(source, target, len(jobs)) for (source, target), jobs in sorted(needed.items()))


def drawing_form(drawing: Drawing) -> dict[str, object]:
    """For programs."""
    return {
        "name": drawing.name,
        "jobs": drawing.jobs,
        "stages": drawing.stages,
        "nodes": [
            {
                "name": box.title,
                "jobs": box.jobs,
                "stage": box.stage + 1,
                "states": {state.label: count for state, count in box.states.items()},
            }
            for box in drawing.boxes
        ],
        "edges": [{"from": arrow.source, "to": arrow.target, "jobs": arrow.jobs} for arrow in drawing.arrows],
        "actions": [
            {"action": one.number, "stage": one.stage + 1, "text": one.text} for one in drawing.actions
        ],
    }
