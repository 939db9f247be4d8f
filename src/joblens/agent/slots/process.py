"""The owner's end of a slot's launcher (slot_launcher.py)."""

import _socket
import contextlib
import marshal
import os
import select
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.agent.launcher import launcher
from joblens.files.private import make_private_folder
from joblens.model.errors import AccountingUnavailable, LauncherLost, LaunchError
from joblens.probes.host.machine_load import process_start_ticks

_MAX_MESSAGE = 1 << 17
_PIECE = 1 << 16  # of a command that is larger than a socket takes at once


Order = tuple[
    str, list[bytes], dict[bytes, bytes], str, str, str, int
]  # uuid, argv, env changes, cwd, folder, streams, place in the ledger


class SlotProcess:
    def __init__(
        self,
        files: str,
        ledger: str,
        logs_dir: str,
        attach: Sequence[str] | None,
        rlimits: Sequence[tuple[int, int, int]] = (),
        env: Mapping[str, str] | None = None,
        descriptors: tuple[int, int] = (-1, -1),
        *,
        kill_with_owner: bool = False,
    ) -> None:
        """`files` is the path prefix of what jobs print to, in `logs_dir` so that it can be moved there.
        `ledger`: path of the file in which it notes what it runs; empty: there is none.
        `attach`: files to join its groups by. None: `enter` brings these and the descriptors later, and only
        then it begins.
        `rlimits`: what jobs get where the owner changed its own. `env`: what they have beside its own.
        `descriptors` it is given, -1 where there is none: memory in which the kernel counts the packets of
        its group, and the memory peak, which it reads and resets. `kill_with_owner`: its job ends with this
        process."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self.socket = ours.detach()
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._files = files
        self._logs_dir = logs_dir
        # One for all messages: a new one of this size would be asked of the kernel and given back each time.
        self._message = memoryview(bytearray(_MAX_MESSAGE))
        their_end = theirs.detach()
        self._permits, self._permit_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ends = (their_end, self._permits)
        limits = ",".join(":".join(map(str, limit)) for limit in rlimits)
        argv = [*launcher.start_argv("slot_launcher"), *map(str, (*ends, *descriptors)), files, ledger]
        argv += [logs_dir, limits, "leash" if kill_with_owner else ""]
        argv += [""] if attach is None else attach
        # dup2 onto itself is how posix_spawn says "do not close this one".
        actions = [(os.POSIX_SPAWN_DUP2, end, end) for end in (*ends, *descriptors) if end >= 0]
        try:
            make_private_folder(logs_dir)
            self.pid = os.posix_spawn(
                sys.executable, argv, {**os.environ, **(env or {})}, file_actions=actions
            )
        except OSError as error:
            self._close_ends()
            raise LaunchError(f"a launcher could not be started: {error}") from error
        finally:
            os.close(their_end)
        self.start_ticks = process_start_ticks(self.pid)
        if attach is not None:
            self._wait_until_up()

    def enter(self, attach: Sequence[str], descriptors: tuple[int, int]) -> None:
        """Has it join groups that were made after its start."""
        message = marshal.dumps(("groups", list(attach), *(number >= 0 for number in descriptors)))
        sent = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors if number >= 0)
        socket = _socket.socket(fileno=self.socket)
        with contextlib.suppress(OSError):  # gone; `receive` will say so
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)] if sent else []
            socket.sendmsg([message], rights)
        socket.detach()
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        """Raises AccountingUnavailable when it cannot join its groups, LaunchError for anything else."""
        try:
            answer = self.receive()
        except LauncherLost:
            self.close()
            raise LaunchError("a launcher ended before it was ready for a job") from None
        if answer[0] == "hello":
            return
        _, number, stage, path = answer
        self.close()
        if stage == "join":
            raise AccountingUnavailable(
                f"a launcher cannot join its control group: {os.strerror(number)} ({path})"
            )
        reason = f"{os.strerror(number)} ({path})" if path else os.strerror(number)
        raise LaunchError(f"a launcher cannot use {self._logs_dir} for the output of jobs: {reason}")

    def give_jobs(self, orders: Sequence[Order], *, has_one: bool) -> None:
        """`has_one`: another job still runs. All that are not to run at once can be taken back until the
        launcher begins them."""
        ahead = len(orders) if has_one else len(orders) - 1
        if ahead:
            os.write(self._permit_end, b"p" * ahead)
        jobs = [(*order, has_one or place > 0) for place, order in enumerate(orders)]
        data = marshal.dumps(jobs)
        # A launcher that is gone is noticed by whoever waits for its answer.
        with contextlib.suppress(BrokenPipeError):
            if len(data) <= _PIECE:
                os.write(self.socket, data)
                return
            for start in range(0, len(data), _PIECE):
                os.write(self.socket, marshal.dumps(("part", data[start : start + _PIECE])))
            os.write(self.socket, marshal.dumps(("start",)))

    def take_permit_back(self) -> bool:
        """True: the job that was sent ahead will not be run by this launcher."""
        try:
            return bool(os.read(self._permits, 1))
        except BlockingIOError:
            return False

    def has_answered(self) -> bool:
        """Something it said, or its end, has yet to be received."""
        return bool(self._poll.poll(0))

    def open_counters(self, paths: list[str], peak_place: int) -> list[bytes]:
        """Has these files read after every job, and the peak among them (-1: there is none) reset.
        -> what they say now"""
        self.say("counters", paths, peak_place)
        contents: list[bytes] = self.receive()[1]
        return contents

    def _close_ends(self) -> None:
        for end in (self.socket, self._permits, self._permit_end):
            os.close(end)
        self.socket = -1

    def say(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # gone; `receive` will say so
            os.write(self.socket, marshal.dumps(message))

    def receive(self) -> tuple[Any, ...]:
        """The next message; raises LauncherLost when the launcher is gone."""
        try:
            size = os.readv(self.socket, (self._message,))
        except OSError:
            size = 0
        if not size:
            raise LauncherLost("a slot's launcher was killed")
        message = marshal.loads(self._message[:size])  # noqa: S302 - from our own launcher, over our own socket
        assert isinstance(message, tuple)
        return message

    def close(self) -> None:
        """Nothing may run in it any more. A second call does nothing."""
        if self.socket < 0:
            return
        self.say()
        self._close_ends()
        with contextlib.suppress(ChildProcessError):  # the host program takes its children itself
            os.waitpid(self.pid, 0)
        for suffix in ("out", "err"):
            with contextlib.suppress(OSError):  # it has done so itself unless it was killed
                os.unlink(f"{self._files}.{suffix}")
