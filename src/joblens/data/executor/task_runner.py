"""Task runner: sends tasks to a worker pool, retries them and logs their events; the interface of pools."""

import heapq
import itertools
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct

from joblens.data.base.messages import Ended, Failed, Happened, Lost, Message, RunStage, Task, event
from joblens.model.recipes.recipe import EventType, RecipeEvent


class Pool(Protocol):
    """Used by one thread. Every submitted task gets exactly one Ended, Failed or Lost, after its events. A
    lost worker is replaced before the next task."""

    @property
    def width(self) -> int:
        """Number of tasks that can run in parallel."""

    def submit(self, task: Task) -> None:
        """Submits a task; at most `width` may be pending."""

    def messages(self, timeout_s: float) -> Sequence[Message]:
        """Returns new messages, in order per task; waits at most `timeout_s` for one."""

    def close(self) -> None:
        """Kills all workers and their tasks."""


_CHECK_STOP_S = 0.2
_FIRST_DELAY_S = 0.5  # before a failed task is retried; doubled every time
_LONGEST_DELAY_S = 30.0
_MEMORY_ERRORS = ("MemoryError", "ArrowMemoryError", "OutOfMemory")
_MEMORY_ADVICE = (
    "; resume with more memory or fewer workers (--np), or start over with "
    "smaller partitions (partition.max_size_mb)"
)
_OP_ENDS = (EventType.OP_COMPLETE, EventType.OP_FAILED)

_SIGNAL_CAUSES = {"SIGINT": " (Ctrl-C)", "SIGHUP": " (terminal closed)"}


class Stopped(Exception):
    """The job was stopped by a signal."""

    def __init__(self, signal_number: int) -> None:
        name = signal.Signals(signal_number).name
        super().__init__(f"stopped by {name}{_SIGNAL_CAUSES.get(name, '')}")
        self.signal_number = signal_number


class FailedTask(Struct, frozen=True):
    """A task that failed permanently."""

    error_type: str
    error_message: str
    stack_trace: str = ""
    tries: int = 1
    started_at: float | None = None  # of the last attempt; seconds since 1970
    ended_at: float | None = None


TaskResult = Ended | FailedTask


class TaskRunner:
    """Runs tasks in parallel. `stop_signal` returns the number of the signal that asked the job to stop."""

    def __init__(
        self,
        pool: Pool,
        log: Callable[[Sequence[RecipeEvent]], None],
        stop_signal: Callable[[], int | None],
        *,
        max_retries: int,
        max_parallel: int | None = None,
        mono_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pool = pool
        self._log = log
        self._stop_signal = stop_signal
        self._max_retries = max_retries
        self._max_parallel = max(1, min(pool.width, max_parallel or pool.width))
        self._mono_s = mono_s
        self._sleep = sleep
        self._ready: deque[Task] = deque()
        self._delayed: list[tuple[float, int, Task]] = []  # heap of retries by the time they are due
        self._order = itertools.count()
        self._running: dict[str, Task] = {}
        self._failures: dict[str, int] = {}
        self._submitted_at: dict[str, float] = {}
        self._last_start: dict[str, RecipeEvent] = {}  # of operators, by task
        self._results: dict[str, TaskResult] = {}
        self._on_end: Callable[[Task, TaskResult], None] | None = None

    def run(
        self, tasks: Sequence[Task], on_end: Callable[[Task, TaskResult], None] | None = None
    ) -> dict[str, TaskResult]:
        """Runs all tasks and returns their results by ID. Calls `on_end` with each result; it may raise to
        end the job. Raises Stopped."""
        self._ready.extend(tasks)
        self._failures = dict.fromkeys((task.id for task in tasks), 0)
        self._results = {}
        self._on_end = on_end
        while self._ready or self._delayed or self._running:
            self._submit()
            self._handle_messages()
            stop = self._stop_signal()
            if stop is not None:
                raise Stopped(stop)
        return self._results

    def _submit(self) -> None:
        now_s = self._mono_s()
        while self._delayed and self._delayed[0][0] <= now_s:
            self._ready.append(heapq.heappop(self._delayed)[2])
        while self._ready and len(self._running) < self._max_parallel:
            task = self._ready.popleft()
            self._running[task.id] = task
            self._submitted_at[task.id] = time.time()
            self._pool.submit(task)

    def _handle_messages(self) -> None:
        wait_s = _CHECK_STOP_S
        if self._delayed:
            wait_s = min(wait_s, max(0.0, self._delayed[0][0] - self._mono_s()))
        if not self._running:
            self._sleep(wait_s)
            return
        messages = self._pool.messages(wait_s)
        events = [message for message in messages if isinstance(message, Happened)]
        for each in events:
            if each.event.event_type == EventType.OP_START:
                self._last_start[each.task_id] = each.event
            elif each.event.event_type in _OP_ENDS:
                self._last_start.pop(each.task_id, None)
        self._log([each.event for each in events])
        for message in messages:
            if not isinstance(message, Happened):
                self._handle_end(message)

    def _handle_end(self, message: Message) -> None:
        task = self._running.pop(message.task_id, None)
        if task is None:
            return
        if isinstance(message, Ended):
            self._finish(task, message)
            return
        self._failures[task.id] += 1
        tries = self._failures[task.id]
        start = self._last_start.pop(task.id, None)
        failed = _as_failed_task(message, tries, _position(task, start))
        if start is not None:  # its worker cannot report it
            self._log([_op_lost(start, failed)])
        is_final = isinstance(message, Failed) and message.is_final
        is_out_of_memory = failed.error_type in _MEMORY_ERRORS
        if is_out_of_memory:  # a partition may have enough memory when run alone
            self._max_parallel = max(1, self._max_parallel // 2)
        if is_final or tries > self._max_retries:
            final = msgspec.structs.replace(
                failed,
                error_message=failed.error_message + (_MEMORY_ADVICE if is_out_of_memory else ""),
                started_at=self._submitted_at.get(task.id),
                ended_at=time.time(),
            )
            self._finish(task, final)
            return
        # A lost worker may not be the task's fault: the first retry is immediate.
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (tries - 1))
        if isinstance(message, Lost) and tries == 1:
            delay_s = 0.0
        self._log_retry(task, failed, delay_s)
        retry = msgspec.structs.replace(task, attempt=tries) if isinstance(task, RunStage) else task
        heapq.heappush(self._delayed, (self._mono_s() + delay_s, next(self._order), retry))

    def _finish(self, task: Task, result: TaskResult) -> None:
        self._results[task.id] = result
        if self._on_end is not None:
            self._on_end(task, result)

    def _log_retry(self, task: Task, failed: FailedTask, delay_s: float) -> None:
        if isinstance(task, RunStage):
            retry = event(
                EventType.PARTITION_RETRY,
                partition_id=task.partition.id,
                retry_count=failed.tries,
                error_message=failed.error_message,
                stack_trace=failed.stack_trace or UNSET,
                metadata={"error_type": failed.error_type, "delay_seconds": delay_s},
            )
            self._log([retry])


def _position(task: Task, start: RecipeEvent | None) -> str:
    """Describes what the task was doing when it failed."""
    parts = [f"partition {task.partition.id}"] if isinstance(task, RunStage) else []
    if start is not None:
        parts.append(f"operator {start.operation_idx} {start.operation_name}")
    return ", ".join(parts) or f"task {task.id}"


def _op_lost(start: RecipeEvent, failed: FailedTask) -> RecipeEvent:
    """Builds the event of an operator whose worker is gone."""
    return event(
        EventType.OP_FAILED,
        partition_id=start.partition_id,
        operation_idx=start.operation_idx,
        operation_name=start.operation_name,
        status="failed",
        error_message=failed.error_message,
        input_rows=start.input_rows,
        retry_count=failed.tries - 1,
    )


def _as_failed_task(message: Message, tries: int, position: str) -> FailedTask:
    if isinstance(message, Failed):
        return FailedTask(message.error_type, message.error_message, message.stack_trace, tries)
    assert isinstance(message, Lost)
    kind = "OutOfMemory" if message.is_out_of_memory else "WorkerLost"
    return FailedTask(kind, f"{position}: {message.reason}", "", tries)
