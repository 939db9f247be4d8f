import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.charts.gantt import (
    AttemptFacts,
    PlotJob,
    Step,
    StepCurve,
    added_up,
    averaged,
    gantt_of,
    highest,
    levels,
    rates,
    use_of_run,
    without_moments,
)
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.run import JobResult, RunStarted
from joblens.model.values.units import GIB
from tests.unit.analysis.charts.test_gantt import OWNER, SECOND, T0, event

steps = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 500), st.integers(0, 9)), min_size=1, max_size=80
)


def area(curve: StepCurve) -> float:
    widths = zip(curve.at_us, curve.at_us[1:], strict=False)
    return sum((after - before) * value for (before, after), value in zip(widths, curve.values, strict=False))


@given(steps)
def test_steps_add_up_at_every_instant_and_end_at_nothing(rows: list[tuple[int, int, int]]) -> None:
    made = [Step(begin, begin + width, float(value)) for begin, width, value in rows]
    curve = added_up(made)
    assert area(curve) == pytest.approx(sum((step.until_us - step.from_us) * step.value for step in made))
    for at_us, value in zip(curve.at_us, curve.values, strict=True):
        assert value == sum(step.value for step in made if step.from_us <= at_us < step.until_us)


@given(steps)
def test_averaging_keeps_the_area_and_the_highest_is_never_lower(rows: list[tuple[int, int, int]]) -> None:
    curve = added_up(Step(begin, begin + width, float(value)) for begin, width, value in rows)
    assert area(averaged(curve, 7)) == pytest.approx(area(curve))
    top = highest(curve, 7)
    assert max(top.values, default=0) == max(curve.values, default=0)
    assert len(top.at_us) <= 8


def test_a_rate_holds_since_the_point_before_and_a_level_until_the_next() -> None:
    assert rates([0, 10, 11, 20], [None, 2.0, None, 4.0]) == [Step(0, 10, 2.0), Step(10, 20, 4.0)]
    assert levels([0, 10], [5.0, 7.0], 15) == [Step(0, 10, 5.0), Step(10, 15, 7.0)]
    assert rates([], []) == levels([], [], 0) == []


def test_a_moment_between_two_jobs_is_not_drawn_and_a_longer_gap_is() -> None:
    curve = StepCurve([0, 100, 105, 200, 300], [4.0, 2.0, 4.0, 1.0, 4.0])
    assert list(without_moments(curve, 10).values) == [4.0, 4.0, 4.0, 1.0, 4.0]


def test_reserved_is_what_was_asked_for_and_used_what_was_measured() -> None:
    asked = Requirements(cpus=4.0, memory_bytes=8 * GIB)
    jobs = [PlotJob("a", (), asked), PlotJob("b")]
    results = [
        JobResult(0, 1, 1, "a", Status.SUCCESS, 0, "", T0, 10.0, 20 * SECOND, GIB),
        JobResult(1, 1, 2, "b", Status.SUCCESS, 0, "", T0 + 2 * SECOND, 2.0, None, None),
    ]
    events = [event(0, RunStarted(OWNER, 16.0, 64 * GIB))]
    gantt = gantt_of(jobs, results, events, T0)
    assert gantt is not None
    use = use_of_run(gantt, {}, events)
    assert list(use.cpus_offered.values) == [16.0]
    assert list(use.cpus_reserved.values) == [4.0, 5.0, 4.0, 0.0]
    assert list(use.cpus_used.values) == [2.0, 0.0]
    assert max(use.memory_reserved.values) == 8 * GIB + 1024**2
    assert max(use.memory_used.values) == GIB
    assert list(use.jobs_running.values) == [1.0, 2.0, 1.0, 0.0]
    assert list(use.jobs_waiting.values) == [1.0, 0.0]


def test_an_attempt_reserves_what_it_had_itself_and_its_pause_is_no_waiting() -> None:
    jobs = [PlotJob("a", (), Requirements(memory_bytes=GIB))]
    results = [
        JobResult(0, 1, 1, "first", Status.FAILED, 137, "out-of-memory", T0, 5.0),
        JobResult(0, 2, 2, "second", Status.SUCCESS, 0, "exited", T0 + 65 * SECOND, 5.0),
    ]
    facts = AttemptFacts(
        asked={"first": Requirements(memory_bytes=GIB), "second": Requirements(memory_bytes=2 * GIB)},
        not_before_us={(0, 2): T0 + 65 * SECOND},
    )
    events = [event(0, RunStarted(OWNER, 2.0, 8 * GIB))]
    gantt = gantt_of(jobs, results, events, T0 + 100 * SECOND, facts)
    assert gantt is not None
    use = use_of_run(gantt, {}, events)
    assert list(use.memory_reserved.values) == [GIB, 0.0, 2 * GIB, 0.0]
    assert max(use.jobs_waiting.values, default=0.0) == 0.0
