"""run FILE --rerun-changed goes by the last success of each job, whichever run of the workflow it was in."""

from typing import Any

from tests.conftest import RunJoblens
from tests.integration.workflow_desk import WorkflowDesk, states

CHAIN = """
name: chain
jobs:
  - {name: fetch, command: "echo fetch >> ran"}
  - {name: train, command: "echo train >> ran; test ! -f broken", depends_on: [fetch]}
  - {name: report, command: "echo report >> ran", depends_on: [train]}
"""
DONE = {"fetch": "completed", "train": "completed", "report": "completed"}


def _would_run(desk: WorkflowDesk, text: str) -> dict[str, Any]:
    document = desk.call("run", desk.write(text), "--rerun-changed", "--dry-run", "--json", code=0).json
    return {job["name"]: job["because"] for job in document["jobs"]}


def test_a_run_of_one_job_in_between_does_not_hide_the_successes_before(desk: WorkflowDesk) -> None:
    desk.run(CHAIN)
    desk.run(CHAIN, "--only", "report")
    assert _would_run(desk, CHAIN) == {}
    again = desk.run(CHAIN, "--rerun-changed")
    assert states(again) == DONE
    assert desk.lines("ran") == ["fetch", "train", "report", "report"]
    rows = desk.call("workflows", "show", "chain", "--json", code=0).json["runs"]
    assert rows[-1]["completed"] == 3
    assert "Nothing needs to run again" in desk.call("rerun", "1.3", "--failed", code=0).stdout


def test_a_job_that_failed_since_runs_again_and_the_reason_says_so(desk: WorkflowDesk) -> None:
    desk.run(CHAIN)
    (desk.folder / "broken").touch()
    desk.run(CHAIN, code=1)
    (desk.folder / "broken").unlink()
    assert _would_run(desk, CHAIN) == {
        "train": "did not succeed in run 1.2, its last attempt",
        "report": "needs 'train', which runs again",
    }
    assert states(desk.run(CHAIN, "--rerun-changed")) == DONE
    assert desk.lines("ran")[3:] == ["fetch", "train", "train", "report"]


def test_a_failure_in_another_folder_is_no_reason(desk: WorkflowDesk, joblens: RunJoblens) -> None:
    desk.run(CHAIN)
    elsewhere = desk.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "broken").touch()
    joblens("run", desk.folder / "flow.yaml", cwd=elsewhere, code=1)
    assert _would_run(desk, CHAIN) == {}


def test_jobs_are_known_by_name_when_others_are_put_before_them(desk: WorkflowDesk) -> None:
    desk.run(CHAIN)
    more = CHAIN.replace("jobs:\n", 'jobs:\n  - {name: new, command: "echo new >> ran"}\n')
    assert _would_run(desk, more) == {"new": "has not succeeded yet"}
    assert states(desk.run(more, "--rerun-changed")) == {**DONE, "new": "completed"}
    assert desk.lines("ran")[3:] == ["new"]
    assert states(desk.run(more, "--rerun-changed")) == {**DONE, "new": "completed"}
    assert desk.lines("ran")[4:] == []


def test_outputs_that_were_missing_in_one_run_do_not_count_against_a_later_success(
    desk: WorkflowDesk,
) -> None:
    text = """
name: outputs
files: [{name: out, path: out.txt}]
jobs:
  - {name: first, command: "echo first >> ran"}
  - {name: make, command: "echo make >> ran; test ! -f ready || echo 1 > ${files.output.out}"}
"""
    desk.run(text, code=1)
    (desk.folder / "ready").touch()
    desk.run(text, "--only", "make")
    assert _would_run(desk, text) == {}
    assert states(desk.run(text, "--rerun-changed")) == {"first": "completed", "make": "completed"}
