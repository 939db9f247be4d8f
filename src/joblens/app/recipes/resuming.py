"""Jobs to go on with, found by their folder or by their id, without the recipe they were made from."""

import os
from contextlib import closing
from typing import TYPE_CHECKING

from joblens.data.base.plan_file import read_plan
from joblens.model.errors import JoblensError, RecipeError
from joblens.model.jobs.job import Record, Status
from joblens.model.recipes.recipe import RecipePlan
from joblens.model.recipes.snapshot import ProcessingStatus
from joblens.model.settings import Settings

if TYPE_CHECKING:
    from joblens.app.recipes.running import EndedRecipe

_TOOL = "recipe"


def is_folder(resume: str) -> bool:
    """Whether it is the place of a job, not its name."""
    return os.sep in resume or resume in (os.curdir, os.pardir)


def plan_of(resume: str, work_dir: str | None, settings: Settings) -> RecipePlan:
    """Of the job in that folder, or of that id: below `work_dir`, here, or where the history says it is.
    RecipeError where there is none."""
    if is_folder(resume):
        found = plan_in(resume)
        if found is None:
            raise RecipeError(f"{resume} is no folder of a job: there is no metadata/plan.json in it")
        return found
    for base in [work_dir] if work_dir is not None else [os.curdir]:
        found = plan_in(os.path.join(base, resume))
        if found is not None:
            return found
    job_dir = None if work_dir is not None else _told_by_history(resume, settings)
    found = None if job_dir is None else plan_in(job_dir)
    if found is None:
        where = f"in {work_dir}" if work_dir is not None else "in this folder or in the history"
        raise RecipeError(
            f"there is no job {resume} {where}",
            hint="give the job's folder, or the recipe too: joblens process RECIPE --resume ID",
        )
    return found


def plan_in(job_dir: str) -> RecipePlan | None:
    path = os.path.abspath(job_dir)
    plan = read_plan(path)
    if plan is not None and os.path.realpath(plan.job_dir) != os.path.realpath(path):
        raise RecipeError(
            f"the job in {path} was made in {plan.job_dir}, and its files name that place",
            hint="move it back, or link that place to this one",
        )
    return plan


def complete_already(plan: RecipePlan, settings: Settings) -> "EndedRecipe | None":
    """How the job of that plan ended, if all of it is done and its export is there; None as well where the
    history does not know it."""
    from joblens.app.recipes.snapshots import create_snapshot
    from joblens.data.base.job_folder import JobFolder
    from joblens.data.executor.coordinator import whole_export

    export = whole_export(plan, JobFolder.of_plan(plan))
    if export is None:
        return None
    snapshot = create_snapshot(plan.job_dir)
    record = _in_history(plan.job_id, settings)
    if snapshot.overall_status is not ProcessingStatus.COMPLETED or record is None:
        return None
    if record.status is not Status.SUCCESS or record.job.params.get("job_dir") != plan.job_dir:
        return None
    from joblens.app.recipes.running import EndedRecipe

    return EndedRecipe(plan, record, snapshot, export_files=export.export.paths, was_complete=True)


def _told_by_history(job_id: str, settings: Settings) -> str | None:
    record = _in_history(job_id, settings)
    place = None if record is None else record.job.params.get("job_dir")
    return place if isinstance(place, str) else None


def _in_history(job_id: str, settings: Settings) -> Record | None:
    from joblens.app.wiring.drivers import open_store_to_read, store_is_there

    if not store_is_there(settings):
        return None
    try:
        with closing(open_store_to_read(settings, lambda _warning: None)) as store:
            record = store.find(job_id)
    except JoblensError:
        return None
    return record if record.job.tool == _TOOL else None
