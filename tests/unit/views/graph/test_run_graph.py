"""Graphs of runs for pages: groups that are readable, and every job in exactly one box."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.model.runs.plan import Plan, PlannedJob
from joblens.views.graph.run_graph import JobGroups, RunGraph, graph_of, job_groups
from joblens.views.graph.text import MOST_BOXES


def plan_of(*jobs: PlannedJob) -> Plan:
    return Plan(name="p", jobs=jobs)


def job(name: str, *depends_on: int, entry: int = 0) -> PlannedJob:
    return PlannedJob(name=name, command="true", depends_on=depends_on, spec_job=entry)


def sweep(count: int) -> Plan:
    jobs = [job("first"), *(job(f"part_{number}", 0, entry=1) for number in range(count))]
    return plan_of(*jobs, job("last", *range(1, count + 1), entry=2))


def test_jobs_of_an_entry_and_a_stage_are_one_group() -> None:
    groups = job_groups(sweep(1000))
    assert (groups.names, groups.stages) == (("first", "part_*", "last"), (0, 1, 2))
    assert groups.group_of[500] == 1


def test_many_entries_are_grouped_by_their_names_and_else_by_stage() -> None:
    numbered = plan_of(*(job(f"job_{number}", entry=number) for number in range(MOST_BOXES + 1)))
    assert job_groups(numbered).names == ("job_*",)
    letters = plan_of(*(job("x" * number, entry=number) for number in range(1, MOST_BOXES + 2)))
    assert len(job_groups(letters).names) == 1


def test_a_chain_of_many_jobs_stays_readable() -> None:
    chain = plan_of(job("a"), *(job(f"n{number}", number - 1, entry=number) for number in range(1, 3000)))
    groups = job_groups(chain)
    graph = graph_of(chain, groups, {})
    assert len(graph.boxes) <= MOST_BOXES
    assert graph.stages == 3000


def test_an_opened_group_has_boxes_for_its_jobs_and_one_for_the_rest() -> None:
    plan = sweep(10)
    groups = job_groups(plan)
    graph = graph_of(plan, groups, {1: (3, 4)})
    assert [(box.title, box.jobs, box.index) for box in graph.boxes] == [
        ("first", 1, 0),
        ("part_2", 1, 3),
        ("part_3", 1, 4),
        ("part_*", 8, None),
        ("last", 1, 11),
    ]
    assert {(edge.source, edge.target) for edge in graph.edges} == {
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 4),
        (2, 4),
        (3, 4),
    }


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 30))
    jobs = []
    for index in range(count):
        needed = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        jobs.append(job(f"j{index}", *sorted(needed), entry=draw(st.integers(0, 3))))
    return plan_of(*jobs)


def boxes_with(groups: JobGroups, graph: RunGraph) -> int:
    single = {box.index for box in graph.boxes if box.index is not None}
    grouped = {box.group for box in graph.boxes if box.index is None}
    return sum(index in single or group in grouped for index, group in enumerate(groups.group_of))


@given(plans(), st.sets(st.integers(0, 5)))
def test_every_job_is_in_one_box_and_arrows_lead_forward(plan: Plan, opened: set[int]) -> None:
    groups = job_groups(plan)
    graph = graph_of(
        plan, groups, {each: groups.members[each][:2] for each in opened if each < len(groups.members)}
    )
    assert sum(box.jobs for box in graph.boxes) == len(plan.jobs)
    assert boxes_with(groups, graph) == len(plan.jobs)
    assert all(graph.boxes[edge.source].stage < graph.boxes[edge.target].stage for edge in graph.edges)
    assert all(len(edge.points) >= 4 for edge in graph.edges)
