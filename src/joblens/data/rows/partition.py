"""One partition while a worker brings it through operators."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from joblens.data.base.rows import LINE, Rows, with_column
from joblens.data.rows.batch_pieces import is_same_array, rows_of_a_piece

# Below this share of rows that are left, the rows that were dropped are really taken out.
_WORTH_COMPACTING = 0.75


class PartitionState:
    """Lines wait outside of the batch until somebody wants them: dropping rows would copy them every time.
    Rows that filters have dropped stay in the batch for a while, so that filters one behind the other look at
    the same columns; `compact` takes them out."""

    def __init__(self, rows: Rows, *, source_rows: int, chain: str) -> None:
        self.source_rows = source_rows
        self.chain = chain  # what the state is made of: the source, and every checkpoint since
        self.ids = np.asarray(rows.ids, dtype=np.uint32)
        self.batch: Any = rows.batch
        self.lines: Any = None
        self._line_ids: Any = None
        if LINE in rows.batch.schema.names:
            self.lines = rows.batch.column(LINE)
            self._line_ids = self.ids
            self.batch = rows.batch.drop_columns([LINE])
        self.alive: Any = None  # mask over the batch; None: all of it
        self.changed_columns: set[str] = set()  # since they were read
        self.ever_changed = np.zeros(source_rows, dtype=bool)  # rows of the source that are not as they were
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
        """The batch as somebody sees it who wants the whole rows."""
        self.compact()
        if self.lines is None:
            return self.batch
        lines = self.lines
        if len(self._line_ids) != len(self.ids):
            lines = lines.take(pa.array(np.searchsorted(self._line_ids, self.ids)))
        self.lines, self._line_ids = lines, self.ids
        return with_column(self.batch, LINE, lines)

    def rows_at(self, places: Any) -> Any:
        """Whole rows at these places of the batch, rows that were dropped among them."""
        batch = self.batch.take(pa.array(places))
        if self.lines is None:
            return batch
        return with_column(batch, LINE, self._lines_of(self.ids[places]))

    def pieces(self) -> Iterator[Rows]:
        """Whole rows, some at a time, at least once: nothing is copied but what is handed out."""
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
        places = np.searchsorted(self._line_ids, ids)
        if places[-1] - places[0] + 1 == len(ids):
            return self.lines.slice(int(places[0]), len(ids))
        return self.lines.take(pa.array(places))

    def drop(self, keep: Any) -> None:
        """The rows that are false in `keep`, a mask over the batch."""
        if self.alive is not None:
            keep = keep & self.alive
        left = int(np.count_nonzero(keep))
        if left == self.count:
            return
        self.has_dropped = True
        self.alive = keep
        if left < _WORTH_COMPACTING * len(keep):
            self.compact()

    def replace(self, batch: Any) -> dict[str, Any]:
        """The same rows with what an operator made of their columns -> masks of the rows that it changed, by
        column."""
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
            return changed_mask(self.with_lines().column(LINE), new)  # without rows that were dropped since
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
        """Of all rows of the batch, those that were dropped included."""
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
        """A checkpoint holds everything up to here."""
        self.chain = chain
        self.changed_rows = {}
        self.has_dropped = False


def changed_mask(old: Any, new: Any) -> Any:
    """None: nothing changed."""
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
