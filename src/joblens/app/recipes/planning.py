"""The plan of a recipe's job: which files, cut how, by how many workers; or that of a job gone on with."""

import os
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from joblens.app.recipes.loading import CheckedRecipe, problem_at
from joblens.data.base.plan_file import START_OVER
from joblens.model.errors import InputError, RecipeError
from joblens.model.recipes.recipe import InputFile, Recipe, RecipePlan
from joblens.plan.recipes.changes import recipe_changes
from joblens.plan.recipes.paths import job_dir_in, with_job
from joblens.plan.recipes.stages import checkpoint_after, stages_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from joblens.analysis.recipes.partition_sizing import OperatorMemory, Sizing
    from joblens.data.files.datasets import DataFile


def new_plan(checked: CheckedRecipe, job_id: str, memory: "OperatorMemory | None" = None) -> RecipePlan:
    """Looks at the data, and writes nothing. `memory`: what earlier runs of these operators needed."""
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


def plan_to_go_on(
    checked: CheckedRecipe, before: RecipePlan, memory: "OperatorMemory | None" = None
) -> RecipePlan:
    """The plan of the job as it is, carried out by as many workers as are wanted now. Raises RecipeError when
    recipe or data are not what they were."""
    from joblens.data.files.input_stamps import changed_inputs, stamp_inputs

    recipe = with_job(checked.recipe, before.job_id)
    changes = recipe_changes(before.recipe, recipe)
    changes += changed_inputs(before.operator_files, _operator_files(recipe))
    if changes:
        raise _changed(f"the recipe is not the one that job {before.job_id} was made from", changes)
    files = _files(checked, recipe)
    changes = changed_inputs(before.inputs, stamp_inputs([file.path for file in files]))
    if changes:
        raise _changed(f"the data is not what it was when job {before.job_id} was made", changes)
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
    """One that was never a file has its copy in the job's folder."""
    loaded = checked.loaded
    return os.path.abspath(loaded.path) if loaded.is_file else os.path.join(job_dir, loaded.path)


def _files(checked: CheckedRecipe, recipe: Recipe) -> "tuple[DataFile, ...]":
    from joblens.data.files.datasets import check_fields, find_files

    try:
        files = find_files(recipe.dataset_path, recipe.suffixes, recipe.delimiter)
        check_fields(files, checked.columns, checked.needed)
    except InputError as error:
        said = problem_at(checked.loaded, "dataset_path", str(error))
        raise RecipeError(said, hint=error.hint) from error
    export = os.path.realpath(recipe.export_path)
    if any(os.path.realpath(file.path) == export for file in files):
        said = f"{recipe.export_path} is one of the files of the dataset"
        raise RecipeError(
            problem_at(checked.loaded, "export_path", said),
            hint="write somewhere else: a job never changes what it reads",
        )
    return files


def _refuse_reading_itself(checked: CheckedRecipe, recipe: Recipe, job_dir: str) -> None:
    from joblens.app.recipes.paths import is_read_again

    found = is_read_again(recipe, job_dir)
    if found is not None:
        said = f"{found}, which this job writes, would be read as data by the next one"
        raise RecipeError(
            problem_at(checked.loaded, "dataset_path", said),
            hint="let work_dir and export_path lie outside of the dataset, or name its files by a pattern",
        )


def _sizing(
    checked: CheckedRecipe, recipe: Recipe, files: "Sequence[DataFile]", memory: "OperatorMemory | None"
) -> "Sizing":
    from joblens.app.recipes.sizing import choose

    is_given = checked.loaded.is_np_given
    if memory is None:
        return choose(recipe, files, is_np_given=is_given)
    return choose(recipe, files, is_np_given=is_given, memory=memory)


def _changed(what: str, changes: "Sequence[str]") -> RecipeError:
    return RecipeError(
        "\n".join([f"{what}:", *(f"  {each}" for each in changes)]), hint=START_OVER, problems=changes
    )
