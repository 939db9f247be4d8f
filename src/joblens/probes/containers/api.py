"""Container engine API: Docker or Podman over its Unix socket."""

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
from joblens.probes.containers.info import ContainerInfo, info_of

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
    """Returns status and body. Raises ContainerError if the engine does not answer in time."""
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
    """Returns a connection that is a plain stream from here on, and the data already received."""
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
    """Returns the engine's error message."""
    try:
        document = json.loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()
    if not isinstance(document, dict):
        return ""
    return str(document.get("message") or document.get("cause") or "").strip()


def peer_pid(socket_path: str) -> int | None:
    """Returns the engine's process from the kernel's socket credentials.

    None if systemd listens for an engine that it starts on demand.
    """
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
    except OSError:  # it belongs to another process
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file,
        ):
            return file.read().strip()
    return ""


def _why_silent(socket_path: str, error: Exception, timeout_s: float | None) -> str:
    if isinstance(error, TimeoutError):
        return f"the container engine at {socket_path} did not answer within {timeout_s:g}s"
    if isinstance(error, FileNotFoundError):
        return f"there is no container engine at {socket_path}"
    if isinstance(error, ConnectionRefusedError):
        return f"no container engine listens at {socket_path}"
    if isinstance(error, PermissionError):
        return f"no permission to use the container engine at {socket_path}"
    return f"the container engine at {socket_path} hung up: {str(error) or type(error).__name__}"


ANSWER_S = 10.0  # an engine that takes longer over a plain question hangs
CREATE_S = 120.0  # unpacking an image's layers on a slow disk
SYSTEM_SOCKETS = {"docker": "/var/run/docker.sock", "podman": "/run/podman/podman.sock"}
_LIBPOD = "/v4.0.0/libpod"
_NOT_THERE = 404
_IS_GOING = 409  # another process is removing it


def connect(engine: str = "", socket: str = "", *, timeout_s: float = ANSWER_S) -> "ContainerApi":
    """The engine at `socket`, or the first that answers where engines of that name listen. Raises
    ContainerError with everything that was tried."""
    if engine not in ("", "docker", "podman"):
        raise ContainerError(f"container engine '{engine}': expected docker or podman")
    tried: list[str] = []
    silent: list[str] = []
    if not socket:
        _refuse_other_machines(engine)
    for path in [plain_path(socket)] if socket else _usual_sockets(engine):
        try:
            status, body = request(path, "GET", "/version", timeout_s=timeout_s)
            document = json.loads(body) if status == 200 else {}
            if not isinstance(document, dict) or "Version" not in document:
                raise ContainerError(f"{path} does not answer like a container engine")
        except (ContainerError, ValueError) as error:
            is_absent = isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError))
            (silent if is_absent else tried).append(path if is_absent else str(error))
            continue
        found = ContainerApi(path, document)
        if engine and found.engine != engine:
            tried.append(f"{path} is {found.engine}, not {engine}")
            continue
        return found
    if silent:
        tried.append(f"nothing listens at {', '.join(silent)}")
    raise ContainerError(
        f"no {engine or 'container'} engine answers: {'; '.join(tried)}",
        hint="start it (systemctl start docker, podman system service), or give --container-socket PATH",
    )


def plain_path(socket: str) -> str:
    return socket.removeprefix("unix://")


def _usual_sockets(engine: str) -> list[str]:
    """Returns the sockets from the engines' environment variables, then the default paths."""
    mine = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    docker = [os.environ.get("DOCKER_HOST", ""), SYSTEM_SOCKETS["docker"], f"{mine}/docker.sock"]
    podman = [os.environ.get("CONTAINER_HOST", ""), SYSTEM_SOCKETS["podman"], f"{mine}/podman/podman.sock"]
    chosen = {"docker": docker, "podman": podman}.get(engine, docker + podman)
    return list(dict.fromkeys(plain_path(path) for path in chosen if path))


def _refuse_other_machines(engine: str) -> None:
    """Another engine than the one that was named would be a surprise."""
    for variable, of_engine in (("DOCKER_HOST", "docker"), ("CONTAINER_HOST", "podman")):
        scheme, separator, _ = os.environ.get(variable, "").partition("://")
        if engine in ("", of_engine) and separator and scheme != "unix":
            raise ContainerError(
                f"{variable} names an engine by {scheme}://, and joblens speaks to Unix sockets only",
                hint=f"unset {variable}, or give --container-socket PATH",
            )


def has_socket(engine: str) -> bool:
    """Whether it listens, or has listened, somewhere usual."""
    return any(map(os.path.exists, _usual_sockets(engine)))


class ContainerApi:
    """One engine. Every call has a time limit and raises ContainerError with the engine's own words."""

    def __init__(self, socket: str, version: Mapping[str, Any]) -> None:
        self.socket = socket
        self.version = str(version.get("Version", ""))
        components = version.get("Components") or []
        names = " ".join(str(part.get("Name", "")) for part in components if isinstance(part, dict))
        self.engine = "podman" if "podman" in names.lower() else "docker"

    def cgroup_driver(self, *, timeout_s: float) -> str:
        """Returns cgroupfs or systemd; '' if the engine does not say."""
        document = self.ask("GET", "/info", timeout_s=timeout_s)
        return str(document.get("CgroupDriver") or "") if isinstance(document, dict) else ""

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = ANSWER_S,
    ) -> Any:
        """The answer, decoded."""
        status, data = request(self.socket, method, url(path, query), body, timeout_s=timeout_s)
        if status >= 400:
            raise ContainerError(message_of(data) or f"{self.engine} answered {status}", status=status)
        try:
            return json.loads(data) if data.strip() else None
        except ValueError:
            return data.decode(errors="replace")

    def inspect(self, name: str, *, timeout_s: float = ANSWER_S) -> ContainerInfo:
        raw = self.ask("GET", f"/containers/{_word(name)}/json", timeout_s=timeout_s)
        return info_of(raw if isinstance(raw, dict) else {})

    def stats(self, name: str) -> dict[str, Any]:
        """One reading of the engine's own counters."""
        query = {"stream": "false", "one-shot": "true"}
        answer = self.ask("GET", f"/containers/{_word(name)}/stats", query=query)
        return answer if isinstance(answer, dict) else {}

    def create(self, body: Mapping[str, Any], name: str = "") -> str:
        """`body` as this engine's own form wants it (agent.containers.protocol). -> id"""
        if self.engine == "podman":
            named = {**body, "name": name} if name else body
            answer = self.ask("POST", f"{_LIBPOD}/containers/create", named, timeout_s=CREATE_S)
        else:
            query = {"name": name} if name else None
            answer = self.ask("POST", "/containers/create", body, query, timeout_s=CREATE_S)
        return str(answer["Id"])

    def start(self, container_id: str) -> None:
        self.ask("POST", f"/containers/{container_id}/start", timeout_s=CREATE_S)

    def wait(self, container_id: str) -> int:
        """Blocks until it has ended; -> its exit code."""
        # Without an interval Podman polls continuously, which takes a whole core.
        query = {"condition": "not-running", "interval": "50ms"}
        answer = self.ask("POST", f"/containers/{container_id}/wait", query=query, timeout_s=None)
        return int(answer["StatusCode"])

    def kill(self, container_id: str, signal: int | str, *, timeout_s: float = ANSWER_S) -> None:
        query = {"signal": signal}
        self.ask("POST", f"/containers/{container_id}/kill", query=query, timeout_s=timeout_s)

    def remove(self, container_id: str, *, timeout_s: float = ANSWER_S) -> None:
        """Removes a container in any state; a missing one is fine."""
        query = {"force": "true", "v": "true"}
        try:
            self.ask("DELETE", f"/containers/{container_id}", query=query, timeout_s=timeout_s)
        except ContainerError as error:
            if error.status not in (_NOT_THERE, _IS_GOING):
                raise

    def resize(self, container_id: str, rows: int, columns: int) -> None:
        self.ask("POST", f"/containers/{container_id}/resize", query={"h": rows, "w": columns})

    def attach(self, container_id: str) -> tuple[Any, bytes]:
        """Returns its streams as one socket, and the data already received.

        Without a terminal, output comes in frames: stream number, three zeros, length, bytes.
        """
        query = {"stream": 1, "stdin": 1, "stdout": 1, "stderr": 1}
        return open_stream(self.socket, url(f"/containers/{container_id}/attach", query), timeout_s=ANSWER_S)

    def logs(self, name: str) -> bytes:
        query = {"stdout": 1, "stderr": 1}
        status, data = request(
            self.socket, "GET", url(f"/containers/{_word(name)}/logs", query), timeout_s=ANSWER_S
        )
        if status >= 400:
            raise ContainerError(message_of(data), status=status)
        return data

    def labelled(self, label: str, *, timeout_s: float = ANSWER_S) -> list[str]:
        """Ids of all containers with that label (NAME=VALUE), ended ones too."""
        query = {"all": "true", "filters": json.dumps({"label": [label]})}
        found = self.ask("GET", "/containers/json", query=query, timeout_s=timeout_s)
        return [str(one["Id"]) for one in found or [] if isinstance(one, dict) and "Id" in one]

    def has_image(self, image: str) -> bool:
        try:
            self.ask("GET", f"/images/{_word(image, safe='/:@')}/json")
        except ContainerError as error:
            if error.status == _NOT_THERE:
                return False
            raise
        return True

    def pull(self, image: str) -> None:
        """Pulls an image; blocks as long as the engine needs. Raises with the registry's message."""
        query = {"fromImage": image} if _has_tag(image) else {"fromImage": image, "tag": "latest"}
        answer = self.ask("POST", "/images/create", query=query, timeout_s=None)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        for line in text.splitlines():
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if isinstance(document, dict) and document.get("error"):
                raise ContainerError(f"{image} could not be pulled: {document['error']}")

    def engine_pid(self) -> int | None:
        return peer_pid(self.socket)


def _has_tag(image: str) -> bool:
    return "@" in image or ":" in image.rpartition("/")[2]


def _word(name: str, safe: str = "") -> str:
    from urllib.parse import quote

    return quote(name, safe=safe)
