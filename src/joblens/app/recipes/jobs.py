"""Jobs of recipes: directory and plan (files, partitions, workers) of a new or a resumed job."""

import os
import secrets
import shutil
import time
from contextlib import suppress
from glob import escape, glob
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from joblens.app.recipes.loader import CheckedRecipe, problem_at
from joblens.app.recipes.paths import check_paths
from joblens.data.base.job_folder import START_OVER, JobFolder, read_plan
from joblens.files.atomic import write_atomically
from joblens.model.errors import InputError, JobIsRunning, RecipeError
from joblens.model.recipes.recipe import InputFile, Recipe, RecipePlan
from joblens.plan.recipes.changes import recipe_changes
from joblens.plan.recipes.job_folder import base_dir_of, job_dir_in, with_job
from joblens.plan.recipes.stages import checkpoint_after, stages_of
from joblens.plan.workflows.plan_document import plan_to_json
from joblens.spec.formats.positions import nearest_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from joblens.analysis.recipes.partition_sizing import OperatorMemory, Sizing
    from joblens.data.files.datasets import DataFile


def new_plan(checked: CheckedRecipe, job_id: str, memory: "OperatorMemory | None" = None) -> RecipePlan:
    """Reads the data and writes nothing. `memory`: needs of these operators in earlier runs."""
    from joblens.data.files.cutting import CutWish, plan_partitions
    from joblens.data.files.input_stamps import stamp_inputs

    recipe = with_job(checked.recipe, job_id)
    job_dir = job_dir_in(checked.recipe.work_dir, job_id)
    files = _files(checked, recipe)
    _refuse_reading_itself(checked, recipe, job_dir)
    sizing = _sizing(checked, recipe, files, memory)
    partitions, uncut = plan_partitions(
        files,
        CutWish(
            target_bytes=sizing.target_bytes,
            rows=sizing.rows_per_partition,
            exactly=sizing.exactly,
            at_least=sizing.at_least,
        ),
    )
    stages = stages_of(checked.kinds)
    known_rows = [partition.rows for partition in partitions if partition.rows is not None]
    is_counted = not uncut and len(known_rows) == len(partitions)
    return RecipePlan(
        job_id=job_id,
        job_dir=job_dir,
        recipe=recipe,
        recipe_text=checked.loaded.text,
        recipe_path=_recipe_path(checked, job_dir),
        stages=stages,
        partitions=partitions,
        inputs=stamp_inputs([file.path for file in files]),
        columns=checked.columns,
        needed=checked.needed,
        checkpoint_after=checkpoint_after(recipe.process, stages, recipe.checkpoint),
        workers=sizing.workers,
        budget_bytes=sizing.budget_bytes,
        modality=sizing.modality,
        total_bytes=sum(file.size for file in files),
        total_rows=sum(known_rows) if is_counted else None,
        created_at_us=time.time_ns() // 1000,
        uncut=uncut,
        target_bytes=sizing.target_bytes,
        rows_per_partition=sizing.rows_per_partition,
        exact_partitions=sizing.exactly,
        least_partitions=sizing.at_least,
        operator_files=_operator_files(recipe),
        reasons=sizing.reasons,
    )


def resumed_plan(
    checked: CheckedRecipe, before: RecipePlan, memory: "OperatorMemory | None" = None
) -> RecipePlan:
    """Returns the existing plan for the requested number of workers. Raises RecipeError if recipe or data
    have changed."""
    from joblens.data.files.input_stamps import changed_inputs, stamp_inputs

    recipe = with_job(checked.recipe, before.job_id)
    changes = recipe_changes(before.recipe, recipe)
    changes += changed_inputs(before.operator_files, _operator_files(recipe))
    if changes:
        raise _changed(f"the recipe has changed since job {before.job_id} was created", changes)
    files = _files(checked, recipe)
    changes = changed_inputs(before.inputs, stamp_inputs([file.path for file in files]))
    if changes:
        raise _changed(f"the data has changed since job {before.job_id} was created", changes)
    sizing = _sizing(checked, recipe, files, memory)
    return replace(
        before,
        recipe=recipe,
        recipe_text=checked.loaded.text,
        recipe_path=_recipe_path(checked, before.job_dir),
        workers=sizing.workers,
        budget_bytes=sizing.budget_bytes,
        reasons=sizing.reasons,
    )


def _operator_files(recipe: Recipe) -> tuple[InputFile, ...]:
    from joblens.data.files.input_stamps import stamp_inputs

    paths: list[str] = []
    for path in recipe.custom_operator_paths:
        folder = os.listdir(path) if os.path.isdir(path) else []
        inside = [os.path.join(path, name) for name in sorted(folder) if name.endswith(".py")]
        paths += inside if os.path.isdir(path) else [path]
    return stamp_inputs(paths)


def _recipe_path(checked: CheckedRecipe, job_dir: str) -> str:
    """A recipe without a file has its copy in the job's folder."""
    loaded = checked.loaded
    return os.path.abspath(loaded.path) if loaded.is_file else os.path.join(job_dir, loaded.path)


def _files(checked: CheckedRecipe, recipe: Recipe) -> "tuple[DataFile, ...]":
    from joblens.data.files.datasets import check_fields, find_files

    try:
        files = find_files(recipe.dataset_path, recipe.suffixes, recipe.delimiter)
        check_fields(files, checked.columns, checked.needed)
    except InputError as error:
        problem = problem_at(checked.loaded, "dataset_path", str(error))
        raise RecipeError(problem, hint=error.hint) from error
    export = os.path.realpath(recipe.export_path)
    if any(os.path.realpath(file.path) == export for file in files):
        problem = f"{recipe.export_path} is a file of the dataset"
        raise RecipeError(
            problem_at(checked.loaded, "export_path", problem),
            hint="write somewhere else; a job never changes its input",
        )
    return files


def _refuse_reading_itself(checked: CheckedRecipe, recipe: Recipe, job_dir: str) -> None:
    from joblens.app.recipes.paths import found_as_input

    found = found_as_input(recipe, job_dir)
    if found is not None:
        problem = f"{found}, written by this job, would be input of the next one"
        raise RecipeError(
            problem_at(checked.loaded, "dataset_path", problem),
            hint="place work_dir and export_path outside the dataset, or select its files with a pattern",
        )


def _sizing(
    checked: CheckedRecipe, recipe: Recipe, files: "Sequence[DataFile]", memory: "OperatorMemory | None"
) -> "Sizing":
    from joblens.app.recipes.sizing import choose

    is_np_given = checked.loaded.is_np_given
    if memory is None:
        return choose(recipe, files, is_np_given=is_np_given)
    return choose(recipe, files, is_np_given=is_np_given, memory=memory)


def _changed(what: str, changes: "Sequence[str]") -> RecipeError:
    return RecipeError(
        "\n".join([f"{what}:", *(f"  {each}" for each in changes)]), hint=START_OVER, problems=changes
    )


class RecipeJob(Struct, frozen=True):
    """Nothing of it is on disk yet, unless it is resumed."""

    plan: RecipePlan
    is_resumed: bool = False
    starts_over: bool = False  # the existing job of that id is removed first


def new_job_id() -> str:
    return f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime())}_{secrets.token_hex(3)}"


def plan_job(
    checked: CheckedRecipe, *, start_over: bool = False, memory: "OperatorMemory | None" = None
) -> RecipeJob:
    """`resume` of the recipe names a job that must exist, `job_id` one that may exist: it is then resumed
    too. Raises RecipeError if that is impossible, JobIsRunning if it is running."""
    recipe = checked.recipe
    job_id = recipe.resume or recipe.job_id
    job = _planned(checked, job_id, memory, start_over=start_over) if job_id else None
    job = job or RecipeJob(new_plan(checked, new_job_id(), memory))
    check_paths(checked.loaded, job.plan)
    return job


def _planned(
    checked: CheckedRecipe, job_id: str, memory: "OperatorMemory | None", *, start_over: bool
) -> RecipeJob:
    recipe = checked.recipe
    folder = JobFolder(job_dir_in(recipe.work_dir, job_id))
    try:
        exists = _exists(folder.plan)
        _refuse_running(folder)
    except PermissionError as error:
        raise RecipeError(
            f"job {job_id} belongs to another user: {error.filename} cannot be read",
            hint="job directories are private to their users; choose another ID",
        ) from error
    before = None if start_over else read_plan(folder.path)
    if before is not None:
        return RecipeJob(resumed_plan(checked, before, memory), is_resumed=True)
    if recipe.resume and not exists:
        raise _no_such_job(base_dir_of(recipe.work_dir), job_id)
    return RecipeJob(new_plan(checked, job_id, memory), starts_over=exists)


def _exists(path: str) -> bool:
    """Raises PermissionError if it cannot be read."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_job(job: RecipeJob) -> JobFolder:
    """Writes it to disk, so that an executor can start. The plan comes last: without it there is no job.
    The job's lock is held meanwhile: if the job is running, this raises JobIsRunning."""
    from joblens.data.base.job_folder import take_lock

    folder = JobFolder.of_plan(job.plan)
    was_there = os.path.isdir(folder.path)
    try:
        # The job's folder is private. The folders of jobs and exports are not, unless they are that
        # folder too.
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
            f"the job directory cannot be created: {error.filename or folder.path}: {error.strerror}",
            hint="choose another directory with work_dir, --work-dir or export_path",
        ) from error
    return folder


def _write_job(job: RecipeJob, folder: JobFolder) -> None:
    if job.starts_over:
        _clear(folder)
    folder.make()
    os.makedirs(os.path.dirname(job.plan.recipe.export_path), exist_ok=True)
    write_atomically(folder.recipe_copy(job.plan.recipe_path), job.plan.recipe_text.encode())
    write_atomically(folder.plan, plan_to_json(job.plan))


def _refuse_running(folder: JobFolder) -> None:
    from joblens.data.base.job_folder import running_executor

    holder = running_executor(folder) if os.path.isdir(folder.path) else None
    if holder is not None:
        raise JobIsRunning(
            f"job {folder.job_id} is already running as process {holder.pid}",
            hint=f"joblens snapshot {folder.path} --human-readable shows its progress",
        )


def _clear(folder: JobFolder) -> None:
    """Removes only files of jobs. The plan is first: an interrupted removal leaves no job. The lock stays,
    or another process could lock a new file of that name."""
    from joblens.data.files.shards import forget_moved

    with suppress(FileNotFoundError):
        os.unlink(folder.plan)
    forget_moved(folder.moved)
    for each in (folder.checkpoints, folder.partitions, folder.rejects, folder.trace):
        shutil.rmtree(each, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.replace(folder.export_manifest, folder.earlier_export)  # the next export replaces it
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
        hint = f"the newest one is {known[-1]}"
    return RecipeError(f"there is no job {job_id} in {base_dir}", hint=hint)


def known_jobs(base_dir: str) -> list[str]:
    """Returns ids of existing jobs, by name, which is the order of time."""
    try:
        names = sorted(os.listdir(base_dir))
    except OSError:
        return []
    return [name for name in names if os.path.exists(JobFolder(os.path.join(base_dir, name)).plan)]
