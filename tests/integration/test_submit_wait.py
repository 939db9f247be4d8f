"""`submit --wait`: prints what came of it, for commands, tools and workflow files alike."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Finished, RunJoblens
from tests.integration.workflow_cli import WorkflowCli

FLOW = """
name: flow
jobs:
  - {name: good, command: "true"}
  - {name: bad, command: "exit 3"}
"""


@pytest.fixture(autouse=True)
def leaves_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "1s")
    monkeypatch.setenv("JOBLENS_SUPERVISOR_IDLE", "0.2")


@pytest.fixture
def call(tmp_path: Path, joblens: RunJoblens) -> Any:
    (tmp_path / "say.sh").write_text('echo "said hello"; echo made > made.txt\n')

    def run(*arguments: str, code: int) -> Finished:
        return joblens(*arguments, cwd=tmp_path, code=code)

    return run


def test_a_tools_result_is_printed(call: Any) -> None:
    done = call("submit", "bash", "say.sh", "-p", "x=3", "--wait", code=0)
    first, *others = done.stdout.splitlines()
    assert len(first) == 36  # its id, for scripts
    text = "\n".join(others)
    for part in (
        "Tool: bash, Script: say.sh",
        "SUCCESS",
        "Return code: 0",
        "Duration:",
        "CPU time:",
        "said hello",
        "Parameters: x=3",
    ):
        assert part in text


@pytest.mark.parametrize("options", [(), ("--queue", "mine"), ("--engine", "celery")])
def test_a_commands_result_is_printed(call: Any, options: tuple[str, ...]) -> None:
    done = call("submit", *options, "--wait", "--", "sh", "-c", "echo hello; exit 3", code=3)
    for part in ("FAILURE", "Return code: 3", "hello", "joblens logs"):
        assert part in done.stdout


def test_a_file_can_be_waited_for(cli: WorkflowCli) -> None:
    done = cli.call("submit", cli.write(FLOW), "--wait", code=1)
    first, *others = done.stdout.splitlines()
    assert first == "1.1"
    text = "\n".join(others)
    assert "good" in text
    assert "bad" in text
    assert "failed" in text


def test_a_file_that_was_waited_for_as_json(cli: WorkflowCli) -> None:
    document = cli.call("submit", cli.write(FLOW), "--wait", "--json", code=1).json
    assert document["run"] == "1.1"
    assert document["run_status"] == "failed"
    assert {row["job_name"]: row["return_code"] for row in document["results"]} == {"good": 0, "bad": 3}


def test_waiting_for_a_file_has_an_end(cli: WorkflowCli) -> None:
    path = cli.write("name: long\njobs: [{name: long, command: 'while [ ! -e go ]; do sleep 0.05; done'}]\n")
    done = cli.call("submit", path, "--wait", "-t", "300ms", code=124)
    assert "run 1.1 is still running after 300ms" in done.stderr
    (cli.folder / "go").touch()
    cli.call("wait", "1.1", code=0)
