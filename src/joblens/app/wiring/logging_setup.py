"""joblens' own log: to standard error, or to a file that is rotated and compressed.

Imports logging, which costs start-up time: import this module only where something is going to be logged."""

import fcntl
import gzip
import logging
import os
import shutil
import sys
import time

from joblens.files.private import append_whole, make_private_folder
from joblens.model.errors import ConfigError
from joblens.model.settings import LogSettings
from joblens.model.values.units import MIB

LOGGER_NAME = "joblens"
FILE_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(process)d %(name)s: %(message)s"
TERMINAL_FORMAT = "joblens: %(levelname)s: %(message)s"


def set_up_logging(settings: LogSettings) -> logging.Logger:
    """The 'joblens' logger, with one handler as the settings say. Calling it again with others replaces that
    handler; handlers of the host program and the root logger are left alone."""
    logger = logging.getLogger(LOGGER_NAME)
    wanted = (settings, os.getpid())  # a forked child must not share its parent's file and lock
    own = [handler for handler in logger.handlers if isinstance(handler, _OwnHandler)]
    if [handler.made_for for handler in own] != [wanted]:
        new = _handler_for(settings)
        new.made_for = wanted
        logger.addHandler(new)
        for handler in own:
            logger.removeHandler(handler)
            handler.close()
    logger.setLevel(settings.level)
    return logger


def set_up_logging_in_host_program(settings: LogSettings) -> None:
    """A program that handles log lines itself gets no second copy of them on standard error."""
    logger = logging.getLogger(LOGGER_NAME)
    if settings.file is None and logger.hasHandlers():
        logger.setLevel(settings.level)
    else:
        set_up_logging(settings)


def _handler_for(settings: LogSettings) -> "_OwnHandler":
    if settings.file is None:
        return TerminalHandler()
    try:
        return RotatingFile(
            settings.file, max_bytes=round(settings.max_log_size_mb * MIB), backup_count=settings.backup_count
        )
    except OSError as error:
        raise ConfigError(
            f"logs.file: {settings.file} cannot be written: {error.strerror}",
            hint="choose another file, or unset it to log to standard error",
        ) from error


class _OwnHandler(logging.Handler):
    """Marks the handlers that joblens put in place itself."""

    made_for: tuple[LogSettings, int] | None = None  # and for which process

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A log that cannot be written (full disk, closed terminal) never disturbs a job."""


class TerminalHandler(_OwnHandler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_LowerCaseLevel(TERMINAL_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except (OSError, ValueError, AttributeError):  # None, where a program closed it
            self.handleError(record)


class _LowerCaseLevel(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace(f" {record.levelname}: ", f" {record.levelname.lower()}: ", 1)


class RotatingFile(_OwnHandler):
    """A log file several processes write to. Each line is written, and a full file rotated, under one lock
    beside it, so no line is lost or torn: FILE.1.gz is the newest rotated file."""

    def __init__(self, path: str, *, max_bytes: int, backup_count: int) -> None:
        super().__init__()
        self.path = os.path.abspath(path)
        self._max_bytes = max_bytes
        self._backup_count = backup_count
        make_private_folder(os.path.dirname(self.path))
        self._lock_fd = _open_private(f"{self.path}.lock")
        self._file = _open_private(self.path)
        formatter = logging.Formatter(FILE_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                self._reopen_if_moved()
                if self._is_full_with(line):
                    self._rotate()
                append_whole(self._file, line)
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        except (OSError, ValueError):
            self.handleError(record)

    def close(self) -> None:
        if self._file >= 0:
            self._close_file()
            os.close(self._lock_fd)
        super().close()

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        os.close(file)

    def _reopen_if_moved(self) -> None:
        """Another process has rotated the file, or someone moved it away."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            is_same = False
        else:
            is_same = os.path.samestat(now, os.fstat(self._file))
        if not is_same:
            new = _open_private(self.path)
            self._close_file()
            self._file = new

    def _is_full_with(self, line: bytes) -> bool:
        size = os.fstat(self._file).st_size
        return self._max_bytes > 0 and size > 0 and size + len(line) > self._max_bytes

    def _rotate(self) -> None:
        if self._backup_count:
            partial = f"{self.path}.partial"
            _compress(self.path, partial)
            for number in range(self._backup_count - 1, 0, -1):
                if os.path.exists(self._rotated(number)):
                    os.replace(self._rotated(number), self._rotated(number + 1))
            os.replace(partial, self._rotated(1))
        os.unlink(self.path)
        self._reopen_if_moved()

    def _rotated(self, number: int) -> str:
        return f"{self.path}.{number}.gz"


def _compress(source: str, target: str) -> None:
    with open(source, "rb") as plain, open(_open_private(target), "wb") as raw:
        raw.truncate(0)  # a process that died while compressing may have left something
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed)


def _open_private(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
