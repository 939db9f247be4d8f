"""Rotating file of lines that several processes append to."""

import contextlib
import fcntl
import os
from collections.abc import Callable

from joblens.files.private import append_whole, open_to_append

_FAST = 1  # compression level: the process that appends waits for it


class RotatingFile:
    """Appends lines under a lock on the file. A full file becomes FILE.1, FILE.1 becomes FILE.2 and so on;
    at most `backup_count` of them are kept. With `suffix` ".gz" they are compressed.

    A file that was moved away or removed is created again. A line that a killed process left unfinished
    gets a newline, so that it does not spoil the next. Processes that fork may keep using it; threads take
    turns."""

    def __init__(self, path: str, max_bytes: int, backup_count: int, suffix: str = "") -> None:
        self.path = path
        self._max_bytes = max_bytes  # 0: never rotated
        self._backup_count = backup_count
        self._suffix = suffix
        self._descriptor = -1
        self._process_id = 0

    def open(self) -> None:
        """Optional: raises OSError here instead of at the first line."""
        self._descriptor = open_to_append(self.path)
        self._process_id = os.getpid()

    def append(self, lines: bytes) -> None:
        """Appends all of them or, with an OSError, none."""
        while True:
            descriptor = self._lock_current()
            try:
                size = os.fstat(descriptor).st_size
                if not size or not 0 < self._max_bytes < size + len(lines):
                    is_torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
                    append_whole(descriptor, b"\n" + lines if is_torn else lines)
                    return
                self._rotate()
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def remove_lines(self, is_expendable: Callable[[bytes], bool]) -> int:
        """Rewrites the file, and those rotated before, without some lines. Processes that append continue
        with the new file. Returns how many lines went."""
        if not os.path.exists(self.path):
            return 0
        descriptor = self._lock_current()
        try:
            number, removed = 1, 0
            while os.path.exists(self._backup(number)):
                removed += _rewrite(self._backup(number), is_expendable)
                number += 1
            return removed + _rewrite(self.path, is_expendable)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock_current(self) -> int:
        """Returns a locked descriptor of the file that has the name now."""
        while True:
            if self._process_id != os.getpid():  # a fork shares the lock with its parent
                self.close()
            if self._descriptor < 0:
                self.open()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self.path), os.fstat(self._descriptor)):
                    return self._descriptor
            self.close()  # moved or rotated by another process; closing releases the lock

    def _rotate(self) -> None:
        if self._backup_count < 1:
            os.unlink(self.path)
        elif self._suffix:
            from joblens.files.atomic import atomic_file

            with atomic_file(self._backup(1)) as part:
                _compress(self.path, part)
                self._shift()
            os.unlink(self.path)
        else:
            self._shift()
            os.replace(self.path, self._backup(1))

    def _shift(self) -> None:
        for number in range(self._backup_count - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._backup(number), self._backup(number + 1))

    def _backup(self, number: int) -> str:
        return f"{self.path}.{number}{self._suffix}"


def _rewrite(path: str, is_expendable: Callable[[bytes], bool]) -> int:
    with open(path, "rb") as source:
        removed = sum(map(is_expendable, source))
        if removed:
            from joblens.files.atomic import atomic_file  # the log of most jobs is only appended to

            source.seek(0)
            with atomic_file(path) as part, open(part, "wb") as target:
                target.writelines(line for line in source if not is_expendable(line))
    return removed


def _compress(source: str, target: str) -> None:
    import gzip
    import shutil

    with (
        open(source, "rb") as plain,
        open(target, "wb") as raw,
        gzip.GzipFile("", "wb", _FAST, raw) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1 << 20)
