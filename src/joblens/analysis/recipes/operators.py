"""What the operators of a recipe used, for the record of its job."""

from joblens.model.jobs.details import OperatorTable, OperatorUse, StepUse
from joblens.model.recipes.recipe import RecipePlan
from joblens.model.recipes.snapshot import JobSnapshot, OperatorProgress, StepProgress


def operator_table(snapshot: JobSnapshot, plan: RecipePlan, at_us: int) -> OperatorTable:
    sizes = [partition.size_bytes for partition in plan.partitions]
    known = snapshot.operators if plan.recipe.log_events else ()  # only events tell what each used
    return OperatorTable(
        at_us=at_us,
        operators=tuple(_use(each) for each in known),
        steps=tuple(_step(each) for each in snapshot.steps),
        workers=plan.workers,
        partitions=snapshot.total_partitions or len(sizes),
        largest_partition_bytes=max(sizes, default=None) if not plan.uncut else plan.target_bytes,
        job_dir=plan.job_dir,
        runs=snapshot.runs,
        rejects=snapshot.rejects,
    )


def _step(progress: StepProgress) -> StepUse:
    cpu_s = progress.cpu_seconds
    return StepUse(
        name=progress.name,
        wall_s=progress.wall_seconds,
        cpu_usec=None if cpu_s is None else round(cpu_s * 1e6),
        memory_peak_bytes=progress.memory_peak_bytes,
        read_bytes=progress.read_bytes,
        written_bytes=progress.written_bytes,
    )


def _use(progress: OperatorProgress) -> OperatorUse:
    cpu_s = progress.cpu_seconds
    return OperatorUse(
        index=progress.operation_idx,
        name=progress.operation_name,
        wall_s=progress.duration_seconds,
        cpu_usec=None if cpu_s is None else round(cpu_s * 1e6),
        memory_peak_bytes=progress.memory_peak_bytes,
        read_bytes=progress.read_bytes,
        written_bytes=progress.written_bytes,
        rows_in=progress.input_rows,
        rows_out=progress.output_rows,
        rejected=progress.rejected_rows,
        partitions=progress.completed,
    )
