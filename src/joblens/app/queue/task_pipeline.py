"""TaskPipeline: tasks on a queue from a Python program; submit, follow, wait, cancel, one or many."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Self

from joblens.app.jobs.requests import mapping_of
from joblens.app.queue.health import queue_health
from joblens.app.queue.notifiers import broker_of
from joblens.app.queue.submission import (
    QueueRequest,
    cancel_queued,
    enqueue,
    open_queue_store,
)
from joblens.app.queue.task_results import parallel_form, result_form
from joblens.app.queue.tool_tasks import read_tasks, request_of_task
from joblens.app.queue.tools import load_tools
from joblens.app.queue.watch import (
    find_tasks,
    new_workflow_id,
    reminder,
    states_until_final,
    submit_together,
    task_status,
    workflow_status,
)
from joblens.app.wiring.drivers import warn_in_python
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import QueueStore
from joblens.spec.tools.task_list import WrittenTask


def ident_of(task_id: Any) -> str:
    """Accepts a job's number as an int."""
    if isinstance(task_id, str):
        return task_id
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        return str(task_id)
    raise InputError(f"task id {task_id!r}: expected the string that submit_task returned")


def idents_of(task_ids: Any) -> list[str]:
    if isinstance(task_ids, str | int):
        return [ident_of(task_ids)]
    if isinstance(task_ids, Mapping) or not isinstance(task_ids, Iterable):
        raise InputError(f"task ids {task_ids!r}: expected a list of IDs, or a workflow ID")
    return [ident_of(each) for each in task_ids]


def task_list(tasks: Any) -> list[Any]:
    """Errors inside of them are reported when they are read."""
    if isinstance(tasks, str | bytes | Mapping) or not isinstance(tasks, Iterable):
        raise InputError(
            f"tasks {tasks!r}: expected a list of tasks", hint="[{'tool': 'bash', 'script': 'say.sh'}]"
        )
    return [dict(each) if isinstance(each, Mapping) else each for each in tasks]


def check_interval(poll_interval: Any) -> None:
    if not _is_number(poll_interval) or not poll_interval > 0:
        raise InputError(f"poll_interval {poll_interval!r}: expected seconds, more than 0")


def check_timeout(timeout: Any) -> None:
    if timeout is not None and (not _is_number(timeout) or not timeout >= 0):
        raise InputError(f"timeout {timeout!r}: expected seconds, or None for no limit")


def check_count(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"{name} {count!r}: expected a whole number, at least 1")


def grid_combinations(grid: Any) -> list[dict[str, Any]]:
    if not isinstance(grid, Mapping):
        raise InputError(f"param_grid {grid!r}: expected a dict of lists of values", hint="{'x': [1, 2]}")
    if not grid:
        raise InputError("param_grid is empty", hint="{'x': [1, 2]}")
    for name, values in grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
            raise InputError(
                f"param_grid {name}: expected a list of values, not {values!r}", hint=f"{{'{name}': [1, 2]}}"
            )
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Form = dict[str, Any]
Callback = Callable[[Form], object]


class TaskIds(list[str]):
    """Ids of tasks that were submitted together, in their order, and the id of the workflow."""

    workflow_id: str = ""


class TaskPipeline:
    """Needs no server: without a broker and without a worker, one is started here when there is work.

    Every method that takes a task's id accepts the same as commands for jobs: the UUID, a unique part of
    it, or its number. An unknown id raises UnknownJob.
    """

    def __init__(
        self,
        broker: str | None = None,
        *,
        store: str | None = None,
        queue: str | None = None,
        config: str | None = None,
    ) -> None:
        choices = {"queue.broker": broker, "store.url": store, "queue.name": queue}
        overrides = {name: text for name, text in choices.items() if text is not None}
        self._settings = load_settings(config=config, overrides=overrides).settings
        if self._settings.queue.broker:
            broker_of(self._settings)  # an invalid one is reported now
        self._config = config
        self._submitted: list[str] = []

    # ---- one task

    def submit_task(
        self, tool: str, script: str, params: Mapping[str, Any] | None = None, **more: Any
    ) -> str:
        """Returns its id. `more`: other keys of a task in a workflow file (name, device, container,
        queue, label, retry_lost, timeout, cpus, memory, tags)."""
        task = {"tool": tool, "script": script, "params": mapping_of("params", params), **more}
        requests = self._requests(read_tasks([task]))
        (record,) = enqueue(requests, self._settings, self._config, warn_in_python)
        self._submitted.append(record.job.uuid)
        return record.job.uuid

    def get_task_status(self, task_id: str) -> Form:
        with self._opened() as store:
            return task_status(store, store.find(ident_of(task_id)))

    def monitor_task(
        self, task_id: str, callback: Callback | None = None, poll_interval: float = 2.0
    ) -> Form:
        """Calls `callback` with the status now, every `poll_interval` s, and at its end. Returns the
        last."""
        check_interval(poll_interval)
        with self._opened() as store:
            uuid = store.find(ident_of(task_id)).job.uuid
            for _ in self._states(store, [uuid], None, poll_interval):
                status = task_status(store, store.find(uuid))
                if callback is not None:
                    callback(status)
                if status["ready"]:
                    return status
        raise AssertionError("a job that has ended is ready")

    def wait_for_task(self, task_id: str, timeout: float | None = None) -> Form:
        """Returns its result, whether it succeeded or not. Raises TimeoutError at the time-out; the task
        continues."""
        check_timeout(timeout)
        with self._opened() as store:
            uuid = store.find(ident_of(task_id)).job.uuid
            for _ in self._states(store, [uuid], timeout):
                pass
            return _result(store.find(uuid))

    def cancel_task(self, task_id: str) -> bool:
        """Returns False if it had already ended. A waiting task ends at once, a running one within
        moments, with everything it started."""
        with self._opened() as store:
            record = store.find(ident_of(task_id))
            return cancel_queued([record], store, self._settings, self._config) == 1

    # ---- many tasks

    def submit_workflow(self, tasks: Sequence[Mapping[str, Any]], sequential: bool = True) -> TaskIds:  # noqa: FBT001, FBT002
        """Submits all or none. `sequential`: each starts when the one before has succeeded; after a
        failure, the rest are cancelled."""
        return self._submit(read_tasks(task_list(tasks)), sequential=sequential)

    def cancel_workflow(self, task_ids: str | Sequence[str]) -> int:
        """Cancels all its unfinished tasks. Returns how many."""
        with self._opened() as store:
            records = [store.find(uuid) for uuid in self._found(store, task_ids)]
            return cancel_queued(records, store, self._settings, self._config)

    def get_workflow_status(self, task_ids: str | Sequence[str]) -> Form:
        with self._opened() as store:
            return workflow_status(store, self._found(store, task_ids))

    def wait_for_workflow(
        self,
        task_ids: str | Sequence[str],
        timeout: float | None = None,
        callback: Callback | None = None,
        poll_interval: float = 2.0,
    ) -> Form:
        """Returns the status at the end, with the results. `callback` gets the status every
        `poll_interval` seconds. Raises TimeoutError at the time-out; the tasks continue."""
        check_interval(poll_interval)
        check_timeout(timeout)
        with self._opened() as store:
            uuids = self._found(store, task_ids)
            reported_at = -poll_interval
            for _ in self._states(store, uuids, timeout):
                if callback is not None and time.monotonic() - reported_at >= poll_interval:
                    callback(workflow_status(store, uuids))
                    reported_at = time.monotonic()
            status = workflow_status(store, uuids)
        if callback is not None:
            callback(status)
        return status | {"results": [task["result"] for task in status["tasks"]]}

    def submit_batch_workflow(
        self,
        tasks: Sequence[Mapping[str, Any]],
        batch_size: int = 5,
        callback: Callback | None = None,
    ) -> TaskIds:
        """Runs a batch in parallel, and one batch after the other: returns when the last one has ended.
        `callback` gets the status of every batch at its end, with `batch` and `batches`."""
        check_count("batch_size", batch_size)
        read = read_tasks(task_list(tasks))
        batches = [read[first : first + batch_size] for first in range(0, len(read), batch_size)]
        self._requests(read)  # errors in any of them are reported before the first starts
        ids = TaskIds()
        ids.workflow_id = new_workflow_id()
        for number, batch in enumerate(batches, start=1):
            submitted = self._submit(batch, workflow_id=ids.workflow_id)
            ids += submitted
            status = self.wait_for_workflow(submitted)
            if callback is not None:
                callback(status | {"batch": number, "batches": len(batches)})
        return ids

    def parameter_sweep(
        self,
        tool: str,
        script: str,
        param_grid: Mapping[str, Sequence[Any]],
        callback: Callback | None = None,
        *,
        wait: bool = True,
    ) -> list[Form]:
        """Runs every combination of the values in parallel. Returns one entry each, in the order of the
        grid: {params, task_id, state, result}. `callback` gets each entry when its task has ended."""
        combinations = grid_combinations(param_grid)
        tasks = [{"tool": tool, "script": script, "params": params} for params in combinations]
        ids = self._submit(read_tasks(tasks))
        entries = [
            {"params": params, "task_id": uuid, "state": "PENDING", "result": None}
            for params, uuid in zip(combinations, ids, strict=True)
        ]
        if not wait:
            return entries
        by_uuid = dict(zip(ids, entries, strict=True))
        with self._opened() as store:
            for states in self._states(store, ids, None):
                for uuid, entry in by_uuid.items():
                    if entry["result"] is None and states[uuid].is_final:
                        status = task_status(store, store.find(uuid))
                        entry.update(state=status["state"], result=status["result"])
                        if callback is not None:
                            callback(entry)
        return entries

    def wait_for_any(self, task_ids: Sequence[str], timeout: float | None = None) -> Form:
        """Returns the status, with the result, of the task that ended first. Raises TimeoutError."""
        check_timeout(timeout)
        with self._opened() as store:
            uuids = self._found(store, task_ids)
            for states in self._states(store, uuids, timeout):
                ended = [store.find(uuid) for uuid in uuids if states[uuid].is_final]
                if ended:
                    first = min(ended, key=lambda each: each.outcome.ended_at_us if each.outcome else 0)
                    return task_status(store, first)
        raise InputError("no tasks to wait for", hint="give the IDs of one or more tasks")

    def get_parallel_execution_stats(self, task_ids: str | Sequence[str]) -> Form:
        with self._opened() as store:
            return parallel_form([store.find(uuid) for uuid in self._found(store, task_ids)])

    # ---- the system

    def health_check(self) -> Form:
        """`status` is healthy or unhealthy; `problems` says why. Raises no error for a failure."""
        return queue_health(self._settings)

    def list_available_simulations(self) -> Form:
        """Returns the tools, with their scripts and parameters."""
        return {
            name: {
                "description": tool.description,
                "scripts": list(tool.scripts),
                "parameters": {
                    script: {key: each.default for key, each in about.parameters.items()}
                    for script, about in tool.scripts.items()
                },
            }
            for name, tool in load_tools().items()
        }

    def cleanup(self) -> int:
        """Cancels unfinished tasks of this pipeline. Returns how many."""
        with self._opened() as store:
            states = store.states(self._submitted)
            unfinished = [uuid for uuid in self._submitted if uuid in states and not states[uuid].is_final]
            ended = cancel_queued(
                [store.find(uuid) for uuid in unfinished], store, self._settings, self._config
            )
        self._submitted.clear()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An exception in the block cancels its tasks."""
        if kind is not None:
            self.cleanup()

    # ---- inside

    @contextmanager
    def _opened(self) -> Iterator[QueueStore]:
        """For one call only: a program may fork, and use a pipeline from several threads."""
        with closing(open_queue_store(self._settings)) as store:
            yield store

    def _requests(self, tasks: Sequence[WrittenTask]) -> list[QueueRequest]:
        return [request_of_task(task, self._settings) for task in tasks]

    def _submit(
        self, tasks: Sequence[WrittenTask], *, sequential: bool = False, workflow_id: str = ""
    ) -> TaskIds:
        submitted = submit_together(
            self._requests(tasks),
            self._settings,
            self._config,
            warn_in_python,
            sequential=sequential,
            workflow_id=workflow_id,
        )
        ids = TaskIds(submitted.uuids)
        ids.workflow_id = submitted.workflow_id
        self._submitted += ids
        return ids

    def _found(self, store: QueueStore, task_ids: str | Sequence[str]) -> list[str]:
        """Returns UUIDs of the tasks; the id of a workflow stands for all its tasks."""
        return [record.job.uuid for ident in idents_of(task_ids) for record in find_tasks(store, ident)]

    def _states(
        self, store: QueueStore, uuids: Sequence[str], timeout: float | None, poll_s: float | None = None
    ) -> Iterator[dict[str, Status]]:
        deadline = None if timeout is None else time.monotonic() + timeout
        recover = reminder(self._settings, store, self._config)
        for states in states_until_final(store, uuids, recover, poll_s, deadline):
            yield states
            if deadline is not None and time.monotonic() >= deadline and not _all_final(states):
                unfinished = sum(not status.is_final for status in states.values())
                raise TimeoutError(f"{unfinished} of {len(uuids)} tasks have not ended after {timeout:g}s")


def _all_final(states: Mapping[str, Status]) -> bool:
    return all(status.is_final for status in states.values())


def _result(record: Record) -> Form:
    result = result_form(record)
    assert result is not None  # it has ended
    return result
