"""Partitioning of datasets."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from joblens.data.files.datasets import DataFile
from joblens.data.files.json_lines import line_ends
from joblens.data.files.partition_rows import row_groups, schema_of
from joblens.data.files.pieces import cut_file
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import Partition, RecipePlan, Slice

__all__ = ["CutWish", "cut_file", "partitions_with_pieces", "plan_partitions"]

_COUNTED_BYTES = (
    256 << 20
)  # JSON lines: up to this size line endings are searched, above it they are estimated
_SPOTS = 16
_SPOT_BYTES = 1 << 16
_JOIN_SLACK = 1.25  # tolerated excess of a partition over its target size, to avoid a small last one
_LARGE_GROUP_BYTES = 16 << 20  # Parquet: smaller row groups would be read again for each of their partitions


class CutWish(Struct, frozen=True, kw_only=True):
    """Desired partitions. `rows` per partition or the number `exactly` take precedence over sizes."""

    target_bytes: int
    rows: int | None = None
    exactly: int | None = None
    at_least: int = 1  # if there are enough rows

    @classmethod
    def of_plan(cls, plan: RecipePlan) -> "CutWish":
        return cls(
            target_bytes=plan.target_bytes,
            rows=plan.rows_per_partition,
            exactly=plan.exact_partitions,
            at_least=plan.least_partitions,
        )

    def bytes_of(self, total: float) -> float:
        """Returns the target size of one partition for this total."""
        if self.exactly:
            return max(1.0, total / self.exactly)
        return max(1.0, min(float(self.target_bytes), total / max(1, self.at_least)))


def plan_partitions(
    files: Sequence[DataFile], wish: CutWish
) -> tuple[tuple[Partition, ...], tuple[Slice, ...]]:
    """Returns the partitions of seekable files, and the files, or parts of them, that a job must split first.

    `cut_file` splits them; `partitions_with_pieces` adds their pieces in dataset order.
    """
    filled = [file for file in files if file.size]
    groups = {file.path: _groups_of(file.path) for file in filled if file.format == "parquet"}
    sizes = {path: sum(size for _, size in each) for path, each in groups.items()}
    total = sum(sizes.get(file.path, file.size) for file in filled)
    wished = wish.bytes_of(total)
    uncut = {
        file.path: slices
        for file in filled
        if (slices := _to_be_cut(file, groups.get(file.path), wished, wish))
    }
    runs: list[list[Slice]] = []
    for key, group in itertools.groupby(
        filled, key=lambda file: None if file.path in uncut else _likeness(file)
    ):
        if key is not None:
            runs.append([_whole(file, groups.get(file.path)) for file in group])
    return _cut_runs(runs, wish, wished), tuple(itertools.chain.from_iterable(uncut.values()))


def partitions_with_pieces(plan: RecipePlan, pieces: Iterable[Slice]) -> tuple[Partition, ...]:
    """Returns all partitions of a job after files that are not seekable were split."""
    wish = CutWish.of_plan(plan)
    order = {file.path: number for number, file in enumerate(plan.inputs)}

    def position(piece: Slice) -> tuple[int, int, int]:
        return order.get(piece.origin or piece.path, 0), piece.origin_row, piece.start

    units = [list(partition.slices) for partition in plan.partitions] + [[piece] for piece in pieces]
    units.sort(key=lambda unit: position(unit[0]))
    total = sum(_size_of(piece) for unit in units for piece in unit)
    is_small = total <= _COUNTED_BYTES
    if not wish.exactly and not (wish.rows and is_small):
        joined = _joined(units, None if wish.rows else wish.target_bytes)
        if len(joined) >= wish.at_least or wish.rows:
            return _with_first_rows(_numbered(joined))
    runs = [
        _put_together(list(group))
        for _, group in itertools.groupby(
            (piece for unit in units for piece in unit),
            key=lambda piece: _likeness_of(piece.path, piece.format),
        )
    ]
    return _cut_runs(runs, wish, wish.bytes_of(total))


def _joined(units: Sequence[list[Slice]], target_bytes: int | None) -> "_Cut":
    """Merges small pieces with their neighbours. Pieces already planned as partitions stay as they are."""
    groups: list[list[Slice]] = []
    size, likeness, is_planned = 0, None, False
    for unit in units:
        own = sum(map(_size_of, unit))
        like = _likeness_of(unit[0].path, unit[0].format)
        planned = not unit[0].origin
        fits = target_bytes is not None and size + own <= target_bytes * _JOIN_SLACK
        if groups and like == likeness and fits and not (planned and is_planned):
            groups[-1] += unit
            size, is_planned = size + own, planned or is_planned
        else:
            groups.append(list(unit))
            size, likeness, is_planned = own, like, planned
    return [(group, _rows_of(group)) for group in groups]


def _put_together(slices: Sequence[Slice]) -> list[Slice]:
    """Merges adjacent slices of one file."""
    whole: list[Slice] = []
    for piece in slices:
        last = whole[-1] if whole else None
        if last is not None and last.path == piece.path and last.end == piece.start:
            size = _size_of(last) + _size_of(piece) if last.size_bytes else 0
            whole[-1] = replace(last, end=piece.end, size_bytes=size)
        else:
            whole.append(piece)
    return whole


def _rows_of(slices: Sequence[Slice]) -> int | None:
    """Counts the rows of slices of Parquet files, which are split by rows."""
    if any(piece.format != "parquet" for piece in slices):
        return None
    return sum(piece.end - piece.start for piece in slices)


def _to_be_cut(
    file: DataFile, groups: list[tuple[int, int]] | None, wished: float, wish: CutWish
) -> list[Slice]:
    """Returns the parts of a file that must be split, each on its own; empty: the file is seekable."""
    if groups is None:
        if file.format == "jsonl" and not file.compression:
            return []
        return [
            Slice(
                path=file.path,
                format=file.format,
                compression=file.compression,
                delimiter=file.delimiter,
                end=file.size,
            )
        ]
    most = wished
    if wish.rows:
        most = wish.rows * sum(size for _, size in groups) / max(1, sum(rows for rows, _ in groups))
    most = max(_LARGE_GROUP_BYTES, most * _JOIN_SLACK)
    if all(size <= most for _, size in groups):
        return []
    slices: list[Slice] = []
    first, rows, size = 0, 0, 0
    for at, (own_rows, own_size) in enumerate(groups):
        rows, size = rows + own_rows, size + own_size
        if size >= most or at == len(groups) - 1:
            slices.append(
                Slice(
                    path=file.path, format="parquet", start=first, end=first + rows, size_bytes=max(1, size)
                )
            )
            first, rows, size = first + rows, 0, 0
    return [piece for piece in slices if piece.end > piece.start]


def _whole(file: DataFile, groups: list[tuple[int, int]] | None) -> Slice:
    if groups is None:
        return Slice(path=file.path, format=file.format, end=file.size)
    rows, size = sum(rows for rows, _ in groups), sum(size for _, size in groups)
    return Slice(path=file.path, format=file.format, end=rows, size_bytes=max(1, size))


def _groups_of(path: str) -> list[tuple[int, int]]:
    try:
        return row_groups(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}") from error


def _likeness(file: DataFile) -> Any:
    return _likeness_of(file.path, file.format)


def _likeness_of(path: str, kind: str) -> Any:
    """Returns a key for the columns of a file: only rows with equal columns share a partition.

    Otherwise the fields of a row would depend on where the data was split.
    """
    return kind if kind == "jsonl" else (kind, schema_of(path).remove_metadata().to_string())


def _size_of(piece: Slice) -> int:
    return piece.size_bytes or piece.end - piece.start


_Cut = list[tuple[list[Slice], int | None]]  # slices of each partition, and their number of rows


def _numbered(cut: _Cut) -> list[Partition]:
    return [
        Partition(id=number, slices=tuple(slices), size_bytes=sum(map(_size_of, slices)), rows=rows)
        for number, (slices, rows) in enumerate(cut)
    ]


def _with_first_rows(partitions: Sequence[Partition]) -> tuple[Partition, ...]:
    """Sets the first row of each partition, known as long as all earlier row counts are."""
    placed: list[Partition] = []
    first: int | None = 0
    for partition in partitions:
        placed.append(replace(partition, first_row=first))
        first = None if first is None or partition.rows is None else first + partition.rows
    return tuple(placed)


# Runs: adjacent slices with the same columns, split as if they were one file


def _cut_runs(runs: Sequence[list[Slice]], wish: CutWish, wished: float) -> tuple[Partition, ...]:
    runs = [[piece for piece in run if piece.end > piece.start] for run in runs]
    runs = [run for run in runs if run]
    sizes = [sum(map(_size_of, run)) for run in runs]
    counts = _shares(sizes, wish.exactly) if wish.exactly else [None] * len(runs)
    cut: _Cut = []
    for run, count in zip(runs, counts, strict=True):
        if run[0].format == "jsonl":
            cut += _cut_lines(run, wished, wish.rows, count)
        elif wish.rows or count:
            cut += _cut_at(run, _row_cuts(run, wish.rows, count))
        else:
            cut += _cut_parquet(run, wished)
    return _with_first_rows(_numbered(cut))


def _shares(sizes: Sequence[int], count: int) -> list[int | None]:
    """Distributes `count` partitions over runs of these sizes, at least one each."""
    total = max(1, sum(sizes))
    edges = [round(count * position / total) for position in itertools.accumulate(sizes, initial=0)]
    shares = [max(1, end - start) for start, end in itertools.pairwise(edges)]
    while sum(shares) > max(count, len(shares)):
        shares[shares.index(max(shares))] -= 1
    return list(shares)


def _cut_at(run: Sequence[Slice], cuts: Sequence[int]) -> _Cut:
    """Splits a run at rising positions: bytes at line endings, or rows of Parquet."""
    edges = _edges(run)
    limits = [*cuts, edges[-1]] if not len(cuts) or cuts[-1] != edges[-1] else list(cuts)
    made: _Cut = []
    start, at = 0, 0
    for limit in limits:
        slices: list[Slice] = []
        while start < limit:
            end = min(limit, edges[at + 1])
            slices.append(_part_of(run[at], start - edges[at], end - edges[at]))
            start = end
            if start == edges[at + 1]:
                at += 1
        if slices:
            made.append((slices, _rows_of(slices)))
    return made


def _edges(run: Sequence[Slice]) -> list[int]:
    return list(itertools.accumulate((piece.end - piece.start for piece in run), initial=0))


def _part_of(piece: Slice, start: int, end: int) -> Slice:
    size = piece.size_bytes and max(1, piece.size_bytes * (end - start) // (piece.end - piece.start))
    return replace(piece, start=piece.start + start, end=piece.start + end, size_bytes=size)


def _chosen(nearest: Any, count: int, ends: int) -> Any:
    """Chooses `count` - 1 of the positions `ends`, nearest to the desired ones, none twice."""
    count = min(count, ends)
    numbers = np.arange(count - 1)
    rising = np.maximum.accumulate(np.asarray(nearest[: count - 1], np.int64) - numbers) + numbers
    return np.minimum(rising, ends - count + numbers)


# JSON lines: all files concatenated to one run of bytes


def _cut_lines(run: Sequence[Slice], wished: float, rows_wished: int | None, exactly: int | None) -> _Cut:
    total = _edges(run)[-1]
    if rows_wished and total <= _COUNTED_BYTES:
        ends = _line_ends(run)
        return _cut_at(run, ends[rows_wished - 1 :: rows_wished].tolist())
    if rows_wished:
        wished = rows_wished * _mean_line(run, total)
    # Rounds down: a tiny excess must not add a partition.
    count = exactly or max(1, math.ceil(total / max(1.0, wished) - 1e-6))
    cuts = _next_line_ends(run, (total * number // count for number in range(1, count)))
    if exactly and len(cuts) < exactly - 1 and total <= _COUNTED_BYTES:
        ends = _line_ends(run)
        count = min(exactly, len(ends))
        targets = [total * number // count for number in range(1, count)]
        cuts = ends[_chosen(np.searchsorted(ends, targets), count, len(ends))].tolist()
    return _cut_at(run, cuts)


def _next_line_ends(run: Sequence[Slice], targets: Iterable[int]) -> list[int]:
    """Returns for each position the next line end; a long line may cover several positions."""
    edges = _edges(run)
    ends: list[int] = []
    for position in targets:
        if ends and position <= ends[-1]:
            continue
        at = int(np.searchsorted(edges, position, side="right")) - 1
        with open(run[at].path, "rb") as file:
            # One byte back: a position at the start of a line is an end already.
            back = max(0, position - edges[at] - 1)
            file.seek(run[at].start + back)
            skipped = len(file.readline()) if position > edges[at] else 0
            ends.append(min(edges[at] + back + skipped, edges[at + 1]))
    return sorted({end for end in ends if 0 < end < edges[-1]})


def _line_ends(run: Sequence[Slice]) -> Any:
    """Yields the positions of all line endings in the run."""
    found: list[Any] = []
    before = 0
    for piece in run:
        with pa.memory_map(piece.path) as mapped:
            mapped.seek(piece.start)
            ends = line_ends(mapped.read_buffer(piece.end - piece.start))
        size = piece.end - piece.start
        if not len(ends) or ends[-1] != size:
            ends = np.append(ends, size)
        found.append(before + ends)
        before += size
    return np.concatenate(found)


def _mean_line(run: Sequence[Slice], total: int) -> float:
    """Estimates the mean line length from spots all over the dataset."""
    edges = _edges(run)
    read_bytes, lines = 0, 0
    for number in range(_SPOTS):
        position = total * number // _SPOTS
        at = int(np.searchsorted(edges, position, side="right")) - 1
        with open(run[at].path, "rb") as file:
            file.seek(run[at].start + position - edges[at])
            spot = file.read(_SPOT_BYTES)
        read_bytes += len(spot)
        lines += spot.count(b"\n")
    return read_bytes / max(1, lines)


# Parquet: by rows exactly, or at the ends of row groups if only sizes are given


def _row_cuts(run: Sequence[Slice], rows: int | None, count: int | None) -> list[int]:
    edges = _edges(run)
    if rows:
        return list(range(rows, edges[-1], rows))
    assert count is not None
    targets = np.arange(1, count) * (sum(map(_size_of, run)) / count)
    sizes = list(itertools.accumulate(map(_size_of, run), initial=0))
    nearest = np.rint(np.interp(targets, sizes, edges)).astype(np.int64) - 1
    found: list[int] = (_chosen(np.maximum(nearest, 0), count, edges[-1]) + 1).tolist()
    return found


def _cut_parquet(run: Sequence[Slice], wished: float) -> _Cut:
    """Assigns each row group, or part of a large one, by its middle:
    partitions become equal, few groups are read twice.
    """
    cuts: list[int] = []
    weights: list[float] = []
    before = 0
    for piece in run:
        position = 0
        for rows, size in row_groups(piece.path):
            start, end = max(position, piece.start), min(position + rows, piece.end)
            position += rows
            if end <= start:
                continue
            parts = max(1, round(size * (end - start) / rows / wished))
            edges = sorted({start + (end - start) * number // parts for number in range(parts + 1)})
            for one, other in itertools.pairwise(edges):
                cuts.append(before + other - piece.start)
                weights.append(size * (other - one) / rows)
        before += piece.end - piece.start
    share = sum(weights) / max(1, round(sum(weights) / wished + 0.49))
    middles = np.cumsum(weights) - np.array(weights) / 2
    numbers = (middles // max(share, 1e-9)).astype(int)
    last_of_each = np.flatnonzero(np.append(np.diff(numbers) != 0, True))
    return _cut_at(run, [cuts[at] for at in last_of_each])
