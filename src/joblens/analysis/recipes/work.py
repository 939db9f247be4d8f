"""The operators of a recipe's job on its partitions: which of them there are, and how each one stands."""

from joblens.analysis.recipes.columns import (
    BROKEN,
    DONE,
    RUNNING,
    SAVED,
    UNKNOWN_TIME,
    OperatorColumn,
    last_saved,
)
from joblens.analysis.recipes.partitions import PartitionRows
from joblens.analysis.recipes.planned import PlannedWork
from joblens.analysis.recipes.seen import SeenEvent


class WorkGrid:
    """What is planned is there from the start; what events name beyond it is added."""

    def __init__(self, planned: PlannedWork) -> None:
        self._planned = planned
        self.columns: dict[tuple[int, str], OperatorColumn] = {}
        self.rows = PartitionRows()
        self._places: dict[str, list[int]] = {}  # of each operator's name
        self.alone: dict[
            str | None, OperatorColumn
        ] = {}  # those of partitions whose name tells which one is meant
        for operator in planned.operators:
            self.add_column(operator.index, operator.name, is_global=operator.is_global)
        for partition_id in planned.partition_ids:
            self.row(partition_id)

    def add_column(self, index: int, name: str, *, is_global: bool) -> OperatorColumn:
        column = OperatorColumn(index, name, is_global=is_global)
        column.grow(1 if is_global else len(self.rows.ids))
        self.columns[index, name] = column
        places = self._places.setdefault(name, [])
        places.append(index)
        if len(places) == 1 and not is_global:
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

    def place(self, event: SeenEvent, wanted: tuple[int, ...]) -> tuple[OperatorColumn, int]:
        """The operator and the row that an event speaks of. `wanted`: states it should be in, where the place
        that the event names may be that within a group of operators."""
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
        places = self._places.get(name, ())
        columns = [self.columns[place, name] for place in places]
        if len(columns) < 2:
            return columns[0] if columns else None
        first = sorted(columns, key=lambda column: (column.index != index, column.index))
        for column in first:
            row = 0 if column.is_global or partition_id is None else self.row(partition_id)
            if row < len(column.codes) and column.codes[row] in wanted:
                return column
        return first[0]

    def forget_unsaved(self, row: int) -> None:
        """Results that were not kept are made again. Those before a global operator that is through are not
        needed any more."""
        columns = self.of_partitions()
        through = [c.index for c in self.columns.values() if c.is_global and c.counts[DONE] + c.counts[SAVED]]
        kept = max(last_saved(columns, row), max(through, default=-1))
        for column in columns:
            if column.index > kept:
                column.set_aside(row)

    def load(self, row: int, until: int, rows: int | None, *, is_kept: bool) -> None:
        """A result was found to be there still: everything up to that place is done, with `rows` left."""
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
        """What left one operator came to the next, unless all partitions met in between. Events that told it
        may have been lost with the job's process."""
        if before is None:
            if column.index == min(each.index for each in self.columns.values()):
                column.know_rows(row, self.rows.sample_counts.get(row), None)
        elif column.index == before.index + 1:
            came, left = column.input_rows[row], before.output_rows[row]
            column.know_rows(row, left if left >= 0 else None, None)
            before.know_rows(row, None, came if came >= 0 else None)

    def waits_after(self) -> OperatorColumn | None:
        """Partitions that are through with this one wait for the others, which come together next."""
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
        """The states in which the partition waited for others are removed."""
        for column in self.columns.values():
            if not column.is_global:
                column.came_further(row)

    def remove_passing_states(self) -> None:
        """What operators on all partitions kept is removed when the job is through."""
        for column in self.columns.values():
            if column.is_global and column.codes:
                column.unsave(0)
        for row in range(len(self.rows.ids)):
            self.came_further(row)

    def let_go(self) -> None:
        """The job was gone on with: what was under way is not any more."""
        for row, code in enumerate(self.rows.codes):
            if code != DONE:
                self.forget_unsaved(row)
                self.rows.reset(row)
        for column in self.columns.values():
            if column.is_global and column.counts[RUNNING]:
                column.forget(0)

    def settle(self, column: OperatorColumn) -> None:
        for row, code in enumerate(self.rows.codes):
            if code != BROKEN:
                column.settle(row)

    def all_complete(self, at: float) -> None:
        """A job that is complete has done everything that it did not fail at."""
        for row, code in enumerate(self.rows.codes):
            if code not in (DONE, BROKEN):
                self.rows.complete(row, at)
        for column in self.columns.values():
            if not column.is_global:
                self.settle(column)
            elif column.counts[RUNNING]:
                column.complete(0, at, UNKNOWN_TIME, None, None)
            else:
                column.settle(0)

    def done(self) -> int:
        return sum(column.counts[DONE] + column.counts[SAVED] for column in self.columns.values())
