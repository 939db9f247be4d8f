"""What is refused before a run is made, so that none is left that could never begin."""

import subprocess

import pytest

from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_desk import WorkflowDesk

ONE = 'name: one\njobs: [{name: a, command: "true"}]\n'
LONG = 'name: long\njobs: [{name: a, command: "echo begun >> order; sleep 60"}]\n'


def _runs(desk: WorkflowDesk) -> int:
    if not desk.store_path.exists():
        return 0
    store = desk.store()
    try:
        return sum(len(store.runs(each.uuid)) for each in store.workflows())
    finally:
        store.close()


def test_one_file_run_several_times_at_once_is_one_workflow(desk: WorkflowDesk) -> None:
    path = desk.write(ONE)
    started: list[subprocess.Popen[str]] = [desk.start("run", path, "-q") for _ in range(4)]
    for process in started:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    store = desk.store()
    (workflow,) = store.workflows()
    assert [run.number for run in store.runs(workflow.uuid)] == [1, 2, 3, 4]
    store.close()


@pytest.mark.parametrize("command", [["run"], ["run", "--detach"], ["submit"]])
def test_a_folder_for_output_that_cannot_be_made_is_told_before_there_is_a_run(
    desk: WorkflowDesk, command: list[str]
) -> None:
    path = desk.write(ONE)
    done = desk.call(*command, "-o", "flow.yaml/x", path, code=2)
    assert "-o flow.yaml/x: cannot be created" in done.stderr
    assert _runs(desk) == 0


def test_a_run_whose_folder_has_become_unusable_goes_on_in_another(desk: WorkflowDesk) -> None:
    desk.write(ONE.replace("true", "false"))
    desk.call("run", "flow.yaml", "-o", "out", code=1)
    subprocess.run(["rm", "-r", str(desk.folder / "out")], check=True)
    (desk.folder / "out").write_text("in the way")
    assert "cannot be created" in desk.call("rerun", "1.1", "--failed", code=2).stderr
    assert _runs(desk) == 1
    desk.call("rerun", "1.1", "--failed", "-o", "other", code=1)
    assert (desk.folder / "other" / "job_output").is_dir()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--time", "0"], "--time 0: must be more than 0"),
        (["--memory", "0"], "--memory 0: must be more than 0"),
        (["--gpus", "-1"], "--gpus -1: expected a number"),
        (["-o", ""], "the directory name is empty"),
        (["-p", "n=7", "-p", "n=8"], "--param n: given twice"),
    ],
)
def test_an_offer_of_nothing_is_refused(desk: WorkflowDesk, options: list[str], told: str) -> None:
    done = desk.call("run", *options, desk.write(ONE), code=2)
    assert told in done.stderr
    assert _runs(desk) == 0


def test_a_run_that_goes_on_is_no_base_for_another(desk: WorkflowDesk) -> None:
    desk.write(LONG)
    label = desk.call("run", "--detach", "flow.yaml", code=0).stdout.strip()
    desk.wait_for_line("order", "begun")
    for command in (
        ["rerun", label, "--failed"],
        ["rerun", label, "--all"],
        ["run", "flow.yaml", "--rerun-changed"],
        ["run-jobs", "long"],
        ["resume", label],
        ["resume", label, "--detach"],
    ):
        done = desk.call(*command, code=2)
        assert f"run {label} is being run by process" in done.stderr, command
        assert "supervisor" not in done.stderr
    assert desk.lines("order") == ["begun"]
    assert _runs(desk) == 1
    desk.call("cancel", label, code=0)
    wait_until(lambda: desk.newest_run().status is RunStatus.STOPPED)


def test_a_job_that_outlived_its_driver_keeps_its_run_from_being_a_base(desk: WorkflowDesk) -> None:
    process = desk.start("run", desk.write(LONG), "-q")
    desk.wait_for_line("order", "begun")
    wait_until(lambda: len(desk.results()) == 1)
    process.kill()
    process.communicate(timeout=30)
    done = desk.call("rerun", "1.1", "--failed", code=2)
    assert "job a of run 1.1 is still running" in done.stderr
    desk.call("cancel", "1.1", code=0)
    wait_until(lambda: all(result.status.is_final for result in desk.results()), timeout=30)
