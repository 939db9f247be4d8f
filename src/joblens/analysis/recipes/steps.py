"""What a recipe's job used for none of its operators: cutting, reading, exporting, leading the workers."""

from collections.abc import Iterable
from typing import TypeVar

from joblens.analysis.recipes.seen import SeenMetadata, UsedResources
from joblens.model.recipes.event import EventType, Step
from joblens.model.recipes.snapshot import StepProgress

_Number = TypeVar("_Number", int, float)
_ORDER = {step.value: place for place, step in enumerate(Step)}


def step_in(event_type: str, details: SeenMetadata) -> tuple[str, UsedResources] | None:
    """Of the events that tell of such work."""
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
    """Over all partitions and runs: what an attempt used stays used, also when its result was lost."""

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
