"""Rotating log files: bounded size, compressed, safe for several processes; logging handlers on them."""

import contextlib
import errno
import fcntl
import gzip
import logging
import os
import shutil
from collections.abc import Callable

from joblens.files.private import make_private_folder, open_to_append
from joblens.model.errors import InputError

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


_FORMAT = "%(asctime)s.%(msecs)03d | %(levelname)-8s | %(place)s - %(message)s"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_BYTES_PER_MB = 1024 * 1024

# Beside the main file: what is only of interest when one looks for it.
_OF_ONE_LEVEL: dict[str, Callable[[int], bool]] = {
    "DEBUG": lambda level: level == logging.DEBUG,
    "WARNING": lambda level: level == logging.WARNING,
    "ERROR": lambda level: level >= logging.ERROR,
}


def setup_logger(
    save_dir: str | os.PathLike[str],
    filename: str = "log.txt",
    max_log_size_mb: float = 100,
    backup_count: int = 5,
    *,
    level: str = "INFO",
) -> logging.Logger:
    """Messages of all loggers of this program go to `filename` in that folder, from `level` up, and those of
    the levels debug, warning and error also to files of their own (`log_DEBUG.txt`, …). A file that has
    reached its size is compressed and put aside; the newest `backup_count` of those are kept. Several
    processes may write to the same files. Called again for the same file, it only takes the new sizes."""
    _check(filename, max_log_size_mb, backup_count, level)
    folder = os.path.abspath(os.fspath(save_dir))
    try:
        make_private_folder(folder)
        handlers = _handlers(folder, filename, int(max_log_size_mb * _BYTES_PER_MB), backup_count, level)
    except OSError as error:
        raise InputError(f"logs cannot be written to {folder}: {error.strerror}") from error
    root = logging.getLogger()
    _remove(root, {handler.path for handler in handlers})
    _keep_quiet(root)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    return root


def _check(filename: str, max_log_size_mb: float, backup_count: int, level: str) -> None:
    if not filename or os.path.basename(filename) != filename:
        raise InputError(f"filename must be a name without a folder, not '{filename}'")
    if max_log_size_mb <= 0:
        raise InputError(f"max_log_size_mb must be above 0, not {max_log_size_mb}")
    if backup_count < 0:
        raise InputError(f"backup_count must be 0 or more, not {backup_count}")
    if level not in logging.getLevelNamesMapping():
        raise InputError(f"unknown level '{level}': expected DEBUG, INFO, WARNING, ERROR or CRITICAL")


def _handlers(folder: str, filename: str, most_bytes: int, backups: int, level: str) -> list[RotatingLog]:
    path = os.path.join(folder, filename)
    stem, ending = os.path.splitext(path)
    main = RotatingLog(path, most_bytes, backups)
    main.setLevel(level)
    made = [main]
    for name, is_wanted in _OF_ONE_LEVEL.items():
        handler = RotatingLog(f"{stem}_{name}{ending}", most_bytes, backups)
        handler.addFilter(_level_filter(is_wanted))
        made.append(handler)
    for handler in made:
        handler.setFormatter(_Lines(_FORMAT, _TIME_FORMAT))
    return made


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # What a job itself tells comes from no line of a program that anybody would look up.
        record.place = f"{record.name}:{record.lineno}" if record.lineno else record.name
        return super().format(record)


def _level_filter(is_wanted: Callable[[int], bool]) -> Callable[[logging.LogRecord], bool]:
    return lambda record: is_wanted(record.levelno)


def _remove(root: logging.Logger, paths: set[str]) -> None:
    for handler in list(root.handlers):
        if isinstance(handler, RotatingLog) and handler.path in paths:
            root.removeHandler(handler)
            handler.close()


def _keep_quiet(root: logging.Logger) -> None:
    """The root logger lets everything through from now on; handlers that relied on it to hold debug messages
    back do so themselves."""
    for handler in root.handlers:
        if not isinstance(handler, RotatingLog) and handler.level < root.level:
            handler.setLevel(root.level)
