"""Error messages that can be written to any file."""

import errno
import os
from collections.abc import Sequence
from types import TracebackType

from joblens.model.values.units import format_bytes

# Anything a user operator raises is an error of its row, SystemExit too.
OF_AN_OPERATOR = (Exception, SystemExit, KeyboardInterrupt)

_DATA = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_JOBLENS = os.path.dirname(_DATA) + os.sep
_BUILT_IN = tuple(os.path.join(_DATA, package) + os.sep for package in ("operators", "texts"))
_FULL = (errno.ENOSPC, errno.EDQUOT)


def encodable(text: str) -> str:
    """Escapes unpaired surrogates, as in file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}".removesuffix(": ")


def reason_with_line(error: BaseException) -> str:
    """Adds the line of the user operator that raised: `KeyError: 'txet' (mine.py, line 4)`."""
    location = _line_of_own(error.__traceback__)
    if not location:
        return reason_of(error)
    parts = [part for part in (message_of(error), f"({location})") if part]
    return f"{type(error).__name__}: {' '.join(parts)}"


def _line_of_own(trace: TracebackType | None) -> str:
    """Returns the innermost line in the operator's file; "" for built-in operators, whose errors describe
    rows."""
    file, line = "", 0
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not file and name.startswith(_BUILT_IN):
            return ""
        if not file and not name.startswith(_JOBLENS):
            file = name
        if name == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return encodable(f"{os.path.basename(file)}, line {line}") if file else ""


def message_of(error: BaseException) -> str:
    try:
        return encodable(str(error))
    except Exception:  # noqa: BLE001 - a user's exception that fails to print itself
        return ""


def is_full(error: BaseException) -> bool:
    """Returns whether the disk or the user's quota is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def with_location(error: OSError, folders: Sequence[str]) -> str:
    """Describes a disk error with its location and advice. `folders`: all folders written to; the job's
    first."""
    if is_full(error):
        location = error.filename if isinstance(error.filename, str) else _fullest(folders)
        free_bytes = _free_bytes(location)
        free_text = "" if free_bytes is None else f" ({format_bytes(free_bytes)} free)"
        return encodable(
            f"no space left for {location}{free_text}: free some space and resume the job, or choose "
            "another location with work_dir, checkpoint_dir or export_path"
        )
    if error.errno == errno.ENOENT and not os.path.isdir(folders[0]):
        return encodable(f"the job's directory {folders[0]} was removed while the job ran")
    return message_of(error)


def _fullest(folders: Sequence[str]) -> str:
    """Returns the folder with the least free space: errors of write calls name no file."""
    return min(folders, key=lambda folder: _free_bytes(folder) or 0)


def _free_bytes(path: str) -> int | None:
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
