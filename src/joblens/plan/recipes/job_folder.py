"""Job folder of a recipe: its paths, and the disk space it may take."""

import shlex
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.recipes.recipe import Recipe, RecipePlan

JOB_ID = "{job_id}"


def job_dir_in(work_dir: str, job_id: str) -> str:
    """Returns the job's folder, which ends with the id."""
    if JOB_ID in work_dir:
        return work_dir.replace(JOB_ID, job_id)
    return f"{work_dir.rstrip('/')}/{job_id}"


def base_dir_of(work_dir: str) -> str:
    """Returns the folder with the folders of all jobs of the recipe."""
    return work_dir.rpartition(f"/{JOB_ID}")[0] or "/" if JOB_ID in work_dir else work_dir


def with_job(recipe: Recipe, job_id: str) -> Recipe:
    """Fills in {job_id}. `work_dir` stays the folder of all jobs."""
    return replace(
        recipe,
        job_id=job_id,
        work_dir=base_dir_of(recipe.work_dir),
        export_path=recipe.export_path.replace(JOB_ID, job_id),
        checkpoint_dir=recipe.checkpoint_dir.replace(JOB_ID, job_id),
        event_log_dir=recipe.event_log_dir.replace(JOB_ID, job_id),
    )


def resumption_command(plan: RecipePlan) -> str:
    """Returns a command that works from any directory: the job's folder has the recipe and all options."""
    return shlex.join(("joblens", "process", "--resume", plan.job_dir))


_STATE = 2  # a complete state has every row as read, and its text


class DiskNeed(Struct, frozen=True):
    most_bytes: int
    reason: str
    is_packed: bool = False  # some files are compressed: the need may be several times larger
    export_bytes: int = 0  # the part that is moved to the export's folder at the end
    checkpoint_bytes: int = 0  # the part in the folder of checkpoints


def disk_need(plan: RecipePlan, kinds: Sequence[str]) -> DiskNeed:
    """Returns the maximum need: no row is dropped, and every mapper changes every text."""
    parts = ["once for the export"]
    times = 1
    closing = [stage.closing for stage in plan.stages if stage.closing is not None]
    # States of a global operator are removed while those of the next one, or the export, are written.
    if closing:
        names = plan.recipe.process
        parts.append(f"{_times(_STATE)} for rows waiting at {names[closing[0]].name}")
        times += _STATE
    deltas = _changing_checkpoints(plan, kinds)
    if deltas:
        parts.append(f"{_times(deltas)} for checkpoints after mappers, if they change every row")
        times += deltas
    if plan.uncut:
        parts.append("once for files that are split first")
        times += 1
    is_packed = bool(plan.uncut) or any(
        piece.format != "jsonl" for partition in plan.partitions for piece in partition.slices
    )
    return DiskNeed(
        times * plan.total_bytes,
        f"the data {', '.join(parts)}",
        is_packed,
        export_bytes=plan.total_bytes,
        checkpoint_bytes=(deltas + (_STATE if closing else 0)) * plan.total_bytes,
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _changing_checkpoints(plan: RecipePlan, kinds: Sequence[str]) -> int:
    """Counts checkpoints with a mapper since the previous checkpoint."""
    count, has_changed = 0, False
    for index, kind in enumerate(kinds):
        has_changed = has_changed or kind == "mapper"
        if index in plan.checkpoint_after and has_changed:
            count, has_changed = count + 1, False
    return count
