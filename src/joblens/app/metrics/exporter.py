"""Exporter: metrics over HTTP on loopback, a Unix socket or, with a token, elsewhere; or in a file.

Built on the standard library: a handful of clients ask every few seconds. Bounded: few connections at a time,
each with a time-out and one small request.
"""

import contextlib
import errno
import hmac
import os
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

from msgspec import Struct

from joblens.app.metrics.scraper import Scraper
from joblens.files.atomic import write_atomically
from joblens.model.errors import InputError, JoblensError, ServeError
from joblens.model.values.hosts import is_loopback
from joblens.views.prometheus.exposition import OPENMETRICS_TYPE, TEXT_TYPE

DEFAULT_PORT = 9750
_MOST_CONNECTIONS = 8
_CLIENT_S = 10.0
_UNIX = "unix:"
_LONGEST_TOKEN = 4096
_LEAST_TOKEN = 16
_HOW_TO_LISTEN = "write HOST:PORT, for example 127.0.0.1:9750, or unix:/run/user/1000/joblens.sock"


class Address(Struct, frozen=True):
    """Where to listen; `path`: a Unix socket."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str = ""

    @property
    def is_loopback(self) -> bool:
        return bool(self.path) or is_loopback(self.host)

    @property
    def url(self) -> str:
        return self.text if self.path else f"http://{self.text}/metrics"

    @property
    def text(self) -> str:
        """Returns the address as a value of `--listen`."""
        if self.path:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Reads HOST:PORT, [IPV6]:PORT, PORT, HOST or unix:PATH. Raises InputError."""
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not path or len(os.fsencode(path)) > 100:
            raise InputError(
                f"--listen {text}: the path of a Unix socket has 1 to 100 bytes", hint=_HOW_TO_LISTEN
            )
        return Address(path=os.path.abspath(path))
    host, separator, port = text.rpartition(":")
    if not separator and text.isdecimal():
        host, port = "127.0.0.1", text
    elif not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or not host:
        raise InputError(f"--listen {text}: expected HOST:PORT", hint=_HOW_TO_LISTEN)
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def read_token(path: str) -> str:
    """Returns the token in a file: its first line. Raises InputError for a file that others may read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_LONGEST_TOKEN)
    except OSError as error:
        raise InputError(f"--token-file {path}: cannot be read: {error.strerror}") from error
    if mode & 0o077:
        raise InputError(f"--token-file {path}: other users can read it", hint=f"chmod 600 {path}")
    token = text.partition(b"\n")[0].strip().decode("ascii", "replace")
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise InputError(
            f"--token-file {path}: the first line must have {_LEAST_TOKEN} or more printable characters",
            hint="create one: (umask 077; openssl rand -hex 32 > FILE)",
        )
    return token


class _Handler(BaseHTTPRequestHandler):
    """One request per connection."""

    server: "_Bounded"
    timeout = _CLIENT_S
    server_version = "joblens"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        status, kind, body, headers = self.server.answer(self.path, self.headers)
        content = body.encode()
        with contextlib.suppress(OSError):  # the client has gone
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if has_body:
                self.wfile.write(content)

    def log_message(self, *_parts: Any) -> None:
        """Writes nothing: a scrape every few seconds is no news."""

    def address_string(self) -> str:
        return "client"


class _Bounded(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves `_MOST_CONNECTIONS` at a time; others wait in the kernel's queue."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: Address, scraper: Scraper, token: str) -> None:
        self._scraper = scraper
        self._token = token
        self._is_open = address.is_loopback and not address.path and not token
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        where: Any = (address.host, address.port)
        if address.path:
            self.address_family, where = socket.AF_UNIX, address.path
        elif ":" in address.host:
            self.address_family = socket.AF_INET6
        super().__init__(where, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that break off."""

    _NO_HEADERS: ClassVar[dict[str, str]] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

    def answer(self, path: str, headers: Any) -> tuple[int, str, str, dict[str, str]]:
        """-> status, content type, body, more headers"""
        plain, more = "text/plain; charset=utf-8", self._NO_HEADERS
        if self._is_open and not _names_loopback(headers.get("Host", "")):
            return 421, plain, "Host: expected a loopback address\n", more
        if self._token and not self._has_token(headers.get("Authorization", "")):
            return 401, plain, "a bearer token is required\n", {**more, "WWW-Authenticate": "Bearer"}
        if path.partition("?")[0] != "/metrics":
            return 404, plain, "metrics are at /metrics\n", more
        is_openmetrics = "application/openmetrics-text" in headers.get("Accept", "")
        try:
            text = self._scraper.render(is_openmetrics=is_openmetrics)
        except JoblensError as error:
            return 503, plain, f"{error}\n", more
        return 200, OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE, text, more

    def _has_token(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            token.strip().encode(), self._token.encode()
        )


def _names_loopback(host_header: str) -> bool:
    """Protects a server without a token from web pages whose host name points to this machine."""
    host = host_header.rpartition(":")[0] if host_header.count(":") == 1 else host_header
    host = host.partition("]")[0].removeprefix("[")
    return not host or is_loopback(host)


@contextlib.contextmanager
def serving(address: Address, scraper: Scraper, token: str = "") -> Iterator[Address]:
    """Serves on a thread until the block ends. Yields the address with the port that was chosen for port 0.
    Raises ServeError where it cannot listen, InputError where it must not."""
    if not address.is_loopback and not token:
        raise InputError(
            f"--listen {address.host}: every machine that reaches this address could read the metrics",
            hint="give --token-file FILE, or listen on 127.0.0.1 or on unix:PATH",
        )
    try:
        with _private_socket(address):
            server = _Bounded(address, scraper, token)
    except OSError as error:
        raise ServeError(
            f"--listen {address.text}: {error.strerror or error}",
            hint="stop what listens there, or choose another with --listen, such as 127.0.0.1:9751"
            if error.errno == errno.EADDRINUSE
            else _HOW_TO_LISTEN,
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="joblens-exporter", daemon=True)
    thread.start()
    try:
        port = address.port if address.path else server.server_address[1]
        yield Address(address.host, int(port), address.path)
    finally:
        server.shutdown()
        server.server_close()
        if address.path:
            with contextlib.suppress(OSError):
                os.unlink(address.path)


@contextlib.contextmanager
def _private_socket(address: Address) -> Iterator[None]:
    """A Unix socket is made for its owner alone; a stale one is replaced."""
    if not address.path:
        yield
        return
    with contextlib.suppress(FileNotFoundError):
        _remove_stale(address.path)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _remove_stale(path: str) -> None:
    """Raises InputError where another program listens there, or something else has that name: connecting to
    a plain file is refused too, and it must not be removed."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise InputError(f"--listen unix:{path}: exists and is not a socket", hint="choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise InputError(f"--listen unix:{path}: another program listens there")


def write_textfile(path: str, scraper: Scraper) -> None:
    """Replaces the file at once, so that node_exporter never reads half of it."""
    content = scraper.render().encode()
    try:
        write_atomically(path, content, mode=0o644)
    except OSError as error:
        raise InputError(f"--textfile {path}: cannot be written: {error.strerror}") from error


def keep_writing(
    path: str, scraper: Scraper, interval_s: float, stop: threading.Event, warn: Callable[[str], None]
) -> None:
    """Writes the file every `interval_s` until stopped. Warns once per outage of the store or the disk."""
    write_textfile(path, scraper)
    has_warned = False
    due_s = time.monotonic() + interval_s
    while not stop.wait(max(0.0, due_s - time.monotonic())):
        due_s = time.monotonic() + interval_s
        try:
            write_textfile(path, scraper)
            has_warned = False
        except JoblensError as error:
            if not has_warned:
                warn(f"{error}; retrying every {interval_s:g}s")
            has_warned = True
