"""Boxes do not lie on each other, and arrows run from box to box."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.model.runs.plan import Plan, PlannedJob
from joblens.views.graph.svg import BOX_HEIGHT, lay_out, render_svg
from joblens.views.graph.text import (
    MOST_BOXES,
    Grouping,
    drawing_of,
    fitting_drawing,
    render_graph,
    render_mermaid,
)


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[int], list[float], list[tuple[int, int]]]:
    stages = sorted(draw(st.lists(st.integers(0, 3), min_size=1, max_size=12)))
    widths = [draw(st.floats(20, 200)) for _ in stages]
    pairs = [(a, b) for a in range(len(stages)) for b in range(len(stages)) if stages[a] < stages[b]]
    arrows = sorted(draw(st.sets(st.sampled_from(pairs), max_size=10))) if pairs else []
    return stages, widths, arrows


@given(drawings())
def test_boxes_keep_apart_and_stay_inside(
    drawing: tuple[list[int], list[float], list[tuple[int, int]]],
) -> None:
    stages, widths, arrows = drawing
    layout = lay_out(stages, widths, arrows)
    for place, box in enumerate(layout.boxes):
        assert box.x >= 0
        assert box.y - BOX_HEIGHT / 2 >= 0
        assert box.x + box.width <= layout.width
        assert box.y + BOX_HEIGHT / 2 <= layout.height
        for other in range(place):
            if stages[other] == stages[place]:
                assert abs(layout.boxes[other].y - box.y) >= BOX_HEIGHT
    for (source, target), route in zip(arrows, layout.routes, strict=True):
        assert route[0] == (layout.boxes[source].x + layout.boxes[source].width, layout.boxes[source].y)
        assert route[-1] == (layout.boxes[target].x, layout.boxes[target].y)


def test_names_cannot_break_out_of_a_picture_or_a_line() -> None:
    nasty = '</text><script>alert(1)</script>"]\x1b[2J'
    drawing = drawing_of(Plan(name=nasty, jobs=(PlannedJob(name=nasty, command="x"),)), [], Grouping.JOB)
    assert "<script" not in render_svg(drawing)
    assert all("\x1b" not in line for line in [*render_graph(drawing, 80), *render_mermaid(drawing)])
    assert '"]' not in render_mermaid(drawing)[1][6:-2]


def test_a_workflow_of_one_job_is_drawn() -> None:
    plan = Plan(name="w", jobs=(PlannedJob(name="a", command="x"),))
    assert render_graph(drawing_of(plan, ["a"], Grouping.ENTRY), 80) == [
        "w: 1 job in 1 stage",
        "",
        "1  a",
    ]


def test_many_jobs_written_one_by_one_are_drawn_by_the_pattern_of_their_names() -> None:
    many = MOST_BOXES + 1
    jobs = (
        PlannedJob(name="first", command="x"),
        *(PlannedJob(name=f"j_{n}", command="x", depends_on=(0,), spec_job=n + 1) for n in range(many)),
    )
    drawing = fitting_drawing(Plan(name="w", jobs=jobs), [job.name for job in jobs], Grouping.ENTRY)
    assert [(box.title, box.jobs) for box in drawing.boxes] == [("first", 1), ("j_*", many)]
    every = drawing_of(Plan(name="w", jobs=jobs), [], Grouping.JOB)
    assert len(every.boxes) == many + 1
