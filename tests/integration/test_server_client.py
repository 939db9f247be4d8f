"""`joblens.Client` and `joblens.AsyncClient` with a real server: values, streams, changes and errors."""

import asyncio
import gzip
import http.server
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("starlette")

import joblens
from joblens.model.access import Role
from joblens.model.errors import (
    AccessDenied,
    IncompatibleServer,
    InputError,
    ServerUnreachable,
    SignInRequired,
    UnknownJob,
)
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.model.questions import API_HEADER, API_VERSION, VERSION_HEADER
from joblens.model.runs.run import RunStatus
from joblens.stores.remote import events
from tests.builders.writes import NOON_US, SECOND, ended, queued, samples, started, whole_job
from tests.conftest import REPOSITORY, wait_until
from tests.integration.served import Served, certificate

PAIR = {"name": "pair", "jobs": [{"name": "a", "command": "true"}, {"name": "b", "command": "false"}]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as one:
        yield one


def client_of(server: Served, role: Role = Role.ADMIN, **options: Any) -> joblens.Client:
    return joblens.Client(f"http://127.0.0.1:{server.port}", server.token(role), **options)


def test_values_are_those_of_the_store(server: Served) -> None:
    for number in range(3):
        at_us = NOON_US + number * SECOND
        status = Status.FAILED if number == 1 else Status.SUCCESS
        server.apply(*whole_job(f"job-{number}", status, at_us=at_us, name=f"n{number}", sample_count=20))
    with server.store() as store, client_of(server, Role.READER) as client:
        assert list(client.jobs()) == list(store.records(HistoryQuery()))
        assert [each.job.name for each in client.jobs(status="failed", name="n*", limit=5)] == ["n1"]
        assert client.job(2) == client.job("job-1") == store.find("job-1")
        assert client.statistics() == store.statistics(HistoryQuery())
        assert list(client.samples(1, after=4)) == store.samples("job-0", 4, 100)
        assert client.details(1) == store.details("job-0")
        assert client.sql("SELECT name FROM jobs ORDER BY 1").rows == [("n0",), ("n1",), ("n2",)]
        assert client.series(1, points=10).at_us[-1] == NOON_US + 19 * SECOND
        assert (client.running(), client.workflows(), client.annotations(1)) == ([], [], [])
        assert client.advice("n0").jobs == 1
        assert client.health().version == joblens.__version__


def test_a_command_is_submitted_followed_repeated_and_deleted(server: Served, tmp_path: Path) -> None:
    with client_of(server) as client:
        command = "for i in 1 2 3; do echo $i; sleep 0.2; done"
        job = client.submit(command, name="count", cwd=str(tmp_path), timeout="1m", tags=["x"], key="k")
        assert (
            client.submit(command, name="count", cwd=str(tmp_path), timeout="1m", tags=["x"], key="k") == job
        )
        assert b"".join(client.follow_log(job.job.uuid)) == b"1\n2\n3\n"
        record = client.wait(job.job.uuid, timeout_s=30)
        assert (record.status, record.job.tags) == (Status.SUCCESS, ("x",))
        assert client.log(record.number or 0, tail=1) == b"3\n"
        followed = list(client.follow_samples(job.job.uuid))
        assert followed == list(client.samples(job.job.uuid))
        assert client.tag(job.job.uuid, add=["y"], remove=["x"]).job.tags == ("y",)
        assert client.annotate(job.job.uuid, "looks good").text == "looks good"
        again = client.wait(client.rerun(job.job.uuid).job.uuid, timeout_s=30)
        assert (again.status, again.job.uuid != job.job.uuid) == (Status.SUCCESS, True)
        nap = client.submit(["sleep", "60"])
        client.cancel(nap.job.uuid)
        assert client.wait(nap.job.uuid, timeout_s=30).status is Status.CANCELLED
        assert client.delete(job.job.uuid).uuid == job.job.uuid
        with pytest.raises(UnknownJob):
            client.job(job.job.uuid)


def test_a_workflow_is_started_followed_and_repeated(server: Served, tmp_path: Path) -> None:
    with client_of(server) as client:
        run = client.start_run(PAIR, cwd=str(tmp_path))
        events = list(client.follow_run(run.uuid))
        assert events == client.run_events(run.uuid)
        assert client.wait_for_run(run.uuid, timeout_s=30).status is RunStatus.FAILED
        assert [(each.name, each.state.label) for each in client.run_jobs("pair")] == [
            ("a", "completed"),
            ("b", "failed"),
        ]
        repeated = client.rerun_run(run.uuid, failed=True)
        assert client.wait_for_run(repeated.uuid, timeout_s=30).status is RunStatus.FAILED
        assert [each.uuid for each in client.runs("pair")] == [run.uuid, repeated.uuid]
        assert client.cancel_run(run.uuid).status is RunStatus.FAILED  # it has ended
        with pytest.raises(InputError, match="cannot be resumed"):
            client.resume_run(run.uuid)


def test_a_stream_continues_after_the_server_was_restarted(tmp_path: Path) -> None:
    server = Served(tmp_path).__enter__()
    port, token = server.port, server.token()
    server.apply(queued("live"), started("live"), samples("live", 0, 3))
    found: list[int] = []

    def follow() -> None:
        client = joblens.Client(f"http://127.0.0.1:{port}", token)
        found.extend(index for index, _ in client.follow_samples("live"))

    reader = threading.Thread(target=follow)
    reader.start()
    until = time.monotonic() + 20
    while len(found) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    server.stop()
    with Served(tmp_path, options={"port": port}) as again:
        again.apply(samples("live", 3, 4), ended("live"))
        reader.join(30)
    assert found == list(range(7))


def test_a_quiet_stream_continues_after_its_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the server's heartbeats came for longer than a server may be away."""
    monkeypatch.setattr(events, "_AWAY_S", 0.5)
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        quiet, _ = listener.accept()
        quiet.sendall(head)
        for _ in range(10):
            quiet.sendall(b": \n\n")
            time.sleep(0.1)
        quiet.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        quiet.close()  # resets it
        live, _ = listener.accept()
        with live:
            event = b'id: 5\nevent: log\ndata: {"text": "on"}\n\nevent: end\ndata: {}\n\n'
            live.sendall(head + event)

    server = threading.Thread(target=answer, daemon=True)
    server.start()
    with listener, joblens.Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
        assert list(client.follow_log("quiet")) == [b"on"]
    server.join(10)


def test_an_asynchronous_client_asks_and_follows_at_the_same_time(server: Served, tmp_path: Path) -> None:
    server.apply(*whole_job("old", name="old", sample_count=3000, at_us=time.time_ns() // 1000))

    async def work(client: joblens.AsyncClient) -> None:
        job = await client.submit("echo one; sleep 0.3; echo two", cwd=str(tmp_path))

        async def log() -> bytes:
            return b"".join([part async for part in client.follow_log(job.job.uuid)])

        output, records, listed = await asyncio.gather(
            log(),
            asyncio.gather(*(client.job("old") for _ in range(20))),
            asyncio.to_thread(lambda: None),
        )
        assert (output, {each.job.name for each in records}, listed) == (b"one\ntwo\n", {"old"}, None)
        assert (await client.wait(job.job.uuid, timeout_s=30)).status is Status.SUCCESS
        assert [index async for index, _ in client.samples("old")] == list(range(3000))
        assert [each.job.name async for each in client.jobs(name="old")] == ["old"]
        async for index, _ in client.follow_samples("old"):
            if index == 5:
                await asyncio.sleep(0.5)  # its thread is ahead as far as it may be
                break
        with pytest.raises(UnknownJob):
            await client.job("nobody")
        with pytest.raises(TimeoutError):
            await client.wait((await client.submit(["sleep", "5"])).job.uuid, timeout_s=0.1)

    async def main() -> None:
        url, token = f"http://127.0.0.1:{server.port}", server.token(Role.OPERATOR)
        async with joblens.AsyncClient(url, token, connections=3) as client:
            await asyncio.wait_for(work(client), 60)

    asyncio.run(main())
    wait_until(
        lambda: not [each for each in threading.enumerate() if each.name == "joblens-stream"],
        what="the end of the stream that was left",
    )


def test_errors_are_those_of_the_command_line(server: Served, tmp_path: Path) -> None:
    server.apply(*whole_job("one", name="one"))
    with client_of(server, Role.READER) as client:
        with pytest.raises(AccessDenied, match="role operator"):
            client.submit(["true"])
        with pytest.raises(UnknownJob, match="nobody"):
            client.job("nobody")
        with pytest.raises(InputError, match="no status 'bad'"):
            list(client.jobs(status="bad"))
        with pytest.raises(InputError, match="nowhere"):
            client.sql("SELECT x FROM nowhere")
        assert client.job("one").job.name == "one"  # the connection still works
    for token in ("jl_wrong", ""):
        with (
            joblens.Client(f"http://127.0.0.1:{server.port}", token) as client,
            pytest.raises(SignInRequired),
        ):
            client.health()
    with pytest.raises(ServerUnreachable, match="cannot be reached"):
        joblens.Client(str(tmp_path / "none.sock")).health()
    with pytest.raises(ServerUnreachable):
        list(joblens.Client(str(tmp_path / "none.sock")).follow_log(1))
    for url in (
        "http://example.org",
        "ftp://127.0.0.1",
        "nonsense",
        "https://u:p@example.org",
        "http://[::1",
    ):
        with pytest.raises(InputError):
            joblens.Client(url)
    with pytest.raises(InputError, match="token"):
        joblens.Client("http://127.0.0.1:1", "two words")


def test_a_server_with_tls_needs_its_authority_and_perhaps_a_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "localhost")
    own, own_key = certificate(tmp_path, "client")
    options = {"certificate": cert, "key": key, "client_ca": own}
    with Served(tmp_path, options=options) as server:
        url, token = f"https://localhost:{server.port}", server.token()
        with joblens.Client(url, token, ca=cert, cert=own, key=own_key) as client:
            assert client.health().status == "healthy"
        with pytest.raises(ServerUnreachable, match="certificate verify failed") as unknown:
            joblens.Client(url, token).health()
        assert "client.ca" in (unknown.value.hint or "")
        with pytest.raises(ServerUnreachable) as unnamed:
            joblens.Client(url, token, ca=cert).health()
        assert "client.cert" in (unnamed.value.hint or "")
        with pytest.raises(InputError, match="cannot be used"):
            joblens.Client(url, token, ca=cert, cert=own, key=cert).health()


def test_the_examples_of_the_guide_run(
    server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now_us = time.time_ns() // 1000
    server.apply(*whole_job("old", Status.FAILED, at_us=now_us, name="old", sample_count=3))
    page = (REPOSITORY / "docs" / "client.md").read_text(encoding="utf-8")
    changes = {
        "https://jobs.example.org/joblens": f"http://127.0.0.1:{server.port}",
        "http://127.0.0.1:7373": f"http://127.0.0.1:{server.port}",
        "jl_...": server.token(Role.OPERATOR),
        "/data/train": str(tmp_path),
        '"python3", "train.py"': '"echo", "hello"',
        "(42)": "(1)",
    }
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for code in examples:
        for old, new in changes.items():
            code = code.replace(old, new)  # noqa: PLW2901
        exec(compile(code, "client.md", "exec"), {})
    assert len(examples) == 2
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["1 old None", "hello", "success", "0 None", "1 None", "2 None"]


class Answers(http.server.BaseHTTPRequestHandler):
    """Another server: of another version, or none of joblens at all."""

    protocol_version = "HTTP/1.1"
    status, body = 200, b"{}"
    extra: Mapping[str, str] = MappingProxyType({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        for name, value in self.extra.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST  # noqa: N815 - http.server's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        pass


@contextmanager
def answering(**fields: Any) -> Iterator[str]:
    kind = type("Other", (Answers,), fields)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{other.server_address[1]}"
        other.shutdown()


def test_a_server_of_another_version_is_noted_or_refused(server: Served) -> None:
    notes: list[str] = []
    headers = {VERSION_HEADER: "9.0", API_HEADER: str(API_VERSION)}
    body = json.dumps({"records": [], "next": None}).encode()
    with answering(body=body, extra=headers) as url, joblens.Client(url, note=notes.append) as client:
        assert (list(client.jobs()), list(client.jobs())) == ([], [])
    assert notes == [f"the server {url} has joblens 9.0, this is {joblens.__version__}"]
    with answering(extra={VERSION_HEADER: "9.0", API_HEADER: "99"}) as url, joblens.Client(url) as client:
        with pytest.raises(IncompatibleServer, match="version 99") as refused:
            client.job(1)
        assert "9.0" in (refused.value.hint or "")
    newer = server.post("/api/v1/store/delete", {"of": "another form"}, **{API_HEADER: "99"})
    assert (newer.status, newer.json["code"]) == (400, "IncompatibleServer")  # before anything is done
    assert joblens.__version__ in newer.json["hint"]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, b"<html>a proxy</html>", IncompatibleServer),
        (200, b"[]", IncompatibleServer),
        (404, b"<html>not found</html>", InputError),
        (404, b'{"status": 404, "title": "Not Found"}', InputError),
        (502, b'{"status": 502, "title": "Bad Gateway"}', ServerUnreachable),
        (503, b"<html>of a proxy whose server is restarted</html>", ServerUnreachable),
        (302, b"", InputError),
    ],
)
def test_what_is_no_joblens_server_is_an_error_that_says_so(
    status: int, body: bytes, error: type[Exception]
) -> None:
    with (
        answering(status=status, body=body) as url,
        joblens.Client(url) as client,
        pytest.raises(error, match=url),
    ):
        client.job(1)


_PACKED = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize("body", [b"no gzip", _PACKED[:-5], _PACKED[:10] + b"\xff" * 20])
def test_an_answer_that_is_compressed_wrongly_is_an_error(body: bytes) -> None:
    with (
        answering(body=body, extra={"content-encoding": "gzip"}) as url,
        joblens.Client(url) as client,
        pytest.raises(ServerUnreachable, match="cannot be decompressed"),
    ):
        client.job(1)


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_stream_waits_for_a_server_that_has_too_many_requests_or_is_restarted(status: int) -> None:
    class Busy(Answers):
        asked = 0

        def do_GET(self) -> None:
            type(self).asked += 1
            self.status = status if self.asked <= 2 else 200
            self.body = (
                b"<html></html>" if self.asked <= 2 else b'id: 3\nevent: end\ndata: {"reason": "x"}\n\n'
            )
            self.do_POST()

    with answering(do_GET=Busy.do_GET, asked=0) as url, joblens.Client(url) as client:
        assert [event.name for event in client.stream_of_samples(1)] == ["end"]
