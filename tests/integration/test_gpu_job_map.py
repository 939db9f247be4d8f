"""Files for dcgm-exporter: a GPU's job is listed while it runs, and gone after, however its owner ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.job import Record, Status
from joblens.stores.sinks.gpu_job_map import GpuJobMap
from tests.builders.records import a_job, an_attempt
from tests.conftest import RunJoblens, wait_until

WORKFLOW = """
name: gpus
jobs:
  - name: train
    command: sh -c 'echo $JOBLENS_JOB_ID > id.txt; until [ -e open ]; do sleep 0.05; done'
    num_gpus: 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "map"
    monkeypatch.setenv("JOBLENS_GPU_JOB_MAPPING_DIR", str(path))
    return path


def running(uuid: str, *devices: str) -> Record:
    return Record(status=Status.RUNNING, job=a_job(uuid=uuid, gpu_devices=devices), attempt=an_attempt())


def jobs_in(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in folder.iterdir() if path.name.isdecimal()}


def test_jobs_that_share_a_gpu_are_both_listed_until_each_ends(tmp_path: Path) -> None:
    warnings: list[str] = []
    first, second = GpuJobMap(str(tmp_path), warnings.append), GpuJobMap(str(tmp_path), warnings.append)
    first.job_started(running("a", "0", "1"))
    second.job_started(running("b", "0"))
    assert jobs_in(tmp_path) == {"0": ["a", "b"], "1": ["a"]}
    first.jobs_ended([running("a", "0", "1")])
    assert jobs_in(tmp_path) == {"0": ["b"], "1": []}
    second.jobs_ended([running("b")])
    assert jobs_in(tmp_path) == {"0": [], "1": []}
    assert not warnings


def test_a_gpu_that_a_job_uses_without_asking_is_listed(tmp_path: Path) -> None:
    sink = GpuJobMap(str(tmp_path), pytest.fail)
    gpus = (GpuFacts(id="GPU-3", vendor="nvidia", index=3), GpuFacts(id="0000:01", vendor="amd", index=0))
    sink.details_taken("a", Details(gpus=gpus))
    assert jobs_in(tmp_path) == {"3": ["a"]}


def test_lines_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("slurm-4711\n")
    sink = GpuJobMap(str(tmp_path), pytest.fail)
    sink.job_started(running("a", "0"))
    sink.jobs_ended([running("a", "0")])
    assert jobs_in(tmp_path) == {"0": ["slurm-4711"]}


def test_a_folder_that_cannot_be_written_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    sink = GpuJobMap(str(tmp_path / "file"), warnings.append)
    sink.job_started(running("a", "0"))
    sink.job_started(running("b", "0"))
    assert len(warnings) == 1


def start(tmp_path: Path) -> "subprocess.Popen[bytes]":
    (tmp_path / "gpus.yaml").write_text(WORKFLOW)
    command = [sys.executable, "-m", "joblens", "run", "gpus.yaml", "--gpus", "1"]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.usefixtures("store_path")
def test_a_job_of_a_run_is_listed_while_it_runs(tmp_path: Path, folder: Path) -> None:
    with start(tmp_path) as process:
        wait_until(lambda: folder.exists() and jobs_in(folder).get("0"), what="the job in the file")
        wait_until((tmp_path / "id.txt").exists, what="the job's id")
        wait_until(lambda: (tmp_path / "id.txt").read_text().split() == jobs_in(folder)["0"], what="its id")
        (tmp_path / "open").touch()
        assert process.wait(30.0) == 0
    assert jobs_in(folder) == {"0": []}


def test_recovery_removes_the_jobs_of_a_killed_owner(
    tmp_path: Path, folder: Path, joblens: RunJoblens
) -> None:
    with start(tmp_path) as process:
        wait_until(lambda: folder.exists() and jobs_in(folder).get("0"), what="the job in the file")
        os.kill(process.pid, signal.SIGKILL)
    (tmp_path / "open").touch()
    joblens("resume", "gpus", code=0)
    assert jobs_in(folder) == {"0": []}
