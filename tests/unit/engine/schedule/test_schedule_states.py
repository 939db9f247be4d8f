"""How jobs go from state to state."""

import pytest

from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.events import (
    AttemptBegan,
    AttemptEnded,
    CancelWanted,
    DataChanged,
    OfferGrew,
    RunIsOver,
    StartAttempt,
    StateChanged,
    StopAttempt,
    StopMode,
    StopWanted,
    Tick,
)
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import PlannedData
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails
from tests.unit.engine.plans import GIB, OFFER, Talk, job, plan_of, starts

WAIT, CANCEL, RUN = WhenBlockedFails.WAIT, WhenBlockedFails.CANCEL, WhenBlockedFails.RUN


def test_nothing_has_a_state_before_the_begin() -> None:
    talk = Talk(plan_of(job("a")), begin=False)
    assert talk.state(0) is JobState.UNINITIALIZED
    assert talk.schedule.why(0) == "the run has not started"


def test_a_chain_goes_through_its_states() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0)))
    assert talk.states == [JobState.PENDING, JobState.BLOCKED]
    talk.began(0)
    assert talk.states == [JobState.RUNNING, JobState.BLOCKED]
    assert starts(talk.ended(0)) == [1]
    assert talk.states == [JobState.COMPLETED, JobState.PENDING]
    assert talk.ended(1)[-1] == RunIsOver()
    assert talk.schedule.counts() == {JobState.COMPLETED: 2}


def test_a_job_that_does_not_fit_is_ready_and_starts_when_it_does() -> None:
    talk = Talk(plan_of(job("a", cpus=3.0), job("b", cpus=2.0)))
    assert talk.states == [JobState.PENDING, JobState.READY]
    assert starts(talk.ended(0)) == [1]


def test_an_empty_run_is_over_at_once() -> None:
    assert Talk(plan_of()).commands == [RunIsOver()]


def test_all_dependencies_have_to_succeed() -> None:
    talk = Talk(plan_of(job("a"), job("b"), job("c", 0, 1)))
    assert starts(talk.ended(0)) == []
    assert starts(talk.ended(1)) == [2]


def test_behind_a_failure_a_job_waits_and_the_run_ends() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0), job("c", 1)))
    talk.ended(0, 3)
    assert talk.states == [JobState.FAILED, JobState.BLOCKED, JobState.BLOCKED]
    assert talk.is_over
    assert talk.schedule.why(1) == "needs a (failed), which must be run again first"
    assert talk.schedule.why(2) == "waits for b"


def test_behind_a_failure_jobs_are_canceled_one_after_the_other() -> None:
    talk = Talk(
        plan_of(job("a"), job("b", 0, when_blocked_fails=CANCEL), job("c", 1, when_blocked_fails=CANCEL))
    )
    result = talk.ended(0, 3)
    assert talk.states == [JobState.FAILED, JobState.CANCELED, JobState.CANCELED]
    assert StateChanged(2, "b, which it depends on, did not succeed") in result
    assert talk.is_over


def test_a_job_may_run_all_the_same_behind_a_failure() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0, when_blocked_fails=RUN)))
    assert starts(talk.ended(0, 3)) == [1]


def test_a_failed_dependency_among_several_is_enough_to_cancel() -> None:
    talk = Talk(plan_of(job("a"), job("b"), job("c", 0, 1, when_blocked_fails=CANCEL)))
    talk.ended(0, 1)
    assert talk.state(2) is JobState.CANCELED
    talk.ended(1)
    assert talk.state(2) is JobState.CANCELED


def test_a_time_out_terminates() -> None:
    talk = Talk(plan_of(job("a")))
    talk.ended(0, 152, status=Status.TIMEOUT, reason="timeout")
    assert talk.states == [JobState.TERMINATED]
    assert talk.schedule.why(0) == "timed out"


def test_missing_outputs_are_a_failure() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0)))
    talk.ended(0, outputs_missing=True)
    assert talk.states == [JobState.FAILED, JobState.BLOCKED]
    assert talk.schedule.why(0) == "output files are missing"


def test_an_unknown_failure_is_left_to_people_when_asked() -> None:
    talk = Talk(
        plan_of(
            job("a"),
            job("b", 0, when_blocked_fails=CANCEL),
            job("c", 0, when_blocked_fails=RUN),
            use_pending_failed=True,
        )
    )
    talk.ended(0, 3)
    assert talk.states == [JobState.PENDING_FAILED, JobState.BLOCKED, JobState.BLOCKED]
    assert talk.is_over
    assert talk.schedule.why(2) == "needs a (pending failed), which must be run again first"


def test_jobs_left_out_are_disabled_and_count_as_done() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0)), enabled={1})
    assert talk.states == [JobState.DISABLED, JobState.PENDING]
    assert talk.schedule.why(0) == "not selected for this run"


def test_an_end_that_is_reported_twice_or_of_another_attempt_changes_nothing() -> None:
    talk = Talk(plan_of(job("a"), job("b")))
    assert talk.say(AttemptEnded(0, 7, Status.FAILED, 1)) == []
    assert talk.state(0) is JobState.PENDING
    talk.ended(0)
    talk.say(AttemptEnded(0, 1, Status.FAILED, 1))
    assert talk.state(0) is JobState.COMPLETED


def test_a_job_that_was_not_started_is_ready_again_under_the_same_number() -> None:
    talk = Talk(plan_of(job("a")))
    result = talk.ended(0, status=Status.CANCELLED, reason="not-started")
    assert [(start.index, start.attempt) for start in result if isinstance(start, StartAttempt)] == [(0, 1)]


# user data


def test_data_without_a_maker_must_have_a_value() -> None:
    data = (PlannedData("given", 1), PlannedData("lacking"))
    talk = Talk(plan_of(job("a", input_user_data=(0,)), job("b", input_user_data=(0, 1)), user_data=data))
    assert talk.states == [JobState.PENDING, JobState.BLOCKED]
    assert talk.schedule.why(1) == "waits for user data lacking, which has no value yet"
    assert starts(talk.say(DataChanged(1))) == [1]
    assert starts(talk.say(DataChanged(1))) == []


def test_a_run_ends_when_nobody_is_left_to_set_the_data() -> None:
    talk = Talk(plan_of(job("a", input_user_data=(0,)), user_data=(PlannedData("lacking"),)))
    assert talk.is_over
    assert talk.states == [JobState.BLOCKED]


def test_data_of_a_maker_comes_with_its_end() -> None:
    data = (PlannedData("made", producer=0),)
    talk = Talk(plan_of(job("a", output_user_data=(0,)), job("b", 0, input_user_data=(0,)), user_data=data))
    assert starts(talk.say(DataChanged(0))) == []
    assert starts(talk.ended(0)) == [1]


def test_data_of_a_maker_that_is_left_out_must_have_a_value() -> None:
    data = (PlannedData("made", producer=0),)
    plan = plan_of(job("a", output_user_data=(0,)), job("b", 0, input_user_data=(0,)), user_data=data)
    talk = Talk(plan, enabled={1})
    assert talk.states == [JobState.DISABLED, JobState.BLOCKED]


# stopping


def test_draining_starts_nothing_more_and_ends_with_the_last_job() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0), job("c")))
    assert talk.say(StopWanted(StopMode.DRAIN)) == []
    assert talk.ended(0) == [StateChanged(1)]
    assert talk.ended(2) == [RunIsOver()]
    assert "asked to stop" in talk.schedule.why(1)


def test_draining_with_nothing_running_is_the_end() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0)))
    talk.say(StopWanted(StopMode.DRAIN))
    assert talk.ended(0) == [StateChanged(1), RunIsOver()]
    assert talk.states == [JobState.COMPLETED, JobState.READY]


def test_killing_stops_all_and_a_second_time_at_once() -> None:
    talk = Talk(plan_of(job("a"), job("b"), job("c", 0)))
    result = talk.say(StopWanted(StopMode.KILL))
    assert result[:2] == [StopAttempt(0), StopAttempt(1)]
    assert talk.state(2) is JobState.CANCELED
    assert talk.say(StopWanted(StopMode.KILL)) == [StopAttempt(0, True), StopAttempt(1, True)]
    assert RunIsOver() not in talk.ended(0, 143, status=Status.CANCELLED, reason="cancelled")
    talk.ended(1, status=Status.CANCELLED, reason="not-started")
    assert talk.states == [JobState.TERMINATED, JobState.CANCELED, JobState.CANCELED]
    assert talk.is_over


def test_draining_after_killing_does_not_soften_it() -> None:
    talk = Talk(plan_of(job("a")))
    talk.say(StopWanted(StopMode.KILL))
    talk.say(StopWanted(StopMode.DRAIN))
    assert talk.say(StopWanted(StopMode.KILL)) == [StopAttempt(0, True)]


def test_nothing_is_said_after_the_end() -> None:
    talk = Talk(plan_of(job("a")))
    talk.ended(0)
    assert talk.say(Tick()) == []
    assert talk.say(StopWanted(StopMode.KILL)) == []
    assert talk.say(CancelWanted(0)) == []


# one job is cancelled


def test_cancelling_a_running_job_stops_it_and_what_waits_for_it_follows_its_rule() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0, when_blocked_fails=CANCEL)))
    talk.began(0)
    assert talk.say(CancelWanted(0)) == [StopAttempt(0)]
    assert talk.say(CancelWanted(0)) == [StopAttempt(0, True)]
    talk.ended(0, 143, status=Status.CANCELLED, reason="cancelled")
    assert talk.states == [JobState.TERMINATED, JobState.CANCELED]


def test_a_cancelled_job_that_still_succeeded_has_succeeded() -> None:
    talk = Talk(plan_of(job("a")))
    talk.say(CancelWanted(0))
    talk.ended(0)
    assert talk.states == [JobState.COMPLETED]


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_job_cancelled_before_its_start_never_runs(index: int) -> None:
    talk = Talk(plan_of(job("a", cpus=4.0), job("b", cpus=2.0), job("c", cpus=2.0), job("d", 0)))
    talk.say(CancelWanted(index))
    assert talk.state(index) is JobState.CANCELED
    for running in (0, 1, 2, 3):
        if running in talk.schedule.running():
            talk.ended(running)
    assert talk.is_over
    assert index not in starts(talk.commands)


# time


def test_a_job_longer_than_what_is_left_does_not_start_and_the_run_ends() -> None:
    offer = RunCapacity(cpus=1, memory_bytes=GIB, time_s=10)
    talk = Talk(plan_of(job("a", timeout_s=8.0, priority=1), job("b", timeout_s=9.0)), offer)
    talk.ended(0, after_s=5.0)
    assert talk.states == [JobState.COMPLETED, JobState.READY]
    assert talk.is_over
    assert talk.schedule.why(1).startswith("it may take 9")
    assert "too little is left of the 10" in talk.schedule.why(1)


def test_a_job_that_can_never_fit_holds_nobody_up() -> None:
    talk = Talk(plan_of(job("a", cpus=99.0, priority=9), job("b"), job("c", cpus=99.0)))
    assert starts(talk.commands) == [1]
    talk.ended(1)
    assert talk.is_over
    assert talk.schedule.why(0) == "needs 99 CPUs (4 of 4 free): more than the capacity"


# why


def test_why_names_what_is_short() -> None:
    talk = Talk(
        plan_of(
            job("a", cpus=4.0, gpus=2, memory_bytes=7 * GIB, priority=1),
            job("b", gpus=1, memory_bytes=2 * GIB),
        )
    )
    assert talk.schedule.why(0) == "about to start"
    assert talk.schedule.why(1) == (
        "waits for 1 CPU (0 of 4 free), 2.0 GiB of memory (1.0 GiB of 8.0 GiB free), 1 GPU (0 of 2 free)"
    )


def test_why_names_the_most_jobs_at_a_time() -> None:
    talk = Talk(plan_of(job("a"), job("b")), RunCapacity(cpus=4, memory_bytes=GIB, most_jobs=1))
    assert talk.schedule.why(1) == "waits for a slot: 1 job runs, the limit"


def test_why_shortens_a_long_list() -> None:
    talk = Talk(plan_of(*(job(f"j{index}") for index in range(5)), job("last", 0, 1, 2, 3, 4)))
    assert talk.schedule.why(5) == "waits for j0, j1, j2 and 2 more"


def test_events_of_jobs_that_do_not_run_are_ignored() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0)), OFFER)
    assert talk.say(AttemptBegan(1)) == []
    assert talk.say(AttemptEnded(1, 0, Status.SUCCESS, 0)) == []
    assert talk.state(1) is JobState.BLOCKED


def test_more_start_when_more_is_offered() -> None:
    talk = Talk(plan_of(*(job(f"j{number}") for number in range(5))), RunCapacity(cpus=1, memory_bytes=GIB))
    assert talk.schedule.running() == [0]
    assert starts(talk.say(OfferGrew(3, GIB))) == [1, 2]
    assert talk.schedule.offer.cpus == 3
    assert starts(talk.say(OfferGrew(2, GIB // 2))) == []  # workers may go: what they have runs on elsewhere
    assert starts(talk.ended(0)) == [3]


def test_what_waits_for_memory_starts_when_there_is_more_of_it() -> None:
    big = job("big", memory_bytes=GIB)
    talk = Talk(plan_of(big, big), RunCapacity(cpus=4, memory_bytes=GIB))
    assert talk.schedule.running() == [0]
    assert starts(talk.say(OfferGrew(1, 2 * GIB))) == [1]


@pytest.mark.parametrize(
    ("method", "order"),
    [
        (None, [3, 4, 2, 1, 0]),
        ("none", [3, 0, 1, 2, 4]),
        ("gpus_runtime_memory", [3, 2, 1, 0, 4]),
        ("gpus_memory_runtime", [3, 2, 0, 1, 4]),
    ],
)
def test_jobs_sort_method_orders_ready_jobs_of_one_priority(method: str | None, order: list[int]) -> None:
    plan = plan_of(
        job("roomy", timeout_s=10.0, memory_bytes=3 * GIB),
        job("long", timeout_s=20.0, memory_bytes=GIB),
        job("gpu", gpus=1, timeout_s=30.0),
        job("first", priority=1),
        job("chain", timeout_s=5.0),
        job("behind", 4, timeout_s=99.0),
        other={} if method is None else {"jobs_sort_method": method},
    )
    talk = Talk(plan, RunCapacity(cpus=1, memory_bytes=8 * GIB, gpus=("gpu0",)))
    begun = starts(talk.commands)
    for _ in range(5):
        begun += starts(talk.ended(begun[-1]))
    assert [index for index in begun if index != 5] == order
