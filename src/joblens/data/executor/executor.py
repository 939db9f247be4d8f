"""Puts together what carries a job out: its lock, its logs, its workers, its coordinator."""

import logging
import os
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from joblens.data.base.job_folder import JobFolder
from joblens.data.base.job_lock import is_kept, take_lock
from joblens.data.base.plan_file import planned_job
from joblens.data.base.tasks import Ended, Failed, Happened, Task
from joblens.data.executor.coordinator import Coordinator
from joblens.data.executor.job_run import JobRun, StepsTold
from joblens.data.executor.job_summary import JobEnd, JobSummary
from joblens.data.executor.local_pool import LocalPool
from joblens.data.executor.pool import Pool
from joblens.data.logging.event_log import EventLog
from joblens.data.logging.event_text import event_words
from joblens.data.logging.logs import setup_logger
from joblens.data.partition import restoring, work
from joblens.files.private import make_private_folder
from joblens.model.errors import JobIsRunning, JoblensError
from joblens.model.recipes.event import EventType, RecipeEvent
from joblens.model.recipes.recipe import Executor, RecipePlan
from joblens.plan.workflows.plan_document import plan_digest
from joblens.stores.wrappers.journal_file import start_ticks

_LOGGER = "joblens.job"
_LOOK_FOR_FOLDER_S = 0.5
_LEVELS = {
    EventType.JOB_FAILED: logging.ERROR,
    EventType.PARTITION_FAILED: logging.ERROR,
    EventType.OP_FAILED: logging.ERROR,
    EventType.PARTITION_RETRY: logging.WARNING,
    EventType.ROWS_REJECTED: logging.WARNING,
    EventType.JOB_STOPPED: logging.WARNING,
}
_TOLD = {
    EventType.JOB_START,
    EventType.JOB_RESTART,
    EventType.JOB_COMPLETE,
    EventType.EXPORT_COMPLETE,
    EventType.REPARTITION_COMPLETE,
    EventType.PARTITION_COMPLETE,
}


def execute(job_dir: str, asked_to_stop: Callable[[], int | None], planned: str = "") -> JobEnd:
    """Raises JobIsRunning, and RecipeError when there is no such job. `planned`: the digest of the plan that
    is to be carried out; another one may have taken its place since."""
    planned_job(job_dir)  # a folder without one stays as it is
    lock = take_lock(JobFolder(job_dir))
    try:
        plan = planned_job(job_dir)
        if planned and plan_digest(plan) != planned:
            raise JobIsRunning(f"job {plan.job_id} was planned anew by somebody else in the meantime")
        folder = JobFolder.of_plan(plan)
        folder.make()
        return _execute(plan, folder, _Asked(asked_to_stop, folder, lock))
    finally:
        os.close(lock)


class _Asked:
    """To stop, or by the facts: a job whose folder is gone has nothing left to go on with."""

    def __init__(self, asked_to_stop: Callable[[], int | None], folder: JobFolder, lock: int) -> None:
        self._asked_to_stop = asked_to_stop
        self._folder = folder
        self._lock = lock
        self._look_again_at = 0.0

    def __call__(self) -> int | None:
        now = time.monotonic()
        if now >= self._look_again_at:
            self._look_again_at = now + _LOOK_FOR_FOLDER_S
            if not is_kept(self._folder, self._lock):
                raise JoblensError(f"the job's folder {self._folder.path} was removed while the job ran")
        return self._asked_to_stop()


def _started_at() -> float:
    """Of this process: what it took to start is time of the job, as in the record of what it used."""
    ticks = start_ticks(os.getpid())
    if ticks is None:
        return time.time()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - max(0.0, age_s)


def _execute(plan: RecipePlan, folder: JobFolder, asked_to_stop: Callable[[], int | None]) -> JobEnd:
    is_resumed = os.path.exists(folder.summary)
    summary = JobSummary(plan, folder, _started_at())
    restoring.remove_all_leftovers(folder)
    pa.set_cpu_count(1)
    workshop = work.workshop_of(plan)
    make_private_folder(folder.event_log_dir)
    # Workers are forked before logs are opened: they have nothing to write there.
    pool = _pool(plan)
    logger = setup_logger(folder.logs)
    events = EventLog(folder.events, job_id=plan.job_id, text_path=folder.events_log)
    steps = StepsTold(summary)

    def log(new: Sequence[RecipeEvent]) -> None:
        steps.see(new)
        if plan.recipe.log_events:
            events.append(*new)
        for each in new:
            _tell(logger, each)

    try:
        coordinator = Coordinator(workshop, pool, log, asked_to_stop)
        return JobRun(plan, pool, log, steps).run(coordinator, summary, is_resumed=is_resumed)
    finally:
        pool.close()
        events.close()


def _pool(plan: RecipePlan) -> Pool:
    if plan.recipe.executor is Executor.RAY:
        from joblens.data.executor.ray_pool import RayPool

        return RayPool(plan.workers, plan, plan.recipe.ray_address)

    def carried_out(task: Task, send: Callable[[Happened], None]) -> Ended | Failed:
        return work.answer(task, plan, send)

    return LocalPool(plan.workers, carried_out)


def _tell(logger: logging.Logger, each: RecipeEvent) -> None:
    kind = EventType(each.event_type)
    level = _LEVELS.get(kind, logging.INFO if kind in _TOLD else logging.DEBUG)
    record = logger.makeRecord(_LOGGER, level, "", 0, event_words(each), (), None)
    record.created = each.timestamp  # when it happened: a worker may have told it later
    record.msecs = each.timestamp % 1 * 1000
    logger.handle(record)
