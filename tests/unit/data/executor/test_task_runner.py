"""Who is tried again, how often, and who hears of it; the pool is a list of answers."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from joblens.data.base.messages import Ended, Failed, Happened, Lost, Message, RunStage, Task, event
from joblens.data.executor.task_runner import FailedTask, Stopped, TaskRunner
from joblens.model.recipes.recipe import EventType, Partition, RecipeEvent

Answer = Callable[[Task, int], Message]


class ScriptedPool:
    def __init__(self, width: int, answer: Answer) -> None:
        self.width = width
        self.most_at_once = 0
        self._answer = answer
        self._tries: dict[str, int] = {}
        self._running: list[Task] = []

    def submit(self, task: Task) -> None:
        self._running.append(task)
        self.most_at_once = max(self.most_at_once, len(self._running))

    def messages(self, timeout_s: float) -> Sequence[Message]:
        found = []
        for task in self._running[:1]:
            self._running.remove(task)
            tries = self._tries[task.id] = self._tries.get(task.id, 0) + 1
            found.append(self._answer(task, tries))
        return found

    def close(self) -> None:
        pass


def partition_task(number: int) -> RunStage:
    return RunStage(f"t{number}", Partition(id=number, slices=(), size_bytes=1), 0)


def run(
    pool: ScriptedPool, count: int = 3, *, max_retries: int = 1, stop: Callable[[], int | None] = lambda: None
) -> tuple[dict[str, Ended | FailedTask], list[RecipeEvent]]:
    logged: list[RecipeEvent] = []
    runner = TaskRunner(pool, logged.extend, stop, max_retries=max_retries)
    return runner.run([partition_task(number) for number in range(count)]), logged


def test_all_tasks_end_and_no_more_run_at_once_than_the_pool_is_wide() -> None:
    pool = ScriptedPool(2, lambda task, tries: Ended(task.id, {"n": task.id}))
    results, logged = run(pool, 5)
    assert results == {f"t{n}": Ended(f"t{n}", {"n": f"t{n}"}) for n in range(5)}
    assert pool.most_at_once == 2
    assert logged == []


def test_a_task_whose_worker_is_lost_is_tried_again_with_its_attempt() -> None:
    seen: list[int] = []

    def answer(task: Task, tries: int) -> Message:
        assert isinstance(task, RunStage)
        if task.id == "t1":
            seen.append(task.attempt)
        return Lost(task.id, "gone") if task.id == "t1" and tries == 1 else Ended(task.id)

    results, logged = run(ScriptedPool(2, answer))
    assert all(isinstance(each, Ended) for each in results.values())
    assert seen == [0, 1]
    assert [(each.event_type, each.partition_id, each.retry_count) for each in logged] == [
        ("partition_retry", 1, 1)
    ]


def test_a_task_that_fails_once_too_often_is_given_up() -> None:
    def answer(task: Task, tries: int) -> Message:
        return Lost(task.id, "gone") if task.id == "t0" else Ended(task.id)

    results, logged = run(ScriptedPool(1, answer), max_retries=1)
    lost = results["t0"]
    assert isinstance(lost, FailedTask)
    assert (lost.error_type, lost.error_message, lost.tries) == ("WorkerLost", "partition 0: gone", 2)
    assert lost.started_at is not None
    assert isinstance(results["t1"], Ended)
    assert len(logged) == 1


def test_what_cannot_change_is_not_tried_again() -> None:
    def answer(task: Task, tries: int) -> Message:
        return Failed(task.id, "BadRow", "line 3", "trace", is_final=True)

    results, logged = run(ScriptedPool(1, answer), 1, max_retries=5)
    how = results["t0"]
    assert isinstance(how, FailedTask)
    assert (how.error_type, how.error_message, how.stack_trace, how.tries) == ("BadRow", "line 3", "trace", 1)
    assert logged == []


def test_events_go_to_the_log_before_their_task_ends() -> None:
    happened = event(EventType.OP_START, partition_id=0)

    class Talking(ScriptedPool):
        def messages(self, timeout_s: float) -> Sequence[Message]:
            return [Happened("t0", happened), *super().messages(timeout_s)]

    _, logged = run(Talking(1, lambda task, tries: Ended(task.id)), 1)
    assert logged == [happened]


class FakeTime:
    """Seconds that pass only while someone sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def mono_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds <= 0.2, "a signal must not wait longer"
        self.now_s += max(seconds, 0.001)


def test_the_delay_before_a_retry_doubles_up_to_half_a_minute() -> None:
    passing = FakeTime()
    started_s: list[float] = []

    def answer(task: Task, tries: int) -> Message:
        started_s.append(passing.now_s)
        return Failed(task.id, "OSError", "disk")

    runner = TaskRunner(
        ScriptedPool(1, answer),
        lambda _: None,
        lambda: None,
        max_retries=8,
        mono_s=passing.mono_s,
        sleep=passing.sleep,
    )
    runner.run([partition_task(0)])
    delays_s = [round(later - earlier, 1) for earlier, later in pairwise(started_s)]
    assert delays_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_lost_worker_s_task_is_retried_at_once() -> None:
    passing = FakeTime()
    pool = ScriptedPool(1, lambda task, tries: Lost(task.id, "gone") if tries == 1 else Ended(task.id))
    runner = TaskRunner(
        pool, lambda _: None, lambda: None, max_retries=1, mono_s=passing.mono_s, sleep=passing.sleep
    )
    runner.run([partition_task(0)])
    assert passing.now_s < 100.1


def test_someone_who_wants_it_stopped_is_noticed_while_tasks_run() -> None:
    pool = ScriptedPool(1, lambda task, tries: Ended(task.id))
    with pytest.raises(Stopped) as stopped:
        run(pool, 3, stop=lambda: 15)
    assert stopped.value.signal_number == 15


def test_a_lost_worker_is_reported_with_what_it_was_doing() -> None:
    class PlacementEvents(ScriptedPool):
        def messages(self, timeout_s: float) -> Sequence[Message]:
            start = event(EventType.OP_START, partition_id=0, operation_idx=2, operation_name="words_filter")
            result = [Happened(task.id, start) for task in self._running[:1]]
            return [*result, *super().messages(timeout_s)]

    pool = PlacementEvents(1, lambda task, tries: Lost(task.id, "worker 7 was killed"))
    results, logged = run(pool, 1, max_retries=0)
    failed = results["t0"]
    assert [each.event_type for each in logged] == ["op_start", "op_failed"]
    assert isinstance(failed, FailedTask)
    assert failed.error_message == "partition 0, operator 2 words_filter: worker 7 was killed"


def test_a_task_that_ran_out_of_memory_is_tried_again_with_less_at_once_and_reported_what_to_do() -> None:
    pool = ScriptedPool(4, lambda task, tries: Lost(task.id, "out of memory", is_out_of_memory=True))
    logged: list[RecipeEvent] = []
    runner = TaskRunner(pool, logged.extend, lambda: None, max_retries=1)
    results = runner.run([partition_task(0), partition_task(1)])
    assert pool.most_at_once == 2
    pool.most_at_once = 0
    assert all(isinstance(each, FailedTask) and each.error_type == "OutOfMemory" for each in results.values())
    assert all("smaller partitions" in each.error_message for each in results.values())  # type: ignore[union-attr]
    assert logged[0].error_message == "partition 0: out of memory"
    runner.run([partition_task(number) for number in range(2, 5)])
    assert pool.most_at_once == 1
