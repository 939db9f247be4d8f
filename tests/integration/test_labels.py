"""Labels of jobs and workers, by the real command line."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import Record, Status
from tests.conftest import wait_until
from tests.integration.test_run_engine import quick_leases
from tests.integration.workflow_cli import WorkflowCli, states

__all__ = ["quick_leases"]

MANY = """
name: many
jobs:
  - {name: "far_{i}", command: "echo far >> ran", label: gpu, parameters: {i: "1:6"}}
  - {name: "near_{i}", command: "echo near >> ran", parameters: {i: "1:3"}}
"""


@pytest.fixture
def worker_of(cli: WorkflowCli) -> Iterator["StartWorker"]:
    starter = StartWorker(cli)
    yield starter
    starter.end()


class StartWorker:
    def __init__(self, cli: WorkflowCli) -> None:
        self._cli = cli
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *options: str) -> None:
        self._started.append(self._cli.start("worker", "-c", "1", *options))

    def end(self) -> None:
        for process in self._started:
            process.terminate()
            process.communicate(timeout=30)


def _record(cli: WorkflowCli, uuid: str) -> Record:
    store = cli.store()
    try:
        return store.find(uuid)
    finally:
        store.close()


@pytest.mark.needs("celery")
def test_a_command_with_a_label_waits_for_a_worker_with_it_and_everybody_says_so(
    cli: WorkflowCli, worker_of: StartWorker
) -> None:
    result = cli.call("submit", "--label", "my gpu", "--json", "--", "echo", "hello", code=0)
    assert "no worker with the label 'my gpu' serves the queue default" in result.stderr
    assert "joblens worker --label 'my gpu'" in result.stderr
    uuid = result.json["job_uuid"]
    plain = cli.call("submit", "--queue", "default", "--wait", "--", "true", code=0)
    assert plain.code == 0, "the worker that is started for jobs without a label leaves the other alone"
    assert _record(cli, uuid).status is Status.QUEUED
    status = cli.call("status", uuid, "--json", code=0).json
    assert (status["queue"], status["label"]) == ("default", "my gpu")
    assert "joblens worker --label 'my gpu'" in status["waits_for"]
    assert "for workers with the label 'my gpu'" in cli.call("status", uuid, code=0).stdout
    doctor = cli.call("doctor", code=None).stdout
    assert "no worker with the label 'my gpu'" in " ".join(doctor.split())
    assert "my gpu" in cli.call("list", code=0).stdout
    worker_of("--label", "other")
    worker_of("--label", "other", "--label", "my gpu", "-n", "two")
    wait_until(lambda: _record(cli, uuid).status is Status.SUCCESS, what="its end", timeout=30)
    outcome = _record(cli, uuid).outcome
    assert outcome is not None
    assert outcome.worker.startswith("two-")
    health = cli.call("health", "--json", code=None).json
    assert sorted(worker["labels"] for worker in health["workers"] if worker["labels"]) == [
        ["other"],
        ["other", "my gpu"],
    ]
    on_queue = cli.call("run", "--engine", "celery", "--label", "my gpu", "--", "echo", "hello", code=0)
    assert on_queue.stdout == "hello\n"
    assert "LABEL" in cli.call("health", code=None).stdout
    assert "my gpu" in cli.call("show", uuid, code=0).stdout


@pytest.mark.needs("celery")
def test_jobs_for_other_workers_take_nothing_of_what_the_run_may_fill(
    cli: WorkflowCli, worker_of: StartWorker
) -> None:
    driver = cli.start("run", cli.write(MANY), "--engine", "celery", "-j", "1")
    wait_until(lambda: cli.lines("ran").count("near") == 3, what="jobs without a label", timeout=40)
    assert cli.lines("ran").count("far") == 0
    worker_of("--label", "gpu")
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert cli.lines("ran").count("far") == 6
    assert output.count("no worker with the label 'gpu'") == 1
    rows = cli.call("results", "many", "--json", code=0).json["results"]
    assert {row["label"] for row in rows} == {"gpu", None}
    assert "Label" in cli.call("results", "many", code=0).stdout


def test_a_local_run_serves_the_labels_it_names_and_refuses_others(cli: WorkflowCli) -> None:
    path = cli.write(MANY)
    text = cli.call("run", path, "--label", "windows", code=2).stderr
    assert "6 jobs ('far_1', 'far_2', 'far_3', 'far_4', 'far_5', …) have the label 'gpu'" in text
    assert "no worker of this run serves it" in text
    assert not cli.store_path.exists()
    cli.call("run", path, "--skip", "label:gpu", code=0)
    assert cli.lines("ran") == ["near"] * 3
    assert set(states(cli.run(MANY, "--label", "gpu")).values()) == {"completed"}
    again = cli.call("rerun", "many", "--all", "--json", code=0)
    assert set(states(again.json).values()) == {"completed"}, "the labels of a run are recorded with it"
    assert "label" not in again.stderr


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("''", "must not be empty"),
        ("' x'", "must not begin or end with a space"),
        ('"a\\tb"', "cannot be printed"),
        ("x" * 81, "is too long"),
    ],
)
def test_what_cannot_be_a_label_is_refused_with_its_line(cli: WorkflowCli, label: str, message: str) -> None:
    path = cli.write(f"name: a\njobs:\n  - name: one\n    command: 'true'\n    label: {label}\n")
    stderr = cli.call("run", path, code=2).stderr
    assert message in stderr
    assert "flow.yaml:5" in stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "flow.yaml", "--label", " x"),
        ("worker", "--label", ""),
        ("submit", "--label", "x ", "--", "true"),
        ("submit", "--label", "a", "--label", "b", "--", "true"),
        ("run", "--label", "a", "--", "true"),
    ],
)
def test_options_with_labels_that_cannot_be_are_refused(
    cli: WorkflowCli, arguments: tuple[str, ...], store_path: Path
) -> None:
    cli.write(MANY)
    text = cli.call(*arguments, code=2).stderr
    assert "label" in text
    assert "Traceback" not in text
    assert not store_path.exists()
