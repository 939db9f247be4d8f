"""run FILE --rerun-changed goes by the last success of each job, whichever run of the workflow it was in."""

from typing import Any

from tests.conftest import RunJoblens
from tests.integration.workflow_cli import WorkflowCli, states

CHAIN = """
name: chain
jobs:
  - {name: fetch, command: "echo fetch >> ran"}
  - {name: train, command: "echo train >> ran; test ! -f broken", depends_on: [fetch]}
  - {name: report, command: "echo report >> ran", depends_on: [train]}
"""
DONE = {"fetch": "completed", "train": "completed", "report": "completed"}


def _would_run(cli: WorkflowCli, text: str) -> dict[str, Any]:
    document = cli.call("run", cli.write(text), "--rerun-changed", "--dry-run", "--json", code=0).json
    return {job["name"]: job["because"] for job in document["jobs"]}


def test_a_run_of_one_job_in_between_does_not_hide_the_successes_before(cli: WorkflowCli) -> None:
    cli.run(CHAIN)
    cli.run(CHAIN, "--only", "report")
    assert _would_run(cli, CHAIN) == {}
    again = cli.run(CHAIN, "--rerun-changed")
    assert states(again) == DONE
    assert cli.lines("ran") == ["fetch", "train", "report", "report"]
    rows = cli.call("workflows", "show", "chain", "--json", code=0).json["runs"]
    assert rows[-1]["completed"] == 3
    assert "Nothing needs to run again" in cli.call("rerun", "1.3", "--failed", code=0).stdout
    assert "no job runs again" in cli.call("run", cli.write(CHAIN), "--rerun-changed", code=0).stderr


def test_a_job_that_failed_since_runs_again_and_the_reason_says_so(cli: WorkflowCli) -> None:
    cli.run(CHAIN)
    (cli.folder / "broken").touch()
    cli.run(CHAIN, code=1)
    (cli.folder / "broken").unlink()
    assert _would_run(cli, CHAIN) == {
        "train": "did not succeed in run 1.2, its last attempt",
        "report": "needs 'train', which runs again",
    }
    assert states(cli.run(CHAIN, "--rerun-changed")) == DONE
    assert cli.lines("ran")[3:] == ["fetch", "train", "train", "report"]


def test_a_failure_in_another_folder_is_no_reason(cli: WorkflowCli, joblens: RunJoblens) -> None:
    cli.run(CHAIN)
    elsewhere = cli.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "broken").touch()
    joblens("run", cli.folder / "flow.yaml", cwd=elsewhere, code=1)
    assert _would_run(cli, CHAIN) == {}


def test_jobs_are_known_by_name_when_others_are_put_before_them(cli: WorkflowCli) -> None:
    cli.run(CHAIN)
    more = CHAIN.replace("jobs:\n", 'jobs:\n  - {name: new, command: "echo new >> ran"}\n')
    assert _would_run(cli, more) == {"new": "has not succeeded yet"}
    assert states(cli.run(more, "--rerun-changed")) == {**DONE, "new": "completed"}
    assert cli.lines("ran")[3:] == ["new"]
    assert states(cli.run(more, "--rerun-changed")) == {**DONE, "new": "completed"}
    assert cli.lines("ran")[4:] == []


def test_outputs_that_were_missing_in_one_run_do_not_count_against_a_later_success(
    cli: WorkflowCli,
) -> None:
    text = """
name: outputs
files: [{name: out, path: out.txt}]
jobs:
  - {name: first, command: "echo first >> ran"}
  - {name: make, command: "echo make >> ran; test ! -f ready || echo 1 > ${files.output.out}"}
"""
    cli.run(text, code=1)
    (cli.folder / "ready").touch()
    cli.run(text, "--only", "make")
    assert _would_run(cli, text) == {}
    assert states(cli.run(text, "--rerun-changed")) == {"first": "completed", "make": "completed"}
