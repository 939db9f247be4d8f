"""Stages of a plan: jobs that become ready together, and the actions that fire with them."""

from joblens.model.runs.plan import Plan, PlannedAction, PlannedJob
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType
from joblens.plan.workflows.graph import jobs_by_kind, stages_of


def plan_of(*depends_on: tuple[int, ...], actions: tuple[PlannedAction, ...] = ()) -> Plan:
    jobs = tuple(
        PlannedJob(name=f"j{place}", command="true", depends_on=each, spec_job=len(each))
        for place, each in enumerate(depends_on)
    )
    return Plan(name="p", jobs=jobs, actions=actions)


def action(trigger: TriggerType, *jobs: int) -> PlannedAction:
    return PlannedAction(ActionSpec(trigger_type=trigger, action_type=ActionType.SCHEDULE_NODES), jobs)


def test_each_stage_has_its_jobs_and_the_jobs_they_wait_for() -> None:
    stages = stages_of(plan_of((), (0,), (0,), (1, 2)))
    assert [(one.number, one.jobs, one.needs) for one in stages] == [
        (1, (0,), ()),
        (2, (1, 2), (0,)),
        (3, (3,), (1, 2)),
    ]


def test_jobs_that_do_not_run_count_as_done() -> None:
    stages = stages_of(plan_of((), (0,), (0,), (1, 2)), {2, 3})
    assert [(one.jobs, one.needs) for one in stages] == [((2,), ()), ((3,), (2,))]
    assert stages_of(plan_of((), (0,)), set()) == []


def test_actions_stand_in_the_stage_in_which_they_fire() -> None:
    chain = ((), (0,), (1,))
    actions = (
        action(TriggerType.ON_WORKFLOW_START),
        action(TriggerType.ON_JOBS_READY, 0, 1),
        action(TriggerType.ON_JOBS_COMPLETE, 0),
        action(TriggerType.ON_JOBS_COMPLETE, 2),
        action(TriggerType.ON_WORKFLOW_COMPLETE),
    )
    stages = stages_of(plan_of(*chain, actions=actions))
    assert [one.actions for one in stages] == [(0,), (1, 2), (), (3, 4)]
    assert stages[-1].jobs == ()
    # Jobs that do not run are ready, and have ended, from the start.
    assert [one.actions for one in stages_of(plan_of(*chain, actions=actions), {2})] == [(0, 1, 2), (3, 4)]


def test_kinds_are_entries_of_the_file() -> None:
    assert jobs_by_kind(plan_of((), (0,), (), (0,)), (0, 1, 2, 3)) == [(0, 2), (1, 3)]
