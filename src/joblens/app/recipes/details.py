"""What the operators of a recipe's job have used, from the job's own folder: while it runs, and where the
joblens that started it was killed before it could write that down."""

import time

from joblens.model.errors import JoblensError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record

_TOOL = "recipe"


def operators_from_folder(record: Record) -> Details:
    """Nothing, where it is no job of a recipe or its folder is gone."""
    job_dir = record.job.params.get("job_dir")
    if record.job.tool != _TOOL or not isinstance(job_dir, str):
        return Details()
    from joblens.analysis.recipes.operators import operator_table
    from joblens.app.recipes.snapshots import LiveSnapshot
    from joblens.data.base.plan_file import read_plan

    try:
        plan = read_plan(job_dir)
        if plan is None or plan.job_id != record.job.external_id:
            return Details()
        snapshot = LiveSnapshot(job_dir).refresh()
    except (JoblensError, OSError):
        return Details()
    return Details(operators=operator_table(snapshot, plan, time.time_ns() // 1000))
