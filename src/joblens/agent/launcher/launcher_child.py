"""Launcher child: the forked process that becomes the job. launcher.py, which runs as a plain file, imports
it, so it imports as little."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def child_becomes_job(attach: list[str], ignored: list[int], go: int, report: int) -> None:
    """Joins the groups, reads the command, waits for permission and executes it, in the forked child. Never
    returns. Reports "*" once it has joined, "+" once only the permission is missing, or the error."""
    stage = "prepare"
    try:
        _reset_signals(ignored)
        stage = "join the control group"
        for path in attach:
            descriptor = os.open(path, os.O_WRONLY)
            os.write(descriptor, b"0")
            os.close(descriptor)
        os.write(report, b"*")
        start = _description(go)
        stage = "prepare"
        if start["new_session"]:
            os.setsid()
        stage = "set limits"
        _apply_limits(start)
        stage = "set up its files"
        _set_up_files(start)
        os.write(report, b"+")
        if os.read(go, 1) != b"g":  # the owner is gone
            os._exit(125)
        stage = "enter the directory"
        if start["cwd"]:
            os.chdir(start["cwd"])
        stage = "execute"
        _execute(start["argv"], start["env"])
    except OSError as error:
        os.write(report, marshal.dumps((error.errno or 0, stage, error.filename)))
    except BaseException as error:  # noqa: BLE001 - the child must never run on as a second launcher
        os.write(report, marshal.dumps((0, stage, repr(error))))
    os._exit(127)


def _description(go: int) -> dict[str, Any]:
    """Returns the description of the job. Exits if the owner is gone."""
    size = int.from_bytes(_read_exactly(go, 8), "little")
    start: dict[str, Any] = marshal.loads(_read_exactly(go, size))
    return start


def _read_exactly(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, size)
        if not part:
            os._exit(125)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _reset_signals(ignored: list[int]) -> None:
    """Restores the default handlers: Python ignores SIGPIPE, and the launcher ignores more. Signals that were
    ignored when joblens started (nohup, a script's `&`) stay ignored."""
    for number in (
        _signal.SIGPIPE,
        _signal.SIGXFSZ,
        _signal.SIGINT,
        _signal.SIGTERM,
        _signal.SIGHUP,
        _signal.SIGQUIT,
        _signal.SIGCHLD,
        _signal.SIGTTOU,
        _signal.SIGTTIN,
        _signal.SIGTSTP,
        _signal.SIGUSR1,
        _signal.SIGUSR2,
    ):
        _signal.signal(number, _signal.SIG_IGN if number in ignored else _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _apply_limits(start: dict[str, Any]) -> None:
    limits = start["rlimits"]
    if limits:
        import resource

        for which, soft, hard in limits:
            resource.setrlimit(which, (soft, hard))
    if start["affinity"]:
        os.sched_setaffinity(0, start["affinity"])


def _set_up_files(start: dict[str, Any]) -> None:
    wanted = []
    for target, source in enumerate(start["stdio"]):
        if isinstance(source, bytes):
            flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            wanted.append(os.open(source, flags | os.O_CLOEXEC, 0o600))
        else:
            os.set_inheritable(source, False)  # the job gets it under its own number only
            wanted.append(source)
    # First move all above 2, so that no dup2 overwrites a descriptor that is needed next.
    import fcntl

    wanted = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in wanted]
    for target, descriptor in enumerate(wanted):
        os.dup2(descriptor, target, inheritable=True)
    if start["controlling_terminal"] is not None:
        import termios

        fcntl.ioctl(start["controlling_terminal"], termios.TIOCSCTTY, 0)


def _execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    program = argv[0]
    if b"/" in program:
        os.execve(program, argv, env)
    denied: OSError | None = None
    for folder in (env.get(b"PATH") or b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        try:
            os.execve(os.path.join(folder or b".", program), argv, env)
        except PermissionError as error:
            denied = error
        except (FileNotFoundError, NotADirectoryError):
            continue
    if denied is not None:
        raise denied
    raise FileNotFoundError(2, "not found", program)
