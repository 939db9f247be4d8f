"""A run put together again from its facts."""

from typing import Any

import pytest

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import AttemptEnded, Command, RunActionCommand, RunRecovery, StartAttempt
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Requirements, RetryLost, Status
from joblens.model.runs.plan import Plan, PlannedAction, PlannedData
from joblens.model.runs.run import (
    ActionRan,
    JobCancelled,
    JobResult,
    JobsReset,
    JobState,
    OutputsMissing,
    RaisedRequest,
    RecoveryRan,
    RequirementsRaised,
    RunEvent,
    RunFact,
    StopAskedFor,
    UserDataSet,
)
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType, WhenBlockedFails
from tests.unit.engine.plans import GIB, OFFER, handler, job, plan_of, starts

SECOND = 1_000_000


def result(index: int, status: Status, attempt: int = 1, **how: Any) -> JobResult:
    how.setdefault("began_at_us", 10 * SECOND)
    how.setdefault("duration_s", 5.0)
    return JobResult(index, attempt, index * 10 + attempt, f"{index}.{attempt}", status, **how)


def facts(*found: RunFact, at_us: int = 12 * SECOND) -> list[RunEvent]:
    return [RunEvent(f"event{index}", "run", at_us, fact) for index, fact in enumerate(found)]


def resumed(
    plan: Plan, results: list[JobResult], events: list[RunEvent] | None = None, **more: Any
) -> tuple[Schedule, list[Command]]:
    schedule = Schedule(plan, OFFER, more.pop("choices", Choices()))
    restore(schedule, results, events or [], more.pop("base", None), **more)
    return schedule, schedule.begin(0.0)


def test_what_succeeded_is_done_and_what_follows_it_starts() -> None:
    schedule, commands = resumed(plan_of(job("a"), job("b", 0)), [result(0, Status.SUCCESS, exit_code=0)])
    assert schedule.state_of(0) is JobState.COMPLETED
    assert starts(commands) == [1]


def test_what_failed_stays_failed_and_those_behind_it_follow_their_rule() -> None:
    plan = plan_of(job("a"), job("b", 0, when_blocked_fails=WhenBlockedFails.CANCEL), job("c", 1), job("d"))
    schedule, commands = resumed(plan, [result(0, Status.FAILED, exit_code=3)])
    assert [schedule.state_of(index).label for index in range(3)] == ["failed", "canceled", "blocked"]
    assert schedule.why(0) == "exit code 3"
    assert starts(commands) == [3]


def test_a_lost_attempt_is_tried_again_under_the_next_number() -> None:
    _, commands = resumed(plan_of(job("a")), [result(0, Status.LOST)])
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [2]


def test_a_lost_job_that_must_not_run_twice_is_not_tried_again() -> None:
    schedule, commands = resumed(plan_of(job("a", retry_lost=RetryLost.NEVER)), [result(0, Status.LOST)])
    assert starts(commands) == []
    assert schedule.state_of(0) is JobState.FAILED
    assert schedule.why(0) == "lost, and must not run twice (retry_lost: never)"


def test_losses_add_up_while_one_process_drives_the_run() -> None:
    lost = [result(0, Status.LOST, attempt) for attempt in (1, 2, 3, 4)]
    schedule, commands = resumed(plan_of(job("a")), lost)
    assert starts(commands) == []
    assert schedule.state_of(0) is JobState.FAILED


def test_losses_of_earlier_drivers_are_not_held_against_a_job() -> None:
    lost = [result(0, Status.LOST, attempt) for attempt in (1, 2, 3, 4, 5)]
    _, commands = resumed(plan_of(job("a")), lost, now_us=20 * SECOND)
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [6]


@pytest.mark.parametrize(
    "never", [result(0, Status.QUEUED), result(0, Status.CANCELLED, reason="not-started")]
)
def test_an_attempt_that_never_began_is_as_if_it_had_not_been(never: JobResult) -> None:
    _, commands = resumed(plan_of(job("a")), [never])
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [1]


def test_an_attempt_that_still_runs_holds_its_place_and_devices() -> None:
    plan = plan_of(job("a", cpus=3.0, gpus=1), job("b", cpus=2.0, gpus=1), job("c", 0))
    schedule, commands = resumed(plan, [result(0, Status.RUNNING, 2)], devices={0: ("gpu1",)})
    assert schedule.running() == [0]
    assert schedule.occupancy.held[0].devices == ("gpu1",)
    assert starts(commands) == []
    found = schedule.handle(AttemptEnded(0, 2, Status.SUCCESS, 0, "exited", 5.0), 5.0)
    assert starts(found) == [2, 1] or starts(found) == [1, 2]
    assert schedule.occupancy.held[1].devices == ("gpu0",)


def test_missing_outputs_are_remembered() -> None:
    schedule, _ = resumed(
        plan_of(job("a")), [result(0, Status.SUCCESS, exit_code=0)], facts(OutputsMissing(0, 1, ("x",)))
    )
    assert schedule.state_of(0) is JobState.FAILED


def test_retries_go_on_where_they_were_with_what_had_grown() -> None:
    rule = handler(exit_codes=(1,), max_retries=2, memory_factor=2.0)
    plan = plan_of(job("a", memory_bytes=GIB, failure_handler=rule))
    failed = [result(0, Status.FAILED, attempt, exit_code=1) for attempt in (1, 2, 3)]
    _, commands = resumed(plan, failed[:2])
    assert commands[-1] == StartAttempt(0, 3, Requirements(memory_bytes=4 * GIB))
    schedule, commands = resumed(plan, failed)
    assert schedule.state_of(0) is JobState.FAILED


@pytest.mark.parametrize(
    ("events", "state", "first"),
    [
        ([], JobState.READY, RunRecovery(0, 1, "fix")),
        (facts(RecoveryRan(0, 1, "u", Status.SUCCESS)), JobState.PENDING, StartAttempt(0, 2, Requirements())),
        (facts(RecoveryRan(0, 1, "u", Status.FAILED)), JobState.FAILED, None),
    ],
)
def test_a_recovery_script_runs_once(events: list[RunEvent], state: JobState, first: Command | None) -> None:
    plan = plan_of(job("a", failure_handler=handler(match_all_exit_codes=True, recovery_script="fix")))
    schedule, commands = resumed(plan, [result(0, Status.FAILED, exit_code=1)], events)
    assert schedule.state_of(0) is state
    assert first is None or first in commands


def test_what_was_ended_with_the_run_runs_again_and_what_was_cancelled_does_not() -> None:
    plan = plan_of(job("a"))
    ended = [result(0, Status.CANCELLED, exit_code=143, reason="cancelled")]
    _, commands = resumed(plan, ended, facts(StopAskedFor("kill", ended=((0, 1),))))
    assert starts(commands) == [0]
    # however near the two are in time
    schedule, commands = resumed(plan, ended, facts(JobCancelled(0), StopAskedFor("kill")))
    assert starts(commands) == []
    assert schedule.state_of(0) is JobState.TERMINATED
    _, commands = resumed(plan, ended, facts(JobCancelled(0), StopAskedFor("kill", ended=((0, 1),))))
    assert starts(commands) == []


def test_a_program_ended_with_the_run_by_a_code_of_its_own_runs_again_and_loses_no_retry() -> None:
    plan = plan_of(job("a", failure_handler=handler(match_all_exit_codes=True, max_retries=1)), job("b"))
    results = [result(0, Status.FAILED, exit_code=3), result(1, Status.FAILED, exit_code=3)]
    schedule, commands = resumed(plan, results, facts(StopAskedFor("kill", ended=((0, 1), (1, 1)))))
    assert starts(commands) == [0, 1]
    schedule.handle(AttemptEnded(0, 2, Status.FAILED, 1, "exited", 1.0), 1.0)
    assert schedule.attempt_of(0) == 3, "its one retry was still there"


def test_a_job_that_was_cancelled_while_it_waited_stays_so() -> None:
    plan = plan_of(
        job("tried", failure_handler=handler(match_all_exit_codes=True, backoff_s=9.0)),
        job("never"),
        job("done"),
        job("behind", 1, when_blocked_fails=WhenBlockedFails.CANCEL),
        job("runs", failure_handler=handler(match_all_exit_codes=True)),
    )
    results = [
        result(0, Status.FAILED, exit_code=1),
        result(2, Status.SUCCESS, exit_code=0),
        result(4, Status.RUNNING),
    ]
    schedule, commands = resumed(plan, results, facts(*map(JobCancelled, (0, 1, 2, 4))))
    assert [schedule.state_of(index).label for index in range(5)] == [
        "terminated", "canceled", "completed", "canceled", "running",
    ]  # fmt: skip
    assert starts(commands) == []
    schedule.handle(AttemptEnded(4, 1, Status.FAILED, 143, "signalled", 1.0), 1.0)
    assert schedule.state_of(4) is JobState.TERMINATED
    assert schedule.why(0) == schedule.why(1) == "cancelled"


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.LOST])
def test_a_recovery_script_that_was_cut_off_runs_again(status: Status) -> None:
    plan = plan_of(job("a", failure_handler=handler(match_all_exit_codes=True, recovery_script="fix")))
    schedule, commands = resumed(
        plan, [result(0, Status.FAILED, exit_code=1)], facts(RecoveryRan(0, 1, "u", status))
    )
    assert RunRecovery(0, 1, "fix") in commands
    assert schedule.state_of(0) is JobState.READY


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.LOST, Status.FAILED])
@pytest.mark.parametrize("trigger", list(TriggerType)[:4])
def test_a_command_of_an_action_that_failed_or_was_cut_off_runs_again(
    status: Status, trigger: TriggerType
) -> None:
    spec = ActionSpec(trigger_type=trigger, action_type=ActionType.RUN_COMMANDS, commands=("x", "y", "z"))
    plan = plan_of(job("a"), actions=(PlannedAction(spec, (0,)),))
    ran = facts(ActionRan(0, 0, "u", Status.SUCCESS), ActionRan(0, 1, "u", status))
    schedule, commands = resumed(plan, [result(0, Status.SUCCESS, exit_code=0)], ran)
    assert commands == [RunActionCommand(0, 1)]
    assert not schedule.failed_actions(), "what is tried again has not failed"


def test_less_offered_on_a_resume_never_gives_an_attempt_less_than_the_one_before_had() -> None:
    rule = handler(match_all_exit_codes=True, max_retries=3, memory_factor=2.0, runtime_factor=2.0)
    plan = plan_of(job("a", memory_bytes=4 * GIB, timeout_s=100.0, failure_handler=rule))
    offer = RunCapacity(cpus=4, memory_bytes=2 * GIB, time_s=1000.0)
    schedule = Schedule(plan, offer)
    restore(schedule, [result(0, Status.FAILED, exit_code=1)], [])
    assert starts(schedule.begin(0.0)) == []
    assert schedule.requirements_of(0) == Requirements(memory_bytes=4 * GIB, timeout_s=200.0)
    assert schedule.why(0) == "needs 4.0 GiB of memory (2.0 GiB of 2.0 GiB free): more than the capacity"


def test_user_data_that_was_set_is_there() -> None:
    plan = plan_of(job("a", input_user_data=(0,)), user_data=(PlannedData("given"),))
    assert starts(resumed(plan, [])[1]) == []
    assert starts(resumed(plan, [], facts(UserDataSet("given", 1)))[1]) == [0]


@pytest.mark.parametrize(("persistent", "expected"), [(False, 1), (True, 0)])
def test_commands_at_the_start_go_on_unless_they_are_for_every_start(persistent: bool, expected: int) -> None:
    spec = ActionSpec(
        trigger_type=TriggerType.ON_WORKFLOW_START,
        action_type=ActionType.RUN_COMMANDS,
        commands=("x", "y"),
        persistent=persistent,
    )
    plan = plan_of(job("a"), actions=(PlannedAction(spec),))
    _, commands = resumed(plan, [], facts(ActionRan(0, 0, "u", Status.SUCCESS)))
    assert commands[0] == RunActionCommand(0, expected)
    assert starts(commands) == []


def test_actions_that_had_ended_do_not_run_again() -> None:
    spec = ActionSpec(
        trigger_type=TriggerType.ON_JOBS_COMPLETE, action_type=ActionType.RUN_COMMANDS, commands=("x",)
    )
    plan = plan_of(job("a"), job("b"), actions=(PlannedAction(spec, (0,)),))
    done = [result(0, Status.SUCCESS, exit_code=0)]
    assert RunActionCommand(0, 0) in resumed(plan, done)[1]
    assert RunActionCommand(0, 0) not in resumed(plan, done, facts(ActionRan(0, 0, "u", Status.SUCCESS)))[1]


def test_a_run_that_repeats_a_part_keeps_the_other_outcomes() -> None:
    plan = plan_of(job("a"), job("b", 0), job("c", 1), job("d"))
    base = [
        result(0, Status.SUCCESS, exit_code=0),
        result(1, Status.FAILED, exit_code=1),
        result(3, Status.FAILED, exit_code=1),
    ]
    schedule, commands = resumed(plan, [], base=base, again={1})
    assert [schedule.state_of(index).label for index in range(4)] == [
        "completed", "pending", "blocked", "failed",
    ]  # fmt: skip
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [1]


def test_outcomes_of_the_run_before_are_final_also_where_a_handler_knows_more() -> None:
    plan = plan_of(job("a", failure_handler=handler(match_all_exit_codes=True)))
    schedule, commands = resumed(plan, [], base=[result(0, Status.FAILED, exit_code=1)])
    assert starts(commands) == []
    assert schedule.state_of(0) is JobState.FAILED


def test_own_results_come_before_those_of_the_run_before() -> None:
    plan = plan_of(job("a"))
    schedule, _ = resumed(
        plan, [result(0, Status.SUCCESS, exit_code=0)], base=[result(0, Status.FAILED, exit_code=1)]
    )
    assert schedule.state_of(0) is JobState.COMPLETED


def test_jobs_left_out_stay_left_out_but_a_success_counts() -> None:
    plan = plan_of(job("a"), job("b"), job("c"))
    results = [result(0, Status.SUCCESS, exit_code=0), result(1, Status.LOST)]
    schedule, commands = resumed(plan, results, choices=Choices(enabled={2}))
    assert [schedule.state_of(index).label for index in range(3)] == ["completed", "disabled", "pending"]
    assert starts(commands) == [2]


def test_a_success_counts_whatever_was_recorded_after_it() -> None:
    schedule, _ = resumed(
        plan_of(job("a")), [result(0, Status.SUCCESS, exit_code=0), result(0, Status.LOST, 2)]
    )
    assert schedule.state_of(0) is JobState.COMPLETED


@pytest.mark.parametrize(
    ("script", "now_s", "due_s"),
    [
        (None, 19.0, 5.0),  # the attempt ended at 15
        (None, 15.0, 9.0),
        (None, 3.0, 9.0),  # the clock was set back
        (None, 24.0, None),
        ("fix", 22.0, 7.0),  # the script at 20
    ],
)
def test_what_has_passed_of_a_pause_is_not_waited_for_again(
    script: str | None, now_s: float, due_s: float | None
) -> None:
    rule = handler(match_all_exit_codes=True, backoff_s=9.0, recovery_script=script)
    plan = plan_of(job("a", failure_handler=rule))
    events = facts(RecoveryRan(0, 1, "u", Status.SUCCESS), at_us=20 * SECOND) if script else []
    failed = [result(0, Status.FAILED, exit_code=1)]
    schedule, commands = resumed(plan, failed, events, now_us=int(now_s * SECOND))
    assert schedule.next_wake_s() == due_s
    assert starts(commands) == ([] if due_s else [0])


def test_commands_of_the_worker_run_in_every_life_of_a_run() -> None:
    actions = tuple(
        PlannedAction(ActionSpec(trigger_type=trigger, action_type=ActionType.RUN_COMMANDS, commands=("x",)))
        for trigger in (TriggerType.ON_WORKER_START, TriggerType.ON_WORKER_COMPLETE)
    )
    ran = facts(ActionRan(0, 0, "u", Status.SUCCESS), ActionRan(1, 0, "u", Status.SUCCESS))
    _, commands = resumed(plan_of(job("a"), actions=actions), [], ran)
    assert commands[0] == RunActionCommand(0, 0)


# ---- jobs that were reset, and requests that were raised ------------------------------------------------


def test_a_job_that_was_reset_runs_again_and_so_does_what_was_canceled_because_of_it() -> None:
    plan = plan_of(job("a"), job("b", 0, when_blocked_fails=WhenBlockedFails.CANCEL), job("c"))
    failed = [result(0, Status.FAILED, exit_code=3), result(2, Status.FAILED, exit_code=1)]
    schedule, commands = resumed(plan, failed, facts(JobsReset(((0, 1), (1, 0)))))
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [2]
    assert [schedule.state_of(index).label for index in range(3)] == ["pending", "blocked", "failed"]


def test_the_attempt_after_a_reset_counts_as_it_ended() -> None:
    plan = plan_of(job("a"))
    attempts = [result(0, Status.FAILED, 1, exit_code=3), result(0, Status.FAILED, 2, exit_code=4)]
    schedule, commands = resumed(plan, attempts, facts(JobsReset(((0, 1),))))
    assert starts(commands) == []
    assert schedule.why(0) == "exit code 4"


def test_a_success_that_was_reset_is_made_again() -> None:
    plan = plan_of(job("a"), job("b", 0))
    done = [result(0, Status.SUCCESS, exit_code=0), result(1, Status.SUCCESS, exit_code=0)]
    schedule, commands = resumed(plan, done, facts(JobsReset(((0, 1), (1, 1)))))
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [2]
    assert schedule.state_of(1) is JobState.BLOCKED
    assert schedule.attempt_of(1) == 1


def test_what_was_raised_holds_from_the_next_attempt_on() -> None:
    plan = plan_of(job("a", memory_bytes=GIB, timeout_s=60.0))
    killed = [result(0, Status.FAILED, 1, exit_code=137, reason="out-of-memory")]
    events = facts(
        RequirementsRaised((RaisedRequest(0, 1, memory_bytes=2 * GIB),)),
        JobsReset(((0, 1),)),
    )
    _, commands = resumed(plan, killed, events)
    assert commands[-1] == StartAttempt(0, 2, Requirements(memory_bytes=2 * GIB, timeout_s=60.0))


def test_handlers_raise_what_recovery_had_raised_and_begin_to_count_again() -> None:
    rule = handler(exit_codes=(137,), max_retries=1, memory_factor=1.5)
    plan = plan_of(job("a", memory_bytes=GIB, failure_handler=rule))
    killed = [
        result(0, Status.FAILED, attempt, exit_code=137, reason="out-of-memory") for attempt in (1, 2, 3)
    ]
    events = facts(
        RequirementsRaised((RaisedRequest(0, 2, memory_bytes=2 * GIB),)),
        JobsReset(((0, 2),)),
    )
    _, commands = resumed(plan, killed, events)
    assert commands[-1] == StartAttempt(0, 4, Requirements(memory_bytes=3 * GIB))


def test_a_reset_takes_back_that_someone_cancelled_the_job() -> None:
    _, commands = resumed(plan_of(job("a")), [], facts(JobCancelled(0), JobsReset(((0, 0),))))
    assert starts(commands) == [0]
    _, commands = resumed(plan_of(job("a")), [], facts(JobsReset(((0, 0),)), JobCancelled(0)))
    assert starts(commands) == []


def test_an_outcome_of_an_earlier_run_can_be_reset() -> None:
    plan = plan_of(job("a"), job("b", 0))
    base = [result(0, Status.SUCCESS, exit_code=0), result(1, Status.SUCCESS, exit_code=0)]
    _, commands = resumed(plan, [], facts(JobsReset(((0, 0), (1, 0)))), base=base, again=[])
    assert [start.attempt for start in commands if isinstance(start, StartAttempt)] == [1]


@pytest.mark.parametrize(
    ("trigger", "jobs", "runs_again"),
    [
        (TriggerType.ON_WORKFLOW_COMPLETE, (), True),
        (TriggerType.ON_JOBS_COMPLETE, (0,), True),
        (TriggerType.ON_JOBS_COMPLETE, (1,), False),
        (TriggerType.ON_WORKFLOW_START, (), False),
    ],
)
def test_actions_run_again_when_the_jobs_they_follow_do(
    trigger: TriggerType, jobs: tuple[int, ...], runs_again: bool
) -> None:
    spec = ActionSpec(trigger_type=trigger, action_type=ActionType.RUN_COMMANDS, commands=("x",))
    plan = plan_of(job("a"), job("b"), actions=(PlannedAction(spec, jobs),))
    past = [result(0, Status.FAILED, exit_code=1), result(1, Status.SUCCESS, exit_code=0)]
    events = facts(ActionRan(0, 0, "u", Status.SUCCESS), JobsReset(((0, 1),)))
    schedule, commands = resumed(plan, past, events)
    commands += schedule.handle(AttemptEnded(0, 2, Status.SUCCESS, 0, "exited", 1.0), 1.0)
    assert any(isinstance(command, RunActionCommand) for command in commands) is runs_again
