"""File stamps: size, time and a digest of the content of a job's files, read on a separate thread.

Content is read once as long as size and time stay the same; small files are read at once, because using
the thread would take longer.
"""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

from joblens.agent.runtime.loop import Loop
from joblens.model.jobs.job import FileStamp
from joblens.model.values.ids import sha256

_READ_AT_ONCE = 1 << 16
LARGEST_READ = 256 << 20  # larger files have only size and time: reading them would delay the job
_PIECE = 1 << 20

Then = Callable[[tuple[FileStamp, ...]], None]
_Key = tuple[str, int, int, int]  # path, size, mtime, inode


class FileStamps:
    def __init__(self, loop: Loop, cwd: str) -> None:
        """Relative paths start at `cwd`."""
        self._loop = loop
        self._cwd = cwd
        self._digests: dict[_Key, str | None] = {}
        self._wanted: SimpleQueue[tuple[tuple[str, ...], Then] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def stamp(self, paths: Sequence[str], then: Then) -> None:
        """Calls `then` with the stamps: before this returns if that is quick, otherwise on the loop."""
        wanted = tuple(paths)
        if sum(map(self._bytes_to_read, wanted)) <= _READ_AT_ONCE:
            then(self._stamps(wanted))
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="joblens-stamps", daemon=True)
            self._thread.start()
        self._wanted.put((wanted, then))

    def close(self) -> None:
        """Does not wait for files that are being read."""
        self._wanted.put(None)

    def _run(self) -> None:
        while (request := self._wanted.get()) is not None:
            paths, then = request
            self._loop.call(partial(then, self._stamps(paths)))

    def _stamps(self, paths: tuple[str, ...]) -> tuple[FileStamp, ...]:
        return tuple(map(self._stamp, paths))

    def _stamp(self, path: str) -> FileStamp:
        found = self._stat(path)
        if found is None:
            return FileStamp(path)
        key = _key(path, found)
        if key not in self._digests:
            self._digests[key] = digest_of(os.path.join(self._cwd, path), found.st_size)
        return FileStamp(path, found.st_size, found.st_mtime_ns, self._digests[key])

    def _bytes_to_read(self, path: str) -> int:
        found = self._stat(path)
        return 0 if found is None or _key(path, found) in self._digests else found.st_size

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(os.path.join(self._cwd, path))
        except OSError:
            return None


def digest_of(path: str, size: int) -> str | None:
    """Returns None if it is no plain file, too large, or unreadable."""
    if size > LARGEST_READ or not os.path.isfile(path):
        return None
    digest = sha256(size)
    try:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _key(path: str, found: os.stat_result) -> _Key:
    return path, found.st_size, found.st_mtime_ns, found.st_ino
