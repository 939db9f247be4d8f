"""Addresses of servers: URLs and paths of Unix sockets, and how to connect to them."""

import os
import urllib.parse
from http import client as http_client
from typing import TYPE_CHECKING

from msgspec import Struct

from joblens.model.errors import InputError
from joblens.model.values.hosts import is_loopback

if TYPE_CHECKING:
    import ssl

_UNIX = ("unix", "http+unix")
_EXAMPLES = (
    "for example https://jobs.example.org, http://127.0.0.1:7373, or the path of the server's Unix socket"
)


class TlsFiles(Struct, frozen=True, kw_only=True):
    """PEM files; '': the system's authorities, and no certificate of one's own."""

    ca: str = ""
    cert: str = ""
    key: str = ""


class ServerAddress(Struct, frozen=True, kw_only=True):
    shown: str  # for messages: without a password
    scheme: str  # http, https or unix
    host: str = ""
    port: int | None = None
    base_path: str = ""
    socket: str = ""

    @property
    def is_local(self) -> bool:
        return self.scheme == "unix" or is_loopback(self.host)


def parse_address(text: str) -> ServerAddress:
    """Raises InputError for one that is no address of a server, or that would send a token unencrypted."""
    if text.startswith(("/", "./", "~")):
        path = os.path.abspath(os.path.expanduser(text))
        return ServerAddress(shown=path, scheme="unix", socket=path)
    try:
        parts = urllib.parse.urlsplit(text)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"server '{text[:200]}' is not a URL: {error}", hint=_EXAMPLES) from error
    if scheme in _UNIX:
        path = urllib.parse.unquote(parts.netloc) + parts.path
        if not path.startswith("/"):
            raise InputError(f"server '{text[:200]}': the path of the socket is not absolute", hint=_EXAMPLES)
        return ServerAddress(shown=path, scheme="unix", socket=path)
    if scheme not in ("http", "https") or not host:
        raise InputError(f"server '{text[:200]}' is not a URL of a server", hint=_EXAMPLES)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InputError(
            "the URL of a server has no user, password, query or fragment",
            hint="give the token in JOBLENS_TOKEN or in a file",
        )
    if scheme == "http" and not is_loopback(host):
        raise InputError(
            f"http://{host} would send the token unencrypted",
            hint="use https, or forward the port: ssh -L, and http://127.0.0.1:PORT",
        )
    base = parts.path.rstrip("/").removesuffix("/api/v1")
    shown = f"{scheme}://{parts.netloc}{base}"
    return ServerAddress(shown=shown, scheme=scheme, host=host, port=port, base_path=base)


def new_connection(
    address: ServerAddress, tls: TlsFiles, timeout_s: float | None
) -> http_client.HTTPConnection:
    """Returns a connection that is not open yet. Raises InputError for certificates that cannot be used."""
    if address.scheme == "unix":
        return _UnixConnection(address.socket, timeout_s)
    if address.scheme == "http":
        return http_client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    return http_client.HTTPSConnection(
        address.host, address.port, timeout=timeout_s, context=_tls_context(tls)
    )


class _UnixConnection(http_client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("joblens", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        import socket

        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except OSError:
            self.close()
            raise


def _tls_context(tls: TlsFiles) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
    except OSError as error:
        raise InputError(
            f"the certificate authority {tls.ca} cannot be used: {error}", hint="client.ca is a PEM file"
        ) from error
    if tls.cert:
        try:
            context.load_cert_chain(tls.cert, tls.key or None)
        except OSError as error:
            raise InputError(
                f"the certificate {tls.cert} cannot be used: {error}",
                hint="client.cert and client.key are PEM files, the key without a password",
            ) from error
    return context
