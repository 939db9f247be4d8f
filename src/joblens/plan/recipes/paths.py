"""Where a recipe's job lies, once it has an id."""

import shlex

from msgspec.structs import replace

from joblens.model.recipes.recipe import Recipe, RecipePlan

JOB_ID = "{job_id}"


def job_dir_in(work_dir: str, job_id: str) -> str:
    """The job's own folder: it ends with the id, whether that was written or not."""
    if JOB_ID in work_dir:
        return work_dir.replace(JOB_ID, job_id)
    return f"{work_dir.rstrip('/')}/{job_id}"


def base_dir_of(work_dir: str) -> str:
    """Where the folders of all jobs of the recipe are."""
    return work_dir.rpartition(f"/{JOB_ID}")[0] or "/" if JOB_ID in work_dir else work_dir


def with_job(recipe: Recipe, job_id: str) -> Recipe:
    """With every place that was left for the id filled in. `work_dir` stays where the jobs' folders are."""
    return replace(
        recipe,
        job_id=job_id,
        work_dir=base_dir_of(recipe.work_dir),
        export_path=recipe.export_path.replace(JOB_ID, job_id),
        checkpoint_dir=recipe.checkpoint_dir.replace(JOB_ID, job_id),
        event_log_dir=recipe.event_log_dir.replace(JOB_ID, job_id),
    )


def resumption_command(plan: RecipePlan) -> str:
    """Works from anywhere: the job's folder knows the recipe and all that was said beside it."""
    return shlex.join(("joblens", "process", "--resume", plan.job_dir))
