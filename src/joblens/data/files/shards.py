"""The files of an export: their names, which rows go into which, and lines copied into them."""

import errno
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from joblens.data.files.json_lines import line_ends

_COPIED_AT_ONCE = 1 << 20
_KERNEL_CANNOT = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def shard_paths(export_path: str, kind: str, rows: int, size: int, shard_bytes: int) -> list[str]:
    """One path, or the names that shards have elsewhere too: name-00-of-12.jsonl in the same folder."""
    if shard_bytes <= 0:
        return [export_path]
    count = max(1, min(size // shard_bytes + 1, rows))
    width = len(str(count)) + 1
    folder = os.path.dirname(os.path.abspath(export_path))
    stem = os.path.basename(export_path).split(".", 1)[0]
    return [
        os.path.join(folder, f"{stem}-{number:0{width}d}-of-{count:0{width}d}.{kind}")
        for number in range(count)
    ]


def shard_rows(rows: int, shards: int) -> list[int]:
    """Alike; the first ones have one more where it does not divide."""
    each, more = divmod(rows, shards)
    return [each + (number < more) for number in range(shards)]


def copy_lines(parts: Sequence[tuple[str, int]], paths: Sequence[str], counts: Sequence[int]) -> None:
    """Lines of all parts into files of so many lines each."""
    sources = segments_of(parts, counts)
    for path, segments in zip(paths, sources, strict=True):
        target = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            for source, start, end in segments:
                copy_bytes(source, target, start, end)
        finally:
            os.close(target)


def copy_arrays(parts: Sequence[tuple[str, int]], paths: Sequence[str], counts: Sequence[int]) -> None:
    """The same as JSON arrays, one row per line."""
    sources = segments_of(parts, counts)
    for path, segments, count in zip(paths, sources, counts, strict=True):
        with open(path, "wb") as target:
            target.write(b"[\n" if count else b"[]\n")
            for source, start, end in segments:
                with open(source, "rb") as lines:
                    lines.seek(start)
                    left = end - start
                    while block := lines.read(min(_COPIED_AT_ONCE, left)):
                        target.write(block.replace(b"\n", b",\n"))
                        left -= len(block)
            if count:
                target.seek(-len(b",\n"), os.SEEK_CUR)  # behind the last row
                target.write(b"\n]\n")


_Segment = tuple[str, int, int]  # path, first byte, first byte behind


def segments_of(parts: Sequence[tuple[str, int]], counts: Sequence[int]) -> Iterator[list[_Segment]]:
    """What each file is made of. Only parts that are divided are searched for the ends of lines."""
    left = [(path, rows, 0, os.path.getsize(path)) for path, rows in parts][::-1]
    for count in counts:
        segments: list[_Segment] = []
        missing = count
        while left and (missing or not left[-1][1]):
            path, rows, start, end = left.pop()
            if rows > missing:
                cut = start + _bytes_of_lines(path, start, missing)
                left.append((path, rows - missing, cut, end))
                rows, end = missing, cut
            segments.append((path, start, end))
            missing -= rows
        yield segments


def _bytes_of_lines(path: str, start: int, count: int) -> int:
    with pa.memory_map(path) as file:
        file.seek(start)
        return int(line_ends(file.read_buffer())[count - 1])


def copy_bytes(source_path: str, target: int, start: int, end: int) -> None:
    """To where the target is just being written."""
    with open(source_path, "rb", buffering=0) as source:
        place = start
        while place < end:
            try:
                copied = os.copy_file_range(source.fileno(), target, end - place, place)
            except OSError as error:
                if error.errno not in _KERNEL_CANNOT:
                    raise
                copied = 0
            if not copied:
                break
            place += copied
        while place < end:
            block = os.pread(source.fileno(), min(_COPIED_AT_ONCE, end - place), place)
            if not block:
                raise OSError(errno.EIO, f"{source_path} ends before its time")
            place += _write_all(target, block)


def _write_all(target: int, block: bytes) -> int:
    left = memoryview(block)
    while left:
        left = left[os.write(target, left) :]
    return len(block)
