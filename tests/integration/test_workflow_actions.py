"""Actions and recovery scripts that fail or are cut off, and jobs that are cancelled while they wait."""

import json

import pytest

from joblens.model.runs.run import JobState, RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_desk import WorkflowDesk, states


def terminated(desk: WorkflowDesk, text: str, line: str) -> None:
    """Run until `line` is in the file `ran`, and then told to end."""
    process = desk.start("run", desk.write(text))
    desk.wait_for_line("ran", line)
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output


def test_commands_at_the_start_that_were_cut_off_are_done_before_the_jobs_on_a_resume(
    desk: WorkflowDesk,
) -> None:
    text = """
name: setup
actions:
  - trigger_type: on_workflow_start
    action_type: run_commands
    commands: ["echo first >> ran", "echo begun >> ran; test -f quick || sleep 60", "echo ready >> ran"]
jobs:
  - {name: a, command: "echo job >> ran"}
"""
    terminated(desk, text, "begun")
    (desk.folder / "quick").touch()
    desk.call("resume", "1.1", code=0)
    assert desk.lines("ran") == ["first", "begun", "begun", "ready", "job"]


def test_a_recovery_script_that_was_cut_off_is_done_again_on_a_resume(desk: WorkflowDesk) -> None:
    text = """
name: recovering
failure_handlers:
  - name: mend
    rules: [{exit_codes: [3], max_retries: 1, recovery_script: "echo begun >> ran; test -f quick || sleep 60; touch mended"}]
jobs:
  - {name: a, command: "test -f mended || exit 3", failure_handler: mend}
"""  # noqa: E501
    terminated(desk, text, "begun")
    (desk.folder / "quick").touch()
    desk.call("resume", "1.1", code=0)
    assert desk.newest_run().status is RunStatus.COMPLETED


FAILING = """
name: failing
actions:
  - trigger_type: on_workflow_complete
    action_type: run_commands
    commands: ["echo end >> ran", "echo oops; test -f fixed"]
jobs:
  - {name: a, command: "echo job >> ran"}
"""


@pytest.mark.parametrize("command", [["resume", "1.1"], ["rerun", "1.1", "--failed"]])
def test_an_action_that_failed_is_told_and_repeated(desk: WorkflowDesk, command: list[str]) -> None:
    said = desk.call("run", desk.write(FAILING), code=1).stdout
    assert "action-1.2 failed (exit code 1): echo oops; test -f fixed" in said
    assert "job_output/1_1/action-1.2" in said
    assert "action-1.2 failed" in desk.call("results", "1", code=0).stdout
    assert "action-1.2 failed" in desk.call("workflows", "show", "1", code=0).stdout
    document = json.loads(desk.call("results", "1", "--json", code=0).stdout)
    assert [action["name"] for action in document["failed_actions"]] == ["action-1.2"]
    (desk.folder / "fixed").touch()
    desk.call(*command, code=0)
    assert desk.lines("ran").count("job") == 1
    assert "action-1.2" not in desk.call("results", "1", code=0).stdout
    assert desk.newest_run().status is RunStatus.COMPLETED


WAITING = """
name: waiting
failure_handlers:
  - {name: later, rules: [{match_all_exit_codes: true, max_retries: 5, backoff: 120}]}
jobs:
  - {name: flaky, command: "echo flaky >> ran; exit 1", failure_handler: later}
  - {name: behind, command: "echo behind >> ran", depends_on: [flaky]}
  - {name: long, command: "echo long >> ran; test -f go || sleep 60"}
  - {name: last, command: "echo last >> ran", depends_on: [long]}
"""


def test_jobs_that_wait_are_cancelled_by_name_and_by_their_last_attempt(desk: WorkflowDesk) -> None:
    process = desk.start("run", desk.write(WAITING))
    desk.wait_for_line("ran", "flaky")
    desk.wait_for_line("ran", "long")
    wait_until(lambda: any(result.status.is_final for result in desk.results()))
    (number,) = [str(result.number) for result in desk.results() if result.index == 0]
    assert "terminated  flaky" in desk.call("cancel", f"job:{number}", code=0).stdout
    assert "canceled  last" in desk.call("cancel", "1.1", "--job", "last", code=0).stdout
    assert "did you mean last?" in desk.call("cancel", "1.1", "--job", "lost", code=2).stderr
    assert "terminated  long" in desk.call("cancel", "1.1", "--job", "long", code=0).stdout
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1, output
    expected = {"flaky": "terminated", "behind": "blocked", "long": "terminated", "last": "canceled"}
    assert states(desk.call("results", "1", "--json", code=0).json) == expected
    (desk.folder / "go").touch()
    desk.call("resume", "1.1", code=1)
    assert sorted(desk.lines("ran")) == ["flaky", "long"], "whoever wanted them gone meant it"


def test_a_job_of_a_run_that_nobody_drives_is_not_started_when_it_goes_on(desk: WorkflowDesk) -> None:
    desk.write(
        'name: idle\njobs:\n  - {name: a, command: "echo a >> ran"}\n  - {name: b, command: "false"}\n'
    )
    desk.call("workflows", "create-from-spec", "flow.yaml", code=0)
    assert JobState.CANCELED.label in desk.call("cancel", "1.1", "--job", "b", code=0).stdout
    desk.call("resume", "1.1", code=1)
    assert desk.lines("ran") == ["a"]


def test_a_job_cancelled_right_before_its_run_is_ended_stays_so(desk: WorkflowDesk) -> None:
    """And a program that ends by an exit code of its own when it is told to has not failed by itself."""
    text = """
name: trapped
jobs:
  - {name: a, command: "trap 'exit 3' TERM; echo a >> ran; test -f go || sleep 60 & wait $!"}
  - {name: b, command: "trap 'exit 3' TERM; echo b >> ran; test -f go || sleep 60 & wait $!"}
"""
    process = desk.start("run", desk.write(text))
    desk.wait_for_line("ran", "a")
    desk.wait_for_line("ran", "b")
    desk.call("cancel", "1.1", "--job", "b", code=0)
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    (desk.folder / "go").touch()
    desk.call("resume", "1.1", code=1)
    assert sorted(desk.lines("ran")) == ["a", "a", "b"]


WORKER = """
name: worker
actions:
  - {trigger_type: on_worker_start, action_type: run_commands, commands: ["echo begun >> ran"]}
  - {trigger_type: on_worker_complete, action_type: run_commands, commands: ["echo left >> ran"]}
jobs:
  - {name: a, command: "echo job >> ran; test -f quick || sleep 60"}
"""


def test_this_machine_is_the_worker_of_a_run_in_each_of_its_lives_also_when_it_is_ended(
    desk: WorkflowDesk,
) -> None:
    terminated(desk, WORKER, "job")
    assert desk.lines("ran") == ["begun", "job", "left"]
    (desk.folder / "quick").touch()
    desk.call("resume", "1.1", code=0)
    assert desk.lines("ran") == ["begun", "job", "left"] * 2
