"""Export shards: names, distribution of rows, and crash-safe moving of parts into them."""

import contextlib
import errno
import functools
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import xxhash
from msgspec import Struct

from joblens.data.base import manifests
from joblens.data.files.json_lines import line_ends
from joblens.data.files.parquet_schema import PartManifest, is_whole
from joblens.files.atomic import atomic_file
from joblens.model.errors import JoblensError

_COPIED_AT_ONCE = 1 << 20
_KERNEL_CANNOT = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def shard_paths(export_path: str, kind: str, rows: int, size: int, shard_bytes: int) -> list[str]:
    """Returns one path, or names of shards in the same folder: name-00-of-12.jsonl."""
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
    """Distributes rows evenly; the first shards have one more if it does not divide."""
    each, more = divmod(rows, shards)
    return [each + (number < more) for number in range(shards)]


def copy_lines(parts: Sequence[tuple[str, int]], paths: Sequence[str], counts: Sequence[int]) -> None:
    """Copies the lines of all parts into files of so many lines each."""
    sources = segments_of(parts, counts)
    for path, segments in zip(paths, sources, strict=True):
        target = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            for source, start, end in segments:
                copy_bytes(source, target, start, end)
        finally:
            os.close(target)


def copy_arrays(parts: Sequence[tuple[str, int]], paths: Sequence[str], counts: Sequence[int]) -> None:
    """Copies them as JSON arrays, one row per line."""
    sources = segments_of(parts, counts)
    for path, segments, count in zip(paths, sources, counts, strict=True):
        with open(path, "wb") as target:
            target.write(b"[\n" if count else b"[]\n")
            for source, start, end in segments:
                with open(source, "rb") as lines:
                    lines.seek(start)
                    remaining = end - start
                    while block := lines.read(min(_COPIED_AT_ONCE, remaining)):
                        target.write(block.replace(b"\n", b",\n"))
                        remaining -= len(block)
            if count:
                target.seek(-len(b",\n"), os.SEEK_CUR)  # behind the last row
                target.write(b"\n]\n")


_Segment = tuple[str, int, int]  # path, start, end (exclusive)


def segments_of(parts: Sequence[tuple[str, int]], counts: Sequence[int]) -> Iterator[list[_Segment]]:
    """Returns the segments of each file. Searches for line endings only in parts that are divided."""
    remaining = [(path, rows, 0, os.path.getsize(path)) for path, rows in parts][::-1]
    for count in counts:
        segments: list[_Segment] = []
        missing = count
        while remaining and (missing or not remaining[-1][1]):
            path, rows, start, end = remaining.pop()
            if rows > missing:
                cut = start + _bytes_of_lines(path, start, missing)
                remaining.append((path, rows - missing, cut, end))
                rows, end = missing, cut
            segments.append((path, start, end))
            missing -= rows
        yield segments


def _bytes_of_lines(path: str, start: int, count: int) -> int:
    with pa.memory_map(path) as file:
        file.seek(start)
        return int(line_ends(file.read_buffer())[count - 1])


def copy_bytes(source_path: str, target: int, start: int, end: int) -> None:
    """Copies bytes to the current position of the target."""
    with open(source_path, "rb", buffering=0) as source:
        position = start
        while position < end:
            try:
                copied = os.copy_file_range(source.fileno(), target, end - position, position)
            except OSError as error:
                if error.errno not in _KERNEL_CANNOT:
                    raise
                copied = 0
            if not copied:
                break
            position += copied
        while position < end:
            block = os.pread(source.fileno(), min(_COPIED_AT_ONCE, end - position), position)
            if not block:
                raise OSError(errno.EIO, f"{source_path} is truncated")
            position += _write_all(target, block)


def _write_all(target: int, block: bytes) -> int:
    remaining = memoryview(block)
    while remaining:
        remaining = remaining[os.write(target, remaining) :]
    return len(block)


_READ_BYTES = 1 << 20


class Region(Struct, frozen=True, array_like=True):
    file: int
    first: int
    size_bytes: int


class Placed(Struct, frozen=True, kw_only=True):
    path: str  # of the part's own file
    size_bytes: int
    digest: str
    regions: tuple[Region, ...]  # more than one if shards divide it


class Layout(Struct, frozen=True, kw_only=True):
    """Position of every part in the export.

    Written before the first part is moved: a division between shards can only be computed while the part is
    in its own file.
    """

    paths: tuple[str, ...]
    being_written: tuple[str, ...]
    sizes: tuple[int, ...]
    parts: tuple[Placed, ...]

    def file_now(self, number: int) -> str:
        """Returns the current file: the part may have been moved just before the job was killed."""
        before = self.being_written[number]
        return before if os.path.exists(before) else self.paths[number]


def is_there(part: PartManifest, journal: str) -> bool:
    """Returns whether the part is intact, in its own file or in the export."""
    if is_whole(part):
        return True
    layout, by_path = _layout_in(journal)
    placed = by_path.get(part.path)
    return layout is not None and placed is not None and _is_of(placed, part) and _is_placed(layout, placed)


def move_parts(
    parts: Sequence[PartManifest],
    paths: Sequence[str],
    being_written: Sequence[str],
    counts: Sequence[int],
    journal: str,
) -> None:
    """Moves parts, continuing an interrupted move.

    On return every file is complete, under one of its two names.
    """
    layout = _layout_in(journal)[0]
    if layout is not None and not _can_go_on(layout, parts, paths):
        put_back(parts, journal)
        layout = None
    layout = layout or _begin(parts, paths, being_written, counts, journal)
    try:
        for placed in layout.parts:
            _move(layout, placed)
    except BaseException:
        if all(_has_own_file(placed) for placed in layout.parts):
            _forget(layout, journal)
        raise


def put_back(parts: Sequence[PartManifest], journal: str) -> None:
    """Moves parts back into files of their own when an export is abandoned."""
    layout, by_path = _layout_in(journal)
    if layout is None:
        return
    for part in parts:
        placed = by_path.get(part.path)
        if placed is not None and _is_of(placed, part) and not _has_own_file(placed):
            _put_back(layout, placed)
    _forget(layout, journal)


def forget_moved(journal: str) -> None:
    """Forgets the moves of a job that starts over."""
    layout = _layout_in(journal)[0]
    if layout is not None:
        _forget(layout, journal)


def _can_go_on(layout: Layout, parts: Sequence[PartManifest], paths: Sequence[str]) -> bool:
    if layout.paths != tuple(paths) or len(layout.parts) != len(parts):
        return False
    pairs = zip(layout.parts, parts, strict=True)
    if not all(placed.path == part.path and _is_of(placed, part) for placed, part in pairs):
        return False
    # A file that is in position is not written again.
    gone = {number for number, path in enumerate(layout.being_written) if not os.path.exists(path)}
    return not any(
        region.file in gone
        for placed in layout.parts
        if gone and _has_own_file(placed)
        for region in placed.regions
    )


def _begin(
    parts: Sequence[PartManifest],
    paths: Sequence[str],
    being_written: Sequence[str],
    counts: Sequence[int],
    journal: str,
) -> Layout:
    regions: dict[str, list[Region]] = {part.path: [] for part in parts}
    sizes: list[int] = []
    for number, segments in enumerate(segments_of([(part.path, part.rows) for part in parts], counts)):
        size = 0
        for path, start, end in segments:
            regions[path].append(Region(number, size, end - start))
            size += end - start
        sizes.append(size)
    layout = Layout(
        paths=tuple(paths),
        being_written=tuple(being_written),
        sizes=tuple(sizes),
        parts=tuple(
            Placed(
                path=part.path,
                size_bytes=part.size_bytes,
                digest=part.digest,
                regions=tuple(regions[part.path]),
            )
            for part in parts
        ),
    )
    try:
        for path, size in zip(being_written, sizes, strict=True):
            target = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                os.ftruncate(target, size)
            finally:
                os.close(target)
        manifests.write_manifest(journal, layout)
    except BaseException:
        _forget(layout, journal)
        raise
    return layout


def _move(layout: Layout, placed: Placed) -> None:
    if not _has_own_file(placed):
        if not _is_placed(layout, placed):
            raise JoblensError(f"{placed.path} is missing, and the export has other content at its position")
        return
    start = 0
    for region in placed.regions:
        target = os.open(layout.being_written[region.file], os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.lseek(target, region.first, os.SEEK_SET)
            copy_bytes(placed.path, target, start, start + region.size_bytes)
        finally:
            os.close(target)
        start += region.size_bytes
    os.unlink(placed.path)


def _put_back(layout: Layout, placed: Placed) -> None:
    with atomic_file(placed.path) as being_written, open(being_written, "wb", buffering=0) as target:
        for region in placed.regions:
            end = region.first + region.size_bytes
            copy_bytes(layout.file_now(region.file), target.fileno(), region.first, end)


def _forget(layout: Layout, journal: str) -> None:
    for path in (journal, *layout.being_written):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _is_of(placed: Placed, part: PartManifest) -> bool:
    return (placed.size_bytes, placed.digest) == (part.size_bytes, part.digest)


def _has_own_file(placed: Placed) -> bool:
    try:
        return os.path.getsize(placed.path) == placed.size_bytes
    except FileNotFoundError:
        return False


def _is_placed(layout: Layout, placed: Placed) -> bool:
    digest = xxhash.xxh3_128()
    try:
        for region in placed.regions:
            with open(layout.file_now(region.file), "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size != layout.sizes[region.file]:
                    return False
                at, end = region.first, region.first + region.size_bytes
                while at < end and (block := os.pread(file.fileno(), min(_READ_BYTES, end - at), at)):
                    digest.update(block)
                    at += len(block)
    except OSError:
        return False
    return digest.hexdigest() == placed.digest


def _layout_in(journal: str) -> tuple[Layout | None, dict[str, Placed]]:
    try:
        found = os.stat(journal)
    except OSError:
        return None, {}
    return _read_layout(journal, found.st_ino, found.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _read_layout(journal: str, _inode: int, _changed: int) -> tuple[Layout | None, dict[str, Placed]]:
    layout = manifests.read_manifest(journal, Layout)
    return layout, {placed.path: placed for placed in layout.parts} if layout else {}
