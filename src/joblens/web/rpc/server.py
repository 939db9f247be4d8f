"""The gRPC listener: address, TLS, limits, reflection and health, on the event loop of the HTTP server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from joblens.model.access import Role
from joblens.model.errors import ServeError
from joblens.model.settings import ServerSettings
from joblens.web.endpoints import ServerContext
from joblens.web.listeners import Certificates, ServeOptions, grpc_address
from joblens.web.problems import HttpProblem
from joblens.web.rpc import proto_text
from joblens.web.rpc.access import CallGuard, parse_certificate_roles, refuse
from joblens.web.rpc.conversion import decode
from joblens.web.rpc.schema import Schema
from joblens.web.rpc.service import Call, JobService, Method, read, signed_out, write
from joblens.web.streams import Hub

_HEALTH = "grpc.health.v1.Health"
_REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
_CALLS_PER_CONNECTION = 100
_MOST_METADATA = 16 << 10
_IDENTITY_ONLY = 1  # bit set of encodings: a few compressed kilobytes can be gigabytes
_HEALTH_CHECK_S = 15.0


class RpcServer:
    def __init__(
        self, server: ServerContext, hub: Hub, options: ServeOptions, certificates: Certificates | None
    ) -> None:
        self._options = options
        self._certificates = certificates
        self._settings = server.settings.server
        self._schema = Schema(proto_text())
        roles = parse_certificate_roles(options.grpc_roles)
        self._guard = CallGuard(server, roles, is_behind_proxy=options.is_behind_proxy)
        self._service = JobService(server, hub, self._schema)
        self._stopping = asyncio.Event()
        self._server = grpc.aio.server(
            options=_channel_options(self._settings),
            maximum_concurrent_rpcs=self._settings.max_connections,
            compression=None,
        )
        self._server.add_generic_rpc_handlers((self._jobs(), self._health()))
        self._add_reflection()
        self.address = self._listen()

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls; calls in progress have `grace_s` to finish. The hub ends streams."""
        self._stopping.set()
        await self._server.stop(grace_s)

    def _listen(self) -> str:
        """Returns HOST:PORT."""
        host, port = grpc_address(self._options)
        shown = f"[{host}]" if ":" in host else host
        try:
            if self._certificates is None:
                bound = self._server.add_insecure_port(f"{shown}:{port}")
            else:
                bound = self._server.add_secure_port(f"{shown}:{port}", self._credentials(self._certificates))
        except RuntimeError as error:
            raise ServeError(
                f"cannot listen on {shown} port {port} for gRPC: it is in use, or no address of this machine",
                hint="choose another with --grpc, or --grpc 0 for any free one",
            ) from error
        return f"{shown}:{bound}"

    def _credentials(self, certificates: Certificates) -> Any:
        """Asks before each handshake whether the certificate has changed."""
        authority: bytes | None = None
        if self._options.client_ca:
            with open(self._options.client_ca, "rb") as file:
                authority = file.read()
        used = certificates.loads

        def current() -> Any:
            chain, key = certificates.read_files()
            return grpc.ssl_server_certificate_configuration([(key, chain)], authority)

        def changed() -> Any:
            nonlocal used
            if used == certificates.loads:
                return None
            used = certificates.loads
            return current()

        return grpc.dynamic_ssl_server_credentials(
            current(), changed, require_client_authentication=authority is not None
        )

    def _jobs(self) -> Any:
        handlers = {}
        for name, method in self._service.methods.items():
            kind = self._schema.message(self._schema.methods[name].input_type)
            handlers[name] = self._handler(f"{self._schema.service}/{name}", method, kind)
        return grpc.method_handlers_generic_handler(self._schema.service, handlers)

    def _health(self) -> Any:
        methods = {"Check": Method(answer=self._check_health), "Watch": Method(stream=self._watch_health)}
        return grpc.method_handlers_generic_handler(
            _HEALTH,
            {
                name: self._handler(f"{_HEALTH}/{name}", method, health_pb2.HealthCheckRequest)
                for name, method in methods.items()
            },
        )

    def _handler(self, name: str, method: Method, kind: Any) -> Any:
        """Returns a handler that reads its one request itself: access is checked before, a client that sends
        none is not waited for, and a request that cannot be decoded is an error like any other."""

        async def admitted(rpc: Any) -> Call:
            principal = await self._guard.admit(rpc, method.role)
            return Call(
                request=decode(kind, await read(rpc, self._settings.body_timeout)),
                principal=principal,
                rpc=rpc,
                refusal=lambda: self._guard.refusal(rpc),
            )

        async def answer(_: Any, rpc: Any) -> bytes:
            assert method.answer is not None
            try:
                reply = await method.answer(await admitted(rpc))
                return bytes(reply.SerializeToString())
            except Exception as error:
                await refuse(rpc, error, self._schema, name)
                raise  # never reached: refusing a call ends it

        async def stream(_: Any, rpc: Any) -> None:
            assert method.stream is not None
            try:
                messages = method.stream(await admitted(rpc))
                async with contextlib.aclosing(messages):
                    async for each in messages:
                        await write(rpc, each.SerializeToString(), self._settings.write_timeout)
            except Exception as error:  # noqa: BLE001 - no traceback leaves the server
                await refuse(rpc, error, self._schema, name)

        if method.answer is not None:
            return grpc.stream_unary_rpc_method_handler(answer)
        return grpc.stream_stream_rpc_method_handler(stream)

    async def _check_health(self, call: Call) -> Any:
        if self._health_of(call) == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            raise HttpProblem(404, "this server has no such service", "ask for it by reflection")
        return health_pb2.HealthCheckResponse(status=self._health_of(call))

    async def _watch_health(self, call: Call) -> AsyncGenerator[Any, None]:
        """Sends the status and, when the server stops, the change."""
        yield health_pb2.HealthCheckResponse(status=self._health_of(call))
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEALTH_CHECK_S):
                    await self._stopping.wait()
            if await call.refusal():
                raise signed_out()
        yield health_pb2.HealthCheckResponse(status=self._health_of(call))

    def _health_of(self, call: Call) -> int:
        response = health_pb2.HealthCheckResponse
        if call.request.service not in ("", self._schema.service):
            return int(response.SERVICE_UNKNOWN)
        return int(response.NOT_SERVING if self._stopping.is_set() else response.SERVING)

    def _add_reflection(self) -> None:
        pool = self._schema.pool
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            pool.AddSerializedFile(file.serialized_pb)
        servicer = _Reflection(self._guard, self._schema, (self._schema.service, _HEALTH, _REFLECTION))
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, self._server)


class _Reflection(reflection_aio.ReflectionServicer):  # type: ignore[misc]  # a library without types
    """Describes the service to callers with a token."""

    def __init__(self, guard: CallGuard, schema: Schema, services: tuple[str, ...]) -> None:
        super().__init__(services, schema.pool)
        self._guard = guard
        self._schema = schema

    async def ServerReflectionInfo(self, requests: Any, rpc: Any) -> AsyncGenerator[Any, None]:  # noqa: N802 - its name
        try:
            await self._guard.admit(rpc, Role.READER)
        except Exception as error:  # noqa: BLE001 - no traceback leaves the server
            await refuse(rpc, error, self._schema, _REFLECTION)
        async for reply in super().ServerReflectionInfo(requests, rpc):
            yield reply


def _channel_options(settings: ServerSettings) -> list[tuple[str, int]]:
    idle_ms = round(settings.idle_timeout * 1000)
    return [
        ("grpc.so_reuseport", 0),  # another process must not share the port
        ("grpc.max_receive_message_length", settings.max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _MOST_METADATA),
        ("grpc.max_concurrent_streams", _CALLS_PER_CONNECTION),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        ("grpc.server_handshake_timeout_ms", round(settings.header_timeout * 1000)),
        ("grpc.max_connection_idle_ms", idle_ms),
        # A peer that vanished without a word is noticed; one that pings too often is disconnected.
        ("grpc.keepalive_time_ms", idle_ms),
        ("grpc.keepalive_timeout_ms", round(settings.write_timeout * 1000)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]
