"""A log file that is put aside, compressed, when it has reached its size. Any number of processes may write
to it: every message is one write to a file opened for appending, under a shared lock, and only who holds the
lock alone puts the file aside."""

import contextlib
import errno
import fcntl
import gzip
import logging
import os
import shutil

from joblens.files.private import open_to_append

_FAST = 1  # compression level: the process that logs waits for it


class RotatingFile:
    """Of whole lines. The newest `backups` of the files that were put aside are kept."""

    def __init__(self, path: str, most_bytes: int, backups: int) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._backups = backups
        self._process_id = os.getpid()
        self._descriptor = open_to_append(path)
        self._is_torn = self._ends_in_a_line()

    def _ends_in_a_line(self) -> bool:
        """What a full disk or a killed process left of one."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # nobody is just writing it
        try:
            size = os.fstat(self._descriptor).st_size
            return size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, line: bytes) -> None:
        """Whole lines. What a full disk let through of them is closed off by the next ones."""
        if self._process_id != os.getpid():  # locks belong to what was opened, which a fork shares
            self._open_again()
        while True:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            try:
                if self._is_current():
                    size = os.fstat(self._descriptor).st_size
                    if not size or size + len(line) <= self._most_bytes:
                        self._append(line)
                        return
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._put_aside(len(line))

    def _append(self, line: bytes) -> None:
        written = os.write(self._descriptor, b"\n" + line if self._is_torn else line)
        self._is_torn = written != len(line) + self._is_torn
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def _put_aside(self, wanted: int) -> None:
        """Unless another process did so in the meantime; then the new file is opened."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            if self._is_current() and os.fstat(self._descriptor).st_size + wanted > self._most_bytes:
                self._shift()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._open_again()

    def _shift(self) -> None:
        """`log.txt` -> `log.txt.1.gz` -> `log.txt.2.gz` …; the oldest is written over."""
        if not self._backups:
            os.unlink(self.path)
            return
        being_written = f"{self.path}.being_compressed"
        descriptor = os.open(being_written, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with (
            open(self.path, "rb") as source,
            open(descriptor, "wb") as target,
            gzip.GzipFile("", "wb", _FAST, target) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
        for number in range(self._backups - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._backup(number), self._backup(number + 1))
        os.replace(being_written, self._backup(1))
        os.unlink(self.path)

    def _backup(self, number: int) -> str:
        return f"{self.path}.{number}.gz"

    def _is_current(self) -> bool:
        """Whether the file that is open is still the one of that name."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)

    def _open_again(self) -> None:
        opened = open_to_append(self.path)
        os.close(self._descriptor)
        self._descriptor = opened
        self._is_torn = False
        self._process_id = os.getpid()


class RotatingLog(logging.Handler):
    """Messages of loggers into such a file."""

    def __init__(self, path: str, most_bytes: int, backups: int) -> None:
        super().__init__()
        self.path = path
        self._file = RotatingFile(path, most_bytes, backups)

    def emit(self, record: logging.LogRecord) -> None:
        """A disk that is full, or gone, ends nothing and is told by those who need it: not for every message
        on the error stream."""
        try:
            self._file.write(self.format(record).encode(errors="backslashreplace") + b"\n")
        except OSError:
            return
        except Exception:  # noqa: BLE001 - logging must not end what it tells about
            self.handleError(record)

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._file.close()
        super().close()
