"""What is refused before a run is made, so that none is left that could never begin."""

import subprocess

import pytest

from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli

ONE = 'name: one\njobs: [{name: a, command: "true"}]\n'
LONG = 'name: long\njobs: [{name: a, command: "echo begun >> order; sleep 60"}]\n'


def _runs(cli: WorkflowCli) -> int:
    if not cli.store_path.exists():
        return 0
    store = cli.store()
    try:
        return sum(len(store.runs(each.uuid)) for each in store.workflows())
    finally:
        store.close()


def test_one_file_run_several_times_at_once_is_one_workflow(cli: WorkflowCli) -> None:
    path = cli.write(ONE)
    started: list[subprocess.Popen[str]] = [cli.start("run", path, "-q") for _ in range(4)]
    for process in started:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    store = cli.store()
    (workflow,) = store.workflows()
    assert [run.number for run in store.runs(workflow.uuid)] == [1, 2, 3, 4]
    store.close()


@pytest.mark.parametrize("command", [["run"], ["run", "--detach"], ["submit"]])
def test_a_folder_for_output_that_cannot_be_made_is_reported_before_there_is_a_run(
    cli: WorkflowCli, command: list[str]
) -> None:
    path = cli.write(ONE)
    done = cli.call(*command, "-o", "flow.yaml/x", path, code=2)
    assert "output directory flow.yaml/x: cannot be created" in done.stderr
    assert _runs(cli) == 0


def test_a_run_whose_folder_has_become_unusable_goes_on_in_another(cli: WorkflowCli) -> None:
    cli.write(ONE.replace("true", "false"))
    cli.call("run", "flow.yaml", "-o", "out", code=1)
    subprocess.run(["rm", "-r", str(cli.folder / "out")], check=True)
    (cli.folder / "out").write_text("in the way")
    assert "cannot be created" in cli.call("rerun", "1.1", "--failed", code=2).stderr
    assert _runs(cli) == 1
    cli.call("rerun", "1.1", "--failed", "-o", "other", code=1)
    assert (cli.folder / "other" / "job_output").is_dir()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time", "0"], "--time 0: must be more than 0"),
        (["--memory", "0"], "--memory 0: must be more than 0"),
        (["--gpus", "-1"], "--gpus -1: expected a number"),
        (["-o", ""], "the directory name is empty"),
        (["-p", "n=7", "-p", "n=8"], "--param n: given twice"),
    ],
)
def test_an_offer_of_nothing_is_refused(cli: WorkflowCli, options: list[str], message: str) -> None:
    done = cli.call("run", *options, cli.write(ONE), code=2)
    assert message in done.stderr
    assert _runs(cli) == 0


def test_a_run_that_goes_on_is_no_base_for_another(cli: WorkflowCli) -> None:
    cli.write(LONG)
    label = cli.call("run", "--detach", "flow.yaml", code=0).stdout.strip()
    cli.wait_for_line("order", "begun")
    for command in (
        ["rerun", label, "--failed"],
        ["rerun", label, "--all"],
        ["run", "flow.yaml", "--rerun-changed"],
        ["run-jobs", "long"],
        ["resume", label],
        ["resume", label, "--detach"],
    ):
        done = cli.call(*command, code=2)
        assert f"run {label} is being run by process" in done.stderr, command
        assert "supervisor" not in done.stderr
    assert cli.lines("order") == ["begun"]
    assert _runs(cli) == 1
    cli.call("cancel", label, code=0)
    wait_until(lambda: cli.newest_run().status is RunStatus.STOPPED)


def test_a_job_that_outlived_its_driver_keeps_its_run_from_being_a_base(cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(LONG), "-q")
    cli.wait_for_line("order", "begun")
    wait_until(lambda: len(cli.results()) == 1)
    process.kill()
    process.communicate(timeout=30)
    done = cli.call("rerun", "1.1", "--failed", code=2)
    assert "job a of run 1.1 is still running" in done.stderr
    cli.call("cancel", "1.1", code=0)
    wait_until(lambda: all(result.status.is_final for result in cli.results()), timeout=30)
