"""What holds for every workflow. The simulated machine checks at each start that it all fits."""

import statistics
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import AttemptEnded, StartAttempt, StopMode, StopWanted
from joblens.engine.schedule.retries import Ending
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.plan import Plan, PlannedAction, PlannedData, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import (
    ActionSpec,
    ActionType,
    FailureHandler,
    RetryRule,
    TriggerType,
    WhenBlockedFails,
)
from tests.unit.engine.plans import GIB, job, mixed_workload, plan_of
from tests.unit.engine.simulated_machine import SUCCESS, SimulatedMachine

OFFER = RunCapacity(cpus=4, memory_bytes=8 * GIB, gpus=("gpu0", "gpu1"), most_jobs=5)
FAILED = Ending(Status.FAILED, 1, "exited")
ENDINGS = (
    SUCCESS,
    SUCCESS,
    SUCCESS,
    FAILED,
    Ending(Status.FAILED, 3, "exited"),
    Ending(Status.FAILED, 137, "out-of-memory"),
    Ending(Status.TIMEOUT, 124, "timeout"),
    Ending(Status.SUCCESS, 0, "exited", True),
    Ending(Status.ERROR, 127, "not-started"),
)
RULES = (
    RetryRule(exit_codes=(1, 137), max_retries=2, memory_factor=2.0),
    RetryRule(exit_codes=(3,), max_retries=1, recovery_script="fix", backoff_s=1.5),
)
HANDLER = FailureHandler(name="handler", rules=RULES)


@st.composite
def requirements(draw: st.DrawFn) -> Requirements:
    if draw(st.booleans()):
        return Requirements()
    return Requirements(
        cpus=draw(st.sampled_from([None, 0.5, 1.0, 2.0, 4.0])),
        memory_bytes=draw(st.sampled_from([None, GIB, 3 * GIB, 8 * GIB])),
        gpus=draw(st.sampled_from([None, 0, 1, 2])),
        timeout_s=draw(st.sampled_from([None, 1.0, 60.0])),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    jobs: list[PlannedJob] = []
    for index in range(draw(st.integers(1, 25))):
        needed = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        jobs.append(
            PlannedJob(
                name=f"job{index}",
                command="true",
                depends_on=tuple(sorted(needed)),
                requirements=draw(requirements()),
                failure_handler=draw(st.sampled_from([None, HANDLER])),
                when_blocked_fails=draw(st.sampled_from(list(WhenBlockedFails))),
                priority=draw(st.sampled_from([0, 0, 0, 5])),
                input_user_data=draw(st.sampled_from([(), (), (0,)])),
                output_user_data=(1,) if index == 0 else (),
            )
        )
    data = (PlannedData("given", draw(st.sampled_from([None, 1]))), PlannedData("made", producer=0))
    actions = tuple(
        PlannedAction(
            ActionSpec(trigger_type=trigger, action_type=ActionType.RUN_COMMANDS, commands=("x", "y")),
            (0,) if "jobs" in trigger else (),
        )
        for trigger in draw(st.sets(st.sampled_from(list(TriggerType)), max_size=2).map(sorted))
    )
    return plan_of(*jobs, user_data=data, actions=actions, use_pending_failed=draw(st.booleans()))


class Story:
    """How each run of each job ends and how long it takes: the same for whoever asks again."""

    def __init__(self, choices: list[int]) -> None:
        self._choices = choices

    def _pick(self, *what: int) -> int:
        return self._choices[
            sum((index + 1) * 7 * value for index, value in enumerate(what)) % len(self._choices)
        ]

    def ending(self, index: int, run: int) -> Ending:
        return ENDINGS[self._pick(index, run) % len(ENDINGS)]

    def duration_s(self, index: int) -> float:
        return (0.003, 0.02, 1.0, 2.5, 7.0)[self._pick(index) % 5]

    def recovery(self, index: int) -> bool:
        return self._pick(index) % 3 > 0


stories = st.lists(st.integers(0, 89), min_size=5, max_size=40).map(Story)


def machine_for(plan: Plan, story: Story) -> SimulatedMachine:
    return SimulatedMachine(plan, OFFER, story.duration_s, story.ending, story.recovery)


def states(schedule: Schedule) -> list[JobState]:
    return [schedule.state_of(index) for index in range(len(schedule.plan.jobs))]


@given(plans(), stories)
@settings(max_examples=60, deadline=None)
def test_every_job_ends_or_is_blocked_for_a_reason_that_has_a_name(plan: Plan, story: Story) -> None:
    machine, schedule = machine_for(plan, story), Schedule(plan, OFFER)
    machine.play(schedule)
    assert machine.overs == 1
    assert schedule.occupancy.capacity.free == schedule.occupancy.capacity.whole
    for index, state in enumerate(states(schedule)):
        assert state.is_final or state is JobState.BLOCKED
        if state is not JobState.COMPLETED:
            assert schedule.why(index)
    counted = {state: states(schedule).count(state) for state in set(states(schedule))}
    assert schedule.counts() == counted


@given(plans(), stories)
@settings(max_examples=15, deadline=None)
def test_the_same_events_bring_the_same_starts(plan: Plan, story: Story) -> None:
    traces = []
    for _ in range(2):
        machine = machine_for(plan, story)
        machine.play(Schedule(plan, OFFER))
        traces.append(machine.starts)
    assert traces[0] == traces[1]


@given(plans(), stories, st.integers(0, 60), st.sampled_from(list(StopMode)))
@settings(max_examples=40, deadline=None)
def test_a_stop_at_any_moment_brings_the_run_to_its_end(
    plan: Plan, story: Story, moment: int, mode: StopMode
) -> None:
    machine, schedule = machine_for(plan, story), Schedule(plan, OFFER)
    machine.play(schedule, moment)
    if schedule.is_over:
        return
    machine.feed(schedule, StopWanted(mode))
    started = len(machine.starts)
    machine.go_on(schedule)
    assert machine.overs == 1
    assert len(machine.starts) == started
    if mode is StopMode.KILL:
        assert all(state.is_final for state in states(schedule))


@given(plans(), stories, st.lists(st.integers(0, 40), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_run_killed_at_any_moment_comes_to_the_same_end(
    plan: Plan, story: Story, moments: list[int]
) -> None:
    undisturbed, expected = machine_for(plan, story), Schedule(plan, OFFER)
    undisturbed.play(expected)
    machine, schedule = machine_for(plan, story), Schedule(plan, OFFER)
    for moment in moments:
        machine.play(schedule, moment)
        if machine.overs:
            break
        machine.die()
        schedule = machine.restored(Schedule(plan, OFFER))
    if not machine.overs:
        machine.play(schedule)
    assert states(schedule) == states(expected)
    assert machine.runs == undisturbed.runs, "nothing that had ended was run again"
    again = machine.restored(Schedule(plan, OFFER))
    before = len(machine.starts)
    machine.overs = 0
    machine.play(again)
    assert len(machine.starts) == before, "a run that is over has nothing left to do"
    assert states(again) == states(expected)


def makespans(seeds: range, **how: Any) -> list[float]:
    ratios = []
    for seed in seeds:
        work = mixed_workload(seed, **how)
        machine = SimulatedMachine(work.plan, work.offer, work.durations_s.__getitem__)
        machine.play(Schedule(work.plan, work.offer))
        ratios.append(machine.now_s / work.lower_bound_s)
    return sorted(ratios)


def test_mixed_workflows_take_little_longer_than_any_schedule_must() -> None:
    ratios = makespans(range(500, 520))
    assert statistics.median(ratios) <= 1.08
    assert ratios[-3] <= 1.15


def test_mixed_workflows_without_runtimes_are_not_much_worse() -> None:
    assert statistics.median(makespans(range(500, 510), with_runtimes=False)) <= 1.2


def test_history_is_used_where_it_is_known() -> None:
    work = mixed_workload(7, with_runtimes=False)
    ratios = []
    for known in ({}, dict(enumerate(work.durations_s))):
        machine = SimulatedMachine(work.plan, work.offer, work.durations_s.__getitem__)
        machine.play(Schedule(work.plan, work.offer, Choices(expected_s=known)))
        ratios.append(machine.now_s / work.lower_bound_s)
    assert ratios[1] <= min(ratios[0], 1.15)


@pytest.mark.parametrize("distance", [0, 500])
def test_many_waiting_jobs_take_little_memory(distance: int) -> None:
    count = 20_000
    plan = plan_of(
        *(job(f"j{i}", *((i - distance,) if distance and i >= distance else ())) for i in range(count))
    )
    tracemalloc.start()
    schedule = Schedule(plan, OFFER)
    schedule.begin(0.0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / count < 300


def heads_looked_at(count: int) -> int:
    """By the event that a job has ended, with so many ready."""
    plan = plan_of(*(job(f"j{i}", cpus=float(1 + i % 4)) for i in range(count)))
    schedule = Schedule(plan, OFFER)
    started = [command for command in schedule.begin(0.0) if isinstance(command, StartAttempt)]
    looked: list[int] = []
    original = schedule._starter._waiting.index_at

    def counting(position: int) -> int:
        looked.append(position)
        return original(position)

    schedule._starter._waiting.index_at = counting  # type: ignore[method-assign]
    schedule.handle(AttemptEnded(started[0].index, 1, Status.SUCCESS, 0, "exited", 5.0), 5.0)
    return len(looked)


def test_an_event_looks_at_kinds_of_jobs_and_not_at_jobs() -> None:
    assert 0 < heads_looked_at(3000) <= heads_looked_at(300) + 2
