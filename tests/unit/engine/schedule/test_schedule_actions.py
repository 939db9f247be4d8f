"""Commands that run when the workflow starts or ends, and when jobs are ready or complete."""

from typing import Any

import pytest

from joblens.engine.schedule.events import (
    AskForNodes,
    CommandEnded,
    RunActionCommand,
    RunIsOver,
    StateChanged,
    StopMode,
    StopWanted,
)
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import PlannedAction
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType
from tests.unit.engine.plans import Talk, handler, job, plan_of, starts

START, COMPLETE = TriggerType.ON_WORKFLOW_START, TriggerType.ON_WORKFLOW_COMPLETE
JOBS_READY, JOBS_COMPLETE = TriggerType.ON_JOBS_READY, TriggerType.ON_JOBS_COMPLETE


def action(trigger: TriggerType, *jobs: int, commands: int = 1, **settings: Any) -> PlannedAction:
    kind = settings.pop("kind", ActionType.RUN_COMMANDS)
    texts = tuple(f"command {number}" for number in range(commands))
    return PlannedAction(ActionSpec(trigger_type=trigger, action_type=kind, commands=texts, **settings), jobs)


def nodes(trigger: TriggerType, *jobs: int) -> PlannedAction:
    return action(trigger, *jobs, commands=0, kind=ActionType.SCHEDULE_NODES, scheduler="big")


def done(action: int, command: int = 0, status: Status = Status.SUCCESS) -> CommandEnded:
    return CommandEnded(status, action=action, command=command)


def test_jobs_wait_for_the_commands_at_the_start() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(START, commands=2),)))
    assert talk.commands == [RunActionCommand(0, 0), StateChanged(0)]
    assert talk.schedule.why(0) == "waits for the commands that run when the workflow starts"
    assert talk.say(done(0)) == [RunActionCommand(0, 1)]
    assert starts(talk.say(done(0, 1))) == [0]


def test_a_command_that_fails_ends_its_action_and_not_the_run() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(START, commands=2),)))
    assert starts(talk.say(done(0, status=Status.FAILED))) == [0]
    assert talk.schedule.failed_actions() == {0}


def test_commands_at_the_end_run_after_the_last_job_and_before_the_end() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(COMPLETE),)))
    assert talk.ended(0) == [RunActionCommand(0, 0)]
    assert talk.say(done(0)) == [RunIsOver()]


def test_commands_at_the_end_run_also_when_jobs_failed() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0), actions=(action(COMPLETE),)))
    assert RunActionCommand(0, 0) in talk.ended(0, 1)


def test_a_run_that_is_stopped_is_not_complete() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(COMPLETE), action(JOBS_COMPLETE, 0))))
    talk.say(StopWanted(StopMode.DRAIN))
    assert talk.ended(0) == [RunIsOver()]


def test_commands_for_ready_jobs_run_once_all_of_them_are() -> None:
    plan = plan_of(job("a"), job("b", 0), job("c", 1), actions=(action(JOBS_READY, 0, 1),))
    talk = Talk(plan)
    assert RunActionCommand(0, 0) not in talk.commands
    assert RunActionCommand(0, 0) in talk.ended(0)
    assert RunActionCommand(0, 0) not in talk.ended(1)


def test_commands_for_ready_jobs_that_persist_run_each_time_one_is_ready_again() -> None:
    retried = handler(match_all_exit_codes=True)
    for persistent, expected in ((False, 1), (True, 2)):
        plan = plan_of(
            job("a", failure_handler=retried), actions=(action(JOBS_READY, 0, persistent=persistent),)
        )
        talk = Talk(plan)
        talk.say(done(0))
        talk.ended(0, 1)
        assert talk.commands.count(RunActionCommand(0, 0)) == expected


def test_that_jobs_end_makes_them_not_ready_again() -> None:
    plan = plan_of(job("a"), job("b"), job("c"), actions=(action(JOBS_READY, 0, 1, persistent=True),))
    talk = Talk(plan)
    talk.say(done(0))
    for index in range(3):
        talk.ended(index, 1 if index == 1 else 0)
    assert talk.commands.count(RunActionCommand(0, 0)) == 1


def test_an_action_that_was_ended_with_the_run_has_not_failed() -> None:
    for mode, failed in ((StopMode.KILL, set[int]()), (None, {0})):
        talk = Talk(plan_of(job("a"), actions=(action(START, commands=2),)))
        if mode is not None:
            talk.say(StopWanted(mode))
        talk.say(done(0, status=Status.CANCELLED))
        assert talk.schedule.failed_actions() == failed


def test_an_action_that_is_due_again_while_it_runs_runs_once_more_after() -> None:
    plan = plan_of(
        job("a", failure_handler=handler(match_all_exit_codes=True)),
        actions=(action(JOBS_READY, 0, persistent=True),),
    )
    talk = Talk(plan)
    assert RunActionCommand(0, 0) not in talk.ended(0, 1)
    assert talk.say(done(0)) == [RunActionCommand(0, 0)]


def test_commands_for_complete_jobs_run_whatever_became_of_them() -> None:
    talk = Talk(plan_of(job("a"), job("b"), actions=(action(JOBS_COMPLETE, 0, 1),)))
    talk.ended(0, 1)
    assert talk.ended(1) == [RunActionCommand(0, 0)]
    assert talk.say(done(0)) == [RunIsOver()]


def test_jobs_left_out_count_as_ready_and_complete() -> None:
    actions = (action(JOBS_READY, 0), action(JOBS_COMPLETE, 0))
    talk = Talk(plan_of(job("a"), job("b"), actions=actions), enabled={1})
    assert {RunActionCommand(0, 0), RunActionCommand(1, 0)} <= set(talk.commands)


def test_nodes_are_asked_for_before_the_first_job_and_nothing_waits_for_them() -> None:
    talk = Talk(plan_of(job("a"), actions=(nodes(START),)))
    assert talk.commands[0] == AskForNodes(0)
    assert starts(talk.commands) == [0]
    assert talk.ended(0) == [RunIsOver()]


def test_nodes_are_asked_for_when_jobs_are_ready_or_complete() -> None:
    talk = Talk(plan_of(job("a"), job("b", 0), actions=(nodes(JOBS_READY, 1), nodes(JOBS_COMPLETE, 1))))
    assert AskForNodes(0) in talk.ended(0)
    assert AskForNodes(1) in talk.ended(1)


def test_nobody_asks_for_nodes_when_the_workflow_is_complete() -> None:
    talk = Talk(plan_of(job("a"), actions=(nodes(COMPLETE),)))
    assert talk.ended(0) == [RunIsOver()]


def test_stopping_during_the_start_commands_starts_no_further_ones() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(START, commands=2),)))
    talk.say(StopWanted(StopMode.DRAIN))
    assert talk.say(done(0)) == [RunIsOver()]


def test_an_unexpected_end_of_a_command_is_ignored() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(COMPLETE),)))
    assert talk.say(done(0)) == []
    assert talk.ended(0) == [RunActionCommand(0, 0)]


WORKER_START, WORKER_COMPLETE = TriggerType.ON_WORKER_START, TriggerType.ON_WORKER_COMPLETE


def test_the_machine_of_the_run_is_a_worker_unless_others_serve_it() -> None:
    actions = (action(WORKER_START), action(WORKER_COMPLETE))
    talk = Talk(plan_of(job("a"), actions=actions))
    assert talk.commands == [RunActionCommand(0, 0), StateChanged(0)]
    assert starts(talk.say(done(0))) == [0]
    assert talk.ended(0) == [RunActionCommand(1, 0)]
    assert talk.say(done(1)) == [RunIsOver()]
    talk = Talk(plan_of(job("a"), actions=actions), is_worker=False)
    assert starts(talk.commands) == [0]
    assert talk.ended(0) == [RunIsOver()]


def test_commands_of_a_worker_that_stops_come_after_those_of_the_workflow() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(WORKER_COMPLETE, commands=2), action(COMPLETE))))
    assert talk.ended(0) == [RunActionCommand(1, 0)]
    assert talk.say(done(1)) == [RunActionCommand(0, 0)]
    assert talk.say(done(0)) == [RunActionCommand(0, 1)]
    assert talk.say(done(0, 1, Status.FAILED)) == [RunIsOver()]
    assert talk.schedule.failed_actions() == {0}


@pytest.mark.parametrize("mode", list(StopMode))
def test_a_worker_also_stops_when_the_run_is_stopped(mode: StopMode) -> None:
    talk = Talk(plan_of(job("a"), actions=(action(COMPLETE), action(WORKER_COMPLETE, commands=2))))
    talk.say(StopWanted(mode))
    assert talk.ended(0, status=Status.CANCELLED)[-1] == RunActionCommand(1, 0)
    assert talk.say(done(1)) == [RunActionCommand(1, 1)]
    talk.say(StopWanted(StopMode.KILL))
    assert talk.say(done(1, 1, Status.CANCELLED))[-1] == RunIsOver()


def test_an_action_that_failed_on_a_worker_counts_as_failed() -> None:
    talk = Talk(plan_of(job("a"), actions=(action(WORKER_START),)), is_worker=False)
    talk.schedule.triggers.failed_elsewhere(0)
    assert talk.schedule.failed_actions() == {0}
