"""Limits of the server: slow, half-open, greedy and confused clients; TLS; addresses."""

import contextlib
import http.client
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from joblens.model.errors import InputError, ServeError
from joblens.model.values.ids import new_uuid
from joblens.web.application import all_endpoints
from joblens.web.guard import Rates, host_name
from joblens.web.listeners import ServeOptions, allowed_hosts, check_options, listen_unix, url_to_open
from tests.integration.served import Served, certificate

API = "/api/v1"


def test_a_client_that_sends_headers_slowly_is_disconnected(tmp_path: Path) -> None:
    with Served(tmp_path, header_timeout=0.3) as server:
        assert b"408" in server.raw(b"GET /api/v1/jobs HTTP/1.1\r\nHost: loc")
        assert b"408" in server.raw(b"")  # connected, and silent
        assert server.get(f"{API}/session").status == 200


def test_a_client_that_sends_a_body_slowly_is_disconnected(tmp_path: Path) -> None:
    with Served(tmp_path, body_timeout=0.3) as server:
        token = server.token_of_operator()
        head = f"POST {API}/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        kind = "Content-Type: application/json\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{"
        assert b"408" in server.raw((head + kind).encode())


def test_a_large_body_is_refused(tmp_path: Path) -> None:
    with Served(tmp_path, max_body=1000) as server:
        answer = server.post(f"{API}/jobs", b"x" * 2000)
        assert (answer.status, "max_body" in answer.json["hint"]) == (413, True)
        chunks = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        chunks += f"Authorization: Bearer {server.token_of_operator()}\r\n".encode()
        chunks += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks += b"400\r\n" + b"x" * 1024 + b"\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n"
        assert b"413" in server.raw(chunks)


def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    with Served(tmp_path, max_connections=2) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        until = time.monotonic() + 10
        while b"503" not in server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
            assert time.monotonic() < until
        assert server.get(f"{API}/session").status == 200  # the owner's socket has a number of its own
        for each in held:
            each.close()
        while b"303" not in server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
            assert time.monotonic() < until


def test_too_many_requests_are_refused(tmp_path: Path) -> None:
    with Served(tmp_path, rate=0.5) as server:
        token = server.token()
        answers = [server.get(f"{API}/session", token) for _ in range(8)]
        assert [each.status for each in answers] == [200] * 5 + [429] * 3
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert server.get(f"{API}/session").status == 200  # the owner's socket has no rate


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    rates = Rates(2.0, 3.0, lambda: now[0])
    assert [rates.wait_s("a") for _ in range(3)] == [0.0] * 3
    assert rates.wait_s("a") == pytest.approx(0.5)
    assert rates.wait_s("b") == 0.0
    now[0] += 0.5
    assert rates.wait_s("a") == 0.0


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_with_400(tmp_path: Path, request_bytes: bytes) -> None:
    with Served(tmp_path, header_timeout=0.5) as server:
        answer = server.raw(request_bytes)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
        assert b"problem+json" in answer
        assert server.get(f"{API}/session").status == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:80", "localhost"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("LOCALHOST", "localhost"),
        ("a:b", ""),
        ("[::1", ""),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:80"),
        ({"host": "::1", "base_path": "/j"}, "http://[::1]:80/j"),
        ({"host": "0.0.0.0", "certificate": "c"}, f"https://{socket.gethostname().lower()}:80"),
        ({"host": "::", "certificate": "c", "hosts": ("jobs.example.org",)}, "https://jobs.example.org:80"),
        (
            {"host": "127.0.0.1", "is_behind_proxy": True, "hosts": ("jobs.example.org",), "base_path": "/j"},
            "https://jobs.example.org/j",
        ),
        ({"host": "0.0.0.0", "is_behind_proxy": True}, "http://localhost:80"),
    ],
)
def test_the_sign_in_url_is_one_that_the_server_answers(options: dict[str, Any], url: str) -> None:
    made = ServeOptions(port=80, socket_path="", **options)
    assert url_to_open(made, 80) == url
    assert host_name(url.partition("//")[2].partition("/")[0]) in allowed_hosts(made, bound_host="")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_an_address_of_other_machines_needs_tls_or_a_proxy(host: str) -> None:
    options = ServeOptions(host=host, port=0, socket_path="")
    with pytest.raises(InputError, match="other machines"):
        check_options(options)


@pytest.mark.parametrize("path", ["joblens", "/joblens/", "//x", "/a\nb"])
def test_a_base_path_is_a_path(path: str) -> None:
    with pytest.raises(InputError, match="base path"):
        check_options(ServeOptions(host="127.0.0.1", port=0, socket_path="", base_path=path))


def test_a_proxy_may_strip_the_base_path_or_not(tmp_path: Path) -> None:
    options = {"is_behind_proxy": True, "base_path": "/joblens"}
    with Served(tmp_path, options=options) as server:
        token = server.token()
        assert server.get(f"/joblens{API}/session", token).status == 200
        assert server.get(f"{API}/session", token).status == 200
        page = server.get("/joblens/sign-in", "")
        assert 'action="/joblens/sign-in"' in page.text
        first = server.get("/joblens", "")
        assert (first.status, first.headers["location"]) == (303, "/joblens/sign-in")


def test_a_second_server_of_the_same_store_is_refused(tmp_path: Path) -> None:
    with Served(tmp_path), pytest.raises(ServeError, match="another server"):
        listen_unix(str(tmp_path / "s.sock"))


def test_a_socket_whose_server_was_killed_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    with Served(tmp_path) as server:
        assert server.get(f"{API}/session").status == 200


def name_of(port: int) -> str:
    context = ssl._create_unverified_context()
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as tls:
        der = tls.getpeercert(binary_form=True)
    assert der is not None
    return "second" if b"second" in der else "first"


def test_a_changed_certificate_is_used_for_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.web.serving._RELOAD_S", 0.1)
    cert, key = certificate(tmp_path, "first")
    with Served(tmp_path, options={"certificate": cert, "key": key}) as server:
        assert name_of(server.port) == "first"
        Path(cert).write_text("broken")
        until = time.monotonic() + 20
        while not server.warnings:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert name_of(server.port) == "first"
        other, other_key = certificate(tmp_path, "second")
        Path(other_key).rename(key)
        Path(other).rename(cert)
        while name_of(server.port) != "second":
            assert time.monotonic() < until
            time.sleep(0.05)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, context=ssl._create_unverified_context()
        )
        connection.request("GET", "/sign-in")
        headers = dict(connection.getresponse().getheaders())
        assert "max-age" in headers["strict-transport-security"]
        connection.close()


def test_clients_need_a_certificate_where_it_is_required(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "first")
    client, client_key = certificate(tmp_path, "client")
    options = {"certificate": cert, "key": key, "client_ca": client}
    with Served(tmp_path, options=options) as server:
        context = ssl._create_unverified_context()

        def status() -> int:
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=20)
            with contextlib.closing(connection):
                connection.request("GET", f"{API}/session")
                return connection.getresponse().status

        with pytest.raises(OSError):
            status()
        context.load_cert_chain(client, client_key)
        assert status() == 401  # a certificate does not replace a token


def test_a_certificate_that_cannot_be_used_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    options = {"certificate": str(tmp_path / "x.pem"), "key": str(tmp_path / "x.pem")}
    with pytest.raises(ServeError, match="cannot be used: not PEM"), Served(tmp_path, options=options):
        pass
    options["key"] = str(tmp_path / "none.pem")
    with pytest.raises(ServeError, match=r"there is no .*none\.pem"), Served(tmp_path, options=options):
        pass


def test_a_client_that_connects_without_a_tls_handshake_is_disconnected(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "first")
    options = {"certificate": cert, "key": key}
    with (
        Served(tmp_path, options=options, header_timeout=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent,
    ):
        assert silent.recv(1) == b""


def test_slow_questions_do_not_delay_others(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    body = {"text": endless, "limits": {"seconds": 1.5}}
    with Served(tmp_path) as server, ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(server.post, f"{API}/store/sql", body) for _ in range(4)]
        time.sleep(0.3)
        assert server.get(f"{API}/jobs", server.token()).status == 200  # its token must be looked up, too
        assert server.get(f"{API}/overview").status == 200  # questions that take long on their own
        assert not any(each.done() for each in slow)
        assert [each.result().status for each in slow] == [400] * 4


def test_questions_that_read_all_jobs_have_threads_of_their_own() -> None:
    slow = {each.name for each in all_endpoints() if each.is_slow}
    assert slow >= {
        "countJobs",
        "getStatistics",
        "storeCount",
        "storeStatistics",
        "storeTagged",
        "getOverview",
    }
    assert slow >= {"startRun", "resumeRun", "rerunRun"}  # they start a process and wait for it


def test_a_question_in_sql_ends_in_time_also_inside_a_function(tmp_path: Path) -> None:
    endless = "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')"
    body = {"text": endless, "limits": {"seconds": 1.0, "is_trusted": True}}  # only joblens itself is
    with Served(tmp_path) as server:
        answer = server.post(f"{API}/store/sql", body)
    assert (answer.status, "took longer than 1" in answer.json["detail"]) == (400, True)


def test_a_column_that_samples_do_not_have_is_refused(tmp_path: Path) -> None:
    body = {"uuid": new_uuid(), "names": ["processes", "procesess"], "from_us": 0, "to_us": 1}
    with Served(tmp_path) as server:
        answer = server.post(f"{API}/store/series", body)
    assert (answer.status, "unknown field 'procesess'" in answer.json["detail"]) == (400, True)
