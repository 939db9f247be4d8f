"""The folder of a recipe's job: made for a new one, found for one that is gone on with."""

import os
import secrets
import shutil
import time
from contextlib import suppress
from glob import escape, glob
from typing import TYPE_CHECKING

from msgspec import Struct

from joblens.app.recipes.loading import CheckedRecipe
from joblens.app.recipes.paths import check_places
from joblens.app.recipes.planning import new_plan, plan_to_go_on
from joblens.data.base.job_folder import JobFolder
from joblens.data.base.plan_file import read_plan
from joblens.files.whole import write_whole
from joblens.model.errors import JobIsRunning, RecipeError
from joblens.model.recipes.recipe import RecipePlan
from joblens.plan.recipes.paths import base_dir_of, job_dir_in
from joblens.plan.workflows.plan_document import plan_to_json
from joblens.spec.formats.words import nearest_word

if TYPE_CHECKING:
    from joblens.analysis.recipes.partition_sizing import OperatorMemory


class PlannedJob(Struct, frozen=True):
    """Nothing of it is on disk yet, unless it is gone on with."""

    plan: RecipePlan
    is_resumed: bool = False
    starts_over: bool = False  # what is there of that id is to be removed first


def new_job_id() -> str:
    return f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime())}_{secrets.token_hex(3)}"


def plan_job(
    checked: CheckedRecipe, *, start_over: bool = False, memory: "OperatorMemory | None" = None
) -> PlannedJob:
    """`resume` of the recipe names a job that has to be there, `job_id` one that may be: it is then gone on
    with too. Raises RecipeError when that cannot be, JobIsRunning when somebody is at it."""
    recipe = checked.recipe
    job_id = recipe.resume or recipe.job_id
    job = _planned(checked, job_id, memory, start_over=start_over) if job_id else None
    job = job or PlannedJob(new_plan(checked, new_job_id(), memory))
    check_places(checked.loaded, job.plan)
    return job


def _planned(
    checked: CheckedRecipe, job_id: str, memory: "OperatorMemory | None", *, start_over: bool
) -> PlannedJob:
    recipe = checked.recipe
    folder = JobFolder(job_dir_in(recipe.work_dir, job_id))
    try:
        is_there = _is_there(folder.plan)
        _refuse_running(folder)
    except PermissionError as error:
        raise RecipeError(
            f"job {job_id} is somebody else's: {error.filename} may not be read",
            hint="jobs are private to who started them; give this one another id",
        ) from error
    before = None if start_over else read_plan(folder.path)
    if before is not None:
        return PlannedJob(plan_to_go_on(checked, before, memory), is_resumed=True)
    if recipe.resume and not is_there:
        raise _no_such_job(base_dir_of(recipe.work_dir), job_id)
    return PlannedJob(new_plan(checked, job_id, memory), starts_over=is_there)


def _is_there(path: str) -> bool:
    """Raises PermissionError where nobody may look."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_job(job: PlannedJob) -> JobFolder:
    """On disk, so that an executor can begin. The plan comes last: without it there is no job. The job's lock
    is held meanwhile: whoever carries it out now goes on undisturbed, and this raises JobIsRunning."""
    from joblens.data.base.job_lock import take_lock

    folder = JobFolder.of_plan(job.plan)
    was_there = os.path.isdir(folder.path)
    try:
        # The job's folder is private. Where jobs and exports lie is not, unless it is that folder too.
        os.makedirs(job.plan.recipe.work_dir, exist_ok=True)
        lock = take_lock(folder)
        try:
            _write_job(job, folder)
        finally:
            os.close(lock)
    except OSError as error:
        if not was_there:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise RecipeError(
            f"the job's folder cannot be made: {error.filename or folder.path}: {error.strerror}",
            hint="name another place with work_dir or --work-dir, or with export_path",
        ) from error
    return folder


def _write_job(job: PlannedJob, folder: JobFolder) -> None:
    if job.starts_over:
        _clear(folder)
    folder.make()
    os.makedirs(os.path.dirname(job.plan.recipe.export_path), exist_ok=True)
    write_whole(folder.recipe_copy(job.plan.recipe_path), job.plan.recipe_text.encode())
    write_whole(folder.plan, plan_to_json(job.plan))


def _refuse_running(folder: JobFolder) -> None:
    from joblens.data.base.job_lock import running_executor

    holder = running_executor(folder) if os.path.isdir(folder.path) else None
    if holder is not None:
        raise JobIsRunning(
            f"job {folder.job_id} is running now, as process {holder.pid}",
            hint=f"joblens snapshot {folder.path} --human-readable shows where it is",
        )


def _clear(folder: JobFolder) -> None:
    """Only what jobs leave there. The plan goes first: what is cut short in between is no job. The lock
    stays, or somebody could lock another file of that name."""
    from joblens.data.files.moving import forget_moved

    with suppress(FileNotFoundError):
        os.unlink(folder.plan)
    forget_moved(folder.moved)
    for each in (folder.checkpoints, folder.partitions, folder.rejects, folder.trace):
        shutil.rmtree(each, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.replace(folder.export_manifest, folder.earlier_export)  # the next export takes its place
    metadata = glob(f"{escape(folder.metadata)}/*")
    for path in (
        *(path for path in metadata if path not in (folder.lock, folder.earlier_export)),
        folder.events,
        *glob(f"{escape(folder.events_log)}*"),
        folder.dag_plan,
        folder.summary,
    ):
        with suppress(FileNotFoundError):
            os.unlink(path)


def _no_such_job(base_dir: str, job_id: str) -> RecipeError:
    known = known_jobs(base_dir)
    near = nearest_word(job_id, known)
    hint = f"did you mean {near}?" if near else ""
    if not near and known:
        hint = f"the newest one there is {known[-1]}"
    return RecipeError(f"there is no job {job_id} in {base_dir}", hint=hint)


def known_jobs(base_dir: str) -> list[str]:
    """Ids of the jobs there, in the order of their names, which is that of time."""
    try:
        names = sorted(os.listdir(base_dir))
    except OSError:
        return []
    return [name for name in names if os.path.exists(JobFolder(os.path.join(base_dir, name)).plan)]
