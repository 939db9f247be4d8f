"""Task runner: tasks through a worker pool, in parallel, retried, with their events logged; the pool
interface.
"""

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
_OF_MEMORY = ("MemoryError", "ArrowMemoryError", "OutOfMemory")
_MEMORY_ADVICE = (
    "; resume with more memory or fewer workers (--np), or start over with "
    "smaller partitions (partition.max_size_mb)"
)
_OVER = (EventType.OP_COMPLETE, EventType.OP_FAILED)


_MEANT = {"SIGINT": " (Ctrl-C)", "SIGHUP": " (terminal closed)"}


class Stopped(Exception):
    """The job was stopped by a signal."""

    def __init__(self, signal_number: int) -> None:
        name = signal.Signals(signal_number).name
        super().__init__(f"stopped by {name}{_MEANT.get(name, '')}")
        self.signal_number = signal_number


class GaveUp(Struct, frozen=True):
    """A task that failed permanently."""

    error_type: str
    error_message: str
    stack_trace: str = ""
    tries: int = 1
    started_at: float | None = None  # of the last attempt;
    ended_at: float | None = None


class TaskRunner:
    def __init__(
        self,
        pool: Pool,
        log: Callable[[Sequence[RecipeEvent]], None],
        asked_to_stop: Callable[[], int | None],
        *,
        max_retries: int,
        at_once: int | None = None,
    ) -> None:
        self._pool = pool
        self._log = log
        self._asked_to_stop = asked_to_stop
        self._max_retries = max_retries
        self._at_once = max(1, min(pool.width, at_once or pool.width))
        self._ready: deque[Task] = deque()
        self._later: list[tuple[float, int, Task]] = []  # retried from that time on
        self._order = itertools.count()
        self._running: dict[str, Task] = {}
        self._tries: dict[str, int] = {}
        self._submitted_at: dict[str, float] = {}
        self._last_start: dict[str, RecipeEvent] = {}  # of operators, by task
        self._results: dict[str, Ended | GaveUp] = {}
        self._on_end: Callable[[Task, Ended | GaveUp], None] = _nothing

    def run(
        self, tasks: Sequence[Task], on_end: Callable[[Task, Ended | GaveUp], None] | None = None
    ) -> dict[str, Ended | GaveUp]:
        """Runs all tasks and returns their results by ID. `on_end` is called for each and may raise to end
        everything. Raises Stopped."""
        self._ready.extend(tasks)
        self._tries = {task.id: 0 for task in tasks}
        self._results = {}
        self._on_end = on_end or _nothing
        while self._ready or self._later or self._running:
            self._submit()
            self._handle_messages()
            stop = self._asked_to_stop()
            if stop is not None:
                raise Stopped(stop)
        return self._results

    def _submit(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        while self._ready and len(self._running) < self._at_once:
            task = self._ready.popleft()
            self._running[task.id] = task
            self._submitted_at[task.id] = time.time()
            self._pool.submit(task)

    def _handle_messages(self) -> None:
        wait_s = _CHECK_STOP_S
        if self._later:
            wait_s = min(wait_s, max(0.0, self._later[0][0] - time.monotonic()))
        if not self._running:
            time.sleep(wait_s)
            return
        messages = self._pool.messages(wait_s)
        happened = [message for message in messages if isinstance(message, Happened)]
        for each in happened:
            if each.event.event_type == EventType.OP_START:
                self._last_start[each.task_id] = each.event
            elif each.event.event_type in _OVER:
                self._last_start.pop(each.task_id, None)
        self._log([each.event for each in happened])
        for message in messages:
            if not isinstance(message, Happened):
                self._ended(message)

    def _ended(self, message: Message) -> None:
        task = self._running.pop(message.task_id, None)
        if task is None:
            return
        if isinstance(message, Ended):
            self._finish(task, message)
            return
        self._tries[task.id] += 1
        tries = self._tries[task.id]
        start = self._last_start.pop(task.id, None)
        gave_up = _as_gave_up(message, tries, _where(task, start))
        if start is not None:  # its worker cannot report it
            self._log([_op_lost(start, gave_up)])
        is_final = isinstance(message, Failed) and message.is_final
        is_of_memory = gave_up.error_type in _OF_MEMORY
        if is_of_memory:  # a partition may have enough memory when run alone
            self._at_once = max(1, self._at_once // 2)
        if is_final or tries > self._max_retries:
            advice = gave_up.error_message + (_MEMORY_ADVICE if is_of_memory else "")
            began = self._submitted_at.get(task.id)
            self._finish(
                task,
                msgspec.structs.replace(
                    gave_up, error_message=advice, started_at=began, ended_at=time.time()
                ),
            )
            return
        # A lost worker may not be the task's fault: the first retry is immediate.
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (tries - 1))
        if isinstance(message, Lost) and tries == 1:
            delay_s = 0.0
        self._tell_retry(task, gave_up, delay_s)
        again = msgspec.structs.replace(task, attempt=tries) if isinstance(task, RunStage) else task
        heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), again))

    def _finish(self, task: Task, how: Ended | GaveUp) -> None:
        self._results[task.id] = how
        self._on_end(task, how)

    def _tell_retry(self, task: Task, why: GaveUp, delay_s: float) -> None:
        if isinstance(task, RunStage):
            retry = event(
                EventType.PARTITION_RETRY,
                partition_id=task.partition.id,
                retry_count=why.tries,
                error_message=why.error_message,
                stack_trace=why.stack_trace or UNSET,
                metadata={"error_type": why.error_type, "delay_seconds": delay_s},
            )
            self._log([retry])


def _where(task: Task, start: RecipeEvent | None) -> str:
    """Describes what the task was doing when it failed."""
    parts = [f"partition {task.partition.id}"] if isinstance(task, RunStage) else []
    if start is not None:
        parts.append(f"operator {start.operation_idx} {start.operation_name}")
    return ", ".join(parts) or f"task {task.id}"


def _op_lost(start: RecipeEvent, why: GaveUp) -> RecipeEvent:
    return event(
        EventType.OP_FAILED,
        partition_id=start.partition_id,
        operation_idx=start.operation_idx,
        operation_name=start.operation_name,
        status="failed",
        error_message=why.error_message,
        input_rows=start.input_rows,
        retry_count=why.tries - 1,
    )


def _as_gave_up(message: Message, tries: int, where: str) -> GaveUp:
    if isinstance(message, Failed):
        return GaveUp(message.error_type, message.error_message, message.stack_trace, tries)
    assert isinstance(message, Lost)
    kind = "OutOfMemory" if message.is_out_of_memory else "WorkerLost"
    return GaveUp(kind, f"{where}: {message.reason}", "", tries)


def _nothing(_task: Task, _how: Ended | GaveUp) -> None:
    pass
