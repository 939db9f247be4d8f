"""Datasets in a schedule: who waits for what, when they are finalized, and what a failure means."""

import random
from typing import Any

import pytest

from joblens.engine.schedule.capacity import Choices
from joblens.engine.schedule.dry_run import rehearse
from joblens.engine.schedule.events import (
    Command,
    FinalizationEnded,
    FinalizeDataset,
    RunIsOver,
    StateChanged,
    StopMode,
    StopWanted,
)
from joblens.engine.schedule.job_table import DatasetState
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan, PlannedDataset, PlannedJob
from joblens.model.runs.run import DatasetFinalized, JobResult, JobState, RunEvent, RunFact
from joblens.model.runs.workflow_spec import HashMode, WhenBlockedFails
from tests.unit.engine.plans import OFFER, Talk, job, plan_of, starts
from tests.unit.engine.simulated_machine import SimulatedMachine

WAIT, CANCEL, RUN = WhenBlockedFails.WAIT, WhenBlockedFails.CANCEL, WhenBlockedFails.RUN


def fan_in(producers: int = 2, **reader: Any) -> Plan:
    """Jobs 0 to n-1 fill 'parts', job n reads it."""
    made = tuple(range(producers))
    return plan_of(
        *(job(f"part_{number}", output_datasets=(0,)) for number in made),
        job("join", *made, input_datasets=(0,), **reader),
        datasets=(PlannedDataset("parts", "out/parts", producers=made),),
    )


def finalized(commands: list[Command]) -> list[int]:
    return [command.index for command in commands if isinstance(command, FinalizeDataset)]


def fact(error: str = "", place: int = 0, name: str = "parts") -> RunFact:
    return DatasetFinalized(place, name, "out/parts", HashMode.MANIFEST, 2, 10, "ab", error=error)


def event(noted: RunFact) -> RunEvent:
    return RunEvent("e", "run", 1, noted)


def result(index: int) -> JobResult:
    return JobResult(index, 1, index + 1, f"job-{index}", Status.SUCCESS, 0, "exited")


def test_a_reader_waits_for_all_producers_and_for_the_finalization() -> None:
    talk = Talk(fan_in())
    assert finalized(talk.ended(0)) == []
    found = talk.ended(1)
    assert (finalized(found), starts(found)) == ([0], [])
    assert talk.state(2) is JobState.BLOCKED
    assert talk.schedule.why(2) == "waits until dataset parts is finalized"
    assert starts(talk.say(FinalizationEnded(0))) == [2]
    assert talk.ended(2)[-1] == RunIsOver()


def test_a_run_is_not_over_before_its_datasets_are_finalized() -> None:
    plan = plan_of(
        job("make", output_datasets=(0,)), datasets=(PlannedDataset("parts", "out", producers=(0,)),)
    )
    talk = Talk(plan)
    found = talk.ended(0)
    assert finalized(found) == [0]
    assert RunIsOver() not in found
    assert talk.say(FinalizationEnded(0))[-1] == RunIsOver()


def test_a_dataset_that_nobody_makes_is_finalized_at_the_start_for_its_readers() -> None:
    plan = plan_of(
        job("read", input_datasets=(0,)),
        datasets=(PlannedDataset("raw", "raw"), PlannedDataset("unread", "unread")),
    )
    talk = Talk(plan)
    assert (finalized(talk.commands), starts(talk.commands)) == ([0], [])
    assert starts(talk.say(FinalizationEnded(0))) == [0]


@pytest.mark.parametrize(
    ("policy", "state"), [(WAIT, JobState.BLOCKED), (CANCEL, JobState.CANCELED), (RUN, JobState.PENDING)]
)
def test_a_producer_that_fails_means_the_same_as_with_files(
    policy: WhenBlockedFails, state: JobState
) -> None:
    talk = Talk(fan_in(when_blocked_fails=policy))
    talk.ended(0, exit_code=1)
    assert finalized(talk.ended(1)) == []
    assert talk.state(2) is state
    assert talk.schedule.table.datasets.states[0] == DatasetState.PENDING


@pytest.mark.parametrize(
    ("policy", "state"), [(WAIT, JobState.BLOCKED), (CANCEL, JobState.CANCELED), (RUN, JobState.PENDING)]
)
def test_a_dataset_that_cannot_be_finalized_holds_its_readers_back(
    policy: WhenBlockedFails, state: JobState
) -> None:
    talk = Talk(fan_in(1, when_blocked_fails=policy))
    talk.ended(0)
    found = talk.say(FinalizationEnded(0, "out/parts/a: Permission denied"))
    assert talk.state(1) is state
    assert talk.schedule.failed_datasets() == [0]
    if policy is not RUN:
        why = "dataset 'parts', which could not be finalized: out/parts/a: Permission denied"
        assert why in talk.schedule.why(1)
        assert any(isinstance(one, StateChanged) and why in one.why for one in found)
        assert found[-1] == RunIsOver()


def test_a_canceled_reader_takes_those_behind_it_along() -> None:
    plan = plan_of(
        job("read", input_datasets=(0,), when_blocked_fails=CANCEL),
        job("after", 0, when_blocked_fails=CANCEL),
        datasets=(PlannedDataset("raw", "raw"),),
    )
    talk = Talk(plan)
    talk.say(FinalizationEnded(0, "gone"))
    assert talk.states == [JobState.CANCELED, JobState.CANCELED]


def test_producers_that_are_left_out_of_the_run_do_not_hold_it_up() -> None:
    talk = Talk(fan_in(), enabled=frozenset({1, 2}))
    assert finalized(talk.ended(1)) == [0]
    only_reader = Talk(fan_in(), enabled=frozenset({2}))
    assert finalized(only_reader.commands) == [0]
    nothing = Talk(
        plan_of(
            job("other"),
            job("make", output_datasets=(0,)),
            datasets=(PlannedDataset("parts", "out", producers=(1,)),),
        ),
        enabled=frozenset({0}),
    )
    assert finalized(nothing.commands) == []


def test_a_job_that_reads_two_datasets_waits_for_both() -> None:
    plan = plan_of(
        job("read", input_datasets=(0, 1)), datasets=(PlannedDataset("a", "a"), PlannedDataset("b", "b"))
    )
    talk = Talk(plan)
    assert starts(talk.say(FinalizationEnded(1))) == []
    assert starts(talk.say(FinalizationEnded(0))) == [0]


def test_a_run_that_drains_still_finalizes_and_one_that_is_killed_does_not() -> None:
    talk = Talk(fan_in())
    talk.ended(0)
    talk.say(StopWanted(StopMode.DRAIN))
    found = talk.ended(1)
    assert finalized(found) == [0]
    assert talk.say(FinalizationEnded(0))[-1] == RunIsOver()
    killed = Talk(fan_in())
    killed.ended(0)
    killed.say(StopWanted(StopMode.KILL))
    found = killed.ended(1, status=Status.SUCCESS)
    assert finalized(found) == []
    assert found[-1] == RunIsOver()


# ---- what was recorded before ------------------------------------------------------------------------


def begun(plan: Plan, results: list[JobResult], *facts: RunFact, **base: Any) -> list[Command]:
    schedule = Schedule(plan, OFFER, Choices())
    restore(schedule, results, [event(one) for one in facts], **base)
    return schedule.begin(0.0)


def test_a_driver_that_was_killed_before_the_finalization_is_followed_by_one_that_does_it() -> None:
    found = begun(fan_in(), [result(0), result(1)])
    assert (finalized(found), starts(found)) == ([0], [])


def test_a_dataset_that_was_finalized_is_not_finalized_again() -> None:
    found = begun(fan_in(), [result(0), result(1)], fact())
    assert (finalized(found), starts(found)) == ([], [2])


def test_a_finalization_that_failed_is_tried_again_by_a_resume() -> None:
    assert finalized(begun(fan_in(), [result(0), result(1)], fact("gone"))) == [0]


def test_a_rerun_finalizes_what_its_jobs_make_or_read_and_keeps_the_rest() -> None:
    base = [result(0), result(1), result(2)]
    earlier = {"base": base, "base_events": [event(fact())]}
    read_again = begun(fan_in(), [], again=(2,), **earlier)
    assert (finalized(read_again), starts(read_again)) == ([0], [])
    made_again = begun(fan_in(), [], again=(1, 2), **earlier)
    assert (finalized(made_again), starts(made_again)) == ([], [1])
    plan = fan_in()
    beside = Plan(name="test", jobs=(*plan.jobs, job("other")), datasets=plan.datasets)
    untouched = begun(beside, [], again=(3,), **earlier)
    assert (finalized(untouched), starts(untouched)) == ([], [3])


def test_a_rehearsal_goes_past_datasets() -> None:
    rehearsal = rehearse(Schedule(fan_in(), OFFER), {0: 1.0, 1: 2.0, 2: 1.0})
    assert [start.index for start in rehearsal.starts] == [0, 1, 2]
    assert rehearsal.makespan_s == 3.0


def layered(seed: int) -> tuple[Plan, list[float]]:
    """Layers of jobs with datasets between them, some of which nobody makes or reads."""
    chance = random.Random(seed)
    jobs: list[PlannedJob] = []
    durations: list[float] = []
    datasets, readable = [PlannedDataset("outside", "outside")], [0]
    for layer in range(3):
        made = len(datasets)
        first, count = len(jobs), chance.randint(1, 4)
        for number in range(count):
            reads = tuple(sorted(chance.sample(readable, chance.randint(0, min(2, len(readable))))))
            needed = sorted({index for place in reads for index in datasets[place].producers})
            jobs.append(job(f"job_{layer}_{number}", *needed, input_datasets=reads, output_datasets=(made,)))
            durations.append(chance.uniform(0.1, 3.0))
        producers = tuple(range(first, first + count))
        datasets.append(PlannedDataset(f"layer_{layer}", f"layer_{layer}", producers=producers))
        readable.append(made)
    return plan_of(*jobs, datasets=tuple(datasets)), durations


@pytest.mark.parametrize("seed", range(40))
def test_a_run_that_is_killed_anywhere_ends_as_if_it_had_not_been(seed: int) -> None:
    plan, durations = layered(seed)
    chance = random.Random(seed + 1000)
    machine = SimulatedMachine(plan, OFFER, durations.__getitem__)
    schedule = Schedule(plan, OFFER)
    machine.play(schedule, chance.randint(0, 25))
    while not machine.overs:
        machine.die()
        schedule = machine.restored(Schedule(plan, OFFER))
        machine.play(schedule, chance.randint(5, 60))
    assert schedule.counts() == {JobState.COMPLETED: len(plan.jobs)}
    done = [result.index for result in machine.results if result.status is Status.SUCCESS]
    assert sorted(done) == list(range(len(plan.jobs)))
    finalized_at = {
        noted.fact.index: noted.at_us for noted in machine.facts if isinstance(noted.fact, DatasetFinalized)
    }
    began_at = {start.index: at_s * 1e6 for at_s, start in machine.starts}
    for index, planned in enumerate(plan.jobs):
        assert all(finalized_at[place] <= began_at[index] for place in planned.input_datasets)
    made = {place for place, dataset in enumerate(plan.datasets) if dataset.producers}
    assert made <= finalized_at.keys()
