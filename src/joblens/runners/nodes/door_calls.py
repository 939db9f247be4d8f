"""Starting processes on other nodes through their doors (`runners.node_door`)."""

import contextlib
import io
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

import msgspec
from msgspec import Struct

from joblens.model.clusters.allocation import Allocation, NodeDoorAddress, NodeDoors
from joblens.runners.nodes.door import (
    ENDED,
    PYTHON,
    STDERR,
    STDIN,
    STDIN_ENDS,
    STDOUT,
    Command,
    prove,
    receive,
    send,
)

NODE_VARIABLE = "JOBLENS_NODE"
DOORS_VARIABLE = "JOBLENS_NODE_DOORS"
_CONNECT_S = 15.0
_RSH_AGENTS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
_COMMAND = b"c"
_LOST = 255  # what rsh and ssh end with when the connection is lost


class NodeDoorFile(Struct, frozen=True, kw_only=True):
    """What a command on the first node finds at $JOBLENS_NODE_DOORS."""

    uuid: str
    doors: NodeDoors


class DoorCall:
    """One command on one node. Raises OSError when it cannot be begun."""

    def __init__(self, address: NodeDoorAddress, token: str, command: Command) -> None:
        self._link = socket.create_connection((address.host, address.port), timeout=_CONNECT_S)
        try:
            prove(self._link, token, we=b"caller", they=b"door")
            self._link.settimeout(None)
            send(self._link, _COMMAND, msgspec.json.encode(command))
        except OSError:
            self._link.close()
            raise
        self._sending = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._sending:
            send(self._link, STDIN, data)

    def end_input(self) -> None:
        with self._sending, contextlib.suppress(OSError):
            send(self._link, STDIN_ENDS)

    def follow(self, out: Callable[[bytes], object], err: Callable[[bytes], object]) -> int:
        """Until it has ended. -> its exit code"""
        try:
            while True:
                kind, data = receive(self._link)
                if kind == STDOUT:
                    out(data)
                elif kind == STDERR:
                    err(data)
                elif kind == ENDED:
                    return int(data)
        except OSError:
            return _LOST
        finally:
            self.close()

    def close(self) -> None:
        """Ends the command."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()


class DoorProcesses:
    """ports.node_agents.NodeProcesses: one command on each of several nodes."""

    def __init__(self, calls: Sequence[DoorCall]) -> None:
        self._calls = calls
        reader, self._writer = os.pipe()
        self.stdout: IO[bytes] | None = os.fdopen(reader, "rb")
        self.stdin: IO[bytes] | None = _ToAll(calls)
        self._threads = [threading.Thread(target=self._follow, args=(call,), daemon=True) for call in calls]
        self._left = len(calls)
        self._lock = threading.Lock()
        for thread in self._threads:
            thread.start()

    def wait(self, timeout: float | None = None) -> int:
        deadline_s = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
            if thread.is_alive():
                raise TimeoutError
        return 0

    def terminate(self) -> None:
        for call in self._calls:
            call.close()

    def _follow(self, call: DoorCall) -> None:
        lines = b""

        def put(data: bytes) -> None:
            nonlocal lines
            whole, newline, lines = (lines + data).rpartition(b"\n")
            # Whole lines only: several nodes write here, and less than a page goes in one piece.
            for line in (whole + newline).splitlines(keepends=True):
                os.write(self._writer, line)

        with contextlib.suppress(OSError):
            call.follow(put, put)
        with self._lock:
            self._left -= 1
            if not self._left:
                os.close(self._writer)


class _ToAll(io.RawIOBase, IO[bytes]):
    """What is written reaches every one of them that is still there."""

    def __init__(self, calls: Sequence[DoorCall]) -> None:
        self._calls = calls

    def write(self, data: bytes) -> int:  # type: ignore[override]
        for call in self._calls:
            with contextlib.suppress(OSError):
                call.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            for call in self._calls:
                call.end_input()
        super().close()


class DoorAgents:
    """ports.node_agents.NodeAgents of a job that was given doors to its other nodes."""

    def __init__(self, engine: str, job_id: str, doors: NodeDoors) -> None:
        nodes = (doors.here, *(door.node for door in doors.doors))
        self.allocation = Allocation(engine=engine, job_id=job_id, nodes=nodes, here=doors.here)
        self._doors = doors

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> DoorProcesses:
        """Where no door opens there is no agent, and the others do not wait for it."""
        words = (PYTHON, *argv[1:]) if argv[0] == sys.executable else tuple(argv)
        calls, errors = [], []
        for door in self._doors.doors:
            if door.node in nodes:
                try:
                    command = Command(argv=words, env={NODE_VARIABLE: door.node})
                    calls.append(DoorCall(door, self._doors.token, command))
                except OSError as error:
                    errors.append(f"{door.node}: {error}")
        if not calls:
            raise OSError("; ".join(errors) or "no node has a door")
        return DoorProcesses(calls)

    def variables(self, uuid: str, path: str) -> dict[str, str]:
        """For an mpirun: how it gets to the other nodes. `path`: of a private file, for the token."""
        known = NodeDoorFile(uuid=uuid, doors=self._doors)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(known))
        agent = f"{sys.executable} -P -m joblens.app.clusters.on_node"
        return {DOORS_VARIABLE: path, "HYDRA_LAUNCHER": "rsh", **dict.fromkeys(_RSH_AGENTS, agent)}
