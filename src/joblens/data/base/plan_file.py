"""The plan of a job, read from its folder."""

import msgspec

from joblens.data.base.job_folder import JobFolder
from joblens.files.private import open_plain_file
from joblens.model.errors import RecipeError
from joblens.model.recipes.recipe import RecipePlan
from joblens.plan.workflows.plan_document import plan_from_json

START_OVER = "--start-over does all of it anew under the same id; without an id a new job is made"


def read_plan(job_dir: str) -> RecipePlan | None:
    """None: there is no such job. Raises RecipeError for a file that cannot be read."""
    path = JobFolder(job_dir).plan
    try:
        with open_plain_file(path) as file:
            return plan_from_json(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise RecipeError(f"{path} is damaged: {error}", hint=START_OVER) from error


def planned_job(job_dir: str) -> RecipePlan:
    """The same where there has to be one."""
    plan = read_plan(job_dir)
    if plan is None:
        raise RecipeError(f"there is no planned job in {job_dir}: {JobFolder(job_dir).plan} is missing")
    return plan
