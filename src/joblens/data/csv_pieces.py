"""CSV files into Parquet pieces. What type a column has is decided over the whole file, so that no value
depends on where the file was cut."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from joblens.data.datasets import DataFile, csv_header, delimiter_of
from joblens.data.parquet_rows import ROW
from joblens.data.piece_files import open_private, piece_path
from joblens.data.rejects import Reject
from joblens.data.unpacking import opened
from joblens.model.errors import InputError
from joblens.model.recipe import Slice

# From narrow to wide. Whole numbers as a program writes them: what has leading zeros is a name, not a number.
_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.bool_(), r"^(?i:true|false)$"),
    (pa.int64(), r"^-?(0|[1-9][0-9]{0,17})$"),
    (pa.float64(), r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"),
)
_BLOCKS = (4 << 20, 64 << 20, 1 << 30)  # a row has to lie in one block; larger ones are for longer rows


def cut_csv(
    whole: Slice,
    folder: str,
    limits: tuple[int, int | None],
    columns: Sequence[str],
    reject: Callable[[Reject], None],
) -> list[Slice]:
    names = _header(whole)
    block, types = _first_look(whole, names, columns)
    pieces = _Pieces(whole, folder, limits)
    for batch in _batches(whole, names, block, reject):
        pieces.add(_typed(batch, types, whole, reject))
    pieces.close()
    return pieces.slices


def _first_look(whole: Slice, names: Sequence[str], columns: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """How much has to be read at once, and the types of all columns."""
    for block in _BLOCKS:
        try:
            return block, _types(_batches(whole, names, block), names, columns)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise InputError(f"{whole.path} cannot be read as CSV: {error}") from error
    raise InputError(f"{whole.path} cannot be read as CSV: a row is longer than {_BLOCKS[-1]} bytes")


def _header(whole: Slice) -> list[str]:
    names = csv_header(DataFile(path=whole.path, format="csv", compression=whole.compression, size=whole.end))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{whole.path} has the column '{twice[0]}' more than once")
    return names


def _batches(
    whole: Slice, names: Sequence[str], block: int, reject: Callable[[Reject], None] | None = None
) -> Iterator[Any]:
    """Every value as bytes, None where nothing is written; the last column is the row's number."""
    bad: list[int] = []

    def pass_over(row: Any) -> str:
        number = row.number - 1  # behind the header
        bad.append(number)
        if reject is not None:
            reason = f"{row.actual_columns} values for {row.expected_columns} columns"
            reject(Reject(source=whole.path, position=number, reason=reason, row=row.text))
        return "skip"

    with opened(whole.path, whole.compression) as stream:
        try:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(block_size=block, use_threads=False),
                parse_options=pa_csv.ParseOptions(
                    newlines_in_values=True,
                    invalid_row_handler=pass_over,
                    delimiter=delimiter_of(whole.path),
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.large_binary()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return
            raise
        good = 0  # rows before this batch that could be read
        for batch in reader:
            numbers = _row_numbers(good, batch.num_rows, bad)
            good += batch.num_rows
            yield batch.append_column(ROW, pa.array(numbers))


def _row_numbers(good: int, count: int, bad: Sequence[int]) -> Any:
    """Of rows that could be read, among all: each bad one before a row puts it one further."""
    numbers = np.arange(good + 1, good + count + 1)
    gaps = np.sort(np.array(bad, np.int64)) - np.arange(len(bad))
    return numbers + np.searchsorted(gaps, numbers, side="right")


def _types(batches: Iterator[Any], names: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
    """The narrowest type that all values of a column have; text is what operators want as text."""
    possible = {name: list(_TYPES) for name in names if name not in columns}
    is_empty = dict.fromkeys(possible, True)
    for batch in batches:
        for name, left in possible.items():
            if not left:
                continue
            values = batch.column(name).drop_null()
            is_empty[name] = is_empty[name] and not len(values)
            left[:] = [one for one in left if _all_match(values, one[1])]
    return {
        name: possible[name][0][0] if possible.get(name) and not is_empty[name] else pa.large_string()
        for name in names
    }


def _all_match(values: Any, pattern: str) -> bool:
    if not len(values):
        return True
    # The longest decides first: most columns of text are recognised by that.
    if pc.max(pc.binary_length(values)).as_py() > 64:
        return False
    try:
        texts = values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _typed(batch: Any, types: dict[str, Any], whole: Slice, reject: Callable[[Reject], None]) -> Any:
    batch = _only_utf8(batch, types, whole, reject)
    arrays = [batch.column(name).cast(pa.large_string()).cast(kind) for name, kind in types.items()]
    return pa.RecordBatch.from_arrays([*arrays, batch.column(ROW)], names=[*types, ROW])


def _only_utf8(batch: Any, types: dict[str, Any], whole: Slice, reject: Callable[[Reject], None]) -> Any:
    try:
        for name in types:
            batch.column(name).cast(pa.large_string())
    except pa.ArrowInvalid:
        stays = [_is_utf8(row) for row in batch.drop_columns([ROW]).to_pylist()]
        for number, stay in zip(batch.column(ROW).to_pylist(), stays, strict=True):
            if not stay:
                reject(Reject(source=whole.path, position=number, reason="not UTF-8"))
        return batch.filter(pa.array(stays, pa.bool_()))
    return batch


def _is_utf8(row: dict[str, bytes | None]) -> bool:
    try:
        for value in row.values():
            (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


class _Pieces:
    """Batches go in, Parquet files of about the wished size are left behind. Rows keep their numbers
    in the CSV file."""

    def __init__(self, whole: Slice, folder: str, limits: tuple[int, int | None]) -> None:
        self._whole, self._folder = whole, folder
        self._most_bytes, self._most_rows = limits
        self.slices: list[Slice] = []
        self._batches: list[Any] = []
        self._size, self._rows = 0, 0

    def add(self, batch: Any) -> None:
        while batch.num_rows:
            count = min(batch.num_rows, self._room(batch))
            part = batch.slice(0, count)
            self._batches.append(part)
            self._rows += count
            self._size += part.nbytes
            if self._is_full():
                self.close()
            batch = batch.slice(count)

    def _room(self, batch: Any) -> int:
        mean = max(1, batch.nbytes // batch.num_rows)
        room = int(max(1, (self._most_bytes - self._size) // mean))
        return min(room, self._most_rows - self._rows) if self._most_rows else room

    def _is_full(self) -> bool:
        return self._size >= self._most_bytes * 0.98 or self._rows == self._most_rows

    def close(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        path = piece_path(self._folder, len(self.slices), ".parquet")
        with open_private(path) as file:
            pq.write_table(table, file, compression="lz4", use_dictionary=False)
        self.slices.append(
            Slice(
                path=path,
                format="parquet",
                end=self._rows,
                size_bytes=self._size,
                origin=self._whole.path,
                origin_row=table.column(ROW)[0].as_py() - 1,
            )
        )
        self._batches = []
        self._size = self._rows = 0
