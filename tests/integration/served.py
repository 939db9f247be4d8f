"""A real server on a store of its own, and a client without any cleverness."""

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from joblens.app.server.access import create_token, local_owner
from joblens.app.wiring.drivers import open_store_directly
from joblens.model.access import Role, Scope
from joblens.model.settings import ServerSettings, Settings, StoreSettings
from joblens.model.writes import Write
from joblens.ports.store import QueueStore
from joblens.web.listeners import ServeOptions
from joblens.web.serving import Serving, Started

_ANSWER_S = 60.0  # on a busy machine a database takes long to start and to answer


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("joblens", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ANSWER_S)
        self.sock.connect(self._path)


class Served:
    """`with Served(folder) as server: server.get("/api/v1/jobs")` asks as its owner, over the socket."""

    def __init__(
        self, folder: Path, *, store: str = "", options: Mapping[str, Any] | None = None, **server: Any
    ) -> None:
        socket_path = str(folder / "s.sock")
        self.settings = Settings(
            store=StoreSettings(url=store or str(folder / "joblens.db")),
            server=replace(ServerSettings(rate=10_000.0), **server),
        )
        self.options = ServeOptions(
            **{"host": "127.0.0.1", "port": 0, "socket_path": socket_path, **(options or {})}
        )
        self.warnings: list[str] = []
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.started: Started
        self.serving: Serving

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self.serving.serve(self._has_started, handles_signals=False)

        try:
            self.serving = Serving(self.settings, None, self.options, self.warnings.append)
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - told to the test
            self._error = error
        finally:
            self._ready.set()

    def _has_started(self, started: Started) -> None:
        self.started = started
        self._ready.set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.serving.stop)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.serving.application.close()

    @property
    def port(self) -> int:
        return int(self.started.url.rpartition(":")[2].partition("/")[0])

    @contextlib.contextmanager
    def store(self) -> Iterator[QueueStore]:
        store = open_store_directly(self.settings, self.warnings.append)
        try:
            yield store
        finally:
            store.close()

    def apply(self, *writes: Write) -> None:
        with self.store() as store:
            store.apply(writes)

    def token(
        self,
        role: Role = Role.READER,
        scope: Scope = Scope.ALL,
        user: str = "ana",
        life_s: float | None = 60.0,
    ) -> str:
        with self.store() as store:
            new = create_token(
                store, local_owner(), name="test", user=user, role=role, scope=scope, lifetime_s=life_s
            )
        return new.secret

    def token_of_operator(self) -> str:
        return self.token(Role.OPERATOR)

    def get(self, path: str, token: str | None = None, **headers: str) -> Answer:
        return self.ask("GET", path, token, headers=headers)

    def post(self, path: str, body: Any = None, token: str | None = None, **headers: str) -> Answer:
        return self.ask("POST", path, token, body, headers)

    def ask(
        self,
        method: str,
        path: str,
        token: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Without a token over the owner's socket, with one ('' for none) over TCP."""
        connection = (
            UnixConnection(self.options.socket_path)
            if token is None
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_S)
        )
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        if token:
            named.setdefault("authorization", f"Bearer {token}")
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            named.setdefault("content-type", "application/json")
        with contextlib.closing(connection):
            connection.request(method, path, data, named)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def raw(self, data: bytes, *, at_once: bool = True) -> bytes:
        """Sends bytes as they are and reads to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_S) as connection:
            connection.sendall(data)
            found = b""
            while chunk := connection.recv(65536):
                found += chunk
            return found


class EventReader:
    """An event stream, event by event."""

    def __init__(self, server: Served, path: str, token: str | None = None, **headers: str) -> None:
        self.connection = (
            UnixConnection(server.options.socket_path)
            if token is None
            else http.client.HTTPConnection("127.0.0.1", server.port, timeout=_ANSWER_S)
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["authorization"] = f"Bearer {token}"
        self.connection.request("GET", path, headers=named)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def __iter__(self) -> Iterator[tuple[str, str, Any]]:
        """Yields (event, id, data)."""
        name = ident = data = ""
        for raw in self.response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                ident = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and data:
                yield name, ident, json.loads(data)
                name = ident = data = ""

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def certificate(folder: Path, name: str, dns: str = "localhost") -> tuple[str, str]:
    """Creates a certificate that signs itself. Returns the paths of certificate and key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:127.0.0.1,DNS:{dns}"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return str(cert), str(key)
