"""Where tasks of a job that somebody else starts on this node are announced, before they become their
programs (`agent.task_prolog`)."""

import contextlib
import os
import shlex
import socket
import struct
import sys
import threading
from collections.abc import Callable

from joblens.agent.nodes import task_prolog
from joblens.agent.nodes.task_prolog import door_name

_PATIENCE_S = 10.0
# A node's agent may come later than the first task there; on this node the door is open before the job.
PROLOG_WAIT_S = 5.0


class TaskDoor:
    """`take(pid)` -> how the task is measured from now on; whatever it raises is told to nobody but `errors`.
    It is called on a thread of the door's own."""

    def __init__(self, uuid: str, node: str, take: Callable[[int], str]) -> None:
        """Raises OSError when the name is taken."""
        self.ranks: set[int] = set()
        self.taken = 0
        self.errors: list[str] = []
        self._take = take
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.bind(door_name(os.geteuid(), uuid, node))
            self._socket.listen(1024)
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="joblens-tasks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(_PATIENCE_S)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return  # closed
            try:
                caller.settimeout(_PATIENCE_S)
                self._answer(caller)
            except OSError:
                pass  # it has gone away
            finally:
                caller.close()

    def _answer(self, caller: socket.socket) -> None:
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", credentials)[1]
        words = caller.recv(4096).decode(errors="replace").split(" ")
        if uid not in (os.geteuid(), 0) or not words[0].isdecimal():
            return
        pid = int(words[0])
        if not _belongs_to(pid, uid):
            return
        try:
            told = self._take(pid)
            self.taken += 1
            if len(words) > 1 and words[1].isdecimal():
                self.ranks.add(int(words[1]))
        except Exception as error:  # noqa: BLE001 - the task runs all the same
            told = str(error) or type(error).__name__
            self.errors.append(told)
        caller.send(told.encode())


def _belongs_to(pid: int, uid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == uid
    except OSError:
        return False


def write_prolog(path: str, uuid: str, earlier: str = "") -> None:
    """A program for SLURM_TASK_PROLOG. Slurm fails tasks whose prolog fails, so this one cannot. `earlier`:
    the user's own, whose output and exit status count. Raises OSError where it could not be run either."""
    words = [sys.executable, "-I", "-S", os.path.abspath(task_prolog.__file__), uuid, str(PROLOG_WAIT_S)]
    lines = ["#!/bin/sh", f"{shlex.join(words)} </dev/null >/dev/null 2>&1"]
    lines.append(f"exec {shlex.quote(earlier)}" if earlier else "exit 0")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines) + "\n")
    if not os.access(path, os.X_OK):
        raise PermissionError(f"{path} lies where nothing may be executed")
