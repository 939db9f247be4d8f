"""When an allocation that ended is replaced."""

from joblens.agent.clusters.allocations import ReplacedAllocations, Replacement
from joblens.model.clusters.placement import AllocationEvent, AllocationState, Placed
from joblens.model.jobs.job import Placement

Q = "@slurm.run"


def _placed(job_id: str) -> Placed:
    asked = {"time": "60", "nodes": "1"}
    return Placed(
        placement=Placement(engine="slurm", job_id=job_id, is_allocation=True, asked=asked), queue=Q
    )


def _gone(
    job_id: str, word: str = "CANCELLED", state: AllocationState = AllocationState.GONE
) -> AllocationEvent:
    return AllocationEvent(job_id=job_id, state=state, word=word)


def _two() -> ReplacedAllocations:
    found = ReplacedAllocations("slurm")
    for number in (1, 2):
        found.added(_placed(str(number)), number)
        found.runs(str(number), 0.0)
    return found


def _answers(one: ReplacedAllocations, now_s: float, waiting: int, serving: int) -> list[Replacement]:
    return one.due({Q: waiting} if waiting else {}, lambda _: serving, now_s)


def test_one_that_is_cancelled_while_jobs_wait_is_replaced_and_reported() -> None:
    two = _two()
    two.ended(_placed("1"), _gone("1"), 100.0)
    assert _answers(two, 100.5, 3, 1) == [], "its jobs are not queued again yet"
    assert two.due_at_s() == 102.0
    [answer] = _answers(two, 102.0, 3, 1)
    assert (answer.queue, answer.count) == (Q, 1)
    assert answer.message == ("allocation 1 of slurm ended (CANCELLED) while 3 jobs wait: requesting another")
    assert _answers(two, 110.0, 3, 1) == []
    assert two.due_at_s() is None


def test_nothing_is_asked_for_when_no_job_waits() -> None:
    two = _two()
    two.ended(_placed("1"), _gone("1"), 100.0)
    assert _answers(two, 102.0, 0, 1) == []
    assert _answers(two, 200.0, 5, 1) == []


def test_one_that_left_by_itself_is_not_replaced_and_one_at_the_end_of_its_time_is() -> None:
    two = _two()
    two.ended(_placed("1"), _gone("1", "COMPLETED", AllocationState.ENDED), 600.0)
    assert _answers(two, 602.0, 3, 1) == []
    other = _two()
    other.ended(_placed("1"), _gone("1", "COMPLETED", AllocationState.ENDED), 3590.0)
    assert [one.count for one in _answers(other, 3592.0, 3, 1)] == [1]


def test_both_lost_at_once_are_both_replaced_where_a_third_serves() -> None:
    three = _two()
    three.added(_placed("3"), 3)
    three.runs("3", 0.0)
    for job_id in ("1", "2"):
        three.ended(_placed(job_id), _gone(job_id, "NODE_FAIL"), 100.0)
    assert [one.count for one in _answers(three, 102.0, 9, 1)] == [2]


def test_no_more_than_the_jobs_that_wait_are_asked_for() -> None:
    three = _two()
    three.added(_placed("3"), 3)
    for job_id in ("1", "2"):
        three.ended(_placed(job_id), _gone(job_id), 100.0)
    assert [one.count for one in _answers(three, 102.0, 1, 1)] == [1]


def test_where_none_is_left_it_is_reported_and_jobs_are_placed_as_new_ones_are() -> None:
    two = _two()
    for job_id in ("1", "2"):
        two.ended(_placed(job_id), _gone(job_id), 100.0)
    [answer] = _answers(two, 102.0, 4, 0)
    assert answer.count == 0
    assert "requesting another" in answer.message


def test_allocations_that_end_within_a_minute_are_replaced_twice_and_then_no_more() -> None:
    two = _two()
    now_s, asked = 10.0, 0
    for number in range(3, 20):
        job_id = str(number - 2) if number == 3 else str(number - 1)
        two.ended(_placed(job_id), _gone(job_id, "FAILED"), now_s)
        now_s += 2.0
        answers = _answers(two, now_s, 5, 1)
        count = sum(one.count for one in answers)
        asked += count
        if not count:
            assert "no more are requested" in answers[0].message
            break
        two.added(_placed(str(number)), 2)
        two.runs(str(number), now_s)
    assert asked == 2


def test_one_that_worked_for_long_begins_the_count_again() -> None:
    two = _two()
    for number, lived_s in ((3, 5.0), (4, 5.0), (5, 100.0), (6, 5.0), (7, 5.0)):
        two.added(_placed(str(number)), 2)
        two.runs(str(number), 1000.0 * number)
        two.ended(_placed(str(number)), _gone(str(number)), 1000.0 * number + lived_s)
        assert [one.count for one in _answers(two, 1000.0 * number + 500, 5, 1)] == [1]


def test_a_worker_on_this_machine_is_no_allocation() -> None:
    one = ReplacedAllocations("slurm")
    here = Placed(placement=Placement(engine="slurm", job_id="local-1", is_allocation=True), queue=Q)
    one.added(here, 1)
    one.ended(here, _gone("local-1"), 100.0)
    assert one.due_at_s() is None
