"""Graph of a run for web pages: groups of jobs, some expanded into single jobs, with their positions.

Large graphs show groups: the jobs of one entry of the file within one stage. Readers expand a group."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from joblens.model.runs.plan import Plan
from joblens.plan.workflows.graph import Graph, kind_name
from joblens.views.graph.svg import lay_out
from joblens.views.graph.text import MOST_BOXES, Arrow, Grouping, arrows_between, boxes_of, grouping_keys
from joblens.views.text.style import clean, fit, visible_width

MOST_SINGLE = 500  # nodes that are drawn individually
MOST_OPENED = 40  # jobs of an expanded group
MOST_ARROWS = 4000
_MOST_STAGES = 300
_LONGEST_TITLE = 30
_CHARACTER = 7.0  # width of a letter
_AROUND = 44.0  # shape of the state and space left and right
_COUNT = 8  # letters of the number of jobs


class JobGroups(Struct, frozen=True, kw_only=True):
    """Groups stage by stage, and the group of each job."""

    names: tuple[str, ...]
    stages: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]
    stage_count: int


class GraphBox(Struct, frozen=True, kw_only=True):
    """One job, or the jobs of a group without their own boxes. `x`: left edge, `y`: middle."""

    group: int
    index: int | None  # None: a group
    title: str
    jobs: int
    stage: int
    x: float
    y: float
    width: float


class GraphEdge(Struct, frozen=True, kw_only=True):
    """From a dependency to its dependent. `points`: x and y of each, alternating."""

    source: int
    target: int
    jobs: int
    points: tuple[float, ...]


class RunGraph(Struct, frozen=True, kw_only=True):
    boxes: tuple[GraphBox, ...]
    edges: tuple[GraphEdge, ...]
    edges_hidden: int  # beyond the maximum
    width: float
    height: float
    stages: int


def job_groups(plan: Plan) -> JobGroups:
    """Returns the finest grouping with a readable number of groups."""
    stages = Graph(plan).stages()
    per_column = -(-len(stages) // _MOST_STAGES)  # a long chain has several stages in one column
    columns = [
        [index for stage in stages[first : first + per_column] for index in stage]
        for first in range(0, len(stages), max(1, per_column))
    ]
    keys: Sequence[int | str] = ()
    for grouping in (Grouping.ENTRY, Grouping.PATTERN):
        keys = grouping_keys(plan, grouping)
        if sum(len({keys[index] for index in column}) for column in columns) <= MOST_BOXES:
            break
    else:
        keys = [0] * len(plan.jobs)  # one group per stage
    members, stage_of, group_of = boxes_of(columns, keys)
    return JobGroups(
        names=tuple(kind_name(plan, each) for each in members),
        stages=tuple(stage_of),
        members=tuple(map(tuple, members)),
        group_of=tuple(group_of),
        stage_count=len(stages),
    )


def graph_of(plan: Plan, groups: JobGroups, opened: Mapping[int, Sequence[int]]) -> RunGraph:
    """Returns the graph. `opened`: group -> jobs with their own boxes, in order; the others share one."""
    boxes: list[tuple[int, int | None, int]] = []  # group, job, number of jobs
    box_of = [0] * len(plan.jobs)
    for group, members in enumerate(groups.members):
        single = set(opened.get(group, ()))
        for index in opened.get(group, ()):
            box_of[index] = len(boxes)
            boxes.append((group, index, 1))
        rest = [index for index in members if index not in single]
        for index in rest:
            box_of[index] = len(boxes)
        if rest:
            boxes.append((group, rest[0] if len(rest) == 1 else None, len(rest)))
    titles = [
        clean(groups.names[group] if index is None else plan.jobs[index].name) for group, index, _ in boxes
    ]
    widths = [
        (visible_width(fit(title, _LONGEST_TITLE)) + (_COUNT if jobs > 1 else 0)) * _CHARACTER + _AROUND
        for title, (_, _, jobs) in zip(titles, boxes, strict=True)
    ]
    stages = [groups.stages[group] for group, _, _ in boxes]
    arrows = _forward(arrows_between(plan, box_of), stages)
    drawn = sorted(arrows, key=lambda arrow: -arrow.jobs)[:MOST_ARROWS]
    layout = lay_out(stages, widths, [(arrow.source, arrow.target) for arrow in drawn])
    return RunGraph(
        boxes=tuple(
            GraphBox(
                group=group,
                index=index,
                title=title,
                jobs=jobs,
                stage=stage,
                x=round(place.x, 1),
                y=round(place.y, 1),
                width=round(place.width, 1),
            )
            for (group, index, jobs), title, stage, place in zip(
                boxes, titles, stages, layout.boxes, strict=True
            )
        ),
        edges=tuple(
            GraphEdge(
                source=arrow.source,
                target=arrow.target,
                jobs=arrow.jobs,
                points=tuple(round(number, 1) for point in route for number in point),
            )
            for arrow, route in zip(drawn, layout.routes, strict=True)
        ),
        edges_hidden=len(arrows) - len(drawn),
        width=round(layout.width, 1),
        height=round(layout.height, 1),
        stages=groups.stage_count,
    )


def _forward(arrows: Sequence[Arrow], stages: Sequence[int]) -> list[Arrow]:
    """Omits arrows within a column that several stages share."""
    return [arrow for arrow in arrows if stages[arrow.source] < stages[arrow.target]]
