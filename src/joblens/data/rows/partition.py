"""Partition in memory, processed by operators piece by piece."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.operator import RowErrors
from joblens.data.rows.batch import LINE, Rows, with_column

PIECE_BYTES = 2 << 20
_IN_PLACE = (pa.large_string(), pa.large_binary())


class _NoOneShape(Exception):
    """Pieces came back with different columns."""


def mapped_in_pieces(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps functions from batches to batches with as many rows."""

    def mapped(batch: Any) -> Any:
        pieces = _pieces(batch)
        if len(pieces) == 1:
            return function(batch)
        try:
            whole = _mapped(batch, pieces, function)
        except _NoOneShape:  # the type of a column depends on all of it
            return function(batch)
        # otherwise the process would keep the memory of the pieces
        pa.default_memory_pool().release_unused()
        return whole

    return mapped


def stats_in_pieces(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Wraps functions from batches to columns of statistics."""

    def stats(batch: Any) -> dict[str, Any]:
        pieces = _pieces(batch)
        if len(pieces) == 1:
            return function(batch)
        found = list(_results(pieces, function))
        return {name: pa.concat_arrays([piece[name] for piece in found]) for name in found[0]}

    return stats


def rows_of_a_piece(rows: int, size: int) -> int:
    """Returns rows per piece for so many rows of that total size;
    all of them if they are little more than a piece.
    """
    return max(1, rows if size <= PIECE_BYTES * 1.5 else rows * PIECE_BYTES // size)


def _pieces(batch: Any) -> list[Any]:
    rows = rows_of_a_piece(batch.num_rows, batch.nbytes)
    return [batch.slice(first, rows) for first in range(0, max(1, batch.num_rows), rows)]


def _results(pieces: list[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    """Raises RowErrors of all pieces together, by index in the batch."""
    reasons: dict[int, str] = {}
    before = 0
    for piece in pieces:
        try:
            result = function(piece)
        except RowErrors as error:
            reasons |= {before + index: reason for index, reason in error.reasons.items()}
        else:
            if not reasons:
                yield result
        before += piece.num_rows
    if reasons:
        raise RowErrors(reasons)


def _mapped(batch: Any, pieces: list[Any], function: Callable[[Any], Any]) -> Any:
    columns: dict[str, _Column] = {}
    for piece, result in zip(pieces, _results(pieces, function), strict=True):
        if not columns:
            before = {name: [batch.column(name)] for name in batch.schema.names}
            columns = {field.name: _Column(field.type, before.get(field.name, [])) for field in result.schema}
        if result.schema.names != list(columns):
            raise _NoOneShape
        for name, values in zip(columns, result.columns, strict=True):
            is_new = name not in piece.schema.names
            columns[name].add(values, is_same=not is_new and is_same_array(piece.column(name), values))
    return _batch_of(columns)


def joined_in_place(batches: Sequence[Any], changed: Callable[[int, Any], Any]) -> Any:
    """Joins batches with equal columns, at least one.

    Calls `changed` with each batch and its start; it may drop rows.
    """
    columns = {
        field.name: _Column(field.type, [each.column(field.name) for each in batches], is_unchanged=False)
        for field in batches[0].schema
    }
    before = 0
    for batch in batches:
        for column, values in zip(columns.values(), changed(before, batch).columns, strict=True):
            column.add(values, is_same=False)
        before += batch.num_rows
    return _batch_of(columns)


def _batch_of(columns: "dict[str, _Column]") -> Any:
    return pa.RecordBatch.from_arrays([column.array() for column in columns.values()], names=list(columns))


class _Column:
    """Column of the result: the input array until something changes, then joined."""

    def __init__(self, kind: Any, old: Sequence[Any], *, is_unchanged: bool = True) -> None:
        self._type = kind
        self._old = old
        self._same = 0  # leading rows that are equal to the input
        self._is_unchanged = is_unchanged and bool(old)  # equal to the input so far
        self._pieces: list[Any] = []
        self._texts: Texts | None = None
        if not self._is_unchanged:
            self._grow()

    def _grow(self) -> None:
        if self._type in _IN_PLACE:
            # Most operators do not lengthen texts; if one does, the buffer grows.
            rows, size = sum(map(len, self._old)), sum(each.nbytes for each in self._old)
            self._texts = Texts(self._type, rows, size + PIECE_BYTES)

    def add(self, values: Any, *, is_same: bool) -> None:
        if values.type != self._type:
            raise _NoOneShape
        if self._is_unchanged and is_same:
            self._same += len(values)
            return
        if self._is_unchanged:
            self._is_unchanged = False
            self._grow()
            self._append(self._old[0].slice(0, self._same))
        self._append(values)

    def _append(self, values: Any) -> None:
        if self._texts is not None and values.null_count:  # joined texts have no nulls
            self._pieces, self._texts = [self._texts.array()], None
        if self._texts is not None:
            self._texts.add(values)
        else:
            self._pieces.append(values)

    def array(self) -> Any:
        if self._texts is not None:
            return self._texts.array()
        return self._old[0] if self._is_unchanged else pa.concat_arrays(self._pieces)


class Texts:
    """Joins a text column without nulls in place: pieces and the whole never exist side by side.

    Memory touched once is reused for the next piece.
    """

    def __init__(self, kind: Any, most_rows: int = 1 << 10, most_bytes: int = PIECE_BYTES) -> None:
        self._kind = kind
        self._bytes = np.empty(most_bytes, np.uint8)  # untouched pages take no memory
        self._offsets = np.empty(most_rows + 1, np.int64)
        self._offsets[0] = 0
        self._rows = 0

    def add(self, texts: Any) -> None:
        count = len(texts)
        if not count:
            return
        offsets = np.frombuffer(texts.buffers()[1], np.int64, count + 1, texts.offset * 8)
        size = int(offsets[-1] - offsets[0])
        filled = int(self._offsets[self._rows])
        end = self._rows + count
        self._bytes = _grown(self._bytes, filled, filled + size)
        self._offsets = _grown(self._offsets, self._rows + 1, end + 1)
        if size:
            self._bytes[filled : filled + size] = np.frombuffer(
                texts.buffers()[2], np.uint8, size, int(offsets[0])
            )
        np.add(offsets[1:], filled - offsets[0], out=self._offsets[self._rows + 1 : end + 1])
        self._rows = end

    def array(self) -> Any:
        filled = int(self._offsets[self._rows])
        buffers = [None, pa.py_buffer(self._offsets[: self._rows + 1]), pa.py_buffer(self._bytes[:filled])]
        return pa.Array.from_buffers(self._kind, self._rows, buffers)


def _grown(array: Any, filled: int, needed: int) -> Any:
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, len(array) * 3 // 2), array.dtype)
    larger[:filled] = array[:filled]
    return larger


def is_same_array(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if old.type != new.type or len(old) != len(new) or old.offset != new.offset:
        return False
    return [_address(buffer) for buffer in old.buffers()] == [_address(buffer) for buffer in new.buffers()]


def _address(buffer: Any) -> int | None:
    return None if buffer is None else int(buffer.address)


# Below this share of remaining rows, dropped rows are physically removed.
_WORTH_COMPACTING = 0.75


class PartitionState:
    """State of a partition between operators.

    Lines stay outside the batch until needed: dropping rows would copy them every time. Dropped rows stay in
    the batch for a while, so that consecutive filters use the same columns; `compact` removes them.
    """

    def __init__(self, rows: Rows, *, source_rows: int, chain: str) -> None:
        self.source_rows = source_rows
        self.chain = chain  # identity: the source, and every checkpoint since
        self.ids = np.asarray(rows.ids, dtype=np.uint32)
        self.batch: Any = rows.batch
        self.lines: Any = None
        self._line_ids: Any = None
        if LINE in rows.batch.schema.names:
            self.lines = rows.batch.column(LINE)
            self._line_ids = self.ids
            self.batch = rows.batch.drop_columns([LINE])
        self.alive: Any = None  # mask over the batch; None: all rows
        self.changed_columns: set[str] = set()  # since they were read
        self.ever_changed = np.zeros(source_rows, dtype=bool)  # rows of the source that have changed
        # Since the last checkpoint:
        self.changed_rows: dict[str, Any] = {}  # column -> mask over the source's rows
        self.has_dropped = False

    @property
    def count(self) -> int:
        return len(self.ids) if self.alive is None else int(np.count_nonzero(self.alive))

    @property
    def column_names(self) -> tuple[str, ...]:
        return (*self.batch.schema.names, *(() if self.lines is None else (LINE,)))

    @property
    def alive_ids(self) -> Any:
        return self.ids if self.alive is None else self.ids[self.alive]

    def compact(self) -> None:
        if self.alive is None:
            return
        self.batch = self.batch.filter(pa.array(self.alive))
        self.ids = self.ids[self.alive]
        self.alive = None

    def with_lines(self) -> Any:
        """Returns the batch with lines, for operators on whole rows."""
        self.compact()
        if self.lines is None:
            return self.batch
        lines = self.lines
        if len(self._line_ids) != len(self.ids):
            lines = lines.take(pa.array(np.searchsorted(self._line_ids, self.ids)))
        self.lines, self._line_ids = lines, self.ids
        return with_column(self.batch, LINE, lines)

    def rows_at(self, indexes: Any) -> Any:
        """Returns whole rows at these indexes of the batch, including dropped ones."""
        batch = self.batch.take(pa.array(indexes))
        if self.lines is None:
            return batch
        return with_column(batch, LINE, self._lines_of(self.ids[indexes]))

    def pieces(self) -> Iterator[Rows]:
        """Yields whole rows in pieces, at least one, without copying the rest."""
        size = self.batch.nbytes + (0 if self.lines is None else self.lines.nbytes)
        step = rows_of_a_piece(len(self.ids), size)
        for first in range(0, max(1, len(self.ids)), step):
            ids, batch = self.ids[first : first + step], self.batch.slice(first, step)
            if self.alive is not None:
                alive = self.alive[first : first + step]
                ids, batch = ids[alive], batch.filter(pa.array(alive))
            if self.lines is not None:
                batch = with_column(batch, LINE, self._lines_of(ids))
            yield Rows(batch, pa.array(ids))

    def _lines_of(self, ids: Any) -> Any:
        if not len(ids):
            return self.lines.slice(0, 0)
        indexes = np.searchsorted(self._line_ids, ids)
        if indexes[-1] - indexes[0] + 1 == len(ids):
            return self.lines.slice(int(indexes[0]), len(ids))
        return self.lines.take(pa.array(indexes))

    def drop(self, keep: Any) -> None:
        """Drops the rows that are false in `keep`, a mask over the batch."""
        if self.alive is not None:
            keep = keep & self.alive
        remaining = int(np.count_nonzero(keep))
        if remaining == self.count:
            return
        self.has_dropped = True
        self.alive = keep
        if remaining < _WORTH_COMPACTING * len(keep):
            self.compact()

    def replace(self, batch: Any) -> dict[str, Any]:
        """Sets the columns that an operator returned for the same rows.

        Returns masks of changed rows, by column.
        """
        assert self.alive is None
        assert batch.num_rows == self.batch.num_rows
        found: dict[str, Any] = {}
        for name in batch.schema.names:
            mask = self._changed(name, batch.column(name))
            if mask is not None:
                found[name] = mask
                self._note(name, mask)
        if self.lines is not None and LINE in batch.schema.names:
            if LINE in found:
                self.lines, self._line_ids = batch.column(LINE), self.ids
            batch = batch.drop_columns([LINE])
        self.batch = batch
        return found

    def _changed(self, name: str, new: Any) -> Any:
        if name == LINE and self.lines is not None:
            return changed_mask(self.with_lines().column(LINE), new)  # without rows dropped since
        if name not in self.batch.schema.names:
            return np.ones(len(new), dtype=bool)
        return changed_mask(self.batch.column(name), new)

    def _note(self, name: str, mask: Any) -> None:
        so_far = self.changed_rows.get(name)
        if so_far is None:
            so_far = self.changed_rows[name] = np.zeros(self.source_rows, dtype=bool)
        so_far[self.ids[mask]] = True
        self.note_changed(name, self.ids[mask])

    def note_changed(self, name: str, ids: Any) -> None:
        self.changed_columns.add(name)
        self.ever_changed[ids] = True

    def has_column(self, name: str) -> bool:
        return name in self.batch.schema.names or (name == LINE and self.lines is not None)

    def add_column(self, name: str, values: Any) -> None:
        """Adds a column for all rows of the batch, including dropped ones."""
        self.batch = with_column(self.batch, name, values)
        self.changed_rows[name] = np.ones(self.source_rows, dtype=bool)
        self.note_changed(name, self.ids)

    def column(self, name: str) -> Any:
        if name == LINE and self.lines is not None:
            return self.with_lines().column(LINE)
        return self.batch.column(name)

    def put(self, name: str, values: Any) -> None:
        if name == LINE and self.lines is not None:
            self.lines, self._line_ids = values, self.ids
        else:
            self.batch = with_column(self.batch, name, values)

    def saved(self, chain: str) -> None:
        """Records that a checkpoint holds everything so far."""
        self.chain = chain
        self.changed_rows = {}
        self.has_dropped = False


def changed_mask(old: Any, new: Any) -> Any:
    """Returns None if nothing changed."""
    if is_same_array(old, new):
        return None
    if old.type != new.type:
        return np.ones(len(new), dtype=bool)
    try:
        differs = pc.not_equal(old, new)
    except pa.ArrowNotImplementedError:  # nested columns
        differs = pa.array([one != other for one, other in zip(old, new, strict=True)], pa.bool_())
    if differs.null_count:
        differs = pc.fill_null(differs, pc.not_equal(old.is_null(), new.is_null()))
    mask = np.asarray(differs)
    return mask if mask.any() else None
