"""Jobs for workers that are no part of the offer start at once and take none of it."""

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import AttemptEnded
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from tests.unit.engine.plans import GIB, job, plan_of, starts

ONE = RunCapacity(cpus=1.0, memory_bytes=GIB, most_jobs=1)


def test_they_start_beside_a_full_offer_and_others_wait_for_it() -> None:
    plan = plan_of(job("near"), job("far_1", label="far"), job("next"), job("far_2", label="far"))
    schedule = Schedule(plan, ONE, Choices(served_labels=()))
    assert sorted(starts(schedule.begin(0.0))) == [0, 1, 3]
    ended = AttemptEnded(0, 1, Status.SUCCESS, 0, "exited", 1.0)
    assert starts(schedule.handle(ended, 1.0)) == [2], "it waited for the first, not for the others"


def test_they_may_need_more_than_is_offered() -> None:
    large = job("far", label="far", cpus=64.0, memory_bytes=64 * GIB, gpus=4)
    schedule = Schedule(plan_of(large, job("near")), ONE, Choices(served_labels=()))
    assert sorted(starts(schedule.begin(0.0))) == [0, 1]


def test_their_end_frees_nothing_that_they_did_not_take() -> None:
    plan = plan_of(job("far", label="far"), job("near"), job("next"))
    schedule = Schedule(plan, ONE, Choices(served_labels=()))
    assert sorted(starts(schedule.begin(0.0))) == [0, 1]
    ended = AttemptEnded(0, 1, Status.SUCCESS, 0, "exited", 1.0)
    assert starts(schedule.handle(ended, 1.0)) == []
