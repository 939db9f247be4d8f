"""Going on with runs, and what is told about how long they took and what to type next."""

import pytest

from joblens.model.runs.run import RunStatus
from tests.builders.past_runs import FIRST, FLOW, PREPROCESS, SPEC, attempt
from tests.builders.runs import begun, over, run, workflow
from tests.builders.writes import NOON_US, SECOND
from tests.integration.workflow_cli import WorkflowCli

BROKEN = """
name: broken
jobs:
  - {name: bad, command: "echo bad >> ran; false"}
  - {name: after, command: "echo after >> ran", depends_on: [bad]}
"""


def _stopped_long_ago(cli: WorkflowCli) -> None:
    """After it was driven for a minute."""
    store = cli.store()
    store.apply(
        [
            workflow(FLOW, "ml-pipeline"),
            run(FIRST, FLOW, spec_text=SPEC, jobs=4),
            begun(FIRST),
            *attempt(FIRST, PREPROCESS, "preprocess"),
            over(FIRST, RunStatus.STOPPED, at_us=NOON_US + 60 * SECOND),
        ]
    )
    store.close()


def test_every_clock_of_a_resumed_run_tells_how_long_it_was_driven(cli: WorkflowCli) -> None:
    _stopped_long_ago(cli)
    resumed = cli.call("resume", "ml-pipeline", code=0).stdout
    assert "01:0" in resumed.splitlines()[3]
    assert "completed in 1m0" in resumed
    assert cli.call("watch", "ml-pipeline", code=0).stdout.splitlines()[-1].startswith("01:0")
    [shown] = cli.call("workflows", "show", "ml-pipeline", "--json", code=0).json["runs"]
    document = cli.call("resume", "ml-pipeline", "--json", code=0).json
    assert 60 <= shown["duration_seconds"] <= document["duration_s"] < 120


def test_a_failed_run_that_is_over_cannot_be_resumed_and_says_what_can_be_done(cli: WorkflowCli) -> None:
    cli.run(BROKEN, code=1)
    output = cli.call("resume", "broken", code=1).stdout
    assert "failed and cannot be resumed" in output
    assert "joblens rerun 1.1 --failed" in output
    assert cli.lines("ran") == ["bad"]


def test_the_next_step_after_a_time_out_is_not_to_do_the_same_again(cli: WorkflowCli) -> None:
    slow = "name: slow\njobs:\n  - {name: a, command: sleep 60, runtime: 1s}\n"
    output = cli.call("run", cli.write(slow), code=1).stdout
    assert "joblens rightsize 1.1 --write, then joblens run flow.yaml --rerun-changed" in output
    assert "--failed" not in output
    other = cli.call("run", cli.write(BROKEN), code=1).stdout
    assert "joblens rerun 2.1 --failed" in other
    assert "rightsize" not in other


def test_a_rerun_says_when_the_file_has_changed_since(cli: WorkflowCli) -> None:
    cli.run(BROKEN, code=1)
    output = cli.call("rerun", "1.1", "--failed", code=1).stderr
    assert "changed" not in output
    cli.write(BROKEN.replace("; false", ""))
    output = cli.call("rerun", "1.1", "--failed", code=1).stderr
    assert "flow.yaml has changed since run 1.1" in output
    assert "joblens run flow.yaml --rerun-changed" in output


def test_a_rerun_can_be_rehearsed(cli: WorkflowCli) -> None:
    text = BROKEN + '  - {name: good, command: "echo good >> ran"}\n'
    cli.run(text, code=1)
    ran = sorted(cli.lines("ran"))
    output = cli.call("rerun", "1.1", "--failed", "--dry-run", code=0).stdout
    assert "2 jobs would run" in output
    assert "exit code 1" in output
    everything = cli.call("rerun", "1.1", "--all", "--dry-run", "--json", code=0).json
    assert sorted(job["name"] for job in everything["jobs"]) == ["after", "bad", "good"]
    assert sorted(cli.lines("ran")) == ran
    assert cli.newest_run().number == 1


def test_a_run_that_is_not_there_is_called_a_run(cli: WorkflowCli) -> None:
    cli.run(BROKEN, code=1)
    output = cli.call("diff", "1.1", "9.9", code=2).stderr
    assert "no run or workflow has the ID or name '9.9'" in output
    assert "`joblens workflows` lists them" in output
    assert "#" not in output
    assert "`joblens history` lists jobs" in cli.call("diff", "1.1", "nothing", code=2).stderr


CHAIN = """
name: chain
jobs:
  - {name: a, command: "echo a >> ran"}
  - {name: b_1, command: "echo b_1 >> ran", depends_on: [a], label: middle}
  - {name: b_2, command: "echo b_2 >> ran", depends_on: [a], label: middle}
  - {name: c, command: "echo c >> ran", depends_on: [b_1]}
"""


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (("b_1",), ["b_1", "c"]),
        (("b_*",), ["b_1", "b_2", "c"]),
        (("label:middle",), ["b_1", "b_2", "c"]),
        (("regex:^c$", "b_2"), ["b_2", "c"]),
    ],
)
def test_selected_jobs_run_again_with_all_that_needs_them(
    cli: WorkflowCli, words: tuple[str, ...], again: list[str]
) -> None:
    cli.run(CHAIN, "--label", "middle")
    (cli.folder / "ran").unlink()
    options = [part for word in words for part in ("--only", word)]
    planned = cli.call("rerun", "1.1", *options, "--dry-run", "--json", code=0).json
    assert sorted(job["name"] for job in planned["jobs"]) == again
    cli.call("rerun", "1.1", *options, code=0)
    assert sorted(cli.lines("ran")) == again
    assert cli.newest_run().number == 2


def test_a_selection_that_cannot_run_is_refused(cli: WorkflowCli) -> None:
    cli.run(BROKEN, code=1)
    assert "after needs bad, which has not succeeded" in cli.call("rerun", "1.1", "--only", "after").stderr
    unknown = cli.call("rerun", "1.1", "--only", "aftr", code=2).stderr
    assert "there is no job 'aftr'; did you mean 'after'" in unknown
    assert "one of" in cli.call("rerun", "1.1", "--only", "bad", "--failed", code=2).stderr
    assert cli.newest_run().number == 1
