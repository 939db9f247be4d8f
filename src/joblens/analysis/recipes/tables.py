"""Partitions and operations of a snapshot, each made when it is asked for: there may be a million."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from joblens.analysis.recipes.columns import (
    BROKEN,
    DONE,
    RUNNING,
    SAVED,
    UNSEEN,
    ColumnState,
    OperationForm,
    known,
)
from joblens.analysis.recipes.partitions import PartitionRows
from joblens.model.recipes.snapshot import OperationStatus, PartitionStatus, ProcessingStatus


class _Names(Struct, frozen=True, kw_only=True):
    """Operators by how they stand on a partition."""

    completed: tuple[str, ...]
    failed: tuple[str, ...]
    saved: tuple[str, ...]
    current: str | None


class PartitionTable(Mapping[int, PartitionStatus]):
    def __init__(
        self,
        rows: PartitionRows,
        columns: Sequence[ColumnState],
        running: ProcessingStatus,
        waits_after: int | None = None,  # the place of an operator
    ) -> None:
        self._rows = rows
        self._columns = [column for column in columns if not column.is_global]
        self._waits_after = next((column for column in self._columns if column.index == waits_after), None)
        together = [column.codes[0] if column.codes else UNSEEN for column in columns if column.is_global]
        self._planned = len(self._columns) + len(together)
        self._done_together = sum(code in (DONE, SAVED) for code in together)
        self._running = running
        self._names_by_codes: dict[bytes, _Names] = {}  # most partitions are in one of a few states

    def __len__(self) -> int:
        return len(self._rows.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._rows.ids))

    def __getitem__(self, partition_id: int) -> PartitionStatus:
        rows, row = self._rows, self._rows.number[partition_id]
        if row >= len(rows.ids):  # came later than the snapshot
            raise KeyError(partition_id)
        names = self._names(bytes([column.codes[row] for column in self._columns]))
        return PartitionStatus(
            partition_id=partition_id,
            status=rows.status(row, self._running),
            sample_count=rows.sample_counts.get(row, self._rows_read(row)),
            creation_start_time=known(rows.creation_starts[row]),
            creation_end_time=known(rows.creation_ends[row]),
            processing_start_time=known(rows.starts[row]),
            processing_end_time=known(rows.ends[row]),
            current_operation=names.current,
            completed_operations=names.completed,
            failed_operations=names.failed,
            checkpointed_operations=names.saved,
            error_message=rows.errors.get(row),
            planned_operations=self._planned,
            completed_together=0 if rows.codes[row] == BROKEN else self._done_together,
            retry_count=rows.retries.get(row, 0),
            is_waiting=self._is_waiting(row),
        )

    def _is_waiting(self, row: int) -> bool:
        is_begun = self._rows.codes[row] == RUNNING and self._running is ProcessingStatus.IN_PROGRESS
        return is_begun and self._waits_after is not None and self._waits_after.codes[row] in (DONE, SAVED)

    def _names(self, codes: bytes) -> _Names:
        names = self._names_by_codes.get(codes)
        if names is None:

            def those_in(*states: int) -> tuple[str, ...]:
                pairs = zip(self._columns, codes, strict=True)
                return tuple(column.name for column, code in pairs if code in states)

            names = self._names_by_codes[codes] = _Names(
                completed=those_in(DONE, SAVED),
                failed=those_in(BROKEN),
                saved=those_in(SAVED),
                current=next(iter(reversed(those_in(RUNNING))), None),
            )
        return names

    def _rows_read(self, row: int) -> int | None:
        """What came to the first operator, where nothing else tells how many rows there are."""
        return self._columns[0].rows_in(row) if self._columns else None


class SavedForm(Struct, frozen=True, gc=False):
    """An operation whose result is kept, as it is written."""

    operation_key: str
    operation_name: str
    checkpoint_time: float  # not a number, when nobody told it


class OperationTable(Mapping[str, OperationStatus]):
    """Those that were begun, by `p<partition>_op<place>_<name>`, or `global_op<place>_<name>`."""

    def __init__(
        self, rows: PartitionRows, columns: Sequence[ColumnState], running: ProcessingStatus
    ) -> None:
        self._rows = rows
        self._columns = columns
        self._running = running
        self._length = sum(len(column.codes) - column.codes.count(UNSEEN) for column in columns)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for key, _column, _row in self._places():
            yield key

    def _places(self) -> Iterator[tuple[str, ColumnState, int]]:
        partial = [column for column in self._columns if not column.is_global]
        for partition_id in sorted(self._rows.ids):
            row = self._rows.number[partition_id]
            for column in partial:
                if row < len(column.codes) and column.codes[row] != UNSEEN:
                    yield f"p{partition_id}_op{column.index}_{column.name}", column, row
        for column in self._columns:
            if column.is_global and column.codes and column.codes[0] != UNSEEN:
                yield f"global_op{column.index}_{column.name}", column, 0

    def __getitem__(self, key: str) -> OperationStatus:
        where, _, rest = key.partition("_op")
        place, _, name = rest.partition("_")
        for column in self._columns:
            if str(column.index) == place and column.name == name:
                row = self._row_of(where, column)
                if row is not None and row < len(column.codes) and column.codes[row] != UNSEEN:
                    return column.operation(row, self._running)
        raise KeyError(key)

    def _row_of(self, where: str, column: ColumnState) -> int | None:
        if column.is_global:
            return 0 if where == "global" else None
        number = where.removeprefix("p")
        is_number = number.removeprefix("-").isdecimal() and where.startswith("p")
        return self._rows.number.get(int(number)) if is_number else None

    def saved(self) -> Iterator[SavedForm]:
        """Those whose results are kept."""
        for key, column, row in self._places():
            if column.codes[row] == SAVED:
                yield SavedForm(key, column.name, column.saved_time(row))

    def forms(self) -> Iterator[tuple[str, OperationForm]]:
        """All of them in order, without looking each one up."""
        running = self._running
        for key, column, row in self._places():
            yield key, column.form(row, running)
