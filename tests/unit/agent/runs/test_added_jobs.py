"""Before a run is over its driver asks for added jobs, for a while where the store is away."""

from collections.abc import Callable
from typing import Any, cast

from joblens.agent.runs.facts import JobsQuestion, RunFacts
from tests.unit.agent.fake_clock import FakeClock


class Facts:
    """A store that is away for so many questions."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.asked = 0

    def fetch(self, then: Callable[[list[Any]], None], otherwise: Callable[[], None]) -> None:
        self.asked += 1
        if self.asked <= self.away:
            otherwise()
        else:
            then(["news"])


def question(
    away: int, clock: FakeClock | None = None, *, may_wait: bool = True
) -> tuple[JobsQuestion, Facts, list[Any]]:
    facts, result = Facts(away), list[Any]()
    asking = JobsQuestion(
        cast(RunFacts, facts),
        result.extend,
        lambda: result.append("answered"),
        lambda: may_wait,
        clock or FakeClock(),
    )
    return asking, facts, result


def test_news_come_before_the_answer() -> None:
    asking, _, result = question(0)
    asking.ask()
    assert result == ["news", "answered"]
    assert asking.next_wake_s is None


def test_a_store_that_is_away_is_asked_until_it_answers() -> None:
    asking, facts, result = question(2)
    asking.ask()
    for _ in range(2):
        assert result == []
        due_s = asking.next_wake_s
        assert due_s is not None
        asking.wake(due_s - 0.5)
        asking.wake(due_s)
    assert result == ["news", "answered"]
    assert facts.asked == 3


def test_a_run_to_which_no_job_adds_others_does_not_wait_for_the_store() -> None:
    asking, _, result = question(1, may_wait=False)
    asking.ask()
    assert result == ["answered"]


def test_a_store_that_stays_away_is_given_up_in_the_end() -> None:
    clock = FakeClock()
    asking, facts, result = question(10_000, clock)
    asking.ask()
    while asking.next_wake_s is not None:
        clock.mono = round(asking.next_wake_s * 1e9)
        asking.wake(asking.next_wake_s)
    assert result == ["answered"]
    assert 50 <= facts.asked <= 70
