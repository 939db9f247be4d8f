"""joblens' own log: to standard error, or to a file that is rotated and compressed.

Imports logging, which costs start-up time: import this module only to log something.
"""

import contextlib
import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator

from joblens.files.private import make_private_folder
from joblens.files.rotation import RotatingFile
from joblens.model.errors import ConfigError
from joblens.model.settings import LogSettings
from joblens.model.values.units import MIB

LOGGER_NAME = "joblens"
FILE_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(process)d %(name)s: %(message)s"
TERMINAL_FORMAT = "joblens: %(levelname)s: %(message)s"


def set_up_logging(settings: LogSettings) -> logging.Logger:
    """Configures the 'joblens' logger with one handler. Calling it again with other settings replaces
    that handler; handlers of the host program and the root logger are not changed."""
    logger = logging.getLogger(LOGGER_NAME)
    state = (settings, os.getpid())  # a forked child must not share its parent's file and lock
    own = [handler for handler in logger.handlers if isinstance(handler, _OwnHandler)]
    if [handler.made_for for handler in own] != [state]:
        new = _handler_for(settings)
        new.made_for = state
        logger.addHandler(new)
        for handler in own:
            logger.removeHandler(handler)
            handler.close()
    logger.setLevel(settings.level)
    return logger


def set_up_logging_in_host_program(settings: LogSettings) -> None:
    """A program with its own log handlers gets no second copy on standard error."""
    logger = logging.getLogger(LOGGER_NAME)
    if settings.file is None and logger.hasHandlers():
        logger.setLevel(settings.level)
    else:
        set_up_logging(settings)


def _handler_for(settings: LogSettings) -> "_OwnHandler":
    if settings.file is None:
        return TerminalHandler()
    try:
        return FileHandler(
            settings.file, max_bytes=round(settings.max_log_size_mb * MIB), backup_count=settings.backup_count
        )
    except OSError as error:
        raise ConfigError(
            f"logs.file: {settings.file} cannot be written: {error.strerror}",
            hint="choose another file, or unset it to log to standard error",
        ) from error


class _OwnHandler(logging.Handler):
    """Marks the handlers that joblens installed itself."""

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


class FileHandler(_OwnHandler):
    """Writes lines to a log file that several processes share; FILE.1.gz is the newest rotated file."""

    def __init__(self, path: str, *, max_bytes: int, backup_count: int) -> None:
        super().__init__()
        self.path = os.path.abspath(path)
        make_private_folder(os.path.dirname(self.path))
        self._file = RotatingFile(self.path, max_bytes, backup_count, ".gz")
        self._file.open()
        formatter = logging.Formatter(FILE_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
            with self._without_earlier_versions():
                self._file.append(line)
        except (OSError, ValueError):
            self.handleError(record)

    @contextlib.contextmanager
    def _without_earlier_versions(self) -> Iterator[None]:
        """Earlier versions lock FILE.lock in place of the file, and never remove it."""
        try:
            descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._file.close()
        super().close()
