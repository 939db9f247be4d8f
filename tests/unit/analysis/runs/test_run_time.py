import pytest

from joblens.analysis.runs.status import driven_s
from joblens.model.runs.run import RunEnded, RunFact, RunStarted, RunStatus, StopAskedFor
from tests.unit.analysis.charts.test_gantt import OWNER, SECOND, T0, event, result

START = RunStarted(OWNER)
STOP = StopAskedFor("drain")
END = RunEnded(RunStatus.COMPLETED)
STOPPED = RunEnded(RunStatus.STOPPED)


@pytest.mark.parametrize(
    ("facts", "seconds"),
    [
        ([(0, START), (90, END)], 90),
        ([(0, START), (9, STOP), (10, STOPPED), (86_400, START), (86_403, END)], 13),
        ([(0, START), (86_400, START), (86_403, END)], 8 + 3),  # killed: its last job ended after 8 s
        ([(0, START)], 8),
    ],
)
def test_a_run_took_the_time_it_was_driven(facts: list[tuple[float, RunFact]], seconds: float) -> None:
    events = [event(at_s, fact) for at_s, fact in facts]
    assert driven_s(events, [result(0, 1, 7.0), result(1, 2, 3.0)]) == seconds


def test_the_turn_that_goes_on_counts_until_now() -> None:
    events = [event(0, START), event(10, STOPPED), event(100, START)]
    assert driven_s(events, [], T0 + 130 * SECOND) == 40


def test_a_run_that_never_started_took_no_time_at_all() -> None:
    assert driven_s([], []) is None
