"""Entry point of the command line; turns errors into messages and exit codes."""

import gc
import os
import sys

from joblens import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TextIO

    import click

_VERSION = (["--version"], ["-V"])
_INTERRUPTED = -2  # not an exit code but minus SIGINT: the job died of it, and so does joblens


def entry() -> "NoReturn":
    """Starts and ends the process. joblens measures other programs and must not cost much itself: start-up
    makes little garbage, and everything is written and closed when a command returns, so garbage collection
    and the teardown of the interpreter (a tenth of the CPU of a short run) are skipped."""
    gc.set_threshold(100_000, 20, 20)
    if sys.argv[1:] not in _VERSION:
        from joblens.files.importing import import_quickly

        import_quickly()
        from joblens.files.standard_streams import guard_standard_error, open_missing_streams

        open_missing_streams()
        guard_standard_error()
    if forks := _is_small() and _runs_command_here(sys.argv[1:]):
        from joblens.agent.launcher.forked import fork_launcher

        fork_launcher()
    try:
        code: object = main()
    except SystemExit as ending:
        code = 0 if ending.code is None else ending.code
    if forks:
        from joblens.agent.launcher.forked import dismiss_forked

        dismiss_forked()
    if not isinstance(code, int):
        _write(sys.stderr, f"{code}\n")
        code = 1
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "may_wait"):
                stream.may_wait = True  # no job needs attention now
            _write(stream, "")
    except OSError:
        code = code or 1
    if code == _INTERRUPTED:
        _die_interrupted()
        code = 130
    os._exit(code & 0xFF)


def _is_small() -> bool:
    """Returns whether a fork of this process is cheap and makes a small launcher: nothing has been imported
    yet, and there are no threads."""
    return sys.platform == "linux" and "msgspec" not in sys.modules and "threading" not in sys.modules


def _runs_command_here(arguments: list[str]) -> bool:
    """Guesses from the first words: options are parsed later, and an unused launcher ends at no cost."""
    return arguments[:1] == ["run"] and "--" in arguments and "--engine" not in arguments


def _die_interrupted() -> None:
    """Dies of SIGINT: after Ctrl-C a shell stops its script only if the command died of the signal."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments in _VERSION:
            # Scripts ask for this all the time: answer before anything else is imported.
            _write(sys.stdout, f"joblens {__version__}\n")
            code = 0
        else:
            code = _run_command(arguments)
        _write(sys.stdout, "")
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and not _stdout_fails(error):
            raise
        return _close_stdout(error)
    return code


def _run_command(arguments: list[str]) -> int:
    from joblens.files.importing import import_msgspec

    import_msgspec(runs_command=_runs_command_here(arguments))
    from joblens.model.errors import JoblensError

    try:
        if arguments[:1] == ["run"] and _try_fast_path(arguments[1:]):
            return 0
        return _run_with_click(arguments)
    except JoblensError as error:
        _write_error(str(error), error.hint)
        return error.exit_code
    except (OSError, RuntimeError, ImportError) as error:
        if _misses_current_directory(error):
            _write_error("the current directory no longer exists", "cd to another directory")
            return 2
        if not _lacks_resources(error):
            raise
        hint = "raise the limits on open files and processes (ulimit -n, ulimit -u), or free some"
        _write_error(str(error), hint)
        return JoblensError.exit_code
    except UnicodeEncodeError as error:  # stores and engines need text, arguments may be any bytes
        shown = error.object[:40].encode(errors="backslashreplace").decode()
        _write_error(f"'{shown}' is not UTF-8 text")
        return 2


def _misses_current_directory(error: Exception) -> bool:
    """Returns whether it failed because the current directory was removed."""
    if not isinstance(error, FileNotFoundError) or error.filename is not None:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _lacks_resources(error: Exception) -> bool:
    """Returns whether files, processes, threads or memory are exhausted."""
    import errno

    if isinstance(error, OSError):
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
    return "start new thread" in str(error) or "Too many open files" in str(error)


def _try_fast_path(arguments: list[str]) -> bool:
    """Runs a plain `run` line without click and exits with the job's code. False: click must parse it."""
    from joblens.cli.options.table import parse

    values = parse(arguments)
    if values is None:
        return False
    from joblens.cli.commands.run import run_parsed

    run_parsed(values)
    return True


def _run_with_click(arguments: list[str]) -> int:
    import click

    from joblens.cli.main import cli

    stdout = sys.stdout
    try:
        result = cli.main(arguments, prog_name="joblens", standalone_mode=False)
    except SystemExit:
        # click exits like this, with 1 and another stdout, when a reader stops early: `joblens expand
        # FILE | head`. A guarded stdout was closed by the command itself: its exit code is a job's.
        if sys.stdout is not stdout and not hasattr(sys.stdout, "may_wait"):
            return 0
        raise
    except click.Abort as abort:
        return 130 if isinstance(abort.__cause__, KeyboardInterrupt) else 1
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        usage = f"{context.get_usage()}\nSee '{context.command_path} --help'" if context else ""
        _write_error(_message(error), usage.replace("\n", "\n  "))
        return error.exit_code
    return result if isinstance(result, int) else 0


def _message(error: "click.ClickException") -> str:
    import re

    import click

    if not isinstance(error, click.NoSuchOption):
        # click lists choices one per line and names its types
        text = " ".join(error.format_message().split())
        text = re.sub(r" is not a valid (float|integer)( range)?\.", " is not a number.", text)
        return text.replace(" is not in the range x>=", " is less than ")
    from joblens.cli.commands.other_names import no_such_option

    return no_such_option(error)


def _write_error(text: str, hint: str | None = None) -> None:
    """Writes without terminal control characters: arguments, paths and files are quoted in errors."""
    from joblens.views.text.style import clean_text

    _write(sys.stderr, clean_text(f"joblens: error: {text}\n" + (f"  {hint}\n" if hint else "")))


def _write(stream: "TextIO | None", text: str) -> None:
    if stream is not None:  # None: joblens was started with that descriptor closed
        stream.write(text)
        stream.flush()


def _stdout_fails(error: OSError) -> bool:
    """Returns whether standard output caused the error. Unwritten output is still buffered, so writing fails
    again. Without a buffer (PYTHONUNBUFFERED), an error without a file name can only come from a stream."""
    import errno

    try:
        _write(sys.stdout, "")
    except OSError:
        return True
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)


def _close_stdout(error: OSError) -> int:
    """Redirects stdout to /dev/null, so that Python can flush at exit. Reports a full disk, but no closed
    reader (`joblens history | head`)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    _write_error(f"standard output cannot be written: {error.strerror}")
    return 125


if __name__ == "__main__":
    entry()
