"""Workflow graph as text and Mermaid, and the boxes and arrows of every drawing.
A box is one job, or the jobs of a stage that come from one entry of the file or differ only in numbers.
"""

import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from msgspec import Struct

from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobState
from joblens.model.values.units import counted, listed
from joblens.plan.workflows.graph import Graph, stages_of
from joblens.views.runs.plan import action_text
from joblens.views.text.style import PLAIN, Palette, clean, fit, pad, visible_width

# Beyond this many boxes a picture is unreadable.
MOST_BOXES = 300
_NUMBERS = re.compile(r"\d+")


class Grouping(enum.IntEnum):
    """Meaning of a box, from finest to coarsest."""

    JOB = 0
    ENTRY = 1  # a sweep
    PATTERN = 2  # individual jobs with numbers in their names


class Box(Struct, frozen=True):
    """`title`: the job's name, or the entry's name as written if it represents several."""

    title: str
    jobs: int
    stage: int
    states: dict[JobState, int]


class Arrow(Struct, frozen=True):
    """From a dependency to its dependent. `jobs`: how many jobs of the first box are needed."""

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
    """Returns the finest grouping with a readable number of boxes."""
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
    """Builds the drawing. `entries`: names of the file's jobs as written. `states`: of a run's jobs, by
    index."""
    stages = Graph(plan).stages()
    members, stage_of, box_of = boxes_of(stages, grouping_keys(plan, grouping))
    return Drawing(
        plan.name,
        len(plan.jobs),
        len(stages),
        tuple(
            Box(
                _title(plan, entries, members_of_stage, grouping),
                len(members_of_stage),
                stage_of[box],
                dict(sorted(Counter(states[job_index] for job_index in members_of_stage).items()))
                if states
                else {},
            )
            for box, members_of_stage in enumerate(members)
        ),
        arrows_between(plan, box_of),
        tuple(
            DrawnAction(index + 1, stage.number - 1, action_text(plan, plan.actions[index].spec))
            for stage in (stages_of(plan) if plan.actions else ())
            for index in stage.actions
        ),
    )


def grouping_keys(plan: Plan, grouping: Grouping) -> Sequence[int | str]:
    """Returns the key of each job: jobs of a stage with the same key share a box."""
    match grouping:
        case Grouping.JOB:
            return range(len(plan.jobs))
        case Grouping.ENTRY:
            return [job.spec_job for job in plan.jobs]
    return [_NUMBERS.sub("*", job.name) for job in plan.jobs]


def boxes_of(
    stages: Sequence[Sequence[int]], keys: Sequence[int | str]
) -> tuple[list[list[int]], list[int], list[int]]:
    """Returns the jobs and the stage of each box, and the box of each job. `stages`: jobs of each; `keys`: of
    each job."""
    members: list[list[int]] = []
    stage_of: list[int] = []
    box_of = [0] * len(keys)
    for stage, jobs in enumerate(stages):
        boxes: dict[int | str, int] = {}
        for index in jobs:
            box = boxes.setdefault(keys[index], len(members))
            if box == len(members):
                members.append([])
                stage_of.append(stage)
            members[box].append(index)
            box_of[index] = box
    return members, stage_of, box_of


def _title(plan: Plan, entries: Sequence[str], members_of_stage: list[int], grouping: Grouping) -> str:
    first = plan.jobs[members_of_stage[0]]
    if len(members_of_stage) == 1:
        return first.name
    if grouping is Grouping.ENTRY and first.spec_job < len(entries):
        return entries[first.spec_job]
    return _NUMBERS.sub("*", first.name)


def arrows_between(plan: Plan, box_of: Sequence[int]) -> tuple[Arrow, ...]:
    """Returns the arrows between boxes, given the box of each job."""
    needed: dict[tuple[int, int], set[int]] = {}
    handled: set[tuple[int, int]] = set()
    for job_index, job in enumerate(plan.jobs):
        target = box_of[job_index]
        # jobs of a sweep often have the same dependencies
        if (target, id(job.depends_on)) in handled:
            continue
        handled.add((target, id(job.depends_on)))
        for earlier in job.depends_on:
            if box_of[earlier] != target:
                needed.setdefault((box_of[earlier], target), set()).add(earlier)
    return tuple(Arrow(source, target, len(jobs)) for (source, target), jobs in sorted(needed.items()))


def drawing_form(drawing: Drawing) -> dict[str, object]:
    """Returns the drawing as JSON for programs."""
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


_MOST_NEEDED = 4
_TIMES = "\N{MULTIPLICATION SIGN}"
_LONGEST_TITLE = 40
STATE_STYLES = {
    JobState.RUNNING: "cyan",
    JobState.PENDING: "cyan",
    JobState.COMPLETED: "green",
    JobState.FAILED: "red",
    JobState.PENDING_FAILED: "red",
    JobState.CANCELED: "magenta",
    JobState.TERMINATED: "yellow",
    JobState.DISABLED: "dim",
}
# Fill and edge, light enough for black text.
STATE_COLOURS = {
    JobState.UNINITIALIZED: ("#f1f3f5", "#868e96"),
    JobState.BLOCKED: ("#f1f3f5", "#868e96"),
    JobState.READY: ("#fff3bf", "#f08c00"),
    JobState.PENDING: ("#d0ebff", "#1971c2"),
    JobState.RUNNING: ("#a5d8ff", "#1971c2"),
    JobState.COMPLETED: ("#b2f2bb", "#2f9e44"),
    JobState.FAILED: ("#ffc9c9", "#e03131"),
    JobState.CANCELED: ("#eebefa", "#9c36b5"),
    JobState.TERMINATED: ("#ffd8a8", "#e8590c"),
    JobState.DISABLED: ("#ffffff", "#ced4da"),
    JobState.PENDING_FAILED: ("#ffc9c9", "#e03131"),
}
# A box of many jobs has the colour of the first state in this list that one of its jobs has.
LOUDEST = (
    JobState.FAILED,
    JobState.PENDING_FAILED,
    JobState.TERMINATED,
    JobState.RUNNING,
    JobState.PENDING,
    JobState.CANCELED,
    JobState.READY,
    JobState.BLOCKED,
    JobState.UNINITIALIZED,
    JobState.COMPLETED,
    JobState.DISABLED,
)


def state_shown(box: Box) -> JobState | None:
    return next((state for state in LOUDEST if box.states.get(state)), None)


def title_of(box: Box) -> str:
    return f"{clean(box.title)} {_TIMES}{box.jobs:,}" if box.jobs > 1 else clean(box.title)


def render_graph(drawing: Drawing, width: int, paint: Palette = PLAIN) -> list[str]:
    lines = [
        f"{clean(drawing.name)}: {counted(drawing.jobs, 'job')} in {counted(drawing.stages, 'stage')}",
        "",
    ]
    needs: dict[int, list[str]] = {}
    for arrow in drawing.arrows:
        source = drawing.boxes[arrow.source]
        part = f" ({arrow.jobs:,} of {source.jobs:,})" if arrow.jobs < source.jobs else ""
        needs.setdefault(arrow.target, []).append(clean(source.title) + part)
    titles = [fit(title_of(box), _LONGEST_TITLE) for box in drawing.boxes]
    title_width = max((visible_width(title) for title in titles), default=0)
    number_width = len(str(drawing.stages))
    stage = -1
    for job_index, box in enumerate(drawing.boxes):
        if box.stage != stage:
            lines += _actions(drawing, stage, number_width, width)
        number = str(box.stage + 1) if box.stage != stage else ""
        stage = box.stage
        state = state_shown(box)
        title = pad(titles[job_index], title_width)
        shown = paint.paint(title, STATE_STYLES[state]) if state in STATE_STYLES else title
        rest = "  ".join(part for part in (_states(box), _needs(needs.get(job_index, []))) if part)
        rest_width = max(width - number_width - title_width - 4, 20)
        lines.append(f"{number:>{number_width}}  {shown}  {fit(rest, rest_width)}".rstrip())
    last = max([stage, *(one.stage for one in drawing.actions)])
    for each in range(stage, last + 1):
        lines += _actions(drawing, each, number_width, width, is_alone=each > stage)
    return lines


def _actions(
    drawing: Drawing, stage: int, number_width: int, width: int, *, is_alone: bool = False
) -> list[str]:
    """Lists actions below the jobs of their stage; actions after the last job have a stage of their own."""
    texts = [f"action {one.number}: {one.text}" for one in drawing.actions if one.stage == stage]
    numbers = [str(stage + 1) if is_alone and not job_index else "" for job_index in range(len(texts))]
    rest_width = max(width - number_width - 2, 20)
    return [
        f"{number:>{number_width}}  {fit(text, rest_width)}"
        for number, text in zip(numbers, texts, strict=True)
    ]


def _states(box: Box) -> str:
    if box.jobs == 1:
        return next((state.label for state in box.states), "")
    return ", ".join(f"{count:,} {state.label}" for state, count in box.states.items())


def _needs(names: list[str]) -> str:
    return f"← {listed(names, _MOST_NEEDED)}" if names else ""


def render_mermaid(drawing: Drawing) -> list[str]:
    lines = ["flowchart LR"]
    used: dict[JobState, None] = {}
    for job_index, box in enumerate(drawing.boxes):
        state = state_shown(box)
        suffix = f":::{state.label}" if state is not None else ""
        if state is not None:
            used[state] = None
        lines.append(f'  n{job_index}["{_mermaid_text(title_of(box))}"]{suffix}')
    lines += [f"  n{arrow.source} --> n{arrow.target}" for arrow in drawing.arrows]
    for state in used:
        fill, edge = STATE_COLOURS[state]
        lines.append(f"  classDef {state.label} fill:{fill},stroke:{edge},color:#000")
    return lines


def _mermaid_text(text: str) -> str:
    return escape(text, quote=False).replace('"', "&quot;").replace("#", "&num;")
