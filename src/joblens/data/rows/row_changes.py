"""Rows of a batch as dicts, and what somebody made of them back into the batch."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, Struct

from joblens.data.base.operator import RowErrors
from joblens.data.base.rows import ADDED, LINE, STATS_PREFIX, with_column
from joblens.data.rows.added_fields import added_to, plain_value, with_added

Row = dict[str, Any]

_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder(enc_hook=plain_value).encode


class Change(Struct, frozen=True, eq=False):
    before: Row
    after: Row

    def fields(self) -> list[str]:
        """Those that are new, gone or have another value."""
        names = [*self.after, *(name for name in self.before if name not in self.after)]
        return [name for name in names if self.has_changed(name)]

    def has_changed(self, name: str) -> bool:
        if (name in self.before) != (name in self.after):
            return True
        return not _is_same(self.before.get(name), self.after.get(name))


def decoded_rows(batch: Any, fields: Sequence[str] | None) -> list[Row]:
    """Those that were read from JSON have all their fields, with what operators before have made of them.
    `fields` limits rows to those of them that they have."""
    names = [name for name in column_fields(batch) if fields is None or name in fields]
    if LINE not in batch.schema.names:
        rows: list[Row] = batch.select(names).to_pylist()
        for row, added in zip(rows, added_to(batch), strict=True):
            row.update((name, value) for name, value in added.items() if fields is None or name in fields)
        return rows
    rows = _decoded_lines(batch.column(LINE).to_pylist(), fields)
    for name in names:
        for row, value in zip(rows, batch.column(name).to_pylist(), strict=True):
            if value is not None or name in row:
                row[name] = value
    return rows


def column_fields(batch: Any) -> list[str]:
    """Fields that are columns."""
    return [
        name for name in batch.schema.names if name not in (LINE, ADDED) and not name.startswith(STATS_PREFIX)
    ]


def _decoded_lines(lines: list[bytes], fields: Sequence[str] | None) -> list[Row]:
    if fields is None:
        return [_decode_row(line) for line in lines]
    # Only these are made into values, the others are read over.
    wanted = [(f"_{n}", Any, msgspec.field(default=UNSET, name=name)) for n, name in enumerate(fields)]
    decode = msgspec.json.Decoder(msgspec.defstruct("Wanted", wanted)).decode
    found = (msgspec.structs.astuple(decode(line)) for line in lines)
    return [
        {name: value for name, value in zip(fields, values, strict=True) if value is not UNSET}
        for values in found
    ]


def snapshot(row: Row, *, is_json: bool) -> Any:
    """What it is now, whatever is done to it or inside of it later. Bytes of JSON where that says all: they
    are made and compared faster than copies."""
    if not is_json:
        return copy.deepcopy(row)
    try:
        return _encode(row)
    except OverflowError:  # a whole number of more than 64 bits
        return json.dumps(row, ensure_ascii=False).encode()


def thawed(taken: Any) -> Row:
    row: Row = _decode_row(taken) if isinstance(taken, bytes) else taken
    return row


def put_back(batch: Any, changes: Mapping[int, Change]) -> Any:
    """The batch with those rows, by place, as they are after their change. Columns that no row changed are
    handed on as they are. Raises RowErrors for values that their column cannot hold."""
    touched: dict[str, None] = {}
    for change in changes.values():
        touched.update(dict.fromkeys(change.fields()))
    columns = column_fields(batch)
    changed = batch
    for name in touched:
        if name in columns:
            changed = with_column(changed, name, _new_column(batch, name, changes))
    if LINE not in batch.schema.names:
        return _with_new_fields(changed, columns, changes)
    # A column's values are put into its line at the export; other fields have only the line to be in.
    if not all(name in columns for name in touched):
        return with_column(changed, LINE, _new_lines(batch, changes))
    return changed


def _with_new_fields(batch: Any, columns: list[str], changes: Mapping[int, Change]) -> Any:
    """Those of tables that are no columns."""
    new: dict[int, Row] = {}
    before = added_to(batch) if changes else []
    for place, change in changes.items():
        names = [name for name in change.fields() if name not in columns]
        if names:
            new[place] = {name: value for name, value in before[place].items() if name not in names}
            new[place] |= {name: change.after[name] for name in names if name in change.after}
    changed, wrong = with_added(batch, new)
    if wrong:
        raise RowErrors(wrong)
    return changed


def _new_column(batch: Any, name: str, changes: Mapping[int, Change]) -> Any:
    wanted = batch.schema.field(name).type
    values = batch.column(name).to_pylist()
    for place, change in changes.items():
        if change.has_changed(name):  # else the column has it already, perhaps not as JSON would say it
            values[place] = change.after.get(name)
    empty = [place for place in changes if values[place] is None and LINE in batch.schema.names]
    if empty:  # operators behind this one count on its text
        raise RowErrors(dict.fromkeys(empty, f"it has no '{name}' any more"))
    try:
        return pa.array(values, wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise RowErrors(_unfit(name, wanted, values, changes)) from None


def _unfit(name: str, wanted: Any, values: list[Any], changes: Mapping[int, Change]) -> dict[int, str]:
    """Which of them the column cannot hold."""
    found: dict[int, str] = {}
    for place in changes:
        try:
            pa.array([values[place]], wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            found[place] = f"'{name}' is {type(values[place]).__name__}, its column {wanted}: {error}"
    return found or dict.fromkeys(changes, f"the values of '{name}' do not go into one column")


def _new_lines(batch: Any, changes: Mapping[int, Change]) -> Any:
    lines = batch.column(LINE)
    values = lines.to_pylist()
    for place, change in changes.items():
        values[place] = _new_line(values[place], change)
    return pa.array(values, lines.type)


def _new_line(line: bytes, change: Change) -> bytes:
    """What did not change stays as it was written, to the byte, and where it stood."""
    fields = {name: bytes(value) for name, value in _decode_raw(line).items()}
    for name in change.fields():
        if name in change.after:
            fields[name] = _encoded(change.after[name])
        else:
            fields.pop(name, None)
    return b"{%s}\n" % b",".join(_encode(name) + b":" + value for name, value in fields.items())


def _encoded(value: Any) -> bytes:
    try:
        return _encode(value)
    except OverflowError:
        return json.dumps(value, ensure_ascii=False).encode()


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - not a number is itself
