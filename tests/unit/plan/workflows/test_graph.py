"""Stages and cycles."""

import graphlib

from hypothesis import given
from hypothesis import strategies as st

from joblens.model.runs.plan import Plan, PlannedJob
from joblens.plan.workflows.graph import Graph, find_cycles


def plan_of(*depends_on: tuple[int, ...]) -> Plan:
    return Plan(
        name="p",
        jobs=tuple(
            PlannedJob(name=f"j{place}", command="true", depends_on=each)
            for place, each in enumerate(depends_on)
        ),
    )


@st.composite
def acyclic(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Edges along a random order, so that jobs also depend on later ones of the file."""
    order = draw(st.permutations(range(draw(st.integers(1, 12)))))
    edges: list[tuple[int, ...]] = [()] * len(order)
    for at, place in enumerate(order):
        earlier = draw(st.sets(st.sampled_from(order[:at]), max_size=3)) if at else set()
        edges[place] = tuple(sorted(earlier))
    return edges


DIAMOND = plan_of((), (0,), (0,), (1, 2))


def test_a_diamond_has_three_stages() -> None:
    assert Graph(DIAMOND).stages() == [[0], [1, 2], [3]]
    assert Graph(DIAMOND).dependents == [(1, 2), (3,), (3,), ()]


def test_what_is_needed_and_what_is_behind_are_followed_to_the_end() -> None:
    assert Graph(DIAMOND).needed_by([1]) == {0, 1}
    assert Graph(DIAMOND).behind([1]) == {1, 3}


@given(acyclic())
def test_stages_hold_every_job_once_and_after_all_it_needs(edges: list[tuple[int, ...]]) -> None:
    stages = Graph(plan_of(*edges)).stages()
    stage_of = {place: stage for stage, indexes in enumerate(stages) for place in indexes}
    assert sorted(stage_of) == list(range(len(edges)))
    for place, earlier in enumerate(edges):
        assert stage_of[place] == max((stage_of[one] + 1 for one in earlier), default=0)
    assert find_cycles(edges) == []


@given(st.lists(st.sets(st.integers(0, 7)), min_size=8, max_size=8))
def test_a_ring_is_found_exactly_when_there_is_one(graph: list[set[int]]) -> None:
    edges = [tuple(sorted(each)) for each in graph]
    rings = find_cycles(edges)
    try:
        graphlib.TopologicalSorter(dict(enumerate(edges))).prepare()
    except graphlib.CycleError:
        assert rings
    else:
        assert rings == []
    for ring in rings:
        assert all(other in edges[one] for one, other in zip(ring, [*ring[1:], ring[0]], strict=True))
