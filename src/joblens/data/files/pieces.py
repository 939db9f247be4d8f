"""Splitting of files that are not seekable into pieces that are."""

from collections.abc import Callable
from typing import Any, BinaryIO, Self

import msgspec
import xxhash

from joblens.data.base.manifests import open_private, piece_path
from joblens.data.base.messages import CutFile
from joblens.data.files.datasets import opened
from joblens.data.files.json_lines import line_ends
from joblens.data.files.rejects import Reject
from joblens.files.private import make_private_folder
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import RecipePlan, Slice

_BLOCK = 1 << 20


def cut_file(task: CutFile, plan: RecipePlan, folder: str, reject: Callable[[Reject], None]) -> list[Slice]:
    """Splits a compressed or CSV file, or large row groups of Parquet, into pieces of about a partition.

    Overwrites pieces of an earlier attempt. Raises InputError for damaged files.
    """
    make_private_folder(folder)
    whole = task.whole
    limits = (plan.target_bytes, plan.rows_per_partition)
    try:
        if whole.format == "csv":
            from joblens.data.files.table_pieces import cut_csv

            return cut_csv(whole, folder, limits, plan.columns, reject)
        if whole.format == "parquet":
            from joblens.data.files.table_pieces import cut_row_groups

            return cut_row_groups(whole, folder, limits)
        with opened(whole.path, whole.compression) as stream:
            if whole.format == "json":
                return _cut_array(stream, whole, folder, limits)
            return _cut_lines(stream, whole, folder, limits)
    except (OSError, EOFError) as error:
        raise InputError(f"{whole.path} cannot be read to the end: {error}") from error


class LinePieces:
    """Writes lines to files of about the target size."""

    def __init__(self, whole: Slice, folder: str, limits: tuple[int, int | None]) -> None:
        self._whole, self._folder = whole, folder
        self._most_bytes, self._most_rows = limits
        self.slices: list[Slice] = []
        self._file: BinaryIO | None = None
        self._size, self._rows, self._rows_before = 0, 0, 0
        self._digest = xxhash.xxh3_128()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, block: bytes) -> None:
        while block:
            end = self._end_of_piece(block)
            if end is None:
                self._write(block)
                return
            self._write(block[:end])
            self.close()
            block = block[end:]

    def close(self) -> None:
        if self._file is None:
            return
        path = self._file.name
        self._file.close()
        self._file = None
        self.slices.append(
            Slice(
                path=path,
                format="jsonl",
                end=self._size,
                origin=self._whole.path,
                origin_row=self._rows_before,
                digest=self._digest.hexdigest(),
            )
        )
        self._rows_before += self._rows
        self._size = self._rows = 0
        self._digest.reset()

    def _end_of_piece(self, block: bytes) -> int | None:
        """Returns how much of the block belongs to this piece; None: all of it, and more may follow."""
        ends: list[int] = []
        if self._size + len(block) >= self._most_bytes:
            found = block.find(b"\n", max(0, self._most_bytes - self._size - 1))
            ends += [found + 1] if found >= 0 else []
        if self._most_rows:
            lines = line_ends(block)
            missing = self._most_rows - self._rows
            ends += [int(lines[missing - 1])] if len(lines) >= missing else []
        return min(ends, default=None)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            path = piece_path(self._folder, len(self.slices), ".jsonl")
            self._file = open_private(path)
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)
        self._rows += data.count(b"\n")


def _cut_lines(stream: Any, whole: Slice, folder: str, limits: tuple[int, int | None]) -> list[Slice]:
    with LinePieces(whole, folder, limits) as pieces:
        while block := stream.read(_BLOCK):
            pieces.add(block)
    return pieces.slices


def _cut_array(stream: Any, whole: Slice, folder: str, limits: tuple[int, int | None]) -> list[Slice]:
    """Writes the rows of a JSON array as lines. The whole array must fit in memory."""
    text = stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        rows = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{whole.path} starts like a JSON array but is not one: {error}") from error
    with LinePieces(whole, folder, limits) as pieces:
        for row in rows:
            line = bytes(row)
            pieces.add((msgspec.json.format(line, indent=-1) if b"\n" in line else line) + b"\n")
    return pieces.slices
