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
_INTERRUPTED = -2  # no exit code but minus SIGINT: the job died of it, and so does joblens


def entry() -> "NoReturn":
    """The process's own start and end. joblens measures others and must not cost much itself: start-up
    makes no garbage worth looking for, and everything is written and closed when a command returns, so
    that taking the interpreter apart at the end (a tenth of all the CPU of a short run) is left out."""
    gc.set_threshold(100_000, 20, 20)
    if sys.argv[1:] not in _VERSION:
        from joblens.files.standard_streams import guard_standard_error, open_missing_streams

        open_missing_streams()
        guard_standard_error()
    try:
        code: object = main()
    except SystemExit as ending:
        code = 0 if ending.code is None else ending.code
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


def _die_interrupted() -> None:
    """A shell stops its script after Ctrl-C only when the command died of the signal, whatever its code."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments in _VERSION:
            # Asked by scripts all the time: answered before anything else is imported.
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
        return _leave_stdout(error)
    return code


def _run_command(arguments: list[str]) -> int:
    _import_msgspec()
    from joblens.model.errors import JoblensError

    try:
        if arguments[:1] == ["run"] and _try_fast_path(arguments[1:]):
            return 0
        return _run_with_click(arguments)
    except JoblensError as error:
        _write_error(str(error), error.hint)
        return error.exit_code
    except (OSError, RuntimeError, ImportError) as error:
        if not _lacks_resources(error):
            raise
        hint = "raise the limits on open files and processes (ulimit -n, ulimit -u), or free some"
        _write_error(str(error), hint)
        return JoblensError.exit_code
    except UnicodeEncodeError as error:  # stores and engines take text, arguments may be any bytes
        shown = error.object[:40].encode(errors="backslashreplace").decode()
        _write_error(f"'{shown}' is not UTF-8 text")
        return 2


def _lacks_resources(error: Exception) -> bool:
    """No more files, processes, threads or memory may be had."""
    import errno

    if isinstance(error, OSError):
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
    return "start new thread" in str(error) or "Too many open files" in str(error)


def _import_msgspec() -> None:
    """It takes from typing_extensions, where somebody has installed that, what `typing` has too; half of the
    import would be typing_extensions and what that imports, some milliseconds of every start."""
    name = "typing_extensions"
    if name in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # not to be had, for a moment
    try:
        import msgspec  # noqa: F401
    except ImportError:
        pass  # it cannot do without; whoever imports it next gets it
    finally:
        del sys.modules[name]


def _try_fast_path(arguments: list[str]) -> bool:
    """Runs a plain `run` line without click and exits with the job's code. False: click must parse it."""
    from joblens.cli.options.table import parse

    given = parse(arguments)
    if given is None:
        return False
    from joblens.cli.commands.run import run_parsed

    run_parsed(given)
    return True


def _run_with_click(arguments: list[str]) -> int:
    import click

    from joblens.cli.main import cli

    stdout = sys.stdout
    try:
        result = cli.main(arguments, prog_name="joblens", standalone_mode=False)
    except SystemExit:
        # click ends so, with 1 and another stdout, when a reader has enough: `joblens expand FILE | head`.
        # One that is guarded is the command's own doing: its exit code is a job's.
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
    import click

    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    from joblens.cli.commands.other_names import no_such_option

    return no_such_option(error)


def _write_error(text: str, hint: str | None = None) -> None:
    """Without terminal control: arguments, paths and files are quoted in errors."""
    from joblens.views.text.style import clean_text

    _write(sys.stderr, clean_text(f"joblens: error: {text}\n" + (f"  {hint}\n" if hint else "")))


def _write(stream: "TextIO | None", text: str) -> None:
    if stream is not None:  # None: joblens was started with that descriptor closed
        stream.write(text)
        stream.flush()


def _stdout_fails(error: OSError) -> bool:
    """What could not be written is still waiting to be, so that trying once more fails again. Without a
    buffer (PYTHONUNBUFFERED) nothing waits; then an error of no named file can only be of a stream."""
    import errno

    try:
        _write(sys.stdout, "")
    except OSError:
        return True
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)


def _leave_stdout(error: OSError) -> int:
    """Nothing more can be written there, also not when Python flushes at exit. That the reader has gone
    (`joblens history | head`) is not worth a word; a full disk is."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    _write_error(f"standard output cannot be written: {error.strerror}")
    return 125


if __name__ == "__main__":
    entry()
