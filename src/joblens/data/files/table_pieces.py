"""Rows of tables into Parquet pieces of the job's folder, and large row groups cut so."""

from collections.abc import Callable
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from joblens.data.files.parquet_rows import groups_between
from joblens.data.files.piece_files import digest_of_file, open_private, piece_path
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import Slice

_BATCH_BYTES = 4 << 20  # of rows that are in memory at a time
_BUFFER_BYTES = 1 << 20
_MOST_ROWS_AT_ONCE = 1 << 16


class TablePieces:
    """Batches go in, Parquet files of about the wished size are left behind. Each batch becomes a row group,
    so that a partition that is a part of a piece need not read all of it."""

    def __init__(
        self,
        whole: Slice,
        folder: str,
        limits: tuple[int, int | None],
        rows_before: Callable[[Any, int], int],
    ) -> None:
        """`rows_before`: a batch, and how many rows were added before it -> how many rows of the file it was
        cut out of lie before it."""
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
            count = min(batch.num_rows, self._room(batch))
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

    def _room(self, batch: Any) -> int:
        mean = max(1, batch.nbytes // batch.num_rows)
        room = int(max(1, (self._most_bytes - self._size) // mean))
        return min(room, self._most_rows - self._rows) if self._most_rows else room

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
    """Of a Parquet file, those that lie in the slice: its edges are edges of row groups."""
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
