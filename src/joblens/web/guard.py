"""Checks around every request: Host header, rate, size and time limits, and security headers."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from msgspec import Struct

from joblens.web.problems import HttpProblem, problem_response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("joblens.server")

# Job text is data: no page of the server may load, run or embed anything that the server did not write.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
_CLIENTS = 10_000  # whose rates are remembered


class Limits(Struct, frozen=True, kw_only=True):
    max_body: int
    rate: float  # requests per second and client
    burst: float
    body_s: float  # for a whole request body
    write_s: float  # for a client to read what was sent


class Guard:
    """ASGI application around the application."""

    def __init__(
        self,
        app: App,
        hosts: frozenset[str],
        limits: Limits,
        *,
        is_tls: bool,
        base_path: str = "",
        is_behind_proxy: bool = False,
    ) -> None:
        self._app = app
        self._base_path = base_path
        self._is_behind_proxy = is_behind_proxy
        self._hosts = hosts
        self._limits = limits
        self._rates = Rates(limits.rate, limits.burst)
        self._headers = (*_HEADERS, _STRICT_TRANSPORT) if is_tls else _HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._base_path and f"{scope['path']}/".startswith(f"{self._base_path}/"):
            # Some proxies strip the base path and some do not: both work.
            scope["path"] = scope["path"].removeprefix(self._base_path) or "/"
        guarded_send = _Sending(send, scope, self._headers, self._limits.write_s)
        try:
            self._check(scope)
            guarded_receive = _Receiving(receive, scope, self._limits)
        except HttpProblem as error:
            await problem_response(error, scope["path"])(scope, receive, guarded_send)
            return
        try:
            await self._app(scope, guarded_receive, guarded_send)
        except SlowClient:
            abort(scope)
        except HttpProblem as error:  # while the body was read
            if guarded_send.has_started:
                abort(scope)
            else:
                await problem_response(error, scope["path"])(scope, receive, guarded_send)

    def _check(self, scope: Scope) -> None:
        if not is_local_socket(scope):
            host = _header(scope, b"host")
            if host_name(host) not in self._hosts:
                raise HttpProblem(
                    421,
                    "this server does not answer for that host name",
                    "use the address that the server printed at start, or add the name to server.hosts",
                )
            if self._is_behind_proxy:
                take_forwarded(scope)
            self._rates.check(
                _client(scope), "too many requests", "wait as Retry-After says; streams replace polling"
            )


class SlowClient(Exception):
    """The client does not read."""


class _Receiving:
    """Reads a request body within limits of size and time."""

    def __init__(self, receive: Receive, scope: Scope, limits: Limits) -> None:
        self._receive = receive
        self._limits = limits
        self._size = 0
        self._until = asyncio.get_running_loop().time() + limits.body_s
        self._is_complete = False
        length = _header(scope, b"content-length")
        if length.isdecimal() and int(length) > limits.max_body:
            raise self._too_large()

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()  # waits for the client to leave
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as error:
            raise HttpProblem(
                408, f"the body did not arrive within {self._limits.body_s:g}s", "send it at once"
            ) from error
        self._size += len(message.get("body", b""))
        if self._size > self._limits.max_body:
            raise self._too_large()
        self._is_complete = not message.get("more_body", False)
        return message

    def _too_large(self) -> HttpProblem:
        return HttpProblem(
            413,
            f"the body is larger than {self._limits.max_body:,} bytes",
            "send less, or raise server.max_body on the server",
        )


class _Sending:
    """Adds headers, and gives up on a client that does not read."""

    def __init__(
        self, send: Send, scope: Scope, headers: tuple[tuple[bytes, bytes], ...], write_s: float
    ) -> None:
        self._send = send
        self._scope = scope
        self._headers = headers
        self._write_s = write_s
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            present = {name.lower() for name, _ in message["headers"]}
            added = [each for each in self._headers if each[0] not in present]
            if b"cache-control" not in present:
                added.append((b"cache-control", b"no-store"))
            message["headers"] = [*message["headers"], *added]
        try:
            async with asyncio.timeout(self._write_s):
                await self._send(message)
        except TimeoutError as error:
            LOG.warning("%s closed: it did not read for %g s", _client(self._scope), self._write_s)
            raise SlowClient from error


class Rates:
    """Token buckets, one per client."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, at

    def check(self, client: str, title: str, hint: str) -> None:
        """Raises HttpProblem, which says how long to wait, for a client that asks too often."""
        wait_s = self.wait_s(client)
        if wait_s > 0:
            raise HttpProblem(429, title, hint, {"retry-after": str(max(1, round(wait_s)))})

    def wait_s(self, client: str) -> float:
        """Takes one token; returns 0.0, or how long to wait for one."""
        now = self._clock()
        tokens, at = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._per_second)
        has_token = tokens >= 1.0
        self._buckets[client] = (tokens - 1.0 if has_token else tokens, now)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if has_token else (1.0 - tokens) / self._per_second


def abort(scope: Scope) -> None:
    connection = scope.get("state", {}).get("connection")
    if connection is not None:
        connection.abort()


def is_local_socket(scope: Scope) -> bool:
    connection = scope.get("state", {}).get("connection")
    return connection is not None and connection.peer_uid is not None


def host_name(header: str) -> str:
    """Returns the name in a Host header without port and brackets, lower case; '' if it is not one."""
    name = header.strip().lower()
    if name.startswith("["):
        inside, end, port = name[1:].partition("]")
        return inside if end and (not port or port.startswith(":")) else ""
    name, _, port = name.partition(":")
    return name if not port or port.isdecimal() else ""


def _header(scope: Scope, name: bytes) -> str:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def take_forwarded(scope: Scope) -> None:
    """The last address in X-Forwarded-For is the one that the proxy itself added."""
    forwarded = _header(scope, b"x-forwarded-for").rpartition(",")[2].strip()
    if forwarded:
        scope["client"] = (forwarded[:64], 0)


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "local socket"
