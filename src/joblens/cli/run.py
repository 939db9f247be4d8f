"""What `joblens run` does. Imports nothing of click: plain command lines do without it (`quick_run`)."""

import os
import sys
from typing import Any

from joblens.cli.context import Globals, Session, with_given
from joblens.cli.job_request import request_from
from joblens.model.errors import InputError
from joblens.model.job import Record


def run(session: Session, given: dict[str, Any]) -> None:
    """`given` has every option by its name in the option table. Ends with the job's exit code."""
    if given["spec"] is not None:
        from joblens.cli.run_spec import run_spec

        _take_queue_options(session, given)
        run_spec(session, given)
        return
    refuse_spec_options(given)
    if any(given[name] is not None for name in ("queue", "broker", "retry_lost")):
        raise InputError(
            "--queue, --broker and --retry-lost go with a workflow file here",
            hint="joblens submit --queue NAME -- COMMAND",
        )
    from msgspec.structs import replace

    from joblens.app.jobs import prepare
    from joblens.app.running import run_in_foreground

    report = given["report"]
    if given["quiet"] and given["verbose"]:
        raise InputError("--quiet and --verbose: only one of them")
    settings = session.settings
    if given["no_capture"]:
        settings = replace(settings, output=replace(settings.output, capture=False))
    prepared = prepare(request_from(given, background=False), settings)
    if report:
        _check_report(report)
    shows_live = not given["quiet"] and os.isatty(2)
    color = shows_live and not session.options.no_color and not os.environ.get("NO_COLOR")

    # A container with a terminal of its own draws on the screen itself.
    shares_screen = prepared.job.container is None or not (os.isatty(0) and os.isatty(1))
    draws_line = shows_live and shares_screen and settings.output.capture

    def render_live(samples: list[Any]) -> str:
        from joblens.views.live_line import render_live_line

        return render_live_line(prepared.job.name, samples, _width(), color)

    session.own_jobs()
    ended = run_in_foreground(prepared, settings, render_live=render_live if draws_line else None)
    record = ended.record
    if ended.error is None and (shows_live or given["verbose"]):
        _print_summary(record, color=color, ends_line_first=ended.stderr_line_is_open)
    if report:
        _write_report(record, report)
    if session.json:
        # One line, and the last of stdout whatever the job printed.
        _write_stdout((b"" if ended.stdout_ends_in_newline else b"\n") + _document(record) + b"\n")
    if ended.error is not None:
        raise ended.error
    if ended.died_of_interrupt:
        sys.exit(-2)  # joblens dies of SIGINT too, for the shell script around it to see (__main__.entry)
    code = record.outcome.exit_code if record.outcome else None
    sys.exit(125 if code is None else code)


def _take_queue_options(session: Session, given: dict[str, Any]) -> None:
    if all(given[name] is None for name in ("queue", "broker", "retry_lost")):
        return
    from joblens.cli.cluster_options import LOCAL, check_engine_options
    from joblens.cli.run_options import take_queue_options

    check_engine_options(given["engine"] or LOCAL, given)
    take_queue_options(session, given)


def refuse_spec_options(given: dict[str, Any]) -> None:
    """What only a workflow file has a use for."""
    from joblens.cli.option_table import SPEC_OPTIONS

    for row in SPEC_OPTIONS:
        value = given[row.name]
        if value and value != row.default:
            raise InputError(
                f"{row.flags[-1]} goes with a workflow file only", hint="joblens run FILE.yaml [OPTIONS]"
            )


def run_quickly(given: dict[str, Any]) -> None:
    """From `quick_run.parse`."""
    session = Session(with_given(Globals(), given))
    try:
        run(session, given)
    finally:
        session.close()


def _width() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def _print_summary(record: Record, *, color: bool, ends_line_first: bool) -> None:
    from joblens.views.summary import render_summary

    before = "\n" if ends_line_first else ""
    sys.stderr.write(before + render_summary(record, color=color, width=_width()))
    sys.stderr.flush()


def _write_stdout(data: bytes) -> None:
    """A reader that has gone or a full disk does not change what the job's exit code says."""
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

    from joblens.analysis.history_form import to_history_record

    return msgspec.json.encode(to_history_record(record))


def _check_report(path: str) -> None:
    """Found out before the job runs for hours, not after."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise InputError(f"--report {path}: there is no directory {folder}")
    if os.path.isdir(path):
        raise InputError(f"--report {path}: it is a directory", hint="name a file")
    place = path if os.path.exists(path) else folder
    if not os.access(place, os.W_OK):
        is_read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        reason = "its file system is read-only" if is_read_only else f"you may not write to {place}"
        raise InputError(f"--report {path}: cannot be written: {reason}", hint="name a file elsewhere")


def _write_report(record: Record, path: str) -> None:
    """All or nothing, except for what is no plain file (/dev/stderr, a named pipe): that is written to."""
    place = os.path.realpath(path)
    is_plain = not os.path.exists(place) or os.path.isfile(place)
    # A name that nobody can have guessed, and laid a link there to a file that would be overwritten.
    target = f"{place}.{os.urandom(8).hex()}.part" if is_plain else path
    try:
        with open(target, "xb" if is_plain else "wb", opener=_private) as file:
            file.write(_document(record) + b"\n")
        if is_plain:
            os.replace(target, place)
    except OSError as error:
        if is_plain and os.path.lexists(target):
            os.unlink(target)
        from joblens.app.owning import show

        show(f"the report was not written: {error}", "warning")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
