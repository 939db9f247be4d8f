"""HTTP connections with limits: number of connections, time for headers, and the peer's identity.

uvicorn limits idle connections only. A client that sends one header byte per minute, or that never reads
its response, would keep a connection open indefinitely."""

import asyncio
import contextlib
import socket
import struct
from typing import Any

import h11
from msgspec import json
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

_LINGER_S = 1.0
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class ConnectionLimits:
    """Shared by the connections of TCP, or by those of the Unix socket."""

    def __init__(self, *, most: int, header_s: float) -> None:
        self.most = most
        self.header_s = header_s
        self.count = 0


class LimitedConnection(H11Protocol):
    """`connection` in the state of each request is this object."""

    limits: ConnectionLimits

    def __init__(
        self, config: Config, server_state: Any, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self.peer_uid: int | None = None  # of a client on the Unix socket
        self.peer_certificate: dict[str, Any] | None = None  # of a TLS client that has one
        self._header_timer: asyncio.TimerHandle | None = None
        self._is_counted = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limits.count >= self.limits.most:
            self._refuse(
                503, "too many connections", "retry later, or raise server.max_connections on the server"
            )
            return
        self.limits.count += 1
        self._is_counted = True
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
            self.peer_uid = _PEER_CREDENTIALS.unpack(credentials)[1]
        elif peer is not None:
            # A peer that vanished without a word is noticed by the kernel.
            with contextlib.suppress(OSError):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.peer_certificate = tls.getpeercert() or None
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        if self._is_counted:
            self._is_counted = False
            self.limits.count -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
        elif self.conn.trailing_data[0] and self._header_timer is None:
            self._start_header_timer()  # the start of another request on a connection that is kept alive

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP request", "send HTTP/1.1")

    def abort(self) -> None:
        """Closes the connection without sending the rest."""
        if self.transport is not None:
            self.transport.abort()

    def _start_header_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._header_timer = loop.call_later(self.limits.header_s, self._headers_are_late)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        self._header_timer = None
        self._refuse(
            408,
            f"no complete request arrived within {self.limits.header_s:g}s",
            "send the request line and all headers at once",
        )

    def _refuse(self, status: int, title: str, hint: str) -> None:
        """Answers before there is a request that the application could answer."""
        if self._is_refused or self.transport.is_closing():
            return
        body = json.encode({"type": "about:blank", "title": title, "status": status, "hint": hint})
        head = (
            f"HTTP/1.1 {status} {title.title()}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._is_refused = True
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            # Closing at once would reset the connection while the client still sends, and lose the answer.
            self.transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, self.transport.close)
        else:
            self.transport.close()


def connection_class(limits: ConnectionLimits) -> type[LimitedConnection]:
    """Returns the class that uvicorn creates for each connection."""
    return type("LimitedConnection", (LimitedConnection,), {"limits": limits})
