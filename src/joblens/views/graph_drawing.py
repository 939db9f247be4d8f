"""A workflow's graph as boxes and arrows, before it becomes text or a picture.

Sweeps are drawn as one box: jobs of one entry of the file that stand in the same stage."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from joblens.model.plan import Plan
from joblens.model.run import JobState
from joblens.plan.graph import Graph

# Beyond this many boxes a picture is not readable any more.
MOST_BOXES = 300


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


class Drawing(Struct, frozen=True):
    name: str
    jobs: int
    stages: int
    boxes: tuple[Box, ...]  # stage by stage
    arrows: tuple[Arrow, ...]


def drawing_of(
    plan: Plan,
    entries: Sequence[str],
    *,
    one_box_a_job: bool,
    states: Mapping[int, JobState] | None = None,
) -> Drawing:
    """`entries`: the names of the file's jobs as written. `states`: of a run's jobs, by place."""
    stages = Graph(plan).stages()
    box_of = [0] * len(plan.jobs)
    members: list[list[int]] = []
    stage_of: list[int] = []
    for stage, places in enumerate(stages):
        boxes: dict[int, int] = {}
        for place in places:
            key = place if one_box_a_job else plan.jobs[place].spec_job
            box = boxes.setdefault(key, len(members))
            if box == len(members):
                members.append([])
                stage_of.append(stage)
            members[box].append(place)
            box_of[place] = box
    return Drawing(
        plan.name,
        len(plan.jobs),
        len(stages),
        tuple(_box(plan, entries, places, stage_of[box], states) for box, places in enumerate(members)),
        _arrows(plan, box_of),
    )


def _box(
    plan: Plan, entries: Sequence[str], places: list[int], stage: int, states: Mapping[int, JobState] | None
) -> Box:
    first = plan.jobs[places[0]]
    is_one = len(places) == 1
    title = first.name if is_one or first.spec_job >= len(entries) else entries[first.spec_job]
    counted = Counter(states[place] for place in places if place in states) if states else {}
    return Box(title, len(places), stage, dict(sorted(counted.items())))


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
    }
