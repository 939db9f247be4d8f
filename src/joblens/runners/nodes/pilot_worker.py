"""Pilot worker of a run on a node: reached at its socket, or started by the first task that needs it.

It belongs to no task. Whatever happens to the tasks that bring it jobs, it ends, returns and reports the
jobs, and exits after an idle time."""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.model.clusters.placement import WorkerConfig
from joblens.runners.nodes.listener import connect_to

_SOCKET, _LOCK, _LOG = "socket", "lock", "worker.log"
_TIMEOUT_S = 60.0
_PAUSE_S = 0.02
_LONGEST_WORDS = 2000
# A cluster kills a process that a task starts together with the task's own; its grandchild survives.
_APART = """
import os, sys
os.setsid()
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(log, 1)
os.dup2(log, 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


class WorkerStartError(Exception):
    """Error with a message for users."""


class NodeHome(Struct, frozen=True):
    """Private folder of this machine for one run on one node: several nodes may be on one machine."""

    folder: str

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, _SOCKET)

    @property
    def files(self) -> str:
        """Folder for output of jobs whose own folder is not on this machine."""
        return os.path.join(self.folder, "files")


def home_of(run_uuid: str, node_id: str, env: Mapping[str, str] = os.environ) -> NodeHome:
    state = env.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return NodeHome(os.path.join(state, "joblens", "nodes", f"{run_uuid[-12:]}-{node_id[:12]}"))


def leave_home(socket: str, mark: str = "") -> None:
    """Removes the files of the worker at this socket, which has ended. Files of jobs stay; their output was
    sent home. `mark`: name of the file that names the owner of a folder."""
    folder = os.path.dirname(socket)
    with contextlib.suppress(OSError):
        lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while another worker starts here
            _remove_empty(NodeHome(folder).files, mark)
            for name in (_LOG, _LOCK):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
        finally:
            os.close(lock)


def _remove_empty(folder: str, mark: str) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            if os.listdir(path) == [mark]:
                os.unlink(os.path.join(path, mark))
            os.rmdir(path)


def reach_worker(
    home: NodeHome, config: WorkerConfig, argv: Sequence[str], env: Mapping[str, str]
) -> socket.socket:
    """Returns a connection to the worker. Raises WorkerStartError with the worker's own message if none can
    be started."""
    with contextlib.suppress(OSError):
        return connect_to(home.socket)
    with _start_lock(home):
        with contextlib.suppress(OSError):
            return connect_to(home.socket)
        pid = _start(home, replace(config, listen=home.socket), argv, env)
        deadline_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                return connect_to(home.socket)
            if not _is_alive(pid):
                break
            time.sleep(_PAUSE_S)
    raise WorkerStartError(_log_tail(home) or "the worker does not answer, and says nothing")


@contextlib.contextmanager
def _start_lock(home: NodeHome) -> Iterator[None]:
    lock = _acquire_lock(home)
    try:
        yield
    finally:
        os.close(lock)


def _acquire_lock(home: NodeHome) -> int:
    """Returns the lock. A worker that leaves removes its folder, and the lock that others wait for."""
    path = os.path.join(home.folder, _LOCK)
    while True:
        try:
            os.makedirs(os.path.dirname(home.folder), 0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(home.folder, 0o700)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        os.close(lock)


def _start(home: NodeHome, config: WorkerConfig, argv: Sequence[str], env: Mapping[str, str]) -> int:
    log = os.path.join(home.folder, _LOG)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(log)
    # This Python has joblens: it runs this module.
    command = [sys.executable, "-S", "-E", "-c", _APART, log, sys.executable, *argv[1:]]
    try:
        done = subprocess.run(  # the configuration stays in a pipe: it may contain a password
            command,
            input=msgspec.json.encode(config),
            stdout=subprocess.PIPE,
            env=dict(env),
            cwd=home.folder,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise WorkerStartError(f"no process can be started: {error}") from error


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _log_tail(home: NodeHome) -> str:
    with contextlib.suppress(OSError), open(os.path.join(home.folder, _LOG), errors="replace") as file:
        return file.read()[-_LONGEST_WORDS:].strip()
    return ""
