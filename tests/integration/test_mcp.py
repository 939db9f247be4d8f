"""`joblens mcp` with the client of the official SDK, over standard input and output."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import RunJoblens

if TYPE_CHECKING:
    from mcp.client import Client

# Each answer starts a client and a server. The SDK is imported by the tests: it takes a second.
pytestmark = [pytest.mark.slow, pytest.mark.needs("mcp")]

READING = {
    "list_jobs",
    "show_job",
    "explain_failure",
    "job_output",
    "job_metrics",
    "compare_jobs",
    "rightsize",
}


def with_client(step: Callable[["Client"], Awaitable[Any]], tmp_path: Path, *options: str) -> Any:
    """Starts `joblens mcp` and returns what `step` returns."""
    import anyio
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "joblens", "mcp", *options], env=dict(os.environ), cwd=tmp_path
    )

    async def talk() -> Any:
        with anyio.fail_after(60), open(os.devnull, "w") as errors:  # noqa: ASYNC230
            async with Client(stdio_client(server, errlog=errors)) as client:
                return await step(client)

    return anyio.run(talk)


def ask(tmp_path: Path, tool: str, *options: str, **arguments: Any) -> dict[str, Any]:
    async def step(client: "Client") -> Any:
        return await client.call_tool(tool, arguments)

    answer = with_client(step, tmp_path, *options)
    assert not answer.is_error, answer.content
    found: dict[str, Any] = answer.structured_content
    return found


def refusal(tmp_path: Path, tool: str, **arguments: Any) -> str:
    async def step(client: "Client") -> Any:
        return await client.call_tool(tool, arguments)

    answer = with_client(step, tmp_path)
    assert answer.is_error
    text: str = answer.content[0].text
    return text


@pytest.fixture
def history(joblens: RunJoblens) -> None:
    joblens("run", "--name", "good", "--memory", "512m", "--interval", "50ms", "--", "sleep", "0.4", code=0)
    joblens("run", "--name", "bad", "--", "sh", "-c", "echo no such mesh >&2; exit 3", code=3)


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("options", "tools"),
    [((), READING), (("--allow-changes",), READING | {"cancel_job", "submit_command"})],
    ids=["read-only", "changing"],
)
def test_tools_that_change_something_are_there_only_on_request(
    tmp_path: Path, options: tuple[str, ...], tools: set[str]
) -> None:
    listed = with_client(lambda client: client.list_tools(), tmp_path, *options).tools
    assert {tool.name for tool in listed} == tools
    assert {tool.name for tool in listed if tool.annotations.read_only_hint} == READING
    assert all(tool.description for tool in listed)


@pytest.mark.usefixtures("history")
def test_jobs_are_listed_and_filtered(tmp_path: Path) -> None:
    assert [job["name"] for job in ask(tmp_path, "list_jobs")["jobs"]] == ["bad", "good"]
    (bad,) = ask(tmp_path, "list_jobs", status="failed", since="1h")["jobs"]
    assert (bad["job"], bad["name"], bad["returncode"]) == (2, "bad", 3)
    (good,) = ask(tmp_path, "list_jobs", name="good")["jobs"]
    assert good["duration_s"] >= 0.4
    assert good["cpu_s"] > 0
    assert good["memory_peak_bytes"] > 0


@pytest.mark.usefixtures("history")
def test_a_failure_is_explained_with_the_end_of_its_output(tmp_path: Path) -> None:
    found = ask(tmp_path, "explain_failure", job="bad")
    assert found["is_failure"]
    assert "no such mesh" in found["stderr_end"]
    assert found["findings"][0]["code"] == "exit-code"


@pytest.mark.usefixtures("history")
def test_metrics_are_bounded(tmp_path: Path) -> None:
    found = ask(tmp_path, "job_metrics", job="good", points=3)
    assert found["samples_recorded"] >= len(found["samples"])
    assert 1 <= len(found["samples"]) <= 3
    assert "memory" in found["samples"][0]


@pytest.mark.usefixtures("history")
def test_jobs_are_compared_shown_and_sized(tmp_path: Path, joblens: RunJoblens) -> None:
    joblens("run", "--name", "good", "--memory", "512m", "--", "sleep", "0.1", code=0)
    assert ask(tmp_path, "compare_jobs", job="good")["numbers"]
    assert ask(tmp_path, "show_job", job="1")["name"] == "good"
    sizing = ask(tmp_path, "rightsize", name="good")
    assert (sizing["jobs"], len(sizing["groups"])) == (2, 1)


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("show_job", {"job": "nobody"}, "nobody"),
        ("list_jobs", {"status": "wrong"}, "expected one of"),
        ("job_output", {"job": "1", "stream": "log"}, "expected stdout or stderr"),
        ("cancel_job", {"job": "1"}, "cancel_job"),
    ],
)
def test_what_cannot_be_answered_is_an_error_without_traceback(
    tmp_path: Path, tool: str, arguments: dict[str, str], message: str
) -> None:
    text = refusal(tmp_path, tool, **arguments)
    assert message in text
    assert "Traceback" not in text


def test_a_command_is_submitted_and_cancelled(tmp_path: Path, joblens: RunJoblens) -> None:
    command = ["sleep", "60"]
    started = ask(tmp_path, "submit_command", "--allow-changes", command=command, name="nap", timeout="2m")
    ask(tmp_path, "cancel_job", "--allow-changes", job=str(started["job"]))
    joblens("wait", str(started["job"]))
    assert joblens("show", "nap", "--json", code=0).json["status"] == "cancelled"


def test_without_a_store_there_is_a_message(tmp_path: Path, joblens: RunJoblens) -> None:
    assert "there is no store" in joblens("mcp", code=2).stderr


def test_ctrl_c_ends_it_while_it_waits_for_input(joblens: RunJoblens) -> None:
    joblens("run", "--", "true", code=0)
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": first})
    command = [sys.executable, "-m", "joblens", "mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(line.encode() + b"\n")
        server.stdin.flush()
        assert b'"joblens"' in server.stdout.readline()
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(20.0) == -signal.SIGINT
        finally:
            server.kill()
