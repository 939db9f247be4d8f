"""Datasets that jobs make: number of files, bytes and one sha256 over all of them, computed on threads.

Relative paths are hashed in sorted order, so the same files give the same digest everywhere. With
`manifest`, size and modification time of each file are included; with `content`, the sha256 of its
content. A symbolic link is included with the text of its target and never followed, so nothing outside
the directory is read; only the dataset's own path may be a link. Files that vanish meanwhile are skipped.
"""

import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from msgspec import Struct

from joblens.agent.runtime.loop import Loop
from joblens.model.jobs.job import FileStamp
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import DatasetFinalized
from joblens.model.runs.workflow_spec import HashMode

_PIECE = 1 << 20
_CHECKED_EVERY = 256  # files between two checks for cancellation
_LONGEST_SHOWN = 500  # of a path in a message: the last part of it
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe of that name must not block


class DatasetSummary(Struct, frozen=True):
    files: int  # regular files and symbolic links
    bytes: int
    sha256: str = ""  # '': HashMode.NONE


class DatasetError(Exception):
    """Unreadable dataset; the message names the path and the reason."""


class Abandoned(Exception):
    """The summary is no longer needed."""


def summarize(
    path: str, mode: HashMode, is_wanted: Callable[[], bool] = lambda: True, shown: str = ""
) -> DatasetSummary:
    """`shown`: the path in messages. A plain file is a dataset of one file. Raises DatasetError, and
    Abandoned once the summary is no longer needed."""
    return _Summing(mode, is_wanted, shown or path).sum(path)


def dataset_now(path: str, mode: str, cwd: str) -> FileStamp:
    """Returns the present stamp of a dataset; without `files` if it is unreadable."""
    try:
        found = summarize(os.path.join(cwd, path), HashMode(mode))
    except DatasetError:
        return FileStamp(path)
    return FileStamp(path, found.bytes, digest=found.sha256 or None, files=found.files, hash_mode=mode)


class _Summing:
    def __init__(self, mode: HashMode, is_wanted: Callable[[], bool], shown: str) -> None:
        self._mode = mode
        self._is_wanted = is_wanted
        self._shown = shown.rstrip("/") or "/"
        self._digest = hashlib.sha256()
        self._files = 0
        self._bytes = 0

    def sum(self, path: str) -> DatasetSummary:
        try:
            found = os.stat(path)
            if stat.S_ISDIR(found.st_mode):
                self._sum_directory(path)
            elif stat.S_ISREG(found.st_mode):
                name = os.path.basename(os.path.normpath(path))
                self._add_file(os.fsencode(name), found, os.fsencode(path), None)
            else:
                raise DatasetError(f"{self._shown}: neither a directory nor a file")
        except OSError as error:  # of the dataset itself; errors of paths inside are DatasetErrors
            raise self._error(b"", error) from error
        digest = "" if self._mode is HashMode.NONE else self._digest.hexdigest()
        return DatasetSummary(self._files, self._bytes, digest)

    def _sum_directory(self, path: str) -> None:
        """Walks depth first, each directory in the order of its entries: only the names of the
        directories on the current path are in memory. Directories are opened relative to their parent, so
        a link that replaces one meanwhile leads nowhere."""
        levels = [_Level(os.open(path, _OPEN_DIRECTORY), b"")]
        try:
            while levels:
                entry = next(levels[-1].entries, None)
                if entry is None:
                    os.close(levels.pop().descriptor)
                    continue
                deeper = self._take(levels[-1], entry)
                if deeper is not None:
                    levels.append(deeper)
        finally:
            for level in levels:
                os.close(level.descriptor)

    def _take(self, level: "_Level", entry: "_Entry") -> "_Level | None":
        """Adds a file, or returns the directory to enter."""
        relative = level.path + entry.name
        try:
            if entry.is_directory:
                return _open_inside(entry.name, level.descriptor, relative)
            self._add_entry(relative, entry.name, level.descriptor)
        except FileNotFoundError:
            pass  # it vanished since its directory was read
        except OSError as error:
            raise self._error(relative, error) from error
        return None

    def _add_entry(self, relative: bytes, name: bytes, parent: int) -> None:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            if self._mode is not HashMode.NONE:
                self._digest.update(relative + b"\0link\0" + os.readlink(name, dir_fd=parent) + b"\0")
            self._count(0)
        elif stat.S_ISREG(found.st_mode):
            self._add_file(relative, found, name, parent)
        # Sockets, pipes and devices have no data: they are neither opened nor counted.

    def _add_file(self, relative: bytes, found: os.stat_result, name: bytes, parent: int | None) -> None:
        size = found.st_size
        if self._mode is HashMode.CONTENT:
            digest, size = self._content(name, parent)
            self._digest.update(relative + b"\0" + digest)
        elif self._mode is HashMode.MANIFEST:
            self._digest.update(relative + f"\0{size}\0{found.st_mtime_ns}\0".encode())
        self._count(size)

    def _content(self, name: bytes, parent: int | None) -> tuple[bytes, int]:
        flags = _OPEN_FILE if parent is None else _OPEN_FILE | os.O_NOFOLLOW
        digest, size = hashlib.sha256(), 0
        with open(os.open(name, flags, dir_fd=parent), "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
                if not self._is_wanted():
                    raise Abandoned
        return digest.digest(), size

    def _count(self, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files % _CHECKED_EVERY == 0 and not self._is_wanted():
            raise Abandoned

    def _error(self, relative: bytes, error: OSError) -> DatasetError:
        inside = os.fsdecode(relative)
        where = f"{self._shown}/{inside}" if inside else self._shown
        why = "it does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        return DatasetError(f"{where[-_LONGEST_SHOWN:]}: {why}")


class _Entry(Struct, frozen=True):
    name: bytes
    is_directory: bool


class _Level:
    """An open directory on the current path. `path` ends in a slash; b"" at the top."""

    def __init__(self, descriptor: int, path: bytes) -> None:
        self.descriptor = descriptor
        self.path = path
        try:
            self.entries = iter(_entries(descriptor))
        except BaseException:
            os.close(descriptor)
            raise


def _open_inside(name: bytes, parent: int, relative: bytes) -> _Level:
    return _Level(os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent), relative + b"/")


def _entries(descriptor: int) -> list[_Entry]:
    """Returns entries in an order that gives sorted relative paths: a directory sorts as 'name/'."""
    with os.scandir(descriptor) as listed:
        found = [_Entry(os.fsencode(one.name), one.is_dir(follow_symlinks=False)) for one in listed]
    found.sort(key=lambda entry: entry.name + b"/" if entry.is_directory else entry.name)
    return found


_MOST_THREADS = 4  # a small dataset need not wait for a large one

Then = Callable[[DatasetFinalized], None]


def finalize(
    plan: Plan, number: int, cwd: str, is_wanted: Callable[[], bool] = lambda: True
) -> DatasetFinalized:
    """Counts and hashes a dataset of a plan. Raises Abandoned."""
    dataset = plan.datasets[number]
    began_s = time.monotonic()
    fact = partial(DatasetFinalized, number, dataset.name, dataset.path, dataset.hash_mode)
    try:
        found = summarize(os.path.join(cwd, dataset.path), dataset.hash_mode, is_wanted, shown=dataset.path)
    except DatasetError as error:
        return fact(error=str(error), duration_s=time.monotonic() - began_s)
    except (OSError, MemoryError, RecursionError) as error:
        return fact(error=f"{dataset.path}: {error}", duration_s=time.monotonic() - began_s)
    return fact(found.files, found.bytes, found.sha256, time.monotonic() - began_s)


class RunDatasets:
    def __init__(self, loop: Loop, plan: Plan, cwd: str, then: Then) -> None:
        """`then` is called on the loop for each dataset that was finalized or failed."""
        self._loop = loop
        self._plan = plan
        self._cwd = cwd
        self._then = then
        self._wanted: SimpleQueue[int | None] = SimpleQueue()
        self._threads = 0
        self._requested = 0
        self._is_closed = False

    def finalize(self, number: int) -> None:
        self._requested += 1
        self._wanted.put(number)
        if self._threads < min(_MOST_THREADS, self._requested):
            self._threads += 1
            threading.Thread(target=self._run, name="joblens-datasets", daemon=True).start()

    def close(self) -> None:
        """Cancels running finalizations without waiting for them."""
        self._is_closed = True
        for _ in range(self._threads):
            self._wanted.put(None)

    def _run(self) -> None:
        while (number := self._wanted.get()) is not None and not self._is_closed:
            try:
                fact = finalize(self._plan, number, self._cwd, lambda: not self._is_closed)
            except Abandoned:
                return
            self._loop.call(partial(self._then, fact))
