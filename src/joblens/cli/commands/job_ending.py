"""End of a job in the foreground: its summary, its record as JSON, its report. Does not import click."""

import os
import sys
from typing import TYPE_CHECKING

from joblens.model.errors import InputError
from joblens.model.jobs.job import Record

if TYPE_CHECKING:
    from joblens.cli.context import Session


def terminal_width() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def show_ending(
    session: "Session",
    record: Record,
    report: str | None,
    at_line_start: tuple[bool, bool],
    *,
    color: bool | None,
) -> None:
    """Prints the summary, unless `color` is None; writes the report, if any, and with --json the record: one
    line, the last of stdout whatever the job printed. `at_line_start`: cursors of stdout and stderr."""
    if color is not None:
        from joblens.views.jobs.summary import render_summary

        before = "" if at_line_start[1] else "\n"
        sys.stderr.write(before + render_summary(record, color=color, width=terminal_width()))
        sys.stderr.flush()
    if report:
        _write_report(record, report)
    if session.json:
        _write_stdout((b"" if at_line_start[0] else b"\n") + _document(record) + b"\n")


def _write_stdout(data: bytes) -> None:
    """A closed reader or a full disk does not change the exit code."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        pass
    except OSError as error:
        sys.stderr.write(f"joblens: warning: the record was not printed: {error.strerror}\n")


def _document(record: Record) -> bytes:
    import msgspec

    from joblens.analysis.formats.history import to_history_record

    return msgspec.json.encode(to_history_record(record))


def check_report(path: str) -> None:
    """Fails before the job runs for hours, not after."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise InputError(f"--report {path}: there is no directory {folder}")
    if os.path.isdir(path):
        raise InputError(f"--report {path}: is a directory", hint="name a file")
    target = path if os.path.exists(path) else folder
    if not os.access(target, os.W_OK):
        is_read_only = os.statvfs(target).f_flag & os.ST_RDONLY
        reason = "its file system is read-only" if is_read_only else f"no permission to write to {target}"
        raise InputError(f"--report {path}: cannot be written: {reason}", hint="give another file")


def _write_report(record: Record, path: str) -> None:
    """Writes atomically, except to special files (/dev/stderr, a named pipe)."""
    from joblens.files.atomic import output_path

    try:
        with output_path(path) as target, open(target, "wb") as file:
            file.write(_document(record) + b"\n")
    except OSError as error:
        from joblens.app.wiring.agent_context import show

        show(f"the report was not written: {error}", "warning")
