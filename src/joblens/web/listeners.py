"""Listeners of the server: addresses, the owner's Unix socket, sockets from systemd, and TLS."""

import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Mapping

from msgspec import Struct

from joblens.files.private import make_private_folder
from joblens.model.errors import InputError, ServeError
from joblens.model.values.hosts import is_loopback

_FIRST_DESCRIPTOR = 3  # of those that systemd hands over
_LONGEST_SOCKET_PATH = 107
_BACKLOG = 512
_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class ServeOptions(Struct, frozen=True, kw_only=True):
    host: str
    port: int
    socket_path: str
    certificate: str = ""
    key: str = ""
    client_ca: str = ""  # clients must have a certificate of this authority
    is_behind_proxy: bool = False
    base_path: str = ""
    hosts: tuple[str, ...] = ()  # more names that the server answers for
    grpc: str = ""  # [HOST:]PORT of the gRPC listener; '': none
    grpc_roles: str = ""  # of client certificates: NAME=ROLE[:USER], …

    @property
    def is_tls(self) -> bool:
        return bool(self.certificate)


def check_options(options: ServeOptions) -> None:
    """Raises InputError for combinations that would expose the server."""
    if bool(options.certificate) != bool(options.key):
        raise InputError("TLS needs a certificate and a key", hint="--tls-cert FILE --tls-key FILE")
    if options.client_ca and not options.is_tls:
        raise InputError("client certificates need TLS", hint="--tls-cert FILE --tls-key FILE")
    if options.grpc_roles and not options.client_ca:
        raise InputError(
            "server.grpc_roles gives roles to client certificates, and none are required",
            hint="add --client-ca FILE, the authority that signs them",
        )
    base = options.base_path
    if base and (not base.startswith("/") or base.endswith("/") or "//" in base or not base.isprintable()):
        raise InputError(f"base path '{base}' is not a path", hint="for example --base-path /joblens")
    _check_exposed(options, options.host)
    if options.grpc:
        _check_exposed(options, grpc_address(options)[0])


def _check_exposed(options: ServeOptions, host: str) -> None:
    if not (is_loopback(host) or options.is_tls or options.is_behind_proxy):
        raise InputError(
            f"{host} can be reached from other machines, and requests would not be encrypted",
            hint="add --tls-cert and --tls-key; or listen on 127.0.0.1 and use the ssh -L line that serve "
            "prints; or, behind a reverse proxy that encrypts, add --behind-proxy",
        )


def grpc_address(options: ServeOptions) -> tuple[str, int]:
    """Returns host and port for gRPC; the host is that of HTTP unless given. Raises InputError."""
    host, _, port = options.grpc.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise InputError(
            f"gRPC address '{options.grpc[:100]}' is not [HOST:]PORT",
            hint="for example --grpc 7374, --grpc 127.0.0.1:7374 or --grpc [::1]:7374",
        )
    return host.strip("[]") or options.host, int(port)


def allowed_hosts(options: ServeOptions, *, bound_host: str) -> frozenset[str]:
    """Returns the names that a Host header may have: any other one belongs to a site that resolves its own
    name to this machine (DNS rebinding)."""
    names = {each.strip().lower().strip("[]") for each in (*options.hosts, options.host, bound_host)}
    if is_loopback(options.host) or options.is_behind_proxy:
        names |= {"localhost", "127.0.0.1", "::1"}
    else:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names - {"", *_ALL_ADDRESSES})


def url_to_open(options: ServeOptions, port: int) -> str:
    """Returns the address for browsers: that of the proxy, or a name of this machine where it listens on all
    addresses."""
    if options.is_behind_proxy and options.hosts:
        return f"https://{options.hosts[0]}{options.base_path}"
    host = options.host
    if host in _ALL_ADDRESSES:
        own = "localhost" if options.is_behind_proxy else socket.gethostname().lower()
        host = options.hosts[0] if options.hosts else own
    scheme = "https" if options.is_tls else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{options.base_path}"


def inherited_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Returns sockets that systemd opened (socket activation); none if it did not start this process."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = environ.get("LISTEN_FDS", "0")
    number = int(count) if count.isdecimal() else 0
    return [socket.socket(fileno=_FIRST_DESCRIPTOR + index) for index in range(number)]


def listen_tcp(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServeError(f"{host} is not an address of this machine: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another with --port, or --port 0 for any free one",
        ) from error
    return listener


def listen_unix(path: str) -> socket.socket:
    """Creates the owner's socket with mode 0600, in place of one whose server has died."""
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise ServeError(
            f"the path of the Unix socket is too long: {path}", hint="set server.socket to a shorter one"
        )
    make_private_folder(os.path.dirname(path))
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(f"cannot listen on {path}: {error.strerror}") from error
    finally:
        os.umask(before)
    return listener


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ServeError(f"{path} exists and is not a socket", hint="set server.socket to another path")
    except FileNotFoundError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except OSError:
            pass
    raise ServeError(
        f"another server already serves this store: {path}",
        hint="stop it first, or give this one another socket with server.socket",
    )


class Certificates:
    """TLS context whose certificate is loaded again when its files change."""

    def __init__(self, options: ServeOptions) -> None:
        self._files = (options.certificate, options.key)
        self._stamp = self._stamps()
        self.loads = 1  # how often the files were loaded
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise ServeError(
                f"the certificate {options.certificate} with the key {options.key} cannot be used: "
                f"{_why(error, self._files)}",
                hint="both are PEM files, the key without a password",
            ) from error
        if options.client_ca:
            self.context.verify_mode = ssl.CERT_REQUIRED
            try:
                self.context.load_verify_locations(options.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ServeError(
                    f"the certificate authority {options.client_ca} cannot be used: "
                    f"{_why(error, (options.client_ca,))}"
                ) from error

    def read_files(self) -> tuple[bytes, bytes]:
        """Returns certificate and key as they are now, for a library that has its own TLS."""
        with open(self._files[0], "rb") as certificate, open(self._files[1], "rb") as key:
            return certificate.read(), key.read()

    def reload(self) -> bool:
        """Loads changed files; new connections use them. Raises ServeError, and the old ones stay in use."""
        stamp = self._stamps()
        if stamp == self._stamp or None in stamp:
            return False
        try:
            # Tried apart: a certificate without its key would leave the context unusable.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise ServeError(
                f"the changed certificate {self._files[0]} cannot be used: {_why(error, self._files)}"
            ) from error
        self._stamp = stamp
        self.loads += 1
        return True

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files)


def _why(error: OSError, files: tuple[str, ...]) -> str:
    missing = next((path for path in files if not os.path.exists(path)), "")  # the error does not say which
    if missing:
        return f"there is no {missing}"
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate"
    return "not PEM, or encrypted"


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
