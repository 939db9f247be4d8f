"""Server process: opens listeners, prints how to reach it, serves until SIGTERM or SIGINT, closes streams."""

import asyncio
import contextlib
import getpass
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import Struct

from joblens.app.wiring.drivers import Warn, store_name
from joblens.app.wiring.logging_setup import set_up_logging
from joblens.model.errors import MissingExtra, ServeError, how_to_install
from joblens.model.settings import Settings
from joblens.model.values.hosts import is_loopback
from joblens.web.application import Application, create_application
from joblens.web.connection import ConnectionLimits, connection_class
from joblens.web.listeners import (
    Certificates,
    ServeOptions,
    allowed_hosts,
    check_options,
    inherited_sockets,
    listen_tcp,
    listen_unix,
    url_to_open,
)

if TYPE_CHECKING:
    from joblens.web.rpc.server import RpcServer

_RELOAD_S = 5.0
_SHUTDOWN_S = 10.0


class Started(Struct, frozen=True, kw_only=True):
    """How to reach the server."""

    store: str
    url: str
    sign_in_url: str
    socket: str
    ssh: str  # the command that forwards the port to another machine; '' where it can be reached anyway
    grpc: str = ""  # HOST:PORT; '': not served
    pid: int


class _Server(uvicorn.Server):
    """Signals are handled once, for all listeners."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _limit_handshakes(loop: Any, handshake_s: float) -> None:
    """uvicorn has no option for the time of a TLS handshake; asyncio allows a minute, during which nothing
    counts the connection."""
    create = loop.create_server

    async def create_server(*arguments: Any, ssl: Any = None, **options: Any) -> Any:
        if ssl is not None:
            options["ssl_handshake_timeout"] = handshake_s
        return await create(*arguments, ssl=ssl, **options)

    loop.create_server = create_server


class Serving:
    def __init__(self, settings: Settings, config: str | None, options: ServeOptions, warn: Warn) -> None:
        check_options(options)
        set_up_logging(settings.logs)
        self._settings = settings
        self._options = options
        self._warn = warn
        self._certificates = Certificates(options) if options.is_tls else None
        self._tcp, self._unix = self._listeners()
        bound = self._tcp[0].getsockname()[0] if self._tcp else ""
        self._application = create_application(
            settings, config, options, allowed_hosts(options, bound_host=bound), warn
        )
        self._stop: asyncio.Event | None = None
        self._rpc: RpcServer | None = None

    def _listeners(self) -> tuple[list[socket.socket], list[socket.socket]]:
        inherited = inherited_sockets(os.environ)
        unix = [each for each in inherited if each.family == socket.AF_UNIX]
        tcp = [each for each in inherited if each.family != socket.AF_UNIX]
        if not tcp:
            tcp = [listen_tcp(self._options.host, self._options.port)]
        for each in tcp:
            host = each.getsockname()[0]
            if not (is_loopback(host) or self._options.is_tls or self._options.is_behind_proxy):
                raise ServeError(
                    f"the socket on {host} can be reached from other machines, and requests would not be "
                    "encrypted",
                    hint="add --tls-cert and --tls-key, or --behind-proxy",
                )
        self._owns_socket = not unix
        if not unix:
            unix = [listen_unix(self._options.socket_path)]
        return tcp, unix

    @property
    def application(self) -> Application:
        return self._application

    def run(self, on_start: Callable[[Started], None]) -> None:
        """Serves until a signal arrives."""
        try:
            asyncio.run(self.serve(on_start))
        finally:
            self._application.close()
            if self._owns_socket:
                with contextlib.suppress(OSError):
                    os.unlink(self._options.socket_path)

    async def serve(self, on_start: Callable[[Started], None], *, handles_signals: bool = True) -> None:
        self._stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        _limit_handshakes(loop, self._settings.server.header_timeout)
        if handles_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop.set)
        try:
            await self._application.start()
            self._rpc = self._create_rpc()
            if self._rpc is not None:
                await self._rpc.start()
        except BaseException:
            for each in (*self._tcp, *self._unix):
                each.close()
            raise
        context = None if self._certificates is None else self._certificates.context
        servers = [self._uvicorn(context), self._uvicorn(None)]
        tasks = [
            asyncio.create_task(server.serve(sockets=sockets))
            for server, sockets in zip(servers, (self._tcp, self._unix), strict=True)
        ]
        reloading = asyncio.create_task(self._reload_certificates())
        on_start(self.started())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        reloading.cancel()
        stopping.cancel()
        self._application.stop_streams()
        for server in servers:
            server.should_exit = True
        if self._rpc is not None:
            tasks.append(asyncio.create_task(self._rpc.stop(_SHUTDOWN_S)))
        await asyncio.gather(*tasks)

    def _create_rpc(self) -> "RpcServer | None":
        if not self._options.grpc:
            return None
        try:
            from joblens.web.rpc.server import RpcServer
        except ImportError as error:
            raise MissingExtra(f"--grpc needs {error.name}", hint=how_to_install("grpc")) from error
        application = self._application
        return RpcServer(application.context, application.hub, self._options, self._certificates)

    def stop(self) -> None:
        """From the event loop."""
        if self._stop is not None:
            self._stop.set()

    def started(self) -> Started:
        options = self._options
        port = self._tcp[0].getsockname()[1]
        scheme = "https" if options.is_tls else "http"
        host = f"[{options.host}]" if ":" in options.host else options.host
        url = f"{scheme}://{host}:{port}{options.base_path}"
        code = self._application.sign_in_code()
        machine = socket.gethostname()
        ssh = (
            f"ssh -N -L {port}:{host}:{port} {getpass.getuser()}@{machine}"
            if is_loopback(options.host)
            else ""
        )
        return Started(
            store=store_name(self._settings),
            url=url,
            sign_in_url=f"{url_to_open(options, port)}/sign-in?code={code}",
            socket=options.socket_path,
            ssh=ssh,
            pid=os.getpid(),
            grpc="" if self._rpc is None else self._rpc.address,
        )

    def _uvicorn(self, context: ssl.SSLContext | None) -> _Server:
        """Its connections are counted apart: strangers on TCP cannot lock the owner out of the socket."""
        server = self._settings.server
        limits = ConnectionLimits(most=server.max_connections, header_s=server.header_timeout)
        config = uvicorn.Config(
            self._application.asgi,
            loop="asyncio",
            http=connection_class(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=round(self._settings.server.idle_timeout) or 1,
            timeout_graceful_shutdown=round(_SHUTDOWN_S),
        )
        config.load()
        config.ssl = context
        return _Server(config)

    async def _reload_certificates(self) -> None:
        while self._certificates is not None:
            await asyncio.sleep(_RELOAD_S)
            try:
                if self._certificates.reload():
                    self._warn("the certificate was loaded again")
            except ServeError as error:
                self._warn(str(error))


def serve(
    settings: Settings,
    config: str | None,
    options: ServeOptions,
    warn: Warn,
    on_start: Callable[[Started], Any],
) -> None:
    """Serves the store until SIGTERM or SIGINT. Raises InputError or ServeError if it cannot start."""
    Serving(settings, config, options, warn).run(on_start)
