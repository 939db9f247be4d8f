"""Jobs of workflow files that run in containers, on a real Docker engine and a real Podman service."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.model.jobs.job import Record, Status
from tests.conftest import RunJoblens, python_path, wait_until
from tests.integration.engines import IMAGE, Engine
from tests.integration.workflow_cli import WorkflowCli, states

ROOT = Path(__file__).parents[2]
FLOW = """
name: flow
variables: {{image: "{image}"}}
env: {{GREETING: hello}}
container:
  {{image: "{{image}}", socket: "{socket}", network: none, volumes: ["./data:/data"], workdir: /data}}
jobs:
  - name: says_{{i}}
    command: "echo $GREETING {{i}} $JOBLENS_JOB_NAME in $(pwd) > said_{{i}}; test -e /bin/busybox"
    parameters: {{i: "1:2"}}
  - {{name: words, command: "cat /data/given"}}
  - {{name: fails, command: "exit 3"}}
  - {{name: not_there, command: "no-such-program"}}
  - {{name: outside, command: "test -d data", container: false}}
  - {{name: too_long, command: "sleep 60", runtime: 1s}}
  - {{name: too_large, command: "head -c 300000000 /dev/zero | tail", memory: 60m}}
"""
LONG = """
name: long
jobs:
  - name: long
    command: "echo > /data/begun; sleep 300"
    container: {{image: "{image}", socket: "{socket}", network: none, volumes: ["./data:/data"]}}
"""


def write(cli: WorkflowCli, text: str, engine: Engine) -> Path:
    (cli.folder / "data").mkdir(exist_ok=True)
    (cli.folder / "data" / "given").write_text("given\n")
    return cli.write(text.format(image=IMAGE, socket=engine.socket))


def assert_no_container(cli: WorkflowCli, engine: Engine) -> None:
    for record in cli.records().values():
        assert engine.containers_of(record.job.uuid) == []


def check_results(cli: WorkflowCli, engine: Engine, document: dict[str, object]) -> None:
    rows = {row["job_name"]: row for row in document["results"]}  # type: ignore[attr-defined]
    found = {name: (row["status"], row["return_code"]) for name, row in rows.items()}
    assert found == {
        "says_1": ("completed", 0),
        "says_2": ("completed", 0),
        "words": ("completed", 0),
        "fails": ("failed", 3),
        "not_there": ("failed", 127),
        "outside": ("completed", 0),
        "too_long": ("terminated", 152),
        "too_large": ("failed", 137),
    }
    content = (cli.folder / "data" / "said_2").read_text()
    assert content == "hello 2 says_2 in /data\n"
    records = cli.records()
    assert records["outside"].job.container is None
    job = records["words"].job
    assert job.container is not None
    assert (job.container.image, job.container.volumes) == (IMAGE, (f"{cli.folder}/data:/data",))
    assert job.env == {"GREETING": "hello"}
    outcome = records["words"].outcome
    assert outcome is not None
    assert outcome.usage.cpu_total_usec
    assert outcome.usage.memory_peak_bytes
    assert_no_container(cli, engine)


def test_jobs_of_a_file_run_in_containers(cli: WorkflowCli, engine: Engine) -> None:
    path = write(cli, FLOW, engine)
    document = cli.call("run", path, "--json", code=1, timeout=120).json
    check_results(cli, engine, document)


def test_they_do_so_on_workers(cli: WorkflowCli, docker: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "1s")
    path = write(cli, FLOW, docker)
    document = cli.call("run", path, "--json", "--engine", "celery", code=1, timeout=120).json
    check_results(cli, docker, document)


def test_they_do_so_on_nodes_of_a_cluster(
    cli: WorkflowCli, docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))
    path = write(cli, FLOW, docker)
    command = [sys.executable, "-m", "tests.local_backend", "run", str(path), "--json", "--engine", "slurm"]
    done = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    check_results(cli, docker, json.loads(done.stdout))


def test_one_of_them_can_run_again(cli: WorkflowCli, docker: Engine) -> None:
    cli.call("run", write(cli, FLOW, docker), code=1, timeout=120)
    number = cli.records()["says_1"].number
    (cli.folder / "data" / "said_1").unlink()
    cli.call("rerun", f"job:{number}", code=0, timeout=60)
    assert (cli.folder / "data" / "said_1").read_text().startswith("hello 1")


def without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_the_expanded_file_says_the_same(cli: WorkflowCli, docker: Engine) -> None:
    path = write(cli, FLOW, docker)
    text = cli.call("expand", path, code=0).stdout
    (cli.folder / "expanded.yaml").write_text(text)
    again = cli.call("expand", "expanded.yaml", code=0).stdout
    assert without_comments(again) == without_comments(text)  # these name the sweeps of the file
    assert f"image: {IMAGE}" in text.replace('"', "").replace("'", "")
    assert "container: false" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_container(
    cli: WorkflowCli, engine: Engine, number: signal.Signals
) -> None:
    driver = cli.start("run", write(cli, LONG, engine), "--on-interrupt", "kill")
    wait_until((cli.folder / "data" / "begun").exists, timeout=30)
    driver.send_signal(number)
    driver.communicate(timeout=60)
    assert cli.records()["long"].status is Status.CANCELLED
    assert_no_container(cli, engine)


def test_a_killed_driver_loses_no_container(cli: WorkflowCli, docker: Engine) -> None:
    driver = cli.start("run", write(cli, LONG, docker))
    wait_until((cli.folder / "data" / "begun").exists, timeout=30)
    driver.kill()
    driver.communicate()
    resumed = cli.start("resume", "1.1")
    wait_until(lambda: _owner_pid(cli.records()["long"]) != driver.pid, timeout=30)
    cli.call("cancel", "1.1", code=0, timeout=60)
    resumed.communicate(timeout=60)
    wait_until(lambda: cli.records()["long"].status.is_final, timeout=30)
    assert_no_container(cli, docker)


def _owner_pid(record: Record) -> int:
    return record.attempt.owner.pid if record.attempt is not None else 0


def test_an_engine_that_is_not_there_is_reported(cli: WorkflowCli) -> None:
    text = (
        "name: x\njobs: [{name: a, command: 'true', container: {image: y, socket: /nowhere/engine.sock}}]\n"
    )
    document = cli.run(text, code=1)
    (row,) = document["results"]
    assert row["return_code"] == 125
    assert "/nowhere/engine.sock" in row["reason"]


def test_another_image_runs_a_job_again(cli: WorkflowCli, docker: Engine) -> None:
    text = (
        "name: x\njobs: [{{name: a, command: 'true', container: {{image: '{image}', socket: '{socket}'}}}}]\n"
    )
    path = write(cli, text, docker)
    cli.call("run", path, code=0, timeout=60)
    output = cli.call("run", path, "--rerun-changed", "--dry-run", code=0).stdout
    assert "has changed" not in output
    path.write_text(path.read_text().replace(IMAGE, f"docker.io/library/{IMAGE}"))
    output = cli.call("run", path, "--rerun-changed", "--dry-run", code=0).stdout
    assert "container has changed" in output


def test_apptainer_runs_without_an_engine(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in its place shows what it is asked for: Apptainer itself is not part of the tests."""
    tools = cli.folder / "bin"
    tools.mkdir()
    program = tools / "apptainer"
    program.write_text('#!/bin/sh\necho "$@" > asked; echo "$APPTAINERENV_X" >> asked; exit 4\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    text = """
name: x
jobs:
  - name: a
    command: python train.py --rate 1
    env: {X: "5"}
    container: {image: model.sif, engine: apptainer, volumes: [".:/work"], workdir: /work}
"""
    document = cli.run(text, code=1)
    assert document["results"][0]["return_code"] == 4
    folder = cli.folder
    asked = f"exec --bind {folder}:/work --pwd /work model.sif python train.py --rate 1\n5\n"
    assert (folder / "asked").read_text() == asked


def test_a_missing_apptainer_is_a_missing_command(cli: WorkflowCli, joblens: RunJoblens) -> None:
    text = "name: x\njobs: [{name: a, command: 'true', container: {image: a.sif, engine: apptainer}}]\n"
    document = cli.run(text, code=1)
    assert states(document) == {"a": "failed"}
    assert document["results"][0]["return_code"] == 127


def test_a_single_command_runs_in_apptainer(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = cli.folder / "bin"
    tools.mkdir()
    (tools / "apptainer").write_text('#!/bin/sh\necho "$@ with $APPTAINERENV_X"; exit 4\n')
    (tools / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    options = ("--container", "m.sif", "--container-engine", "apptainer", "--env", "X=5")
    done = cli.call("run", *options, "--shell", "a | b", code=4)
    assert done.stdout == "exec m.sif /bin/sh -c a | b with 5\n"
    assert "docker and podman" in cli.call("run", *options, "--pull", "--", "true", code=2).stderr
    (cli.folder / "say.sh").write_text("true\n")
    refused = cli.call("submit", "bash", "say.sh", *options[:4], code=2).stderr
    assert "docker or podman" in refused
