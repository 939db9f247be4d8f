"""Samples of a dataset without reading all of it, for planning partitions."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import msgspec

from joblens.analysis.recipes.data_characteristics import FieldNames, Sampled, named_files
from joblens.data.files.datasets import DataFile

_WHOLE_BYTES = 1 << 20  # smaller files are read completely
_USUAL_LINE = 4096
_LONGEST_LINE = 8 << 20
_HEAD_BYTES = 1 << 20  # of files that are not seekable
_EXPANSION = {"": 1.0, "gzip": 3.5, "zstd": 3.5}  # of text, roughly; only to estimate the number of rows
_GOLDEN = 0.618033988749895  # its multiples are evenly distributed between 0 and 1
_decode = msgspec.json.Decoder().decode


def expanded_bytes(files: Sequence[DataFile]) -> int:
    """Returns the uncompressed size of all files; estimated for compressed ones."""
    return round(sum(file.size * _EXPANSION.get(file.compression, 1.0) for file in files))


def sample_files(files: Sequence[DataFile], most: int, names: FieldNames) -> Sampled:
    """Returns up to `most` rows, from each file in proportion to its size. Skips damaged rows."""
    total = sum(file.size for file in files) or 1
    rows: list[Mapping[str, Any]] = []
    sizes: list[int] = []
    weights: list[float] = []
    expected, is_estimated = 0.0, False
    group_rows: list[int] = []
    for file in _spread(files, most):
        share = max(1, round(most * file.size / total))
        found = _sample_file(file, share)
        rows += found.rows
        sizes += _with_named_files(found, names, os.path.dirname(file.path))
        weights += _scaled(found)
        expected += found.total_rows
        group_rows += [found.row_group_rows] if found.row_group_rows else []
        is_estimated = is_estimated or found.is_total_estimated
    sampled_bytes = sum(file.size for file in _spread(files, most)) or 1
    return Sampled(
        rows=rows,
        sizes=sizes,
        weights=weights,
        total_rows=round(expected * total / sampled_bytes),
        is_total_estimated=is_estimated or sampled_bytes != total,
        row_group_rows=sorted(group_rows)[len(group_rows) // 2] if group_rows else None,
    )


def _scaled(found: Sampled) -> list[float]:
    """Sets how many rows of its file each sampled row represents."""
    weights = found.weights or [1.0] * len(found.rows)
    return [weight * found.total_rows / sum(weights) for weight in weights]


def sample_of(dataset: Any, names: FieldNames) -> Sampled:
    """Samples rows in memory: an Arrow table, or anything with a length and rows by index."""
    total = len(dataset)
    take = _is_arrow(dataset)
    rows = [
        dataset.slice(position, 1).to_pylist()[0] if take else dataset[position]
        for position in spread_indexes(total, sample_size(total))
    ]
    sizes = [len(msgspec.json.encode(row, enc_hook=str)) for row in rows]
    if take and total:
        scale = dataset.nbytes / total / (sum(sizes) / len(sizes))  # Arrow's own types are used
        sizes = [int(size * scale) for size in sizes]
    found = Sampled(rows=rows, sizes=sizes, total_rows=total)
    return Sampled(rows=rows, sizes=_with_named_files(found, names, ""), total_rows=total)


def sample_size(total: int) -> int:
    """Returns the sample size: all of few rows, 1 % of many, 0.1 % of very many."""
    if total < 1000:
        return total
    return min(1000, total // 100) if total < 100_000 else min(10_000, total // 1000)


def spread_indexes(total: int, count: int) -> list[int]:
    """Returns `count` indexes below `total`: one per equal part, at a varying offset in its part.

    So periodic data is not always sampled at the same phase.
    """
    count = min(total, count)
    found = []
    for number in range(count):
        start, end = number * total // count, (number + 1) * total // count
        found.append(start + int((number * _GOLDEN + 0.5) % 1 * (end - start)))
    return found


def _is_arrow(dataset: Any) -> bool:
    return hasattr(dataset, "slice") and hasattr(dataset, "nbytes") and hasattr(dataset, "schema")


def _spread(files: Sequence[DataFile], most: int) -> list[DataFile]:
    """Selects files from all over the dataset if there are more files than rows to sample."""
    filled = [file for file in files if file.size]
    return [filled[position] for position in spread_indexes(len(filled), min(most, len(filled)))]


def _sample_file(file: DataFile, share: int) -> Sampled:
    if file.format == "parquet":
        return _sample_parquet(file, share)
    if file.format == "csv":
        return _sample_csv(file, share)
    if file.compression:
        return _sample_lines(_head(file), share, file)
    if file.size <= _WHOLE_BYTES:
        with open(file.path, "rb") as stream:
            return _sample_lines(stream.read(), share, file)
    return _sample_jsonl(file, share)


def _sample_jsonl(file: DataFile, share: int) -> Sampled:
    """Samples lines at evenly spread bytes.

    Long lines are more likely to be met; weights correct that, so that neither means nor row counts depend on
    the order of lines.
    """
    rows, sizes, weights = [], [], []
    rows_per_byte = 0.0
    with open(file.path, "rb") as stream:
        for position in spread_indexes(file.size, share):
            line = _line_at(stream, position)
            rows_per_byte += 1 / len(line) / share
            row = _row(line)
            if row is not None:
                rows.append(row)
                sizes.append(len(line))
                weights.append(1 / len(line))
    total = max(1, round(file.size * rows_per_byte))
    return Sampled(rows=rows, sizes=sizes, weights=weights, total_rows=total, is_total_estimated=True)


def _line_at(stream: BinaryIO, position: int) -> bytes:
    """Returns the line that contains this byte, with its end."""
    back = _USUAL_LINE
    while True:
        start = max(0, position - back)
        stream.seek(start)
        before = stream.read(position - start)
        newline = before.rfind(b"\n")
        if newline >= 0 or start == 0 or back >= _LONGEST_LINE:
            return before[newline + 1 :] + stream.readline(_LONGEST_LINE)
        back *= 8


def _sample_lines(data: bytes, share: int, file: DataFile) -> Sampled:
    """Samples a prefix of the file, or all of it."""
    lines = data.splitlines()
    expanded = file.size * _EXPANSION.get(file.compression, 1.0)
    is_whole = not file.compression or len(data) < _HEAD_BYTES
    if not is_whole and len(lines) > 1:
        lines.pop()  # truncated
    lines = [line for line in lines if line.strip()]
    pairs = [(row, len(line)) for line in _picked(lines, share) if (row := _row(line)) is not None]
    mean = sum(map(len, lines)) / len(lines) + 1 if lines else 1.0
    return Sampled(
        rows=[row for row, _ in pairs],
        sizes=[size for _, size in pairs],
        total_rows=len(lines) if is_whole else max(len(lines), round(expanded / mean)),
        is_total_estimated=not is_whole,
    )


def _picked(lines: list[bytes], share: int) -> list[bytes]:
    return [lines[position] for position in spread_indexes(len(lines), min(share, len(lines)))]


def _row(line: bytes) -> Mapping[str, Any] | None:
    try:
        row = _decode(line.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _head(file: DataFile) -> bytes:
    """Returns the first megabyte of a compressed file's content; less if it is damaged."""
    import gzip
    import zlib

    from joblens.data.files.datasets import zstd

    opened = gzip.open if file.compression == "gzip" else zstd.open
    try:
        with opened(file.path) as stream:
            return bytes(stream.read(_HEAD_BYTES))
    except (OSError, EOFError, zlib.error, zstd.ZstdError):
        return b""


def _sample_csv(file: DataFile, share: int) -> Sampled:
    import csv
    import io

    is_plain = not file.compression
    if is_plain:
        with open(file.path, "rb") as stream:
            data = stream.read(_HEAD_BYTES)
    else:
        data = _head(file)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error:
        rows = []
    is_whole = len(data) < _HEAD_BYTES
    total = len(rows)
    if not is_whole and rows:
        rows.pop()
        total = round(len(rows) * file.size * _EXPANSION.get(file.compression, 1.0) / len(data))
    chosen = [rows[position] for position in spread_indexes(len(rows), min(share, len(rows)))]
    sizes = [sum(len(str(value)) for value in row.values()) + len(row) for row in chosen]
    return Sampled(rows=chosen, sizes=sizes, total_rows=total, is_total_estimated=not is_whole)


def _sample_parquet(file: DataFile, share: int) -> Sampled:
    """Samples rows of row groups from all over the file, which records its number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path) as table:
            groups = [n for n in range(table.num_row_groups) if table.metadata.row_group(n).num_rows]
            chosen = [groups[position] for position in spread_indexes(len(groups), min(share, 16))]
            rows: list[dict[str, Any]] = []
            sizes: list[int] = []
            for number in chosen:
                count = max(1, share // len(chosen))
                batch = next(table.iter_batches(batch_size=count, row_groups=[number]))
                rows += batch.to_pylist()
                sizes += _row_sizes(batch.to_pylist(), table.metadata.row_group(number))
            counts = sorted(table.metadata.row_group(number).num_rows for number in groups)
            usual = counts[len(counts) // 2] if counts else None
            return Sampled(rows=rows, sizes=sizes, total_rows=table.metadata.num_rows, row_group_rows=usual)
    except (pa.ArrowException, OSError, StopIteration):
        return Sampled(rows=[], sizes=[], total_rows=0, is_total_estimated=True)


def _row_sizes(rows: list[dict[str, Any]], group: Any) -> list[int]:
    """Distributes the row group's mean size over the rows by their own sizes."""
    sizes = [len(msgspec.json.encode(row, enc_hook=str)) for row in rows]
    mean = sum(sizes) / len(sizes) if sizes else 0
    scale = group.total_byte_size / group.num_rows / mean if mean else 1.0
    return [int(size * scale) for size in sizes]


def _with_named_files(found: Sampled, names: FieldNames, folder: str) -> list[int]:
    """Adds the sizes of existing image, audio and video files that rows name."""
    return [
        size + sum(_file_size(os.path.join(folder, path)) for path in named_files(row, names))
        for row, size in zip(found.rows, found.sizes, strict=True)
    ]


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0
