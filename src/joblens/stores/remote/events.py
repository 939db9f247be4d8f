"""Event streams of a server (server-sent events), resumed where they broke."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from msgspec import Struct

from joblens.model.errors import ServerUnreachable
from joblens.stores.remote.connection import ServerConnection

_PAUSE_S = 0.5
_AWAY_S = 60.0  # a server that is gone for longer is an error


class ServerEvent(Struct, frozen=True):
    name: str
    id: str
    data: str


class EventStream:
    """Yields events behind `last` until the server says that there are no more. `close` ends it from any
    thread."""

    def __init__(self, server: ServerConnection, path: str, last: str = "") -> None:
        self._server = server
        self._path = path
        self._last = last
        self._is_closed = threading.Event()
        self._socket: socket.socket | None = None  # None: there was never a connection
        self._alive_s = 0.0  # when the last line came; without events, empty ones come

    def __iter__(self) -> Iterator[ServerEvent]:
        self._alive_s = time.monotonic()
        while not self._is_closed.is_set():
            try:
                for event in self._events():
                    if self._is_closed.is_set():
                        return
                    if event.name == "reset":
                        self._last = ""
                    elif event.id:
                        self._last = event.id
                    if event.name == "disconnect":
                        break
                    yield event
                    if event.name == "end":
                        return
            except ServerUnreachable:
                if self._is_closed.is_set():
                    return
                if self._socket is None or time.monotonic() - self._alive_s > _AWAY_S:
                    raise
            self._is_closed.wait(_PAUSE_S)

    def close(self) -> None:
        self._is_closed.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the reader

    def _events(self) -> Iterator[ServerEvent]:
        headers = {"last-event-id": self._last} if self._last else {}
        fields: dict[str, str] = {}
        with contextlib.closing(self._server.lines(self._path, headers, self._opened)) as lines:
            for raw in lines:
                self._alive_s = time.monotonic()
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if not line and "data" in fields:
                    yield ServerEvent(fields.get("event", "message"), fields.get("id", ""), fields["data"])
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(":")
                    before = f"{fields[name]}\n" if name == "data" and name in fields else ""
                    fields[name] = before + value.removeprefix(" ")

    def _opened(self, connected: socket.socket) -> None:
        self._socket = connected
