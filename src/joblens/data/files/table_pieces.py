"""Parquet pieces of CSV files and of large row groups."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from joblens.data.base.manifests import digest_of_file, open_private, piece_path
from joblens.data.files.datasets import DataFile, csv_header, delimiter_of, opened
from joblens.data.files.partition_rows import ROW_NUMBERS, groups_between
from joblens.data.files.rejects import Reject
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import Slice

_BATCH_BYTES = 4 << 20  # rows in memory at a time
_BUFFER_BYTES = 1 << 20
_MOST_ROWS_AT_ONCE = 1 << 16


class TablePieces:
    """Writes batches to Parquet files of about the target size.

    Each batch becomes a row group, so that a partition of a part of a piece need not read all of it.
    """

    def __init__(
        self,
        whole: Slice,
        folder: str,
        limits: tuple[int, int | None],
        rows_before: Callable[[Any, int], int],
    ) -> None:
        """`rows_before`:
        maps a batch and the number of rows added before it to the number of rows before it in the original
        file.
        """
        self._whole, self._folder = whole, folder
        self._most_bytes, self._most_rows = limits
        self._rows_before = rows_before
        self.slices: list[Slice] = []
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._size, self._rows, self._added, self._origin_row = 0, 0, 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, batch: Any) -> None:
        while batch.num_rows:
            count = min(batch.num_rows, self._free_rows(batch))
            self._write(batch.slice(0, count))
            if self._is_full():
                self.close()
            batch = batch.slice(count)

    def _write(self, batch: Any) -> None:
        if self._writer is None:
            self._file = open_private(piece_path(self._folder, len(self.slices), ".parquet"))
            self._writer = pq.ParquetWriter(
                self._file, batch.schema, compression="lz4", use_dictionary=False, write_statistics=False
            )
            self._origin_row = self._rows_before(batch, self._added)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        self._added += batch.num_rows
        self._size += batch.nbytes

    def _free_rows(self, batch: Any) -> int:
        mean = max(1, batch.nbytes // batch.num_rows)
        rows = int(max(1, (self._most_bytes - self._size) // mean))
        return min(rows, self._most_rows - self._rows) if self._most_rows else rows

    def _is_full(self) -> bool:
        return self._size >= self._most_bytes * 0.98 or self._rows == self._most_rows

    def close(self) -> None:
        if self._file is None:
            return
        self._writer.close()
        self._file.close()
        path = self._file.name
        self._file = self._writer = None
        self.slices.append(
            Slice(
                path=path,
                format="parquet",
                end=self._rows,
                size_bytes=max(1, self._size),
                origin=self._whole.path,
                origin_row=self._origin_row,
                digest=digest_of_file(path),
            )
        )
        self._size = self._rows = 0


def cut_row_groups(whole: Slice, folder: str, limits: tuple[int, int | None]) -> list[Slice]:
    """Splits the row groups of a Parquet file that are in the slice, whose edges are edges of row groups."""
    try:
        with pq.ParquetFile(whole.path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            groups, skipped = groups_between(file, whole.start, whole.end)
            mean = max(1, whole.size_bytes // (whole.end - whole.start))
            at_once = max(1, min(_MOST_ROWS_AT_ONCE, _BATCH_BYTES // mean))
            with TablePieces(whole, folder, limits, lambda _, added: skipped + added) as pieces:
                for batch in file.iter_batches(at_once, groups, use_threads=False):
                    pieces.add(batch)
            return pieces.slices
    except pa.ArrowException as error:
        raise InputError(f"{whole.path} cannot be read as Parquet: {error}") from error


# From narrow to wide. Integers must be in canonical form: a value with leading zeros is an identifier.
# Integers among decimals must be exact as doubles.
_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.bool_(), r"^(?i:true|false)$"),
    (pa.int64(), r"^(0|-?[1-9][0-9]{0,18})$"),
    (pa.float64(), r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"),
)
# Texts that mean a missing value, quoted or not: those of pandas, which DataJuicer uses to read CSV.
_NO_VALUES = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
]  # fmt: skip
_SURE_LENGTH = 17  # texts up to this length are held exactly by the type whose pattern they match
_DIGITS_OF_A_DOUBLE = 17
_BLOCKS = (4 << 20, 64 << 20, 1 << 30)  # a row must fit in one block; larger blocks are for longer rows


def cut_csv(
    whole: Slice,
    folder: str,
    limits: tuple[int, int | None],
    columns: Sequence[str],
    reject: Callable[[Reject], None],
) -> list[Slice]:
    names = _header(whole)
    block, types = _read_head(whole, names, columns)
    with TablePieces(whole, folder, limits, lambda batch, _: batch.column(-1)[0].as_py() - 1) as pieces:
        for batch in _batches(whole, names, block, reject):
            pieces.add(_typed(batch, types, whole, reject))
    return pieces.slices


def _read_head(whole: Slice, names: Sequence[str], columns: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Returns the block size to read, and the types of all columns."""
    for block in _BLOCKS:
        try:
            return block, _types(_batches(whole, names, block), names, columns)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise InputError(f"{whole.path} cannot be read as CSV: {error}") from error
    raise InputError(f"{whole.path} cannot be read as CSV: a row is longer than {_BLOCKS[-1]} bytes")


def _header(whole: Slice) -> list[str]:
    return csv_header(
        DataFile(
            path=whole.path,
            format="csv",
            compression=whole.compression,
            size=whole.end,
            delimiter=whole.delimiter,
        )
    )


def _batches(
    whole: Slice, names: Sequence[str], block: int, reject: Callable[[Reject], None] | None = None
) -> Iterator[Any]:
    """Yields all values as bytes, None where empty; the last column is the row number."""
    bad: list[int] = []

    def pass_over(row: Any) -> str:
        number = row.number - 1  # after the header
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
                    delimiter=delimiter_of(whole),
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.large_binary()),
                    null_values=_NO_VALUES,
                    strings_can_be_null=True,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return
            raise
        good = 0  # readable rows before this batch
        for batch in reader:
            numbers = _row_numbers(good, batch.num_rows, bad)
            good += batch.num_rows
            yield batch.append_column(_row_column(names), pa.array(numbers))


def _row_column(names: Sequence[str]) -> str:
    """Returns a name that no column of the file has."""
    name = "__row__"
    while name in names:
        name += "_"
    return name


def _row_numbers(good: int, count: int, bad: Sequence[int]) -> Any:
    """Returns the row numbers of readable rows in the file: each bad row before a row adds one."""
    numbers = np.arange(good + 1, good + count + 1)
    gaps = np.sort(np.array(bad, np.int64)) - np.arange(len(bad))
    return numbers + np.searchsorted(gaps, numbers, side="right")


def _types(batches: Iterator[Any], names: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
    """Returns the narrowest type that holds all values of a column;
    text for columns that operators use as text.
    """
    possible = {name: list(_TYPES) for name in names if name not in columns}
    is_empty = dict.fromkeys(possible, True)
    for every in batches:
        batch = _only_utf8(every, names)[0]
        for name, candidates in possible.items():
            if not candidates:
                continue
            values = batch.column(name).drop_null()
            is_empty[name] = is_empty[name] and not len(values)
            candidates[:] = [one for one in candidates if _all_fit(values, *one)]
    return {
        name: possible[name][0][0] if possible.get(name) and not is_empty[name] else pa.large_string()
        for name in names
    }


def _all_fit(values: Any, kind: Any, pattern: str) -> bool:
    if not len(values):
        return True
    # The longest value is tried first: it identifies most text columns.
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest > 64:
        return False
    texts = values.cast(pa.large_string())
    if not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        return False
    return (longest <= _SURE_LENGTH and kind != pa.float64()) or _all_exact(texts, kind)


def _all_exact(texts: Any, kind: Any) -> bool:
    """Returns whether the type holds each of them exactly."""
    try:
        numbers = texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    if kind != pa.float64():
        return True
    digits = pc.replace_substring_regex(texts, r"^-?[0.]*|[eE].*$", "")
    most = pc.max(pc.utf8_length(pc.replace_substring(digits, ".", ""))).as_py()
    return most <= _DIGITS_OF_A_DOUBLE and bool(pc.all(pc.is_finite(numbers)).as_py())


def _typed(batch: Any, types: dict[str, Any], whole: Slice, reject: Callable[[Reject], None]) -> Any:
    batch, bad = _only_utf8(batch, list(types))
    for number in bad:
        reject(Reject(source=whole.path, position=number, reason="not UTF-8"))
    arrays = [batch.column(name).cast(pa.large_string()).cast(kind) for name, kind in types.items()]
    name = batch.schema.names[-1]
    schema = pa.schema([*types.items(), (name, pa.int64())], metadata={ROW_NUMBERS: name.encode()})
    return pa.RecordBatch.from_arrays([*arrays, batch.column(-1)], schema=schema)


def _only_utf8(batch: Any, names: Sequence[str]) -> tuple[Any, list[int]]:
    """Returns the batch without rows that are not UTF-8, and the numbers of those rows."""
    try:
        for name in names:
            batch.column(name).cast(pa.large_string())
    except pa.ArrowInvalid:
        stays = np.array([_is_utf8(row) for row in batch.select(list(names)).to_pylist()], dtype=bool)
        return batch.filter(pa.array(stays)), batch.column(-1).to_numpy()[~stays].tolist()
    return batch, []


def _is_utf8(row: dict[str, bytes | None]) -> bool:
    try:
        for value in row.values():
            (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
