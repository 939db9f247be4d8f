"""Puts together what carries a job out: its lock, its logs, its workers, its coordinator."""

import logging
import os
import time
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from joblens.data import restoring, work
from joblens.data.coordinator import Coordinator
from joblens.data.event_log import EventLog
from joblens.data.event_text import event_line
from joblens.data.job_folder import JobFolder
from joblens.data.job_lock import take_lock
from joblens.data.job_summary import JobEnd, JobSummary
from joblens.data.local_pool import LocalPool
from joblens.data.logs import setup_logger
from joblens.data.pool import Pool
from joblens.data.tasks import Ended, Failed, Happened, Task
from joblens.model.errors import RecipeError
from joblens.model.recipe import Executor, RecipePlan
from joblens.model.recipe_event import EventType, RecipeEvent
from joblens.plan.plan_document import plan_from_json
from joblens.stores.private_files import make_private_folder

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


def execute(job_dir: str, asked_to_stop: Callable[[], int | None]) -> JobEnd:
    """Raises JobIsRunning, and RecipeError when there is no such job."""
    plan = read_plan(job_dir)
    folder = JobFolder.of_plan(plan)
    folder.make()
    lock = take_lock(folder)
    try:
        return _execute(plan, folder, asked_to_stop)
    finally:
        os.close(lock)


def read_plan(job_dir: str) -> RecipePlan:
    path = JobFolder(job_dir).plan
    try:
        with open(path, "rb") as file:
            return plan_from_json(file.read())
    except FileNotFoundError:
        raise RecipeError(f"there is no planned job in {job_dir}: {path} is missing") from None
    except msgspec.MsgspecError as error:
        raise RecipeError(f"{path} is no plan of a recipe: {error}") from error


def _execute(plan: RecipePlan, folder: JobFolder, asked_to_stop: Callable[[], int | None]) -> JobEnd:
    is_resumed = os.path.exists(folder.summary)
    summary = JobSummary(plan, folder, time.time())
    restoring.remove_leftovers(folder.partitions)
    restoring.remove_leftovers(folder.metadata)
    pa.set_cpu_count(1)
    workshop = work.workshop_of(plan)
    make_private_folder(folder.event_log_dir)
    # Workers are forked before logs are opened: they have nothing to write there.
    pool = _pool(plan)
    logger = setup_logger(folder.logs)
    events = EventLog(folder.events, job_id=plan.job_id, text_path=folder.events_log)

    def log(new: Sequence[RecipeEvent]) -> None:
        if plan.recipe.log_events:
            events.append(*new)
        for each in new:
            _tell(logger, each)

    try:
        return Coordinator(workshop, pool, log, asked_to_stop).run(summary, is_resumed=is_resumed)
    finally:
        pool.close()
        events.close()


def _pool(plan: RecipePlan) -> Pool:
    if plan.recipe.executor is Executor.RAY:
        from joblens.data.ray_pool import RayPool

        return RayPool(plan.workers, plan, plan.recipe.ray_address)

    def carried_out(task: Task, send: Callable[[Happened], None]) -> Ended | Failed:
        return work.answer(task, plan, send)

    return LocalPool(plan.workers, carried_out)


def _tell(logger: logging.Logger, each: RecipeEvent) -> None:
    kind = EventType(each.event_type)
    level = _LEVELS.get(kind, logging.INFO if kind in _TOLD else logging.DEBUG)
    logger.log(level, event_line(each).rstrip("\n"))
