"""Restart in place of a background process whose joblens was replaced by another version.

Python imports modules when they are first needed, and launchers are started from the package's folder: a
process that runs on after an upgrade would mix two versions. It executes itself again, under the same pid, so
that a service manager or a terminal keeps it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import joblens
from joblens.model.errors import SupervisorError

_POLL_S = 1.0
_PATIENCE_S = 300.0
_ENDING = (signal.SIGTERM, signal.SIGINT)


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


def restart(module: str, env: Mapping[str, str]) -> None:
    """Executes this process's command line again, once the new version's `module` can be imported. `env`: is
    added to the environment. Raises SupervisorError."""
    wait_until_importable(module)
    arguments = [argument for argument in sys.orig_argv[1:] if argument != "--detach"]
    # Until its handlers are there: a nudge would end it, and an end would leave its jobs behind.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **env})
    except OSError as error:
        raise SupervisorError(f"cannot start again: {sys.executable}: {error.strerror}") from error


def wait_until_importable(module: str, patience_s: float = _PATIENCE_S) -> None:
    """Waits while an installer replaces files. Raises SupervisorError."""
    deadline_s = time.monotonic() + patience_s
    while not _is_importable(module):
        if time.monotonic() > deadline_s:
            raise SupervisorError(
                f"the joblens that was installed meanwhile cannot be imported ({module})",
                hint="install it again; jobs that run go on",
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
