"""Remote processes: started on the other nodes of a job through a server on each node.

Each side proves that it has the token, without sending it. The token is made for one job, and only its
processes have it."""

import contextlib
import hashlib
import hmac
import io
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

import msgspec
from msgspec import Struct

from joblens.model.clusters.allocation import Allocation, NodeDoorAddress, NodeDoors

PYTHON = "{python}"  # as the first word of a command: the node's own
STDIN, STDIN_ENDS, STDOUT, STDERR, ENDED = b"i", b"e", b"o", b"r", b"x"
_HEAD = struct.Struct(">cI")
_MOST_BYTES = 1 << 20
_PROOF_BYTES = 32
_TIMEOUT_S = 20.0
_PIECE = 1 << 16


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True):
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str = ""


class DoorError(OSError):
    """The other end is gone, or has another token."""


def send(link: socket.socket, kind: bytes, data: bytes = b"") -> None:
    link.sendall(_HEAD.pack(kind, len(data)) + data)


def receive(link: socket.socket) -> tuple[bytes, bytes]:
    """Returns kind and data of the next message. Raises DoorError if the other end is gone."""
    kind, length = _HEAD.unpack(_exactly(link, _HEAD.size))
    if length > _MOST_BYTES:
        raise DoorError("a message is too long to be one")
    return kind, _exactly(link, length)


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            raise DoorError("the other end has closed the connection")
        data += piece
    return data


def prove(link: socket.socket, token: str, *, own_role: bytes, peer_role: bytes) -> None:
    """Proves the token to the other side, and checks its proof, by distinct roles. Raises DoorError."""
    challenge = secrets.token_bytes(_PROOF_BYTES)
    link.sendall(challenge)
    link.sendall(_proof(token, own_role, _exactly(link, _PROOF_BYTES)))
    if not hmac.compare_digest(_exactly(link, _PROOF_BYTES), _proof(token, peer_role, challenge)):
        raise DoorError("the other end does not know the job's token")


def _proof(token: str, who: bytes, challenge: bytes) -> bytes:
    return hmac.new(token.encode(), who + challenge, hashlib.sha256).digest()


class NodeDoor:
    """Listens from its creation on; `serve` accepts connections until `close`, or until there was none for
    `idle_s`. Processes end with the connection that started them."""

    def __init__(self, token: str, host: str = "127.0.0.1", idle_s: float = 60.0) -> None:
        self._token = token
        self._idle_s = idle_s
        self._socket = socket.create_server((host, 0), backlog=128)
        self._socket.settimeout(0.5)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._callers = 0
        self._is_closed = False

    def serve(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        idle_since_s = time.monotonic()
        while not self._is_closed and is_wanted():
            try:
                link, _ = self._socket.accept()
            except TimeoutError:
                if self._callers:
                    idle_since_s = time.monotonic()
                elif time.monotonic() - idle_since_s > self._idle_s:
                    break
                continue
            except OSError:
                break
            threading.Thread(target=self._serve_connection, args=(link,), daemon=True).start()
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._socket.close()
        with self._lock:
            running = list(self._running)
        for process in running:
            _end(process)

    def _serve_connection(self, link: socket.socket) -> None:
        with self._lock:
            self._callers += 1
        try:
            link.settimeout(_TIMEOUT_S)
            prove(link, self._token, own_role=b"door", peer_role=b"caller")
            command = msgspec.json.decode(receive(link)[1], type=Command)
            link.settimeout(None)
            self._run(link, command)
        except (OSError, msgspec.MsgspecError):
            pass  # a stranger, or a connection that is gone
        finally:
            link.close()
            with self._lock:
                self._callers -= 1

    def _run(self, link: socket.socket, command: Command) -> None:
        words = [sys.executable if word == PYTHON else word for word in command.argv[:1]]
        try:
            process = subprocess.Popen(
                [*words, *command.argv[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **command.env},
                cwd=command.cwd if command.cwd and os.path.isdir(command.cwd) else None,
                start_new_session=True,
            )
        except OSError as error:
            send(link, STDERR, f"{command.argv[0]}: {error.strerror}\n".encode())
            send(link, ENDED, b"127")
            return
        with self._lock:
            self._running.add(process)
        try:
            self._relay(link, process)
        finally:
            _end(process)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):  # pending output has no reader
                        stream.close()
            with self._lock:
                self._running.discard(process)

    def _relay(self, link: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        sending = threading.Lock()

        def pump(kind: bytes, descriptor: int) -> None:
            with contextlib.suppress(OSError):
                while data := os.read(descriptor, _PIECE):
                    with sending:
                        send(link, kind, data)

        assert process.stdin and process.stdout and process.stderr  # noqa: PT018
        pumps = [
            threading.Thread(target=pump, args=(STDOUT, process.stdout.fileno()), daemon=True),
            threading.Thread(target=pump, args=(STDERR, process.stderr.fileno()), daemon=True),
        ]
        for thread in pumps:
            thread.start()
        threading.Thread(target=self._feed, args=(link, process), daemon=True).start()
        code = process.wait()
        for thread in pumps:
            thread.join(_TIMEOUT_S)
        with sending:
            send(link, ENDED, str(code if code >= 0 else 128 - code).encode())

    def _feed(self, link: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        """Passes input to the process until the caller is gone, and then kills the process."""
        assert process.stdin is not None
        try:
            while True:
                kind, data = receive(link)
                with contextlib.suppress(OSError, ValueError):
                    if kind == STDIN:
                        process.stdin.write(data)
                        process.stdin.flush()
                    elif kind == STDIN_ENDS:
                        process.stdin.close()
        except OSError:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process and everything that it started in its session."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


NODE_VARIABLE = "JOBLENS_NODE"
DOORS_VARIABLE = "JOBLENS_NODE_DOORS"
_CONNECT_S = 15.0
_RSH_AGENTS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
_COMMAND = b"c"
_LOST = 255  # exit code of rsh and ssh after a lost connection


class NodeDoorFile(Struct, frozen=True, kw_only=True):
    """Content of the file at $JOBLENS_NODE_DOORS, for commands on the first node."""

    uuid: str
    doors: NodeDoors


class DoorCall:
    """One command on one node. Raises OSError if it cannot be started."""

    def __init__(self, address: NodeDoorAddress, token: str, command: Command) -> None:
        self._link = socket.create_connection((address.host, address.port), timeout=_CONNECT_S)
        try:
            prove(self._link, token, own_role=b"caller", peer_role=b"door")
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
        """Passes output on until the command has ended. Returns its exit code."""
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
    """ports.cluster.NodeProcesses: one command on each of several nodes."""

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
            # Whole lines only: several nodes write here, and less than a page is written atomically.
            for line in (whole + newline).splitlines(keepends=True):
                os.write(self._writer, line)

        with contextlib.suppress(OSError):
            call.follow(put, put)
        with self._lock:
            self._left -= 1
            if not self._left:
                os.close(self._writer)


class _ToAll(io.RawIOBase, IO[bytes]):
    """Writes to every process that still runs."""

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
    """ports.cluster.NodeAgents of a job with doors to its other nodes."""

    def __init__(self, engine: str, job_id: str, doors: NodeDoors) -> None:
        nodes = (doors.here, *(door.node for door in doors.doors))
        self.allocation = Allocation(engine=engine, job_id=job_id, nodes=nodes, here=doors.here)
        self._doors = doors

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> DoorProcesses:
        """Starts a command on each node. A node whose door cannot be reached gets no agent, and the others do
        not wait for it."""
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
        """Returns variables that lead an mpirun to the other nodes. `path`: of a private file, for the
        token."""
        known = NodeDoorFile(uuid=uuid, doors=self._doors)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(known))
        agent = f"{sys.executable} -P -m joblens.app.clusters.on_node"
        return {DOORS_VARIABLE: path, "HYDRA_LAUNCHER": "rsh", **dict.fromkeys(_RSH_AGENTS, agent)}
