"""Batch of rows between two operators: fields added by functions, conversion to dicts and back."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, Struct

from joblens.data.base.operator import RowErrors

# Rows from JSON carry their line: fields that no operator uses are preserved byte for byte.
LINE = "__line__"
STATS_PREFIX = "__stats__."  # statistics of filters, if the recipe keeps them
ADDED = "__added__"  # fields of table rows that are not columns
OWN_COLUMNS = (LINE, ADDED, "__ids__", "__changed__")  # and those beside the rows in whole states


class Rows(Struct, frozen=True, eq=False):
    """Contiguous columns (a RecordBatch), text as large_string.

    `ids` are the row numbers in the partition as read; operators drop rows but never reorder them.
    """

    batch: Any  # pa.RecordBatch
    ids: Any  # pa.UInt32Array

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Any:
        return self.batch.column(name)


def rows_of(batch: Any) -> Rows:
    """Numbers the rows of a batch as read."""
    return Rows(batch, pa.array(range(batch.num_rows), pa.uint32()))


def joined_batches(batches: Sequence[Any]) -> Any:
    """Returns one batch with the rows of all, which have equal columns."""
    found = pa.Table.from_batches(list(batches)).combine_chunks().to_batches()
    return found[0] if found else batches[0]


def with_column(batch: Any, name: str, values: Any) -> Any:
    """Returns the batch with that column replaced or appended."""
    names = list(batch.schema.names)
    arrays = list(batch.columns)
    if name in names:
        arrays[names.index(name)] = values
    else:
        names.append(name)
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, names=names)


Row = dict[str, Any]


def plain_value(value: Any) -> Any:
    """Converts numpy numbers and arrays to Python values. Raises for others that JSON cannot express."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored")


_encode = msgspec.msgpack.Encoder(enc_hook=plain_value).encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def added_to(batch: Any) -> list[Row]:
    """Returns the fields of each row that are not columns."""
    if ADDED not in batch.schema.names:
        return [{} for _ in range(batch.num_rows)]
    return [{} if packed is None else _decode(packed) for packed in batch.column(ADDED).to_pylist()]


def whole_rows(batch: Any) -> list[Row]:
    """Returns all fields of each row."""
    if ADDED not in batch.schema.names:
        return list(batch.to_pylist())
    rows: list[Row] = batch.drop_columns([ADDED]).to_pylist()
    return [row | added for row, added in zip(rows, added_to(batch), strict=True)]


def with_added(batch: Any, new: Mapping[int, Row]) -> tuple[Any, dict[int, str]]:
    """Sets the fields that are not columns, of the rows at these indexes;
    also returns why some cannot be stored.

    The column exists afterwards in any case: pieces of a batch must have the same columns.
    """
    values: list[bytes | None] = [None] * batch.num_rows
    if ADDED in batch.schema.names:
        if not new:
            return batch, {}
        values = batch.column(ADDED).to_pylist()
    wrong: dict[int, str] = {}
    for index, fields in new.items():
        try:
            values[index] = _encode(fields) if fields else None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            wrong[index] = f"{type(error).__name__}: {error}"
    return with_column(batch, ADDED, pa.array(values, pa.large_binary())), wrong


_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_row_changes_encode = msgspec.json.Encoder(enc_hook=plain_value).encode


class Change(Struct, frozen=True, eq=False):
    before: Row
    after: Row

    def fields(self) -> list[str]:
        """Returns fields that are new, removed or changed."""
        names = [*self.after, *(name for name in self.before if name not in self.after)]
        return [name for name in names if self.has_changed(name)]

    def has_changed(self, name: str) -> bool:
        if (name in self.before) != (name in self.after):
            return True
        return not _is_same(self.before.get(name), self.after.get(name))


def decoded_rows(batch: Any, fields: Sequence[str] | None) -> list[Row]:
    """Returns rows as dicts; those from JSON with all fields, including changes by earlier operators.

    `fields` limits the fields.
    """
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
    """Returns the fields that are columns."""
    return [
        name for name in batch.schema.names if name not in (LINE, ADDED) and not name.startswith(STATS_PREFIX)
    ]


def _decoded_lines(lines: list[bytes], fields: Sequence[str] | None) -> list[Row]:
    if fields is None:
        return [_decode_row(line) for line in lines]
    # Only these are decoded, the others skipped.
    column_type = [(f"_{n}", Any, msgspec.field(default=UNSET, name=name)) for n, name in enumerate(fields)]
    decode = msgspec.json.Decoder(msgspec.defstruct("Wanted", column_type)).decode
    found = (msgspec.structs.astuple(decode(line)) for line in lines)
    return [
        {name: value for name, value in zip(fields, values, strict=True) if value is not UNSET}
        for values in found
    ]


def snapshot(row: Row, *, is_json: bool) -> Any:
    """Returns a copy that later changes inside the row do not affect.

    JSON where that is lossless: it is faster to make and compare than a deep copy.
    """
    if not is_json:
        return copy.deepcopy(row)
    try:
        return _row_changes_encode(row)
    except OverflowError:  # an integer of more than 64 bits
        return json.dumps(row, ensure_ascii=False).encode()


def thawed(frozen: Any) -> Row:
    row: Row = _decode_row(frozen) if isinstance(frozen, bytes) else frozen
    return row


def put_back(batch: Any, changes: Mapping[int, Change]) -> Any:
    """Returns the batch with changed rows, by place. Columns without changes are returned as the same arrays.

    Raises RowErrors for values that their column cannot hold.
    """
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
    # The export puts a column's values into the line; other fields exist only in the line.
    if not all(name in columns for name in touched):
        return with_column(changed, LINE, _new_lines(batch, changes))
    return changed


def _with_new_fields(batch: Any, columns: list[str], changes: Mapping[int, Change]) -> Any:
    """Sets new fields of tables, which are not columns."""
    new: dict[int, Row] = {}
    before = added_to(batch) if changes else []
    for index, change in changes.items():
        names = [name for name in change.fields() if name not in columns]
        if names:
            new[index] = {name: value for name, value in before[index].items() if name not in names}
            new[index] |= {name: change.after[name] for name in names if name in change.after}
    changed, wrong = with_added(batch, new)
    if wrong:
        raise RowErrors(wrong)
    return changed


def _new_column(batch: Any, name: str, changes: Mapping[int, Change]) -> Any:
    column_type = batch.schema.field(name).type
    values = batch.column(name).to_pylist()
    for index, change in changes.items():
        if change.has_changed(name):  # else the column has it already, perhaps in a form that JSON lacks
            values[index] = change.after.get(name)
    empty = [index for index in changes if values[index] is None and LINE in batch.schema.names]
    if empty:  # later operators rely on its text
        raise RowErrors(dict.fromkeys(empty, f"it no longer has '{name}'"))
    try:
        return pa.array(values, column_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise RowErrors(_unfit(name, column_type, values, changes)) from None


def _unfit(name: str, column_type: Any, values: list[Any], changes: Mapping[int, Change]) -> dict[int, str]:
    """Returns the rows whose value the column cannot hold."""
    found: dict[int, str] = {}
    for index in changes:
        try:
            pa.array([values[index]], column_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            found[index] = f"'{name}' is {type(values[index]).__name__}, its column {column_type}: {error}"
    return found or dict.fromkeys(changes, f"the values of '{name}' do not fit one column")


def _new_lines(batch: Any, changes: Mapping[int, Change]) -> Any:
    lines = batch.column(LINE)
    values = lines.to_pylist()
    for index, change in changes.items():
        values[index] = _new_line(values[index], change)
    return pa.array(values, lines.type)


def _new_line(line: bytes, change: Change) -> bytes:
    """Returns the changed line; unchanged fields keep their bytes and order."""
    fields = {name: bytes(value) for name, value in _decode_raw(line).items()}
    for name in change.fields():
        if name in change.after:
            fields[name] = _encoded(change.after[name])
        else:
            fields.pop(name, None)
    return b"{%s}\n" % b",".join(_row_changes_encode(name) + b":" + value for name, value in fields.items())


def _encoded(value: Any) -> bytes:
    try:
        return _row_changes_encode(value)
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
