"""HTTP over a container engine's Unix socket: requests with a time limit, and connections that turn into a
plain stream (attach)."""

import contextlib
import http.client
import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from joblens.model.errors import ContainerError

_HEAD_LIMIT = 1 << 16
_ENGINES = ("dockerd", "podman")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def url(path: str, query: Mapping[str, Any] | None = None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def request(
    socket_path: str,
    method: str,
    target: str,
    body: Any = None,
    *,
    timeout_s: float | None,
) -> tuple[int, bytes]:
    """-> status and body. Raises ContainerError when nobody answers in time."""
    connection = UnixConnection(socket_path, timeout_s)
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data is not None else {}
    try:
        connection.request(method, target, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ContainerError(_why_silent(socket_path, error, timeout_s)) from error
    finally:
        connection.close()


def open_stream(socket_path: str, target: str, *, timeout_s: float) -> tuple[socket.socket, bytes]:
    """A connection that is a plain stream from here on, and what has come over it already."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(timeout_s)
    try:
        stream.connect(socket_path)
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        stream.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < _HEAD_LIMIT:
            piece = stream.recv(4096)
            if not piece:
                break
            answer += piece
    except OSError as error:
        stream.close()
        raise ContainerError(_why_silent(socket_path, error, timeout_s)) from error
    head_bytes, _, rest = answer.partition(b"\r\n\r\n")
    words = head_bytes.split(None, 2)
    if len(words) < 2 or words[1] not in (b"101", b"200"):
        stream.close()
        raise ContainerError(message_of(rest) or f"the engine at {socket_path} refused to attach")
    stream.settimeout(None)
    return stream, rest


def message_of(body: bytes) -> str:
    """What an engine says went wrong."""
    try:
        told = json.loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()
    if not isinstance(told, dict):
        return ""
    return str(told.get("message") or told.get("cause") or "").strip()


def peer_pid(socket_path: str) -> int | None:
    """The engine's own process, as far as the kernel tells who listens there. None where that is somebody
    else: systemd listens for engines that it starts when they are needed."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(socket_path)
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return None
    pid = int(struct.unpack("3i", credentials)[0])
    return pid if _program_of(pid).startswith(_ENGINES) else None


def _program_of(pid: int) -> str:
    """'' when there is no such process."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # it is somebody else's
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file,
        ):
            return file.read().strip()
    return ""


def _why_silent(socket_path: str, error: Exception, timeout_s: float | None) -> str:
    if isinstance(error, TimeoutError):
        return f"the container engine at {socket_path} did not answer within {timeout_s:g} s"
    if isinstance(error, FileNotFoundError):
        return f"there is no container engine at {socket_path}"
    if isinstance(error, ConnectionRefusedError):
        return f"no container engine listens at {socket_path}"
    if isinstance(error, PermissionError):
        return f"the container engine at {socket_path} may not be used by this user"
    return f"the container engine at {socket_path} hung up: {str(error) or type(error).__name__}"
