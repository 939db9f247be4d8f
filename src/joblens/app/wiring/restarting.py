"""Restart in place of a background process whose joblens was replaced by another version.

Python imports modules when they are first needed, and launchers are started from the package's folder: a
process that runs on after an upgrade would mix two versions. It executes itself again, under the same pid, so
that a service manager or a terminal keeps it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

import joblens
from joblens.model.errors import SupervisorError

_POLL_S = 1.0
_PATIENCE_S = 300.0
_ENDING = (signal.SIGTERM, signal.SIGINT)
_WAKING = (signal.SIGUSR1, signal.SIGUSR2)


class Installation:
    """The files of joblens that this process was started from."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path or joblens.__file__ or ""
        self._first = _identity(self._path)

    @property
    def exists(self) -> bool:
        return self._first is not None

    def has_changed(self) -> bool:
        """Installers remove and write the package's first file with all others."""
        return _identity(self._path) != self._first


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def restart(
    module: str, env: Mapping[str, str], *, was_asked_to_end: Callable[[], bool] = lambda: False
) -> None:
    """Executes this process's command line again, once the new version's `module` can be imported. `env`: is
    added to the environment. `was_asked_to_end`: by a signal that came since this process decided to restart.
    The restarted process gets that signal, and those that come meanwhile. Raises SupervisorError."""
    received: list[int] = []
    signal.set_wakeup_fd(-1)  # the loop may be closed
    for number in _ENDING:
        signal.signal(number, lambda number, _: received.append(number))
    # Until the new handlers are there: by default these would end it.
    for number in _WAKING:
        signal.signal(number, signal.SIG_IGN)
    if callable(signal.getsignal(signal.SIGHUP)):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wait_until_importable(module, is_ending=lambda: bool(received) or was_asked_to_end())
    arguments = [argument for argument in sys.orig_argv[1:] if argument != "--detach"]
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    if received or was_asked_to_end():
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # pending until the new handlers are there
    try:
        os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **env})
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        raise SupervisorError(f"cannot start again: {sys.executable}: {error.strerror}") from error


def wait_until_importable(
    module: str, patience_s: float = _PATIENCE_S, is_ending: Callable[[], bool] = lambda: False
) -> None:
    """Waits while an installer replaces files. `is_ending`: this process was asked to end, and tries only
    once more. Raises SupervisorError."""
    deadline_s = time.monotonic() + patience_s
    while not _is_importable(module):
        if time.monotonic() > deadline_s or is_ending():
            raise SupervisorError(
                f"the joblens that was installed meanwhile cannot be imported ({module})",
                hint="install it again; running jobs continue",
            )
        time.sleep(_POLL_S)


def _is_importable(module: str) -> bool:
    command = [sys.executable, "-P", "-c", f"import {module}"]
    try:
        before = Installation()
        code = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
    time.sleep(_POLL_S)  # files may still be written
    return code == 0 and before.exists and not before.has_changed()
