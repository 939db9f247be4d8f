"""Log files of a job, for all loggers: one file per level, rotated and compressed."""

import contextlib
import logging
import os
from collections.abc import Callable

from joblens.files.private import make_private_folder
from joblens.files.rotation import RotatingFile
from joblens.model.errors import InputError


class RotatingLog(logging.Handler):
    """Logging handler that writes to a rotating file."""

    def __init__(self, path: str, most_bytes: int, backups: int) -> None:
        super().__init__()
        self.path = path
        self._file = RotatingFile(path, most_bytes, backups, ".gz")
        self._file.open()

    def emit(self, record: logging.LogRecord) -> None:
        """Ignores write errors: a full disk must not flood standard error or end the job."""
        try:
            self._file.append(self.format(record).encode(errors="backslashreplace") + b"\n")
        except OSError:
            return
        except Exception:  # noqa: BLE001 - a failing log must not end its job
            self.handleError(record)

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._file.close()
        super().close()


_FORMAT = "%(asctime)s.%(msecs)03d | %(levelname)-8s | %(location)s - %(message)s"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_BYTES_PER_MB = 1024 * 1024

# Additional files for details.
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
    """Logs messages of all loggers from `level` up to `filename` in the folder.

    Levels debug, warning and error also go to files of their own (`log_DEBUG.txt`, …). A file that reaches
    its size limit is compressed; the newest `backup_count` of these are kept. Several processes may write to
    the same files. Calling it again for the same file only updates the limits.
    """
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
        raise InputError(f"filename must be a name without a directory, not '{filename}'")
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
        # A source line is no help for messages of the job itself.
        record.location = f"{record.name}:{record.lineno}" if record.lineno else record.name
        return super().format(record)


def _level_filter(is_wanted: Callable[[int], bool]) -> Callable[[logging.LogRecord], bool]:
    return lambda record: is_wanted(record.levelno)


def _remove(root: logging.Logger, paths: set[str]) -> None:
    for handler in list(root.handlers):
        if isinstance(handler, RotatingLog) and handler.path in paths:
            root.removeHandler(handler)
            handler.close()


def _keep_quiet(root: logging.Logger) -> None:
    """Lets the root logger pass all levels; existing handlers now filter debug messages themselves."""
    for handler in root.handlers:
        if not isinstance(handler, RotatingLog) and handler.level < root.level:
            handler.setLevel(root.level)
