"""Forked launcher: forked from its owner at the start of `joblens run`, before the owner imports anything.

A launcher with its own interpreter costs 13 ms of CPU, a fork at that moment 7 ms; and it is ready when the
owner has read its settings and opened its store. The floor under the job's `ru_maxrss` rises by the imports
of the script that called joblens: 1 MB. It is forked before the job's streams are opened, so it receives them
over the socket."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import _socket
import marshal
import os
import sys

from joblens.agent.launcher.launcher import BLOCKED_SIGNALS, MAX_MESSAGE, Launcher, become_subreaper, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

# Not "joblens…": `pkill -9 joblens` is meant for the owner, whose launcher then records the job's end.
NAME = b"job-launcher"
_PR_SET_NAME = 15
_WORD = 4  # bytes of a descriptor in a message
_MOST_FILES = 3

_ready: tuple[int, int] | None = None  # pid and socket of the launcher, until a job takes it


def fork_launcher() -> None:
    """Forks the launcher. Does nothing if no process or descriptor is available: the start of the job reports
    that."""
    global _ready  # noqa: PLW0603 - a process forks at most one
    try:
        import _ctypes  # noqa: F401 - both processes need it: loaded once
    except ImportError:
        pass
    try:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    except OSError:
        return
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, BLOCKED_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            ours.close()
            _run(theirs)
    except OSError:
        ours.close()
    else:
        os.set_inheritable(ours.fileno(), False)
        _ready = pid, ours.detach()
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    theirs.close()


def _run(socket: _socket.socket) -> NoReturn:
    try:
        sys.path.insert(0, os.path.dirname(__file__))  # as in a launcher that was started as a program
        prctl(_PR_SET_NAME, NAME)
        become_subreaper()
        ForkedLauncher(socket).run()
    except BaseException:  # noqa: BLE001 - this process must never continue as a second owner
        sys.excepthook(*sys.exc_info())
    os._exit(1)


def take_forked() -> tuple[int, int] | None:
    """Returns pid and socket of the forked launcher, once; then None."""
    global _ready
    taken, _ready = _ready, None
    return taken


def dismiss_forked() -> None:
    """Stops the forked launcher if no job has taken it."""
    taken = take_forked()
    if taken is not None:
        pid, socket = taken
        os.close(socket)
        os.waitpid(pid, 0)


def send_with_files(socket: int, message: bytes, files: Sequence[int]) -> None:
    connection = _socket.socket(fileno=socket)
    try:
        packed = b"".join(file.to_bytes(_WORD, sys.byteorder) for file in files)
        connection.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    finally:
        connection.detach()


class ForkedLauncher(Launcher):
    def __init__(self, socket: _socket.socket) -> None:
        super().__init__(socket.fileno())
        self._connection = socket
        self._files: list[int] = []

    def read_message(self) -> bytes:
        ancillary_size = _socket.CMSG_SPACE(_MOST_FILES * _WORD)
        data, ancillary, _, _ = self._connection.recvmsg(
            MAX_MESSAGE, ancillary_size, _socket.MSG_CMSG_CLOEXEC
        )
        for _, _, packed in ancillary:
            words = (packed[at : at + _WORD] for at in range(0, len(packed), _WORD))
            self._files += [int.from_bytes(word, sys.byteorder) for word in words]
        return data

    def start(self, description: bytes) -> None:
        """Translates the owner's descriptor numbers, which the description contains, to those of this
        process."""
        start = marshal.loads(description)
        here = dict(zip(start["files"], self._files, strict=True))
        start["stdio"] = [here.get(end, end) for end in start["stdio"]]
        super().start(marshal.dumps(start))
