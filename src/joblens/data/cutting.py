"""Datasets into partitions."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from joblens.data.datasets import DataFile
from joblens.data.json_lines import line_ends
from joblens.data.parquet_rows import row_groups, schema_of
from joblens.data.pieces import cut_file
from joblens.model.errors import InputError
from joblens.model.recipe import Partition, Slice

__all__ = ["cut_file", "join_slices", "plan_partitions"]

_COUNTED_BYTES = 256 << 20  # of JSON lines: so much is searched for the ends of rows, more is estimated
_SPOTS = 16
_SPOT_BYTES = 1 << 16
_JOIN_SLACK = 1.25  # a partition may be so much larger than wished, rather than leave a small rest


class _Atom(Struct, frozen=True, kw_only=True):
    """What is not cut further: some rows of a Parquet file."""

    path: str
    first: int
    rows: int
    size: float


def plan_partitions(
    files: Sequence[DataFile], *, target_bytes: int, rows_per_partition: int | None = None, at_least: int = 1
) -> tuple[tuple[Partition, ...], tuple[Slice, ...]]:
    """-> the partitions of what can be read from the middle, and the files that a job has to cut first
    (`cut_file`). At least so many partitions where there are enough rows."""
    ready = [file for file in files if file.size and _is_ready(file)]
    uncut = tuple(_whole(file) for file in files if file.size and not _is_ready(file))
    sizes = {file.path: _unpacked(file) for file in ready}
    share = sum(sizes.values()) / max(1, at_least)
    wished = max(1.0, min(float(target_bytes), share))
    partitions: list[Partition] = []
    for _, group in itertools.groupby(ready, key=_likeness):
        alike = list(group)
        if alike[0].format == "jsonl":
            cut = _cut_lines(alike, wished, rows_per_partition)
        else:
            cut = _cut_parquet(alike, wished, rows_per_partition)
        partitions += _numbered(cut, len(partitions))
    return _with_first_rows(partitions), uncut


def join_slices(slices: Sequence[Slice], *, target_bytes: int, first_id: int = 0) -> tuple[Partition, ...]:
    """Partitions of what `cut_file` made: neighbours that are small and alike go together."""
    groups: list[list[Slice]] = []
    size, likeness = 0, None
    for piece in slices:
        own = _size_of(piece)
        like = _likeness_of(piece.path, piece.format)
        if groups and like == likeness and size + own <= target_bytes * _JOIN_SLACK:
            groups[-1].append(piece)
            size += own
        else:
            groups.append([piece])
            size, likeness = own, like
    return tuple(_numbered([(group, _rows_of(group)) for group in groups], first_id))


def _rows_of(slices: Sequence[Slice]) -> int | None:
    """Parquet is cut by rows, so that there they are known."""
    if any(piece.format != "parquet" for piece in slices):
        return None
    return sum(piece.end - piece.start for piece in slices)


def _is_ready(file: DataFile) -> bool:
    return not file.compression and file.format in ("jsonl", "parquet")


def _whole(file: DataFile) -> Slice:
    return Slice(path=file.path, format=file.format, compression=file.compression, end=file.size)


def _unpacked(file: DataFile) -> int:
    if file.format == "jsonl":
        return file.size
    try:
        return sum(size for _, size in row_groups(file.path))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.path} cannot be read as Parquet: {error}") from error


def _likeness(file: DataFile) -> Any:
    return _likeness_of(file.path, file.format)


def _likeness_of(path: str, kind: str) -> Any:
    """Rows go into one partition only with rows of the same columns: otherwise what a row has would depend
    on where the data was cut."""
    return kind if kind == "jsonl" else (kind, schema_of(path).remove_metadata().to_string())


def _size_of(piece: Slice) -> int:
    return piece.size_bytes or piece.end - piece.start


_Cut = list[tuple[list[Slice], int | None]]  # slices of each partition, and how many rows these are


def _numbered(cut: _Cut, first: int) -> list[Partition]:
    return [
        Partition(id=number, slices=tuple(slices), size_bytes=sum(map(_size_of, slices)), rows=rows)
        for number, (slices, rows) in enumerate(cut, first)
    ]


def _with_first_rows(partitions: Sequence[Partition]) -> tuple[Partition, ...]:
    """Where a partition begins is known as long as all before it know how many rows they have."""
    placed: list[Partition] = []
    first: int | None = 0
    for partition in partitions:
        placed.append(
            Partition(
                id=partition.id,
                slices=partition.slices,
                size_bytes=partition.size_bytes,
                rows=partition.rows,
                first_row=first,
            )
        )
        first = None if first is None or partition.rows is None else first + partition.rows
    return tuple(placed)


# JSON lines: all files in a row, one long run of bytes


def _cut_lines(files: Sequence[DataFile], wished: float, rows_wished: int | None) -> _Cut:
    total = sum(file.size for file in files)
    if rows_wished and total <= _COUNTED_BYTES:
        return _cut_at(files, _ends_of_rows(files, rows_wished))
    if rows_wished:
        wished = rows_wished * _mean_line(files, total)
    # A share of the total is no whole number: the smallest excess must not make one partition more.
    count = max(1, math.ceil(total / max(1.0, wished) - 1e-6))
    places = [total * number // count for number in range(1, count)]
    return _cut_at(files, _next_line_ends(files, places))


def _cut_at(files: Sequence[DataFile], cuts: Sequence[int]) -> _Cut:
    """Cuts are places in the run of all files, rising, and lie at the ends of lines."""
    edges = [0, *itertools.accumulate(file.size for file in files)]
    limits = [*cuts, edges[-1]] if not cuts or cuts[-1] != edges[-1] else list(cuts)
    made: _Cut = []
    start, at = 0, 0
    for limit in limits:
        slices: list[Slice] = []
        while start < limit:
            end = min(limit, edges[at + 1])
            own = edges[at]
            slices.append(Slice(path=files[at].path, format="jsonl", start=start - own, end=end - own))
            start = end
            if start == edges[at + 1]:
                at += 1
        if slices:
            made.append((slices, None))
    return made


def _next_line_ends(files: Sequence[DataFile], places: Sequence[int]) -> list[int]:
    """For each place the nearest end of a line behind it; long lines may take several places."""
    edges = [0, *itertools.accumulate(file.size for file in files)]
    ends: list[int] = []
    for place in places:
        if ends and place <= ends[-1]:
            continue
        at = int(np.searchsorted(edges, place, side="right")) - 1
        with open(files[at].path, "rb") as file:
            # One byte back: a place that is the beginning of a line is an end already.
            file.seek(max(0, place - edges[at] - 1))
            skipped = len(file.readline()) if place > edges[at] else 0
            ends.append(min(edges[at] + max(0, place - edges[at] - 1) + skipped, edges[at + 1]))
    return sorted({end for end in ends if end})


def _ends_of_rows(files: Sequence[DataFile], rows: int) -> list[int]:
    """Behind every so many lines."""
    cuts: list[int] = []
    before, missing = 0, rows
    for file in files:
        with pa.memory_map(file.path) as mapped:
            ends = line_ends(mapped.read_buffer(file.size))
        if not len(ends) or ends[-1] != file.size:
            ends = np.append(ends, file.size)
        cuts += (before + ends[missing - 1 :: rows]).tolist()
        missing = rows - (len(ends) - missing) % rows if len(ends) >= missing else missing - len(ends)
        before += file.size
    return cuts


def _mean_line(files: Sequence[DataFile], total: int) -> float:
    """From spots all over the dataset."""
    edges = [0, *itertools.accumulate(file.size for file in files)]
    seen, lines = 0, 0
    for number in range(_SPOTS):
        place = total * number // _SPOTS
        at = int(np.searchsorted(edges, place, side="right")) - 1
        with open(files[at].path, "rb") as file:
            file.seek(place - edges[at])
            spot = file.read(_SPOT_BYTES)
        seen += len(spot)
        lines += spot.count(b"\n")
    return seen / max(1, lines)


# Parquet: row groups, and rows of those that are too large


def _cut_parquet(files: Sequence[DataFile], wished: float, rows_wished: int | None) -> _Cut:
    atoms = [atom for file in files for atom in _atoms(file.path, wished, rows_wished)]
    total_rows = sum(atom.rows for atom in atoms)
    if not total_rows:
        return []
    if rows_wished:
        weights, share = [float(atom.rows) for atom in atoms], float(rows_wished)
    else:
        weights = [atom.size for atom in atoms]
        share = sum(weights) / max(1, round(sum(weights) / wished + 0.49))
    # Each goes where its middle lies, so that partitions come out alike.
    middles = np.cumsum(weights) - np.array(weights) / 2
    numbers = (middles // max(share, 1e-9)).astype(int).tolist()
    made: _Cut = []
    for _, group in itertools.groupby(zip(numbers, atoms, strict=True), key=lambda pair: pair[0]):
        chosen = [atom for _, atom in group]
        made.append((_merged(chosen), sum(atom.rows for atom in chosen)))
    return made


def _atoms(path: str, wished: float, rows_wished: int | None) -> list[_Atom]:
    atoms: list[_Atom] = []
    first = 0
    for rows, size in row_groups(path):
        cuts = max(1, -(-rows // rows_wished)) if rows_wished else max(1, round(size / wished))
        edges = [rows * number // cuts for number in range(cuts + 1)]
        for start, end in itertools.pairwise(edges):
            if end > start:
                share = size * (end - start) / rows
                atoms.append(_Atom(path=path, first=first + start, rows=end - start, size=share))
        first += rows
    return atoms


def _merged(atoms: Sequence[_Atom]) -> list[Slice]:
    slices: list[Slice] = []
    for _, group in itertools.groupby(atoms, key=lambda atom: atom.path):
        chosen = list(group)
        first, last = chosen[0], chosen[-1]
        size = max(1, round(sum(atom.size for atom in chosen)))
        end = last.first + last.rows
        slices.append(Slice(path=first.path, format="parquet", start=first.first, end=end, size_bytes=size))
    return slices
