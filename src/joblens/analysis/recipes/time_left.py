"""Remaining time of a recipe's job, from the durations of its operators and steps so far.

A stage ends when its partitions have passed its operators, several in parallel. The next stage, and the
export, start after that. So the estimate is the sum over stages of the time its workers need, with the mean
time of each operator per partition, and the time to assemble the export.
"""

import heapq
import math
from collections.abc import Sequence
from itertools import pairwise

from joblens.analysis.recipes.columns import DONE, RUNNING, SAVED, OperatorColumn, PartitionRows
from joblens.model.recipes.recipe import Step

# Cost of assembling an export, relative to writing its parts: lines are moved, Parquet is rewritten.
_ASSEMBLY = {True: 0.75, False: 0.5}
_OVERDUE = 0.25  # of the mean: remaining time of an operator that has exceeded it
_AS_LONG_AGAIN = 2.0  # total of a step that never ended, relative to its time so far
_MOST_SCHEDULED = 1000  # partitions; of more than that, the last wave makes no difference


class _Mean:
    """Seconds per partition of a step between operators."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, seconds: float) -> None:
        self._sum += seconds
        self._count += 1

    @property
    def value(self) -> float | None:
        return self._sum / self._count if self._count else None


class TimeLeft:
    """Receives the steps of this run; operators have their times in their columns."""

    def __init__(self, *, is_parquet: bool) -> None:
        self._assembly = _ASSEMBLY[is_parquet]
        self._workers: int | None = None
        self._steps = {Step.READING.value: _Mean(), Step.EXPORTING.value: _Mean()}
        self._export_began: float | None = None

    def began(self, workers: int | None) -> None:
        """Starts a run of the job. Other systems do not report their number of workers."""
        self._workers = workers or self._workers
        self._export_began = None

    def stepped(self, step: str, seconds: float | None) -> None:
        """Adds a step on one partition."""
        if step in self._steps and seconds is not None and self._export_began is None:
            self._steps[step].add(seconds)

    def export_began(self, at: float) -> None:
        self._export_began = at

    def estimate(
        self, columns: Sequence[OperatorColumn], rows: PartitionRows, partitions: int, now: float
    ) -> float | None:
        """Returns seconds; None: unknown."""
        read = self._steps[Step.READING.value].value
        if self._workers is None or read is None or not partitions:
            return None
        export = self._steps[Step.EXPORTING.value].value
        export = read if export is None else export
        assembly = self._assembly * export * partitions
        if self._export_began is not None:
            return _rest(assembly, max(0.0, now - self._export_began))
        means = _means(columns, partitions, now, read)
        total = assembly
        for stage in _stages(columns):
            total += self._stage(stage, means, rows, partitions, now, (read, export))
        return total

    def _stage(
        self,
        stage: "tuple[list[OperatorColumn], OperatorColumn | None]",
        means: dict[int, float],
        rows: PartitionRows,
        partitions: int,
        now: float,
        around: tuple[float, float],
    ) -> float:
        """Returns operators on partitions, and the global operator that closes their stage, if any."""
        own, closing = stage
        if closing is not None and closing.counts[DONE] + closing.counts[SAVED]:
            return 0.0
        read, export = around
        behind = export if closing is None else means[closing.index] / max(1, partitions)
        if closing is None or not own:
            through = rows.counts[DONE] if closing is None else 0
        else:
            through = own[-1].counts[DONE] + own[-1].counts[SAVED]
        rests = []
        for index, column in enumerate(own):
            later = sum(means[each.index] for each in own[index + 1 :]) + behind
            rests += [_rest(means[column.index], took) + later for took in _running(column, now)]
        waiting = max(0, partitions - through - len(rests))
        whole = read + sum(means[each.index] for each in own) + behind
        assert self._workers is not None
        return makespan(rests, waiting, whole, self._workers)


def _rest(mean: float, took: float) -> float:
    return max(mean - took, _OVERDUE * mean)


def _running(column: OperatorColumn, now: float) -> list[float]:
    """Seconds so far of each partition that the operator works on."""
    found = []
    row = column.codes.find(RUNNING)
    while row >= 0:
        found.append(max(0.0, now - column.starts[row]))
        row = column.codes.find(RUNNING, row + 1)
    return found


def _means(columns: Sequence[OperatorColumn], partitions: int, now: float, read: float) -> dict[int, float]:
    """Returns seconds of each operator per partition, or of a global one in total.

    For one that has never finished: twice its time so far, or the average of the others.
    """
    known: dict[int, float] = {}
    for column in columns:
        done = column.counts[DONE] + column.counts[SAVED]
        seconds = column.progress(0, is_running=True).duration_seconds
        if done and seconds > 0 and not column.is_global:
            known[column.index] = seconds / done
    usual = sum(known.values()) / len(known) if known else read
    means = dict(known)
    for column in columns:
        if column.index not in known:
            took = max(_running(column, now), default=0.0)
            guess = (usual + read) * partitions if column.is_global else usual
            means[column.index] = max(guess, _AS_LONG_AGAIN * took)
    return means


def _stages(
    columns: Sequence[OperatorColumn],
) -> "list[tuple[list[OperatorColumn], OperatorColumn | None]]":
    edges = [-1, *(index for index, column in enumerate(columns) if column.is_global), len(columns)]
    return [
        (list(columns[first + 1 : end]), columns[end] if end < len(columns) else None)
        for first, end in pairwise(edges)
    ]


def makespan(rests: Sequence[float], waiting: int, whole: float, workers: int) -> float:
    """Returns the time until all are done: running ones first, then whole partitions on free workers."""
    if waiting > _MOST_SCHEDULED:
        return (sum(rests) + waiting * whole) / workers
    free = sorted([*rests, *[0.0] * workers], reverse=True)[: max(workers, len(rests))]
    heapq.heapify(free)
    for _ in range(waiting):
        heapq.heapreplace(free, free[0] + whole)
    return max(free, default=math.nan)
