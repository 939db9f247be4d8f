"""Parquet schema of an export: common schema of parts whose rows differ, and the manifest of a part."""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from joblens.data.base.manifests import digest_of_file
from joblens.data.rows.batch import ADDED, added_to

_EXACT_IN_DOUBLES = 2**53
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Shape(Struct, frozen=True, kw_only=True):
    """Fields and types of a part's rows."""

    schema: str = ""  # serialized Arrow schema, base64
    mixed: tuple[str, ...] = ()  # fields without a common type
    wide: tuple[str, ...] = ()  # fields with integers that no double holds exactly


class ShapeFold:
    """Infers the schema of JSON rows."""

    def __init__(self) -> None:
        self._types: dict[str, Any] = {}  # None: mixed
        self._wide: set[str] = set()

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        names = dict.fromkeys(name for row in rows for name in row)
        for name in names:
            kind, is_wide = _inferred([row.get(name) for row in rows])
            if is_wide:
                self._wide.add(name)
            self.widen(name, kind)

    def add_shape(self, shape: Shape) -> None:
        self._wide |= set(shape.wide)
        types = [(field.name, field.type) for field in _unpacked(shape.schema)]
        for name, kind in types:
            self.widen(name, None if name in shape.mixed else kind)

    def widen(self, name: str, kind: Any) -> None:
        known = self._types.get(name, pa.null())
        self._types[name] = None if known is None or kind is None else _both(known, kind)

    def shape(self) -> Shape:
        types = [(name, pa.large_string() if kind is None else kind) for name, kind in self._types.items()]
        mixed = tuple(name for name, kind in self._types.items() if kind is None)
        return Shape(schema=_packed(types), mixed=mixed, wide=tuple(sorted(self._wide)))

    def schema(self) -> tuple[Any, frozenset[str]]:
        """Returns the schema to write, and its mixed fields."""
        mixed = {name for name, kind in self._types.items() if kind is None}
        mixed |= {name for name in self._wide if self._types[name] == pa.float64()}
        mixed |= {name for name, kind in self._types.items() if kind is not None and not _is_writable(kind)}
        fields = [(name, pa.large_string() if name in mixed else kind) for name, kind in self._types.items()]
        return pa.schema(fields), frozenset(mixed)


def _packed(types: Sequence[tuple[str, Any]]) -> str:
    return base64.b64encode(pa.schema(types).serialize()).decode()


def _unpacked(schema: str) -> Any:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) if schema else pa.schema([])


def _inferred(values: list[Any]) -> tuple[Any, bool]:
    """Returns the type (None: mixed), and whether there are integers too wide for doubles."""
    try:
        array = pa.array(values, from_pandas=False)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return _inferred_with_wide(values)
    kind = _as_large(array.type)
    if _has_doubles(kind) and any(_has_truth_for_number(value, kind) for value in values):
        return None, False
    if not pa.types.is_integer(kind):
        return kind, False
    low, high = pc.min_max(array).as_py().values()
    return kind, max(abs(low), abs(high)) > _EXACT_IN_DOUBLES


def _inferred_with_wide(values: list[Any]) -> tuple[Any, bool]:
    """Distinguishes numbers that are too large for a common type from values without one."""
    try:
        kind = _as_large(pa.array([_narrowed(value) for value in values], from_pandas=False).type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None, False
    if any(_has_truth_for_number(value, kind) for value in values):
        return None, False
    return kind, bool(pa.types.is_floating(kind))


def _has_doubles(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_doubles(field.type) for field in kind)
    return _has_doubles(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_floating(kind))


def _has_truth_for_number(value: Any, kind: Any) -> bool:
    """Returns whether booleans occur beside doubles: Arrow would silently convert them to 1.0 and 0.0."""
    if value is None or pa.types.is_floating(kind):
        return value is True or value is False
    if pa.types.is_list(kind):
        return any(_has_truth_for_number(one, kind.value_type) for one in value)
    if pa.types.is_struct(kind):
        return any(_has_truth_for_number(value.get(field.name), field.type) for field in kind)
    return False


def _narrowed(value: Any) -> Any:
    """Replaces large numbers by small ones. Raises OverflowError for numbers that no type holds."""
    if type(value) is int and abs(value) > _EXACT_IN_DOUBLES:
        if not -(2**63) <= value < 2**63:
            raise OverflowError
        return 1
    if isinstance(value, list):
        return [_narrowed(one) for one in value]
    if isinstance(value, dict):
        return {name: _narrowed(one) for name, one in value.items()}
    return value


def _is_writable(kind: Any) -> bool:
    """Returns whether Parquet can store the type; it has no objects without fields."""
    if pa.types.is_struct(kind):
        return bool(kind.num_fields) and all(_is_writable(field.type) for field in kind)
    return not pa.types.is_list(kind) or _is_writable(kind.value_type)


def _as_large(kind: Any) -> Any:
    """Uses large_string for texts at every depth."""
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_as_large(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_large(field.type)) for field in kind])
    return kind


def _both(one: Any, other: Any) -> Any:
    """Returns a type that holds values of both; None: there is none."""
    if one == other:
        return one
    pair = [pa.schema([("value", kind)]) for kind in (_as_large(one), _as_large(other))]
    try:
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except (pa.ArrowException, TypeError):
        return None


def table_of_rows(rows: Sequence[dict[str, Any]], schema: Any, mixed: frozenset[str]) -> Any:
    arrays = [_column_of(rows, field, is_mixed=field.name in mixed) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def table_of_batch(batch: Any, schema: Any, mixed: frozenset[str]) -> Any:
    columns = batch.schema.names
    added = added_to(batch) if ADDED in columns else None
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(_as_field(batch.column(field.name), field, is_mixed=field.name in mixed))
        elif added is not None:
            arrays.append(_column_of(added, field, is_mixed=field.name in mixed))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _as_field(array: Any, field: Any, *, is_mixed: bool) -> Any:
    if is_mixed:
        return _array([_text_of(value) for value in array.to_pylist()], field.type)
    return array if array.type == field.type else _cast(array, field.type)


def _column_of(rows: Sequence[dict[str, Any]], field: Any, *, is_mixed: bool) -> Any:
    values = [row.get(field.name) for row in rows]
    return _array([_text_of(value) for value in values] if is_mixed else values, field.type)


def _cast(array: Any, kind: Any) -> Any:
    try:
        return array.cast(kind)
    except pa.ArrowException:
        return _array(array.to_pylist(), kind)


def _array(values: list[Any], kind: Any) -> Any:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        return pa.array([_rounded(value, kind) for value in values], kind)


def _rounded(value: Any, kind: Any) -> Any:
    """Rounds integers inside a value whose type is double to the nearest double."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_list(kind):
        return [_rounded(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _rounded(value.get(field.name), field.type) for field in kind}
    return value


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _encode(value).decode()


def rows_of_lines(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            yield json.loads(line)


class PartManifest(Struct, frozen=True, kw_only=True):
    """Manifest of a finished part; size and digest detect a torn file."""

    path: str
    format: str  # jsonl, parquet
    rows: int
    size_bytes: int
    digest: str  # xxh3-128 of the file
    content_bytes: int = 0  # uncompressed size of its rows
    shape: Shape = Shape()  # only for Parquet exports


def is_whole(part: PartManifest) -> bool:
    """Returns whether the file exists and is unchanged."""
    try:
        has_size = os.path.getsize(part.path) == part.size_bytes
        return has_size and digest_of_file(part.path) == part.digest
    except OSError:
        return False
