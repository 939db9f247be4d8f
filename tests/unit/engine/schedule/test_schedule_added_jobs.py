"""Jobs that come into a run while it goes on."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.engine.progress.progress import ProgressTracker
from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import (
    AskForJobs,
    Command,
    FinalizationEnded,
    FinalizeDataset,
    JobsAdded,
    JobsAsked,
    StartAttempt,
    StopMode,
    StopWanted,
)
from joblens.engine.schedule.ready_queue import GAP, Order
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import ContainerJob, Status
from joblens.model.runs.plan import (
    Plan,
    PlannedAction,
    PlannedData,
    PlannedDataset,
    PlannedJob,
    grow,
    growing,
)
from joblens.model.runs.run import JobResult, JobState
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType, WhenBlockedFails
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.selection import select
from tests.unit.engine.plans import GIB, OFFER, Talk, handler, job, plan_of, starts


def talk(*jobs: PlannedJob, offer: RunCapacity = OFFER, **choices: Any) -> Talk:
    plan = choices.pop("plan", None) or plan_of(*jobs)
    return Talk(growing(plan), offer, may_grow=True, **choices)


def add(result: Talk, *jobs: PlannedJob) -> list[Command]:
    first = len(result.schedule.plan.jobs)
    grow(result.schedule.plan, jobs)
    return result.say(JobsAdded(first))


def spawned(name: str, *depends_on: int, **more: Any) -> PlannedJob:
    return job(name, *depends_on, spawned_by=more.pop("by", 0), **more)


def one_after_the_other(result: Talk, order: list[int]) -> list[int]:
    for _ in result.schedule.plan.jobs:
        order += starts(result.ended(order[-1]))
    return order


def asks(commands: list[Command]) -> bool:
    return any(isinstance(command, AskForJobs) for command in commands)


def test_added_jobs_wait_for_the_job_that_added_them() -> None:
    result = talk(job("orchestrator"))
    result.began(0)
    assert starts(add(result, spawned("a", 0), spawned("b", 0, 1))) == []
    assert result.states[1:] == [JobState.BLOCKED, JobState.BLOCKED]
    assert starts(result.ended(0)) == [1]
    assert starts(result.ended(1)) == [2]
    assert asks(result.ended(2))
    result.say(JobsAsked())
    assert result.is_over


def test_jobs_that_come_after_the_end_of_their_orchestrator_start_at_once() -> None:
    result = talk(job("orchestrator"))
    assert asks(result.ended(0))
    assert not result.is_over
    assert starts(add(result, spawned("a", 0))) == [1]
    result.say(JobsAsked())
    assert not result.is_over
    assert asks(result.ended(1))
    result.say(JobsAsked())
    assert result.is_over


def test_a_run_that_cannot_grow_asks_nobody() -> None:
    result = Talk(plan_of(job("a")))
    assert not asks(result.ended(0))
    assert result.is_over


def test_actions_of_the_end_wait_for_added_jobs() -> None:
    last = PlannedAction(
        ActionSpec(
            trigger_type=TriggerType.ON_WORKFLOW_COMPLETE,
            action_type=ActionType.RUN_COMMANDS,
            commands=("echo end",),
        )
    )
    result = talk(plan=plan_of(job("orchestrator"), actions=(last,)))
    result.ended(0)
    assert not result.schedule.triggers.any_running
    add(result, spawned("a", 0))
    result.say(JobsAsked())
    result.ended(1)
    result.say(JobsAsked())
    assert result.schedule.triggers.any_running


@pytest.mark.parametrize("rule", list(WhenBlockedFails))
def test_jobs_of_an_orchestrator_that_failed_never_run(rule: WhenBlockedFails) -> None:
    result = talk(job("orchestrator"))
    add(result, spawned("a", 0, when_blocked_fails=rule))
    assert starts(result.ended(0, exit_code=1)) == []
    is_cancelled = rule is WhenBlockedFails.CANCEL
    assert result.state(1) is (JobState.CANCELED if is_cancelled else JobState.BLOCKED)
    late = talk(job("orchestrator"))
    late.ended(0, exit_code=1)
    assert starts(add(late, spawned("a", 0, when_blocked_fails=rule))) == []
    assert late.state(1) is result.state(1)


def test_a_continuation_that_runs_all_the_same_runs_after_a_sibling_failed() -> None:
    result = talk(job("orchestrator"))
    add(result, spawned("work", 0), spawned("next", 0, 1, when_blocked_fails=WhenBlockedFails.RUN))
    result.ended(0)
    assert starts(result.ended(1, exit_code=1)) == [2]


def test_jobs_of_an_orchestrator_that_is_tried_again_wait_for_its_success() -> None:
    result = talk(job("orchestrator", failure_handler=handler(match_all_exit_codes=True, max_retries=2)))
    add(result, spawned("a", 0))
    assert starts(result.ended(0, exit_code=1)) == [0]
    assert result.state(1) is JobState.BLOCKED
    assert starts(result.ended(0)) == [1]


def test_added_jobs_may_need_jobs_that_were_there_before() -> None:
    result = talk(job("orchestrator"), job("slow"))
    add(result, spawned("a", 0, 1))
    assert starts(result.ended(0)) == []
    assert starts(result.ended(1)) == [2]


def test_priorities_hold_among_old_and_added_jobs() -> None:
    one = RunCapacity(cpus=1, memory_bytes=GIB)
    result = talk(
        job("orchestrator", priority=9), job("low"), job("high", priority=5), offer=one, may_go_ahead=False
    )
    add(
        result,
        spawned("between", 0, priority=3),
        spawned("first", 0, priority=7),
        spawned("last", 0, priority=-1),
    )
    order = one_after_the_other(result, starts(result.ended(0)))
    assert [result.schedule.plan.jobs[index].name for index in order] == [
        "first",
        "high",
        "between",
        "low",
        "last",
    ]


def test_a_stop_leaves_added_jobs_for_the_next_driver() -> None:
    result = talk(job("orchestrator"))
    result.say(StopWanted(StopMode.DRAIN))
    assert asks(result.ended(0))
    add(result, spawned("a", 0))
    result.say(JobsAsked())
    assert result.is_over
    assert result.state(1) is JobState.READY


def test_no_selection_leaves_out_added_jobs() -> None:
    plan = growing(plan_of(job("orchestrator"), job("other")))
    grow(plan, [spawned("a", 0, 1)])
    assert select(plan, ["orchestrator"], [], []).indexes == (0, 2)
    assert select(plan, [], ["other"], []).indexes == (0, 2)


def test_an_added_job_waits_for_user_data_without_a_value() -> None:
    from joblens.engine.schedule.events import DataChanged

    result = talk(plan=plan_of(job("orchestrator"), user_data=(PlannedData("x"), PlannedData("y"))))
    add(
        result,
        spawned("a", 0, input_user_data=(0,)),
        spawned("maker", 0, output_user_data=(1,)),
        spawned("reader", 0, 2, input_user_data=(1,)),
    )
    assert starts(result.ended(0)) == [2]
    assert starts(result.say(DataChanged(0))) == [1]
    assert starts(result.ended(2)) == [3]  # its data comes with the end of its maker


# ---- the same from facts ---------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    return draw(st.lists(st.tuples(st.sampled_from(["add", "end", "fail"]), st.integers(0, 50)), max_size=30))


@given(histories())
@settings(max_examples=150, deadline=None)
def test_what_is_replayed_from_any_prefix_is_what_was_live(history: list[tuple[str, int]]) -> None:
    """Live, batch by batch and end by end; replayed, from the plan and the results as they are then."""
    result = talk(job("orchestrator"), job("other"))
    results: list[JobResult] = []
    for what, choice in history:
        running = result.schedule.running()
        if result.schedule.is_over:
            break
        if what == "add" and running:
            by = running[choice % len(running)]
            count = len(result.schedule.plan.jobs)
            rule = list(WhenBlockedFails)[choice % 3]
            add(
                result,
                spawned(f"a{count}", by, by=by, when_blocked_fails=rule, priority=choice % 4),
                spawned(f"b{count}", *sorted({by, count, choice % count}), by=by),
            )
        elif running:
            index = running[choice % len(running)]
            status = Status.FAILED if what == "fail" else Status.SUCCESS
            attempt = result.schedule.attempt_of(index)
            results.append(
                JobResult(index, attempt, len(results), f"u{len(results)}", status, int(what == "fail"))
            )
            result.ended(index, int(what == "fail"))
        plan = growing(result.schedule.plan)
        again = Schedule(plan, OFFER, Choices(may_grow=True))
        under_way = [
            JobResult(index, result.schedule.attempt_of(index), 0, "r", Status.RUNNING)
            for index in result.schedule.running()
        ]
        restore(again, [*results, *under_way], [])
        again.begin(result.now_s)
        live = [_final(state) for state in result.states]
        assert [_final(again.state_of(index)) for index in range(len(plan.jobs))] == live


def _final(state: JobState) -> JobState:
    return JobState.RUNNING if state is JobState.PENDING else state


# ---- order and cost ----------------------------------------------------------------------------------------


def test_numbers_of_the_order_are_made_again_when_a_gap_is_full() -> None:
    plan = growing(plan_of(job("high", priority=5), job("low")))
    order = Order(plan, [1.0, 1.0], lambda _: 0.0)
    renewals = 0
    for place in range(60):
        grow(plan, [job(f"j{place}", priority=4 - place % 4)])
        renewals += order.add([1.0])
    by_number = sorted(range(len(plan.jobs)), key=order.numbers.__getitem__)
    keys = [(-plan.jobs[index].priority, index) for index in by_number]
    assert keys == sorted(keys)
    assert order.numbers[1] - order.numbers[0] > GAP // 2
    many = growing(plan_of(job("high", priority=100_000), job("low", priority=-1)))
    full = Order(many, [1.0, 1.0], lambda _: 0.0)
    for place in range(40):  # each comes before all that were added before it
        grow(many, [job(f"j{place}", priority=place)])
        renewals += full.add([1.0])
    assert renewals > 0
    by_number = sorted(range(len(many.jobs)), key=full.numbers.__getitem__)
    assert [many.jobs[index].priority for index in by_number] == [100_000, *reversed(range(40)), -1]


def test_waiting_jobs_keep_their_order_when_numbers_are_made_again() -> None:
    one = RunCapacity(cpus=1, memory_bytes=GIB)
    result = talk(job("orchestrator", priority=1000), job("low", priority=-1), offer=one, may_go_ahead=False)
    for place in range(40):
        add(result, spawned(f"j{place}", 0, priority=place))
    order = [*starts(result.ended(0))]
    for place in range(40, 60):  # while the others wait for their turn
        add(result, spawned(f"j{place}", 0, priority=place))
    order = one_after_the_other(result, order)
    priorities = [result.schedule.plan.jobs[index].priority for index in order]
    assert priorities == [39, *range(59, 39, -1), *range(38, -1, -1), -1]


def test_thousands_of_batches_cost_little_in_a_large_run() -> None:
    count = 20_000
    result = talk(*[job("orchestrator"), *(job(f"j{place}", 0) for place in range(count))])
    began_s = time.process_time()
    for place in range(2_000):
        add(
            result,
            spawned(f"a{place}", 0, priority=place % 3),
            spawned(f"b{place}", 0, count + 1 + 2 * place),
        )
    assert time.process_time() - began_s < 5.0  # 2.5 ms for each: far less than working it all out again
    assert result.schedule.counts()[JobState.BLOCKED] == count + 4_000


def test_progress_counts_added_jobs_in_stages_of_their_own() -> None:
    plan: Plan = growing(plan_of(job("orchestrator")))
    tracker = ProgressTracker(plan, Graph(plan).stages(), OFFER, {}, run="1.1", began_at_us=0)
    new = [spawned("next", 0, 2), spawned("work", 0)]  # in any order
    grow(plan, new)
    tracker.add_jobs(new)
    tracker.state_changed(0, JobState.COMPLETED, 5)
    tracker.state_changed(2, JobState.RUNNING, 6)
    progress = tracker.progress(10)
    assert [(stage.name, stage.total, stage.running) for stage in progress.stages] == [
        ("orchestrator", 1, 0),
        ("work", 1, 1),
        ("next", 1, 0),
    ]
    assert tracker.finished() == (1, 3)


# ---- jobs that read datasets -----------------------------------------------------------------------------

WAIT, CANCEL, RUN = WhenBlockedFails.WAIT, WhenBlockedFails.CANCEL, WhenBlockedFails.RUN


def with_producers(count: int = 2, **more: Any) -> Talk:
    """Job 0 adds jobs; jobs 1 to `count` fill dataset 0."""
    made = tuple(range(1, count + 1))
    return talk(
        plan=plan_of(
            job("orchestrator"),
            *(job(f"part_{number}", output_datasets=(0,)) for number in made),
            datasets=(PlannedDataset("parts", "out/parts", producers=made),),
        ),
        **more,
    )


def reader(*depends_on: int, name: str = "reader", **more: Any) -> PlannedJob:
    return spawned(name, *depends_on, input_datasets=(0,), **more)


def finalized(commands: list[Command]) -> list[int]:
    return [command.index for command in commands if isinstance(command, FinalizeDataset)]


def test_an_added_reader_waits_for_every_producer_of_its_dataset() -> None:
    result = with_producers()
    result.ended(1)
    result.ended(0)
    assert finalized(add(result, reader(0, 1, 2))) == []  # the second producer still runs
    assert result.state(3) is JobState.BLOCKED
    commands = result.ended(2)
    assert (finalized(commands), starts(commands)) == ([0], [])
    assert starts(result.say(FinalizationEnded(0))) == [3]


def test_jobs_added_behind_a_producer_count_it_once() -> None:
    result = with_producers()
    result.ended(1)
    result.ended(0)
    assert finalized(add(result, spawned("a", 0, 1), spawned("b", 0, 1))) == []
    assert finalized(result.ended(2)) == [0]


def test_an_added_reader_of_a_finalized_dataset_starts_at_once() -> None:
    result = with_producers()
    for index in (0, 1, 2):
        result.ended(index)
    result.say(FinalizationEnded(0))
    commands = add(result, reader(0, 1, 2))
    assert (finalized(commands), starts(commands)) == ([], [3])


def test_an_added_reader_of_a_dataset_that_is_being_finalized_waits_for_that() -> None:
    result = with_producers()
    for index in (0, 1, 2):
        result.ended(index)
    commands = add(result, reader(0, 1, 2))
    assert (finalized(commands), starts(commands)) == ([], [])
    assert starts(result.say(FinalizationEnded(0))) == [3]


def test_the_first_reader_of_a_dataset_that_nobody_makes_has_it_finalized() -> None:
    result = talk(plan=plan_of(job("orchestrator"), datasets=(PlannedDataset("raw", "raw"),)))
    result.ended(0)
    commands = add(result, reader(0), reader(0, name="second"))
    assert (finalized(commands), starts(commands)) == ([0], [])
    assert starts(result.say(FinalizationEnded(0))) == [1, 2]


@pytest.mark.parametrize(
    ("policy", "state"), [(WAIT, JobState.BLOCKED), (CANCEL, JobState.CANCELED), (RUN, JobState.PENDING)]
)
def test_producers_that_failed_mean_the_same_for_a_reader_that_comes_later(
    policy: WhenBlockedFails, state: JobState
) -> None:
    result = with_producers()
    result.ended(1, exit_code=1)
    result.ended(2, exit_code=1)
    result.ended(0)
    assert finalized(add(result, reader(0, 1, 2, when_blocked_fails=policy))) == []
    assert result.state(3) is state
    early = with_producers()
    add(early, reader(0, 1, 2, when_blocked_fails=policy))
    for index, exit_code in ((1, 1), (2, 1), (0, 0)):
        early.ended(index, exit_code)
    assert early.states == result.states


@pytest.mark.parametrize(
    ("policy", "state"), [(WAIT, JobState.BLOCKED), (CANCEL, JobState.CANCELED), (RUN, JobState.PENDING)]
)
def test_a_dataset_that_could_not_be_finalized_means_the_same_for_a_reader_that_comes_later(
    policy: WhenBlockedFails, state: JobState
) -> None:
    result = with_producers(1)
    result.ended(1)
    result.say(FinalizationEnded(0, "out/parts: gone"))
    result.ended(0)
    add(result, reader(0, 1, when_blocked_fails=policy), spawned("behind", 0, 2, when_blocked_fails=CANCEL))
    assert result.state(2) is state
    if policy is not RUN:
        assert "dataset 'parts', which could not be finalized: out/parts: gone" in result.schedule.why(2)
        assert result.state(3) is (JobState.CANCELED if policy is CANCEL else JobState.BLOCKED)
        result.say(JobsAsked())
        assert result.is_over


def test_a_tiny_job_in_a_container_is_never_sent_behind_another() -> None:
    def behind(container: ContainerJob | None) -> list[int]:
        result = talk(job("orchestrator"), offer=RunCapacity(cpus=1, memory_bytes=GIB))
        add(result, *(spawned(f"j{number}", 0, container=container) for number in range(20)))
        result.ended(0, duration_s=0.001)
        result.ended(1, duration_s=0.001)
        return [one.index for one in result.commands if isinstance(one, StartAttempt) and one.behind]

    assert behind(None)
    assert behind(ContainerJob(image="i")) == []


def test_added_jobs_find_their_position_also_when_others_have_grown() -> None:
    """A retry with more memory, or a larger offer, changes the sizes of jobs that have a position already."""
    sizes = {0: 0.5, 1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1, 5: 0.25}
    plan = growing(plan_of(*(job(f"j{index}") for index in range(5))))
    order = Order(plan, [1.0] * 5, lambda index: sizes[index])
    sizes |= {3: 0.9, 4: 0.8}
    grow(plan, [spawned("new", 0)])
    order.add([1.0])
    by_number = sorted(range(6), key=order.numbers.__getitem__)
    assert by_number == [0, 1, 2, 5, 3, 4]
