"""Progress of a recipe's job: planned operators and partitions, the state of each, rows in and out, and
its runs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from joblens.analysis.recipes.columns import (
    BROKEN,
    DONE,
    RUNNING,
    SAVED,
    UNKNOWN_TIME,
    OperatorColumn,
    PartitionRows,
    SeenEvent,
    last_saved,
)
from joblens.model.jobs.details import RejectReason
from joblens.model.recipes.recipe import EventType, RecipePlan
from joblens.model.recipes.snapshot import OperatorProgress, ProcessingStatus

_NODE_ID = re.compile(r"(op|sg)_(\d+)_(.+?)(?:_partition_(\d+))?")


class PlannedOperator(Struct, frozen=True):
    index: int
    name: str
    is_global: bool = False  # runs once, on all partitions together


class PlannedWork(Struct, frozen=True, kw_only=True):
    operators: tuple[PlannedOperator, ...] = ()
    partition_ids: tuple[int, ...] = ()
    has_absolute_indexes: bool = True  # events have an operator's index in the whole recipe
    is_parquet: bool = False  # the export


def planned_by_plan(plan: RecipePlan) -> PlannedWork:
    closing = {stage.closing for stage in plan.stages}
    return PlannedWork(
        operators=tuple(
            PlannedOperator(call.index, call.name, call.index in closing) for call in plan.recipe.process
        ),
        partition_ids=tuple(partition.id for partition in plan.partitions),
        is_parquet=(plan.recipe.export_type or plan.recipe.export_path).lower().endswith("parquet"),
    )


def planned_by_nodes(node_ids: Iterable[str]) -> PlannedWork:
    """Derives the plan from node names in DataJuicer's `dag_execution_plan.json`.

    Nodes of partitions are numbered from 1, global operators from 0. From the first global operator on there
    is one partition. Its events have indexes within a group of operators, so the names decide.
    """
    names: dict[int, str] = {}
    partition_ids: set[int] = set()
    first_global: int | None = None
    for node_id in node_ids:
        matched = _NODE_ID.fullmatch(node_id)
        if matched is None:
            continue
        kind, number, name, partition_id = matched.groups()
        index = int(number) - (kind == "op")
        names[index] = name
        if kind == "sg":
            first_global = index if first_global is None else min(index, first_global)
        if partition_id is not None:
            partition_ids.add(int(partition_id))
    if not partition_ids:
        first_global = 0
    return PlannedWork(
        operators=tuple(
            PlannedOperator(index, names[index], first_global is not None and index >= first_global)
            for index in sorted(names)
        ),
        partition_ids=tuple(sorted(partition_ids)),
        has_absolute_indexes=False,
    )


def planned_by_names(names: Iterable[str]) -> PlannedWork:
    """Derives the plan from a list of operators alone; partitions become known by their events."""
    operators = tuple(PlannedOperator(index, name) for index, name in enumerate(names))
    return PlannedWork(operators=operators, has_absolute_indexes=False)


class WorkGrid:
    """Planned work exists from the start; events add unplanned work."""

    def __init__(self, planned: PlannedWork) -> None:
        self._planned = planned
        self.columns: dict[tuple[int, str], OperatorColumn] = {}
        self.rows = PartitionRows()
        self._indexes: dict[str, list[int]] = {}  # of each operator's name
        self.alone: dict[str | None, OperatorColumn] = {}  # operators with unique names
        for operator in planned.operators:
            self.add_column(operator.index, operator.name, is_global=operator.is_global)
        for partition_id in planned.partition_ids:
            self.row(partition_id)

    def add_column(self, index: int, name: str, *, is_global: bool) -> OperatorColumn:
        column = OperatorColumn(index, name, is_global=is_global)
        column.grow(1 if is_global else len(self.rows.ids))
        self.columns[index, name] = column
        indexes = self._indexes.setdefault(name, [])
        indexes.append(index)
        if len(indexes) == 1 and not is_global:
            self.alone[name] = column
        else:
            self.alone.pop(name, None)
        return column

    def row(self, partition_id: int) -> int:
        row = self.rows.number.get(partition_id)
        if row is None:
            row = self.rows.add(partition_id)
            for column in self.columns.values():
                if not column.is_global:
                    column.grow(row + 1)
        return row

    def of_partitions(self) -> list[OperatorColumn]:
        return [column for column in self.columns.values() if not column.is_global]

    def cell_of(self, event: SeenEvent, wanted: tuple[int, ...]) -> tuple[OperatorColumn, int]:
        """Returns the operator and the row of an event.

        `wanted`: expected states, if the index may be relative to a group.
        """
        name, partition_id = event.operation_name or "", event.partition_id
        alone, row = self.alone.get(name), self.rows.number.get(partition_id)
        if alone is not None and row is not None:
            return alone, row
        index = event.operation_idx or 0
        column = self.columns.get((index, name))
        if column is None or not self._planned.has_absolute_indexes:
            column = self.named(name, index, partition_id, wanted) or column
            if column is None:
                column = self.add_column(index, name, is_global=partition_id is None)
        if column.is_global or partition_id is None:
            if not column.codes:
                column.grow(1)
            return column, 0
        return column, self.row(partition_id)

    def named(
        self, name: str, index: int, partition_id: int | None, wanted: tuple[int, ...]
    ) -> OperatorColumn | None:
        indexes = self._indexes.get(name, ())
        columns = [self.columns[cell_of, name] for cell_of in indexes]
        if len(columns) < 2:
            return columns[0] if columns else None
        first = sorted(columns, key=lambda column: (column.index != index, column.index))
        for column in first:
            row = 0 if column.is_global or partition_id is None else self.row(partition_id)
            if row < len(column.codes) and column.codes[row] in wanted:
                return column
        return first[0]

    def forget_unsaved(self, row: int) -> None:
        """Marks unsaved results to be repeated, except those before a finished global operator."""
        columns = self.of_partitions()
        through = [c.index for c in self.columns.values() if c.is_global and c.counts[DONE] + c.counts[SAVED]]
        last_done = max(last_saved(columns, row), max(through, default=-1))
        for column in columns:
            if column.index > last_done:
                column.set_aside(row)

    def load(self, row: int, until: int, rows: int | None, *, is_kept: bool) -> None:
        """Marks everything up to that index as done, with `rows` remaining: a result still exists."""
        before: OperatorColumn | None = None
        for column in sorted(self.of_partitions(), key=lambda each: each.index):
            if column.index > until:
                column.set_aside(row)
                continue
            column.load(row, SAVED if is_kept and column.index == until else DONE)
            if column.index == until:
                column.know_rows(row, None, rows)
            self._know_from_neighbour(before, column, row)
            before = column

    def _know_from_neighbour(self, before: OperatorColumn | None, column: OperatorColumn, row: int) -> None:
        """Derives row counts from the previous operator, unless partitions met in between.

        Events with them may have been lost with the job's process.
        """
        if before is None:
            if column.index == min(each.index for each in self.columns.values()):
                column.know_rows(row, self.rows.sample_counts.get(row), None)
        elif column.index == before.index + 1:
            came, left = column.input_rows[row], before.output_rows[row]
            column.know_rows(row, left if left >= 0 else None, None)
            before.know_rows(row, None, came if came >= 0 else None)

    def waits_after(self) -> OperatorColumn | None:
        """Returns the operator after which finished partitions wait for the others."""
        ordered = sorted(self.columns.values(), key=lambda column: column.index)
        before: OperatorColumn | None = None
        for column in ordered:
            if column.is_global and not column.counts[DONE] + column.counts[SAVED]:
                break
            before = column
        else:
            return None
        return None if before is None or before.is_global else before

    def waiting(self) -> int:
        last = self.waits_after()
        if last is None:
            return 0
        pairs = zip(self.rows.codes, last.codes, strict=False)
        return sum(1 for partition, code in pairs if partition == RUNNING and code in (DONE, SAVED))

    def came_further(self, row: int) -> None:
        """Removes the states in which the partition waited for others."""
        for column in self.columns.values():
            if not column.is_global:
                column.came_further(row)

    def remove_passing_states(self) -> None:
        """Marks saved states of global operators as removed when the job ends."""
        for column in self.columns.values():
            if column.is_global and column.codes:
                column.unsave(0)
        for row in range(len(self.rows.ids)):
            self.came_further(row)

    def let_go(self) -> None:
        """Marks running work as stopped: the job was resumed."""
        for row, code in enumerate(self.rows.codes):
            if code != DONE:
                self.forget_unsaved(row)
                self.rows.reset(row)
        for column in self.columns.values():
            if column.is_global and column.counts[RUNNING]:
                column.forget(0)

    def fold(self, column: OperatorColumn) -> None:
        for row, code in enumerate(self.rows.codes):
            if code != BROKEN:
                column.fold(row)

    def all_complete(self, at: float) -> None:
        """Marks all work of a completed job as done, except failures."""
        for row, code in enumerate(self.rows.codes):
            if code not in (DONE, BROKEN):
                self.rows.complete(row, at)
        for column in self.columns.values():
            if not column.is_global:
                self.fold(column)
            elif column.counts[RUNNING]:
                column.complete(0, at, UNKNOWN_TIME, None, None)
            else:
                column.fold(0)

    def done(self) -> int:
        return sum(column.counts[DONE] + column.counts[SAVED] for column in self.columns.values())


_EXPORTED = (ProcessingStatus.COMPLETED, ProcessingStatus.PARTIAL)


class JobRows(Struct, frozen=True):
    """Row counts of the whole job."""

    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int | None = None


def job_rows(
    reported: JobRows,
    status: ProcessingStatus,
    operators: Sequence[OperatorProgress],
    summary: Mapping[str, Any],
    rejected: int,
) -> JobRows:
    """Returns row counts from the export, else the summary, else the operators.

    For a job that ended without export, nothing was output; rejected rows are those of its partitions.
    """
    is_exported = status in _EXPORTED
    written = summary if is_exported else {}
    came = operators[0].input_rows if operators else None
    left = operators[-1].output_rows if operators else None
    if not is_exported and status is not ProcessingStatus.IN_PROGRESS:
        left = None
    return JobRows(
        _first_known(reported.rows_in if is_exported else None, _number(written.get("rows_in")), came),
        _first_known(reported.rows_out if is_exported else None, _number(written.get("rows_out")), left),
        _first_known(
            reported.rejected if is_exported else None, _number(written.get("rejected_rows")), rejected
        ),
    )


def rejects_in(summary: Mapping[str, Any]) -> tuple[RejectReason, ...]:
    """Returns rejects by reason from the summary of an ended job; () if missing or damaged."""
    try:
        return msgspec.convert(summary.get("rejects") or (), tuple[RejectReason, ...])
    except msgspec.ValidationError:
        return ()


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first_known(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


_STATUS_WORDS = {
    "completed": ProcessingStatus.COMPLETED,
    "complete": ProcessingStatus.COMPLETED,
    "partial": ProcessingStatus.PARTIAL,
    "failed": ProcessingStatus.FAILED,
    "stopped": ProcessingStatus.STOPPED,
    "interrupted": ProcessingStatus.STOPPED,
}


class JobRuns:
    def __init__(self) -> None:
        self.count = 0
        self.first_start: float | None = None
        self.last_event: float | None = None
        self.process_id: int | None = None
        self.end: SeenEvent | None = None
        self.done_before = 0  # operations that this run did not have to do
        self._start: float | None = None  # of this run
        self._seconds_before = 0.0

    def start(self, event: SeenEvent, done: int) -> bool:
        """Starts a run. Returns whether it is a new one: some systems report a start twice."""
        is_same = (
            self._start is not None
            and self.end is None
            and event.event_type == EventType.JOB_START
            and event.process_id == self.process_id
        )
        self.process_id = event.process_id
        if is_same:
            return False
        self._seconds_before += self._seconds_of_run()
        self.count += 1
        self._start = event.timestamp
        self.first_start = event.timestamp if self.first_start is None else self.first_start
        self.end = None
        self.done_before = done
        return True

    def _seconds_of_run(self, until: float | None = None) -> float:
        until = self.last_event if until is None else until
        return 0.0 if self._start is None or until is None else max(0.0, until - self._start)

    @property
    def end_time(self) -> float | None:
        """Returns None for a running job, or one without an end event."""
        return None if self.end is None else self.end.timestamp

    def seconds(self, until: float | None) -> float | None:
        """Sums all runs; the last one up to `until`, or its last event."""
        return None if self._start is None else self._seconds_before + self._seconds_of_run(until)

    def time_left(self, done: int, total: int, now: float) -> float | None:
        """Returns seconds at the average speed of this run."""
        in_this_run = done - self.done_before
        if in_this_run <= 0 or not total or self._start is None:
            return None
        return max(0.0, now - self._start) / in_this_run * (total - done)

    def status(self, is_alive: bool | None, rows: PartitionRows, summary_word: str) -> ProcessingStatus:  # noqa: FBT001
        """Decides by the reported end, then by the process, then by the summary."""
        if self.end is not None:
            return self._reported_end(self.end, rows)
        if is_alive:
            return ProcessingStatus.IN_PROGRESS
        if self.last_event is None and is_alive is None:
            return _STATUS_WORDS.get(summary_word, ProcessingStatus.NOT_STARTED)
        if summary_word in _STATUS_WORDS:
            return _STATUS_WORDS[summary_word]
        if is_alive is None:
            is_begun = self._start is not None
            return ProcessingStatus.IN_PROGRESS if is_begun else ProcessingStatus.NOT_STARTED
        return ProcessingStatus.FAILED if rows.counts[BROKEN] else ProcessingStatus.KILLED

    def _reported_end(self, end: SeenEvent, rows: PartitionRows) -> ProcessingStatus:
        if end.event_type == EventType.JOB_STOPPED:
            return ProcessingStatus.STOPPED
        word = _STATUS_WORDS.get(end.status or "")
        if word in (ProcessingStatus.PARTIAL, ProcessingStatus.FAILED, ProcessingStatus.STOPPED):
            return word
        if end.event_type == EventType.JOB_FAILED:
            return ProcessingStatus.FAILED
        if not rows.counts[BROKEN]:
            return ProcessingStatus.COMPLETED
        return ProcessingStatus.PARTIAL if rows.counts[DONE] else ProcessingStatus.FAILED
