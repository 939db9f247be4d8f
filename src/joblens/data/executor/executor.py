"""Executor of a recipe's job: lock, logs, workers, coordinator, and the events that begin and end a run."""

import contextlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET

from joblens.analysis.recipes.columns import SeenMetadata, UsedResources
from joblens.analysis.recipes.usage import StepTotals, step_in
from joblens.data.base.job_folder import JobFolder, is_lock_valid, planned_job, take_lock
from joblens.data.base.messages import Ended, Failed, Happened, Task, event
from joblens.data.base.op_usage import Meter
from joblens.data.base.reasons import message_of, reason_of, with_location
from joblens.data.executor import job_summary
from joblens.data.executor.coordinator import Coordinator
from joblens.data.executor.job_summary import JobEnd, JobSummary
from joblens.data.executor.local_pool import LocalPool
from joblens.data.executor.task_runner import Pool, Stopped
from joblens.data.logging.event_log import EventLog, event_text
from joblens.data.logging.rotating_log import setup_logger
from joblens.data.partition import restoring, work
from joblens.data.partition.restoring import remove_all_leftovers
from joblens.files.atomic import write_atomically
from joblens.files.private import make_private_folder
from joblens.files.processes import process_start_ticks
from joblens.model.errors import BadRow, JobIsRunning, JoblensError
from joblens.model.recipes.recipe import EventType, Executor, RecipeEvent, RecipePlan, Step
from joblens.plan.workflows.plan_document import plan_digest

# Freed when the job ends, so that the failure can be written even on a full disk.
_RESERVE_BYTES = 64 * 1024
_STEP_EVENTS = (
    EventType.STEP_COMPLETE,
    EventType.PARTITION_CREATION_COMPLETE,
    EventType.PARTITION_COMPLETE,
)


class StepUsage:
    """Sums resource use outside operators, whether or not events are written."""

    def __init__(self, summary: JobSummary) -> None:
        self._totals = StepTotals(summary.steps_before)

    def add(self, events: Sequence[RecipeEvent]) -> None:
        for each in events:
            if each.event_type in _STEP_EVENTS and each.metadata is not UNSET:
                step = step_in(each.event_type, msgspec.convert(each.metadata, SeenMetadata))
                if step is not None:
                    self._totals.add(*step)

    def document(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(use) for use in self._totals.uses()]


class JobRun:
    """One run of the job: starts it, runs the coordinator, and records how it ended."""

    def __init__(
        self, plan: RecipePlan, pool: Pool, log: Callable[[Sequence[RecipeEvent]], None], steps: StepUsage
    ) -> None:
        self._plan = plan
        self._folder = JobFolder.of_plan(plan)
        self._pool = pool
        self._log = log
        self._steps = steps

    def run(self, coordinator: Coordinator, summary: JobSummary, *, is_resumed: bool) -> JobEnd:
        began, meter = time.time(), Meter()
        end = self._run_coordinator(coordinator, summary, is_resumed=is_resumed)
        own_usage = self._own_usage(meter)  # the kernel adds workers' I/O when they have exited
        self._pool.close()  # no more writers
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._folder.reserve)
        if end.status == "failed":
            remove_all_leftovers(self._folder)
        return self._record_end(end, coordinator.counts(), summary, time.time() - began, own_usage)

    def _run_coordinator(self, coordinator: Coordinator, summary: JobSummary, *, is_resumed: bool) -> JobEnd:
        try:
            summary.write_start()
            write_atomically(self._folder.reserve, bytes(_RESERVE_BYTES))
            self._log([job_summary.job_start(self._plan, is_resumed=is_resumed)])
            return coordinator.run(is_resumed=is_resumed)
        except Stopped as stopped:
            return JobEnd(status="stopped", error_message=str(stopped), exit_code=128 + stopped.signal_number)
        except JoblensError as error:
            message = "; ".join(part for part in (message_of(error), error.hint) if part)
            can_resume = not isinstance(error, BadRow)  # the row would fail again
            return JobEnd(status="failed", error_message=message, exit_code=1, can_resume=can_resume)
        except OSError as error:
            message = with_location(error, self._folder.written_to(self._plan.recipe.export_path))
            return JobEnd(status="failed", error_message=message, exit_code=1)
        except Exception as error:  # noqa: BLE001 - the job's folder must record the end after any error
            traceback.print_exc(file=sys.stderr)
            return JobEnd(status="failed", error_message=reason_of(error), exit_code=1)

    def _record_end(
        self,
        end: JobEnd,
        counts: dict[str, Any],
        summary: JobSummary,
        duration: float,
        own_usage: RecipeEvent,
    ) -> JobEnd:
        """Writes the end to the summary and the log independently: one may fail without the other."""
        self._steps.add([own_usage])
        job_end = job_summary.job_end(end, duration, self._plan, counts)
        errors: list[OSError] = []
        try:
            summary.write_end(end, counts, self._steps.document())
        except OSError as error:
            errors.append(error)
        try:
            self._log([own_usage, job_end])
        except OSError as error:
            errors.append(error)
        if not errors or end.exit_code:
            return end
        message = with_location(errors[0], self._folder.written_to(self._plan.recipe.export_path))
        return msgspec.structs.replace(
            end, error_message=f"cannot write how the job ended: {message}", exit_code=1
        )

    def _own_usage(self, meter: Meter) -> RecipeEvent:
        """Builds the event for the resources of this process, including its start. Has no duration, because
        this process runs as long as the job."""
        usage = meter.usage()
        used = UsedResources(
            cpu_seconds=round(time.process_time(), 6),
            memory_peak_bytes=usage.memory_peak_bytes,
            read_bytes=usage.read_bytes,
            written_bytes=usage.written_bytes,
        )
        meta = {"step": Step.COORDINATING.value, "resources": msgspec.to_builtins(used)}
        return event(EventType.STEP_COMPLETE, metadata=meta)


_LOGGER = "joblens.job"
_CHECK_FOLDER_S = 0.5
_LEVELS = {
    EventType.JOB_FAILED: logging.ERROR,
    EventType.PARTITION_FAILED: logging.ERROR,
    EventType.OP_FAILED: logging.ERROR,
    EventType.PARTITION_RETRY: logging.WARNING,
    EventType.ROWS_REJECTED: logging.WARNING,
    EventType.JOB_STOPPED: logging.WARNING,
}
_LOGGED = {
    EventType.JOB_START,
    EventType.JOB_RESTART,
    EventType.JOB_COMPLETE,
    EventType.EXPORT_COMPLETE,
    EventType.REPARTITION_COMPLETE,
    EventType.PARTITION_COMPLETE,
}


def execute(job_dir: str, stop_signal: Callable[[], int | None], digest: str = "") -> JobEnd:
    """Executes the job in this folder. `digest`: of the plan to execute, which another process may have
    replaced since. Raises JobIsRunning, and RecipeError if there is no such job."""
    planned_job(job_dir)  # leaves a folder without a plan untouched
    lock = take_lock(JobFolder(job_dir))
    try:
        plan = planned_job(job_dir)
        if digest and plan_digest(plan) != digest:
            raise JobIsRunning(f"job {plan.job_id} was replanned by another process in the meantime")
        folder = JobFolder.of_plan(plan)
        folder.make()
        return _execute(plan, folder, StopCheck(stop_signal, folder, lock))
    finally:
        os.close(lock)


class StopCheck:
    """Returns the stop signal; raises if the job's folder was removed."""

    def __init__(
        self,
        stop_signal: Callable[[], int | None],
        folder: JobFolder,
        lock: int,
        mono_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop_signal = stop_signal
        self._folder = folder
        self._lock = lock
        self._mono_s = mono_s
        self._next_check_s = 0.0

    def __call__(self) -> int | None:
        now_s = self._mono_s()
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + _CHECK_FOLDER_S
            if not is_lock_valid(self._folder, self._lock):
                raise JoblensError(f"the job's directory {self._folder.path} was removed while the job ran")
        return self._stop_signal()


def _started_at() -> float:
    """Returns the time this process started: the job's duration includes start-up, as in its record."""
    ticks = process_start_ticks(os.getpid())
    if ticks is None:
        return time.time()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - max(0.0, age_s)


def _execute(plan: RecipePlan, folder: JobFolder, stop_signal: Callable[[], int | None]) -> JobEnd:
    is_resumed = os.path.exists(folder.summary)
    summary = JobSummary(plan, folder, _started_at())
    restoring.remove_all_leftovers(folder)
    pa.set_cpu_count(1)
    context = work.worker_context(plan)
    make_private_folder(folder.event_log_dir)
    # Workers are forked before the logs are opened: they do not write to them.
    pool = _pool(plan)
    logger = setup_logger(folder.logs)
    events = EventLog(folder.events, job_id=plan.job_id, text_path=folder.events_log)
    steps = StepUsage(summary)

    def log(new: Sequence[RecipeEvent]) -> None:
        steps.add(new)
        if plan.recipe.log_events:
            events.append(*new)
        for each in new:
            _log(logger, each)

    try:
        coordinator = Coordinator(context, pool, log, stop_signal)
        return JobRun(plan, pool, log, steps).run(coordinator, summary, is_resumed=is_resumed)
    finally:
        pool.close()
        events.close()


def _pool(plan: RecipePlan) -> Pool:
    if plan.recipe.executor is Executor.RAY:
        from joblens.data.executor.ray_pool import RayPool

        return RayPool(plan.workers, plan, plan.recipe.ray_address)

    def run(task: Task, send: Callable[[Happened], None]) -> Ended | Failed:
        return work.run_reported(task, plan, send)

    return LocalPool(plan.workers, run)


def _log(logger: logging.Logger, each: RecipeEvent) -> None:
    kind = EventType(each.event_type)
    level = _LEVELS.get(kind, logging.INFO if kind in _LOGGED else logging.DEBUG)
    record = logger.makeRecord(_LOGGER, level, "", 0, event_text(each), (), None)
    record.created = each.timestamp  # when it happened: workers may report later
    record.msecs = each.timestamp % 1 * 1000
    logger.handle(record)
