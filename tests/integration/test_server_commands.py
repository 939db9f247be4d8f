"""`joblens serve` and `joblens token`, as people call them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from joblens.cli.commands.serve import has_desktop
from tests.conftest import RunJoblens, python_path
from tests.integration.screens import run_on_terminal
from tests.integration.served import UnixConnection


@contextmanager
def serving(
    store: Path, *words: str, pass_fds: Sequence[int] = (), **env: str
) -> Iterator[tuple[Any, dict[str, Any]]]:
    command = [sys.executable, "-m", "joblens", "serve", "--json", *words]
    if pass_fds:  # as systemd starts it: descriptors from 3 on, and the pid of the process itself
        script = f'exec 3<&{pass_fds[0]}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        command = ["/bin/bash", "-c", script, "sh", *command]
    environ = {
        **os.environ,
        "JOBLENS_STORE": str(store),
        "JOBLENS_SERVER_SOCKET": str(store.parent / "s.sock"),
    }
    with subprocess.Popen(
        command,
        env={**environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()
            yield process, json.loads(line)
        finally:
            process.kill()
            process.communicate()


def session_of(socket_path: str) -> dict[str, Any]:
    connection = UnixConnection(socket_path)
    connection.request("GET", "/api/v1/session")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_serve_says_how_to_reach_it_and_ends_on_sigterm(tmp_path: Path) -> None:
    with serving(tmp_path / "j.db", "--port", "0") as (process, started):
        assert started["url"].startswith("http://127.0.0.1:")
        assert started["sign_in_url"].startswith(f"{started['url']}/sign-in?code=")
        assert started["ssh"].startswith("ssh -N -L ")
        assert session_of(started["socket"])["principal"]["role"] == "admin"
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=30)
        assert (process.returncode, error) == (0, "")
        assert not os.path.exists(started["socket"])


@pytest.mark.needs("grpc_health", "grpc_reflection")
def test_serve_also_serves_grpc_if_asked(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    with serving(tmp_path / "j.db", "--port", "0", "--grpc", "0") as (process, started):
        with grpc.insecure_channel(started["grpc"]) as channel:
            call = channel.unary_unary("/joblens.v1.JobService/ListJobs")
            with pytest.raises(grpc.RpcError, match="joblens token create"):
                call(b"", timeout=20)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=30)
        assert (process.returncode, error) == (0, "")


def test_grpc_that_cannot_be_served_is_an_error(
    joblens: RunJoblens, tmp_path: Path, store_path: Path
) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError('no gRPC here', name='grpc')")
    environ = {
        **os.environ,
        "JOBLENS_STORE": str(store_path),
        "JOBLENS_SERVER_SOCKET": str(tmp_path / "s.sock"),
        "PYTHONPATH": python_path(tmp_path),
    }
    command = [sys.executable, "-m", "joblens", "serve", "--port", "0", "--grpc"]
    for address, text in (("0", "joblens[grpc]"), ("nowhere", "[HOST:]PORT")):
        done = subprocess.run(
            [*command, address], env=environ, check=False, capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_serve_opens_the_browser_of_a_desktop(tmp_path: Path, store_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{seen}\nkill -TERM $PPID\n')
    browser.chmod(0o755)
    code, screen = run_on_terminal(
        *("serve", "--port", "0"),
        cwd=tmp_path,
        JOBLENS_SERVER_SOCKET=str(tmp_path / "s.sock"),
        DISPLAY=":9",
        BROWSER=f"{browser} %s",
        SSH_CONNECTION="",
        SSH_TTY="",
        CI="",
    )
    assert code == 0, screen
    assert "/sign-in?code=" in seen.read_text()
    assert seen.read_text().strip() in screen.decode()


@pytest.mark.parametrize(
    ("env", "platform", "expected"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({}, "darwin", True),
        ({"DISPLAY": "localhost:10", "SSH_CONNECTION": "1 2 3 4"}, "linux", False),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", False),
    ],
)
def test_a_browser_opens_only_where_someone_sees_it(
    env: dict[str, str], platform: str, expected: bool
) -> None:
    assert has_desktop(env, platform) is expected


def test_serve_takes_the_socket_that_systemd_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with serving(tmp_path / "j.db", pass_fds=[listener.fileno()]) as (_, started):
            assert started["url"].endswith(f":{port}")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/sign-in")
            assert connection.getresponse().status == 200
            connection.close()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "0.0.0.0"], "other machines"),
        (["--tls-cert", "x.pem"], "a certificate and a key"),
        (["--base-path", "x"], "base path"),
        (["--client-ca", "x.pem"], "need TLS"),
    ],
)
def test_serve_refuses_what_would_expose_it(
    joblens: RunJoblens, store_path: Path, words: list[str], text: str
) -> None:
    done = joblens("serve", *words)
    assert (done.code, text in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_reported(joblens: RunJoblens, store_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = joblens("serve", "--port", str(listener.getsockname()[1]))
    assert (done.code, "cannot listen" in done.stderr) == (125, True)


def test_tokens_are_created_listed_rotated_and_revoked(joblens: RunJoblens, store_path: Path) -> None:
    created = json.loads(joblens("token", "create", "laptop", "--role", "operator", "--json").stdout)
    assert created["secret"].startswith("jl_")
    assert "hash" not in created["token"]
    listed = joblens("token", "list").stdout
    assert "laptop" in listed
    assert created["secret"] not in listed
    new = joblens("token", "rotate", "laptop").stdout.strip()
    assert new.startswith("jl_")
    assert joblens("token", "revoke", created["token"]["id"], "laptop").code == 0
    assert "No tokens" in joblens("token", "list").stdout
    states = [
        each["revoked_at_us"] for each in json.loads(joblens("token", "list", "--all", "--json").stdout)
    ]
    assert len(states) == 2
    assert None not in states


@pytest.mark.parametrize(
    "words",
    [
        ["create", ""],
        ["create", "x", "--expires", "soon"],
        ["create", "x", "--role", "king"],
        ["revoke", "nobody"],
        ["rotate", "nobody"],
        ["rotate"],
    ],
)
def test_a_wrong_token_command_is_bad_input(joblens: RunJoblens, store_path: Path, words: list[str]) -> None:
    done = joblens("token", *words)
    assert done.code == 2
    assert done.stderr.startswith("joblens: error:")
