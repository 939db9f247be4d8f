"""Resource use of a recipe's operators and of the steps between them."""

from collections.abc import Iterable
from typing import TypeVar

from joblens.analysis.recipes.columns import SeenMetadata, UsedResources
from joblens.model.jobs.details import OperatorTable, OperatorUse, StepUse
from joblens.model.recipes.recipe import EventType, RecipePlan, Step
from joblens.model.recipes.snapshot import JobSnapshot, OperatorProgress, StepProgress


def operator_table(snapshot: JobSnapshot, plan: RecipePlan, at_us: int) -> OperatorTable:
    sizes = [partition.size_bytes for partition in plan.partitions]
    known = snapshot.operators if plan.recipe.log_events else ()  # only events have the usage of each
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


_Number = TypeVar("_Number", int, float)
_ORDER = {step.value: index for index, step in enumerate(Step)}


def step_in(event_type: str, details: SeenMetadata) -> tuple[str, UsedResources] | None:
    """Returns the step of an event about such work."""
    if event_type == EventType.STEP_COMPLETE:
        return (
            None if details.step is None or details.resources is None else (details.step, details.resources)
        )
    if event_type == EventType.PARTITION_CREATION_COMPLETE and details.resources is not None:
        return Step.READING, details.resources
    if event_type == EventType.PARTITION_COMPLETE and details.export is not None:
        return Step.EXPORTING, details.export
    return None


class StepTotals:
    """Totals over all partitions and runs: usage of an attempt counts even if its result was lost."""

    def __init__(self, before: Iterable[StepProgress] = ()) -> None:
        self._uses: dict[str, StepProgress] = {use.name: use for use in before}

    def add(self, step: str, used: UsedResources) -> None:
        now = self._uses.get(step) or StepProgress(name=step)
        self._uses[step] = StepProgress(
            name=step,
            wall_seconds=_sum(now.wall_seconds, used.wall_seconds),
            cpu_seconds=_sum(now.cpu_seconds, used.cpu_seconds),
            memory_peak_bytes=_most(now.memory_peak_bytes, used.memory_peak_bytes),
            read_bytes=_sum(now.read_bytes, used.read_bytes),
            written_bytes=_sum(now.written_bytes, used.written_bytes),
        )

    def uses(self) -> tuple[StepProgress, ...]:
        return tuple(
            sorted(self._uses.values(), key=lambda use: (_ORDER.get(use.name, len(_ORDER)), use.name))
        )


def _sum(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
