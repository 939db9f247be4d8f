"""Actions and recovery scripts that fail or are cut off, and jobs that are cancelled while they wait."""

import json

import pytest

from joblens.model.runs.run import JobState, RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli, states


def terminated(cli: WorkflowCli, text: str, line: str) -> None:
    """Run until `line` is in the file `ran`, and then told to end."""
    process = cli.start("run", cli.write(text))
    cli.wait_for_line("ran", line)
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output


def test_commands_at_the_start_that_were_cut_off_are_done_before_the_jobs_on_a_resume(
    cli: WorkflowCli,
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
    terminated(cli, text, "begun")
    (cli.folder / "quick").touch()
    cli.call("resume", "1.1", code=0)
    assert cli.lines("ran") == ["first", "begun", "begun", "ready", "job"]


def test_a_recovery_script_that_was_cut_off_is_done_again_on_a_resume(cli: WorkflowCli) -> None:
    text = """
name: recovering
failure_handlers:
  - name: mend
    rules: [{exit_codes: [3], max_retries: 1, recovery_script: "echo begun >> ran; test -f quick || sleep 60; touch mended"}]
jobs:
  - {name: a, command: "test -f mended || exit 3", failure_handler: mend}
"""  # noqa: E501
    terminated(cli, text, "begun")
    (cli.folder / "quick").touch()
    cli.call("resume", "1.1", code=0)
    assert cli.newest_run().status is RunStatus.COMPLETED


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
def test_an_action_that_failed_is_reported_and_repeated(cli: WorkflowCli, command: list[str]) -> None:
    printed = cli.call("run", cli.write(FAILING), code=1).stdout
    assert "action-1.2 failed (exit code 1): echo oops; test -f fixed" in printed
    assert "job_output/1_1/action-1.2" in printed
    assert "action-1.2 failed" in cli.call("results", "1", code=0).stdout
    assert "action-1.2 failed" in cli.call("workflows", "show", "1", code=0).stdout
    document = json.loads(cli.call("results", "1", "--json", code=0).stdout)
    assert [action["name"] for action in document["failed_actions"]] == ["action-1.2"]
    (cli.folder / "fixed").touch()
    cli.call(*command, code=0)
    assert cli.lines("ran").count("job") == 1
    assert "action-1.2" not in cli.call("results", "1", code=0).stdout
    assert cli.newest_run().status is RunStatus.COMPLETED


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


def test_jobs_that_wait_are_cancelled_by_name_and_by_their_last_attempt(cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(WAITING))
    cli.wait_for_line("ran", "flaky")
    cli.wait_for_line("ran", "long")
    wait_until(lambda: any(result.status.is_final for result in cli.results()))
    (number,) = [str(result.number) for result in cli.results() if result.index == 0]
    assert "terminated  flaky" in cli.call("cancel", f"job:{number}", code=0).stdout
    assert "canceled  last" in cli.call("cancel", "1.1", "--job", "last", code=0).stdout
    assert "did you mean last?" in cli.call("cancel", "1.1", "--job", "lost", code=2).stderr
    assert "terminated  long" in cli.call("cancel", "1.1", "--job", "long", code=0).stdout
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1, output
    expected = {"flaky": "terminated", "behind": "blocked", "long": "terminated", "last": "canceled"}
    assert states(cli.call("results", "1", "--json", code=0).json) == expected
    (cli.folder / "go").touch()
    cli.call("resume", "1.1", code=1)
    assert sorted(cli.lines("ran")) == ["flaky", "long"], "jobs that a user cancelled do not run again"


def test_a_job_of_a_run_that_nobody_drives_is_not_started_when_it_goes_on(cli: WorkflowCli) -> None:
    cli.write('name: idle\njobs:\n  - {name: a, command: "echo a >> ran"}\n  - {name: b, command: "false"}\n')
    cli.call("workflows", "create-from-spec", "flow.yaml", code=0)
    assert JobState.CANCELED.label in cli.call("cancel", "1.1", "--job", "b", code=0).stdout
    cli.call("resume", "1.1", code=1)
    assert cli.lines("ran") == ["a"]


def test_a_job_cancelled_right_before_its_run_is_ended_stays_so(cli: WorkflowCli) -> None:
    """And a program that ends by an exit code of its own when it is told to has not failed by itself."""
    text = """
name: trapped
jobs:
  - {name: a, command: "trap 'exit 3' TERM; echo a >> ran; test -f go || sleep 60 & wait $!"}
  - {name: b, command: "trap 'exit 3' TERM; echo b >> ran; test -f go || sleep 60 & wait $!"}
"""
    process = cli.start("run", cli.write(text))
    cli.wait_for_line("ran", "a")
    cli.wait_for_line("ran", "b")
    cli.call("cancel", "1.1", "--job", "b", code=0)
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    (cli.folder / "go").touch()
    cli.call("resume", "1.1", code=1)
    assert sorted(cli.lines("ran")) == ["a", "a", "b"]


WORKER = """
name: worker
actions:
  - {trigger_type: on_worker_start, action_type: run_commands, commands: ["echo begun >> ran"]}
  - {trigger_type: on_worker_complete, action_type: run_commands, commands: ["echo left >> ran"]}
jobs:
  - {name: a, command: "echo job >> ran; test -f quick || sleep 60"}
"""


def test_this_machine_is_the_worker_of_a_run_in_each_of_its_lives_also_when_it_is_ended(
    cli: WorkflowCli,
) -> None:
    terminated(cli, WORKER, "job")
    assert cli.lines("ran") == ["begun", "job", "left"]
    (cli.folder / "quick").touch()
    cli.call("resume", "1.1", code=0)
    assert cli.lines("ran") == ["begun", "job", "left"] * 2
