"""`--server` and JOBLENS_SERVER: every command that reads the store answers as on the store itself, and
changes happen on the server's machine."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from joblens.model.access import Role
from tests.conftest import Finished, RunJoblens
from tests.integration.served import Served

PAIR = """
name: pair
jobs:
  - {name: a, command: "echo first; sleep 0.2"}
  - {name: b, command: "echo second; exit 3", depends_on: [a]}
"""
READING = [
    "history",
    "history --json --status failed",
    "job-history --limit 1",
    "stats",
    "job-stats --json",
    "show one",
    "job-details job:1 --json",
    "jobs get job:1",
    "list",
    "status job:1",
    "workflow-status job:1",
    "workflows",
    "workflows show pair",
    "results pair.1",
    "reports results pair.1 --json",
    "reports summary pair.1",
    "jobs list pair.1",
    "check pair.1",
    "rightsize pair",
    "rightsize --jobs one",
    "diff job:1 job:2",
    "metrics job:1",
    "job metrics job:1 --json",
    "logs one",
    "logs bad --stderr",
    "jobs logs one",
    "graph pair.1",
    "plan pair.1",
    "watch pair.1",
    "wait job:2",
    "health",
    "user-data list pair.1",
    "datasets list pair.1",
    "export csv --output -",
    "export samples job:1 --output -",
    "show nobody",
    "results nobody",
    "history --status king",
]


@pytest.fixture
def server(tmp_path: Path, store_path: Path, joblens: RunJoblens) -> Iterator[Served]:
    (tmp_path / "pair.yaml").write_text(PAIR)
    joblens(
        "run", "--name", "one", "--tag", "t", "--interval", "100ms", "--", "sh", "-c", "echo hi; sleep 0.3"
    )
    joblens("run", "--name", "bad", "--", "sh", "-c", "echo no such mesh >&2; exit 3", code=3)
    joblens("run", "pair.yaml", code=1)
    with Served(tmp_path, store=str(store_path)) as one:
        yield one


@pytest.fixture
def remote(server: Served, joblens: RunJoblens) -> RunJoblens:
    """The command line with a server and a token alone: it must not find the store."""
    env = {
        "JOBLENS_SERVER": f"http://127.0.0.1:{server.port}",
        "JOBLENS_TOKEN": server.token(Role.ADMIN, user="ana"),
        "JOBLENS_STORE": "",
        "XDG_DATA_HOME": "/nonexistent",
    }

    def run(*words: str | Path, code: int | None = None, **more: Any) -> Finished:
        return joblens(*words, code=code, env={**env, **more.get("env", {})})

    return run


def without_ages(text: str) -> str:
    return re.sub(" +", " ", re.sub(r"\b\d+m?s ago|\bnow\b", "", text))


@pytest.mark.slow
def test_reading_commands_answer_as_on_the_store(joblens: RunJoblens, remote: RunJoblens) -> None:
    for line in READING:
        words = line.split()
        here, there = joblens(*words), remote(*words)
        assert (there.code, there.stderr) == (here.code, here.stderr), line
        assert without_ages(there.stdout) == without_ages(here.stdout), line
    query = "SELECT number, name, status FROM jobs ORDER BY number"
    assert remote("sql", query, code=0).stdout == joblens("sql", query, code=0).stdout
    queues = remote("health", "--broker", "redis://127.0.0.1:1", code=2)
    assert "--broker" in queues.stderr
    assert "0 running" in remote("top", "--once", code=0).stdout


@pytest.mark.needs("plotly")
def test_plots_and_exports_are_written_here(remote: RunJoblens, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    remote("plot", "job:1", "--output", tmp_path / "plots", code=0)
    assert list((tmp_path / "plots").glob("*.html"))
    remote("export", "parquet", "--output", tmp_path / "jobs.parquet", code=0)
    assert (tmp_path / "jobs.parquet").read_bytes()[:4] == b"PAR1"


@pytest.mark.slow
def test_jobs_are_submitted_followed_repeated_cancelled_and_deleted(
    remote: RunJoblens, joblens: RunJoblens, tmp_path: Path
) -> None:
    uuid = remote(
        "submit", "--name", "live", "--", "sh", "-c", "echo 1; sleep 0.5; echo 2", code=0
    ).stdout.strip()
    assert remote("logs", "-f", "live", code=0).stdout == "1\n2\n"
    assert remote("metrics", uuid, "--follow", "--json", code=0).json_lines
    assert "/\n" in remote("submit", "--wait", "--cwd", "/", "--", "pwd", code=0).stdout
    assert remote("submit", "--wait", "--", "sh", "-c", "exit 7").code == 7
    assert remote("rerun", "live", code=0).stdout == "1\n2\n"
    nap = remote("submit", "--", "sleep", "60", code=0).stdout.strip()
    assert nap[:8] in remote("list", code=0).stdout
    assert nap[:8] in remote("top", "--once", code=0).stdout
    remote("cancel", nap, code=0)
    assert remote("wait", nap).code == 143
    assert joblens("show", nap, "--json", code=0).json["status"] == "cancelled"
    remote("delete", uuid, "--dry-run", code=0)
    joblens("show", uuid, code=0)
    remote("delete", uuid, "--yes", code=0)
    assert joblens("show", uuid).code == 2


@pytest.mark.slow
def test_runs_are_submitted_repeated_and_watched(remote: RunJoblens, joblens: RunJoblens) -> None:
    run = remote("submit", "pair.yaml", code=0).stdout.strip()
    assert remote("watch", run).code == 1
    assert "second" in remote("logs", "b", code=0).stdout
    repeated = remote("rerun", run, "--failed")
    assert (repeated.code, "failed" in repeated.stdout) == (1, True)
    refused, here = remote("resume", run, code=1), joblens("resume", run, code=1)
    assert (refused.stdout, "cannot be resumed" in refused.stdout) == (here.stdout, True)
    assert remote("cancel", run).code == joblens("cancel", run).code


@pytest.mark.parametrize(
    ("line", "env", "code", "message"),
    [
        ("run -- true", {}, 2, "joblens run does not work on a server"),
        ("doctor", {}, 2, "doctor does not work on a server"),
        ("store path", {}, 2, "store path does not work on a server"),
        ("history --store x.db --server http://127.0.0.1:1", {}, 2, "cannot be combined"),
        ("history", {"JOBLENS_TOKEN": "jl_wrong"}, 2, "the token is not known here"),
        ("history", {"JOBLENS_TOKEN": ""}, 2, "no valid token"),
        ("history --server http://127.0.0.1:1", {}, 125, "cannot be reached"),
        ("history --server http://jobs.example.org", {}, 2, "unencrypted"),
        ("bench -- true", {}, 2, "joblens bench does not work on a server"),
        ("history --server http://127.0.0.1:{port}/elsewhere", {}, 2, "there is no joblens server at"),
        ("history --server https://127.0.0.1:{port}", {}, 125, "it answers without TLS"),
        ("history --server nonsense", {}, 2, "not a URL of a server"),
    ],
)
def test_a_server_that_cannot_be_used_is_an_error(
    server: Served, remote: RunJoblens, line: str, env: dict[str, str], code: int, message: str
) -> None:
    done = remote(*line.format(port=server.port).split(), env=env)
    assert (done.code, message in done.stderr, done.stdout) == (code, True, "")
    assert "Traceback" not in done.stderr


def test_a_token_comes_from_a_private_file(server: Served, joblens: RunJoblens, tmp_path: Path) -> None:
    file = tmp_path / "home" / "config" / "joblens" / "token"
    file.parent.mkdir(exist_ok=True)
    file.write_text(server.token() + "\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    url = f"http://127.0.0.1:{server.port}"
    assert "one" in joblens("history", "--server", url, code=0, env={"JOBLENS_STORE": ""}).stdout
    denied = joblens("submit", "--server", url, "--", "true", env={"JOBLENS_STORE": ""})
    assert (denied.code, "role operator" in denied.stderr) == (2, True)
    file.chmod(0o644)
    refused = joblens("history", "--server", url, env={"JOBLENS_STORE": ""})
    assert (refused.code, "other users can read" in refused.stderr) == (2, True)
