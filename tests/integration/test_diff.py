"""Runs and jobs compared by the real command line."""

import pytest

from tests.integration.workflow_desk import WorkflowDesk

TEXT = """\
name: w
jobs:
  - name: a
    command: sleep %s
  - name: b
    command: sh -c 'exit %s'
"""


@pytest.fixture
def two_runs(desk: WorkflowDesk) -> WorkflowDesk:
    desk.call("run", desk.write(TEXT % ("0.1", 1)), "-q", code=1)
    desk.call("run", desk.write(TEXT % ("0.6", 0)), "-q", "--jobs", "1", code=0)
    return desk


def test_two_runs_differ_in_state_numbers_options_and_spec(two_runs: WorkflowDesk) -> None:
    found = two_runs.call("diff", "1.1", "1.2", "--json", code=0).json
    assert [(job["name"], job["state"], job["changed"]) for job in found["jobs"]] == [
        ("b", ["failed", "completed"], ["command"]),
        ("a", ["completed", "completed"], ["command"]),
    ]
    assert found["jobs"][1]["duration_s"]["percent"] > 100
    assert found["options"] == {"most_jobs": [None, 1]}
    assert "+    command: sleep 0.6" in found["spec_lines"]


def test_one_run_is_compared_with_the_one_before(two_runs: WorkflowDesk) -> None:
    text = two_runs.call("diff", "w", code=0).stdout
    assert text.startswith("1.1 → 1.2\n")
    assert "failed → completed" in text


def test_the_first_run_has_none_before_it(two_runs: WorkflowDesk) -> None:
    assert "is the first of its workflow" in two_runs.call("diff", "1.1", code=2).stderr


def test_two_jobs_are_compared(two_runs: WorkflowDesk) -> None:
    found = two_runs.call("diff", "job:1", "job:3", "--json", code=0).json
    assert (found["before"], found["after"]) == ("job 1", "job 3")
    assert found["options"]["command"] == ["sleep 0.1", "sleep 0.6"]


def test_a_job_and_a_run_cannot_be_compared(two_runs: WorkflowDesk) -> None:
    assert "cannot be compared" in two_runs.call("diff", "job:1", "workflow:1", code=2).stderr


def test_a_number_that_is_both_has_to_say_which(two_runs: WorkflowDesk) -> None:
    done = two_runs.call("diff", "1", "2", code=2)
    assert "job:1" in done.stderr
    assert "workflow:1" in done.stderr
