"""gRPC: who may call, what is refused, limits, and the end of the server."""

import contextlib
import queue
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("grpc")
pytest.importorskip("grpc_tools")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from joblens.app.server.access import find_token, local_owner, revoke_token
from joblens.model.access import AuditQuery, Role, Scope
from joblens.model.errors import InputError, ServeError
from joblens.web import streams
from joblens.web.listeners import ServeOptions, check_options, grpc_address
from joblens.web.rpc.access import parse_certificate_roles
from tests.builders.writes import ended, queued, samples, started, whole_job
from tests.integration.grpc_client import (
    METHODS,
    TIMEOUT_S,
    Client,
    Code,
    Connect,
    connecting,
    problem,
    refused,
    running_job,
)
from tests.integration.served import Served, certificate

HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, options={"grpc": "0"}) as one:
        yield one


@pytest.fixture
def connect(server: Served) -> Iterator[Connect]:
    with connecting(server) as function:
        yield function


# ---- access


def test_no_call_is_answered_without_a_valid_token(server: Served, connect: Connect) -> None:
    for client in (connect(token=""), connect(token="jl_wrong")):
        for method, request in METHODS.items():
            message = getattr(client.pb, request)()
            error = refused(client.call, method, message)
            assert error.code() == Code.UNAUTHENTICATED
            assert problem(error).code == "SignInRequired"
        health = health_pb2_grpc.HealthStub(client.channel)
        for call in (health.Check, health.Watch):
            error = refused(call, health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
            assert error.code() == Code.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            ProtoReflectionDescriptorDatabase(client.channel).get_services()


def test_guessing_tokens_is_slowed_down(server: Served, connect: Connect) -> None:
    client = connect(token="jl_wrong")
    codes = [refused(client.list).code() for _ in range(25)]
    assert (codes[0], codes[-1]) == (Code.UNAUTHENTICATED, Code.RESOURCE_EXHAUSTED)


def test_a_role_allows_only_its_methods(server: Served, connect: Connect) -> None:
    uuid = running_job(server)
    client = connect()
    for call in (lambda: client.submit(argv=["true"]), lambda: client.cancel(uuid)):
        error = refused(call)
        assert (error.code(), problem(error).code) == (Code.PERMISSION_DENIED, "AccessDenied")
        assert "joblens token create --role operator" in error.details()


def test_own_scope_hides_jobs_of_others(server: Served, connect: Connect) -> None:
    theirs, mine = queued(user="bob", name="theirs"), queued(user="ana", name="mine")
    for made in (theirs, mine):
        server.apply(made, started(made.job.uuid))
    client = connect(Role.OPERATOR, Scope.OWN)
    assert [each.name for each in client.list().items] == ["mine"]
    assert refused(lambda: client.list(user="bob")).code() == Code.PERMISSION_DENIED
    for call in (client.get, client.metrics, client.logs, client.cancel):
        hidden, absent = (refused(call, uuid) for uuid in (theirs.job.uuid, "0" * 36))
        assert hidden.code() == absent.code() == Code.NOT_FOUND
        assert hidden.details().replace(theirs.job.uuid, "0" * 36) == absent.details()
    assert refused(lambda: client.submit(argv=["true"])).code() == Code.PERMISSION_DENIED


def test_a_stream_of_a_revoked_token_ends(
    server: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_S", 0.2)
    monkeypatch.setattr("joblens.web.rpc.server._HEALTH_CHECK_S", 0.2)
    client = connect()
    stream = client.metrics(running_job(server, 1))
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(
        health_pb2.HealthCheckRequest(), metadata=client.metadata, timeout=TIMEOUT_S
    )
    next(stream), next(watch)
    with server.store() as store:
        revoke_token(store, local_owner(), find_token(store, "test").id)
    assert [refused(list, each).code() for each in (stream, watch)] == [Code.UNAUTHENTICATED] * 2


def test_certificates_are_required_may_have_roles_and_are_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.web.serving._RELOAD_S", 0.1)
    cert, key = certificate(tmp_path, "first")
    clients = {
        name: certificate(tmp_path, name, f"{name}.example.org") for name in ("ana", "ci", "other", "foe")
    }
    authority = tmp_path / "authority"
    authority.write_text("".join(Path(clients[name][0]).read_text() for name in ("ana", "ci", "other")))
    options = {"grpc": "0", "certificate": cert, "key": key, "client_ca": str(authority)}
    roles = "ci.example.org=operator, ana=reader:ana"

    def connected(stack: contextlib.ExitStack, name: str, token: str = "", root: str = cert) -> Client:
        chain, secret = (Path(each).read_bytes() for each in clients[name]) if name else (None, None)
        credentials = grpc.ssl_channel_credentials(Path(root).read_bytes(), secret, chain)
        channel = grpc.secure_channel(served.started.grpc.replace("127.0.0.1", "localhost"), credentials)
        return Client(stack.enter_context(channel), token)

    with (
        Served(tmp_path, options={**options, "grpc_roles": roles}) as served,
        contextlib.ExitStack() as stack,
    ):
        theirs, mine = queued(user="bob", name="theirs"), queued(user="ana", name="mine")
        for made in (theirs, mine):
            served.apply(made, started(made.job.uuid))
        assert [refused(connected(stack, name).list).code() for name in ("", "foe")] == [Code.UNAVAILABLE] * 2
        assert refused(connected(stack, "other").list).code() == Code.UNAUTHENTICATED
        assert len(connected(stack, "other", served.token()).list().items) == 2
        ana, ci = connected(stack, "ana"), connected(stack, "ci")
        assert [each.name for each in ana.list().items] == ["mine"]
        assert refused(lambda: ana.cancel(mine.job.uuid)).code() == Code.PERMISSION_DENIED
        assert refused(connected(stack, "ci", "jl_wrong").list).code() == Code.UNAUTHENTICATED
        ci.cancel(theirs.job.uuid)
        with served.store() as store:
            (entry,) = store.audit_entries(AuditQuery(subject=theirs.job.uuid))
        assert entry.who == "ci.example.org (certificate ci.example.org)"

        other, other_key = certificate(tmp_path, "second")
        Path(other_key).rename(key)
        Path(other).rename(cert)
        until = time.monotonic() + TIMEOUT_S
        while not served.warnings:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert len(connected(stack, "ci").list().items) == 2  # trusts only the second certificate


def test_roles_of_certificates_are_read_or_refused() -> None:
    one, two = parse_certificate_roles(" ci=operator , spiffe://a/b=c=reader:ana,")
    assert (one.principal.scope, one.principal.user) == (Scope.ALL, "ci")
    assert (two.name, two.principal.scope, two.principal.user) == ("spiffe://a/b=c", Scope.OWN, "ana")
    for wrong in ("ci", "ci=root", "=reader", "ci=reader:", "ci=reader,ci=admin"):
        with pytest.raises(InputError, match="grpc_roles"):
            parse_certificate_roles(wrong)


@pytest.mark.parametrize("address", ["x", "1:2:3", "70000", "host:", "-1"])
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="gRPC address"):
        check_options(ServeOptions(host="127.0.0.1", port=0, socket_path="", grpc=address))


def test_an_address_is_that_of_http_unless_given_and_needs_tls_for_others() -> None:
    options = {"host": "127.0.0.1", "port": 0, "socket_path": ""}
    assert grpc_address(ServeOptions(**options, grpc="5")) == ("127.0.0.1", 5)  # type: ignore[arg-type]
    assert grpc_address(ServeOptions(**options, grpc="[::1]:5")) == ("::1", 5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not be encrypted"):
        check_options(ServeOptions(**options, grpc="0.0.0.0:5"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="none are required"):
        check_options(ServeOptions(**options, grpc="5", grpc_roles="a=reader"))  # type: ignore[arg-type]


def test_a_port_in_use_is_an_error_at_start(server: Served, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with (
        pytest.raises(ServeError, match="for gRPC"),
        Served(tmp_path / "b", options={"grpc": server.started.grpc}),
    ):
        pass


# ---- bad input, limits, the end


@pytest.mark.parametrize(
    ("method", "request_fields", "code", "text"),
    [
        ("GetJob", {"uuid": "no-such-job"}, Code.NOT_FOUND, "no-such-job"),
        ("GetJob", {}, Code.INVALID_ARGUMENT, "uuid is empty"),
        ("GetJob", {"uuid": "a\0b"}, Code.INVALID_ARGUMENT, "NUL"),
        ("GetJob", {"uuid": "x" * 5000}, Code.INVALID_ARGUMENT, "longer than"),
        ("ListJobs", {"limit": 5000}, Code.INVALID_ARGUMENT, "limit"),
        ("ListJobs", {"cursor": "AAAA"}, Code.INVALID_ARGUMENT, "cursor"),
        ("ListJobs", {"since": "yesteryear"}, Code.INVALID_ARGUMENT, "since"),
        ("ListJobs", {"status": [77]}, Code.INVALID_ARGUMENT, "Status has no value 77"),
        ("ListJobs", {"status": [0]}, Code.INVALID_ARGUMENT, "unspecified"),
        ("ListJobs", {"run": "no-such-run"}, Code.NOT_FOUND, "no-such-run"),
        ("StreamJobMetrics", {"uuid": "1", "after": -5}, Code.INVALID_ARGUMENT, "position"),
        ("SubmitJob", {}, Code.INVALID_ARGUMENT, "command"),
        ("SubmitJob", {"argv": ["a\0"]}, Code.INVALID_ARGUMENT, "NUL"),
        ("SubmitJob", {"argv": ["true"], "cpus": -1}, Code.INVALID_ARGUMENT, "cpus"),
        ("SubmitJob", {"argv": ["true"], "params_json": "[1]"}, Code.INVALID_ARGUMENT, "params_json"),
        ("SubmitJob", {"argv": ["true"], "cwd": "/no/such/folder"}, Code.INVALID_ARGUMENT, "/no/such/folder"),
        ("SubmitJob", {"argv": ["true"], "idempotency_key": ""}, Code.INVALID_ARGUMENT, "Idempotency-Key"),
        ("CancelJob", {"uuid": "no-such-job"}, Code.NOT_FOUND, "no-such-job"),
    ],
)
def test_bad_input_gets_a_status_a_reason_and_a_hint(
    server: Served, connect: Connect, method: str, request_fields: dict[str, Any], code: Any, text: str
) -> None:
    server.apply(*whole_job())
    client = connect(Role.ADMIN)
    request = getattr(client.pb, METHODS[method])(**request_fields)
    error = refused(lambda: client.call(method, request))
    found = problem(error)
    assert (error.code(), text in found.detail) == (code, True), error.details()
    assert error.details() == (f"{found.detail}\n{found.hint}" if found.hint else found.detail)


def test_a_field_of_a_newer_client_and_bytes_that_are_no_message_are_refused(
    server: Served, connect: Connect
) -> None:
    client = connect()
    newer = client.pb.ListJobsRequest.FromString(client.pb.Sample(host_load1=3).SerializeToString())
    assert "does not know field" in refused(lambda: client.call("ListJobs", newer)).details()
    raw = client.channel.unary_unary("/joblens.v1.JobService/ListJobs")
    error = refused(lambda: raw(b"\xff\xff\xff", metadata=client.metadata, timeout=TIMEOUT_S))
    assert (error.code(), "not a message" in error.details()) == (Code.INVALID_ARGUMENT, True)


def test_large_and_compressed_messages_are_refused_and_the_server_goes_on(tmp_path: Path) -> None:
    with (
        Served(tmp_path, options={"grpc": "0"}, max_body=100_000) as server,
        connecting(server) as connect,
    ):
        client = connect(Role.ADMIN)
        error = refused(lambda: client.submit(argv=["x" * 200_000]))
        assert error.code() == Code.RESOURCE_EXHAUSTED
        small = client.pb.SubmitJobRequest(argv=["x" * 50_000_000])  # 50 kB compressed
        packed = refused(
            lambda: client.stub.SubmitJob(
                small, metadata=client.metadata, timeout=TIMEOUT_S, compression=grpc.Compression.Gzip
            )
        )
        assert packed.code() in (Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED), packed.details()
        huge = (*client.metadata, ("x-much", "y" * 40_000))
        assert refused(
            lambda: client.stub.ListJobs(client.pb.ListJobsRequest(), metadata=huge, timeout=TIMEOUT_S)
        )
        assert client.list().items == []


def test_calls_and_streams_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    with (
        Served(tmp_path, options={"grpc": "0"}, max_streams=1, rate=0.5) as server,
        connecting(server) as connect,
    ):
        client = connect()
        stream = client.metrics(running_job(server, 1))
        next(stream)
        full = refused(lambda: client.metrics("1"))
        assert (full.code(), problem(full).retry_after_s) == (Code.UNAVAILABLE, 5)
        codes = [refused(lambda: client.get("nothing")).code() for _ in range(5)]
        assert (codes[0], codes[-1]) == (Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED)


def test_connections_and_calls_that_stay_silent_are_closed(tmp_path: Path) -> None:
    with (
        Served(
            tmp_path, options={"grpc": "0"}, header_timeout=0.3, body_timeout=0.3, max_connections=2
        ) as server,
        connecting(server) as connect,
        contextlib.ExitStack() as stack,
    ):
        host, _, port = server.started.grpc.rpartition(":")

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))

        for silent in [opened() for _ in range(4)]:
            while silent.recv(1000):
                pass  # settings of the server, then its end
        held = [opened() for _ in range(2)]
        for each in held:
            each.sendall(HTTP2_START)
            assert each.recv(9)
        assert not opened().recv(9)  # one too many
        for each in held:
            each.close()
        client = connect()
        call = client.channel.stream_unary("/joblens.v1.JobService/ListJobs")
        for metadata, code, text in (
            (client.metadata, Code.DEADLINE_EXCEEDED, "no request arrived within"),  # the server's text
            ((), Code.UNAUTHENTICATED, "joblens token create"),
        ):
            requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # nothing ever comes
            error = refused(call, iter(requests.get, b""), metadata=metadata, timeout=TIMEOUT_S)
            assert (error.code(), text in error.details()) == (code, True)
            requests.put(b"")


def test_a_reader_that_does_not_read_is_cut_off_and_others_go_on(tmp_path: Path) -> None:
    with (
        Served(tmp_path, options={"grpc": "0"}, write_timeout=0.5) as server,
        connecting(server) as connect,
    ):
        size = 32 << 20
        (tmp_path / "stdout.log").write_bytes(b"0123456\n" * (size // 8))
        uuid = running_job(server, logs_dir=str(tmp_path))
        server.apply(ended(uuid, stdout_bytes=size))
        stream = connect().logs(uuid, follow=True)
        next(stream)
        hub = server.serving.application.hub
        until = time.monotonic() + TIMEOUT_S / 2
        while hub.streams:
            assert time.monotonic() < until
            time.sleep(0.05)
        positions: list[int] = []
        error = refused(lambda: positions.extend(each.position for each in stream))
        position = positions[-1]
        assert (error.code(), 0 < position < size) == (Code.RESOURCE_EXHAUSTED, True)
        rest = connect().logs(uuid, follow=True, after=position)
        assert sum(len(each.data) for each in rest) == size - position


def test_a_server_that_stops_ends_streams_so_that_clients_come_back(server: Served, connect: Connect) -> None:
    uuid = running_job(server, 3)
    client = connect()
    stream = client.metrics(uuid)
    found = [next(stream).index for _ in range(3)]
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(
        health_pb2.HealthCheckRequest(), metadata=client.metadata, timeout=TIMEOUT_S
    )
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 5
    error = refused(lambda: stream)
    assert (error.code(), "shutting down" in error.details()) == (Code.UNAVAILABLE, True)
    assert [each.status for each in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]
    server.apply(samples(uuid, 3, 2), ended(uuid))
    folder = Path(server.options.socket_path).parent
    with Served(folder, options={"grpc": "0"}) as next_server, connecting(next_server) as again:
        found += [each.index for each in again().metrics(uuid, after=found[-1])]
    assert found == list(range(5))


def test_a_client_that_leaves_frees_its_stream(server: Served, connect: Connect) -> None:
    stream = connect().metrics(running_job(server, 1))
    next(stream)
    hub = server.serving.application.hub
    assert hub.streams == 1
    stream.cancel()
    until = time.monotonic() + TIMEOUT_S
    while hub.streams:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_stream_of_a_deleted_job_ends(server: Served, connect: Connect) -> None:
    uuid = running_job(server, 1)
    stream = connect().metrics(uuid)
    next(stream)
    with server.store() as store:
        store.apply([ended(uuid)])
        store.delete_jobs([uuid], by="ana", at_us=1)
    with contextlib.suppress(grpc.RpcError):  # the end of the job may come first
        list(stream)
    assert stream.code() in (Code.OK, Code.NOT_FOUND)


def test_an_unexpected_error_shows_nothing_of_itself(
    server: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr("joblens.web.rpc.service.list_summaries", fail)
    client = connect()
    error = refused(client.list)
    assert error.code() == Code.INTERNAL
    assert "secret" not in str(error.trailing_metadata()) + error.details()


def test_reflection_describes_the_service_and_health_says_that_it_serves(
    server: Served, connect: Connect
) -> None:
    client = connect()

    class WithToken(grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
        def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
            return continuation(details._replace(metadata=client.metadata), requests)

    database = ProtoReflectionDescriptorDatabase(grpc.intercept_channel(client.channel, WithToken()))
    assert "joblens.v1.JobService" in database.get_services()
    file = database.FindFileContainingSymbol("joblens.v1.JobService")
    assert [each.name for each in file.service[0].method] == list(METHODS)
    assert database.FindFileContainingSymbol("grpc.health.v1.Health").package == "grpc.health.v1"
    health = health_pb2_grpc.HealthStub(client.channel)
    for name, code in (("", None), ("joblens.v1.JobService", None), ("nothing", Code.NOT_FOUND)):
        asked = health_pb2.HealthCheckRequest(service=name)
        if code is None:
            answer = health.Check(asked, metadata=client.metadata, timeout=TIMEOUT_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        else:
            error = refused(health.Check, asked, metadata=client.metadata, timeout=TIMEOUT_S)
            assert error.code() == code
