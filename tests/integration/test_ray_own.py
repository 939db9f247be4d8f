"""Runs on a Ray that is started for them."""

import os
import re
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.conftest import python_path, wait_until
from tests.integration.ray_runs import FAR, quick_leases
from tests.integration.workflow_cli import WorkflowCli

pytest.importorskip("ray", reason="needs the ray extra")
__all__ = ["quick_leases"]

TELLS = """
name: tells
jobs:
  - {name: a, command: 'env > made; while [ ! -e go ]; do sleep 0.02; done'}
"""

TWO = """
name: two
jobs:
  - {name: a, command: 'true'}
  - {name: b, command: 'true', depends_on: [a]}
"""


def test_a_cluster_of_its_own_that_dies_costs_no_job_and_leaves_nothing(cli: WorkflowCli) -> None:
    driver = cli.start("run", cli.write(FAR), "--engine", "ray", "--cpus", "2")
    wait_until(lambda: len(cli.lines("ran")) == 2, what="two jobs that run", timeout=60)
    first = raylet_of(driver.pid)
    folders = [folder_of(first)]
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: len(cli.lines("ran")) == 4, what="both to run again", timeout=90)
    folders.append(folder_of(raylet_of(driver.pid)))
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert Counter(line for line in cli.lines("ran") if line.startswith("end")) == {"end_1": 1, "end_2": 1}
    assert len(set(folders)) == 2
    assert not [folder for folder in folders if os.path.exists(folder)]


def test_a_cluster_of_its_own_is_reached_from_this_machine_only_and_jobs_are_as_they_would_be_without(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # the job has that, its run's own Ray has not
    before = os.umask(0o027)
    try:
        driver = cli.start("run", cli.write(TELLS), "--engine", "ray", "--cpus", "1")
    finally:
        os.umask(before)
    wait_until((cli.folder / "made").exists, what="a job that runs", timeout=60)
    raylet = raylet_of(driver.pid)
    folder = folder_of(raylet)
    places = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in psutil.Process(driver.pid).children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    asks_for_token = raylet.environ()["RAY_AUTH_MODE"]
    mode = os.stat(folder).st_mode & 0o777
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert places == {"127.0.0.1"}
    assert (asks_for_token, mode) == ("token", 0o700)
    assert not os.path.exists(folder)
    made = cli.folder / "made"
    assert made.stat().st_mode & 0o777 == 0o640
    rays = [
        line for line in made.read_text().splitlines() if re.match("RAY_AUTH|RAY_ENABLE|JOBLENS_RAY", line)
    ]
    assert rays == ["RAY_AUTH_MODE=disabled"]


def test_a_cluster_of_its_own_needs_no_psutil_of_ours_and_what_cannot_be_imported_ends_the_run(
    cli: WorkflowCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray brings its own psutil along, which is there behind `import ray` only."""
    flow = cli.write(TWO)
    shadowed(tmp_path / "first", "psutil", monkeypatch)
    cli.call("run", flow, "--engine", "ray", "--cpus", "1", code=0)
    shadowed(tmp_path / "then", "ray", monkeypatch)
    done = cli.call("run", flow, "--engine", "ray", "--cpus", "1", code=1)
    assert "--engine ray cannot be used: Ray cannot be imported: ray is shadowed" in done.stderr + done.stdout


def shadowed(folder: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be imported."""
    folder.mkdir()
    (folder / f"{module}.py").write_text(f"raise ImportError('{module} is shadowed')")
    monkeypatch.setenv("PYTHONPATH", python_path(folder))


def raylet_of(driver: int) -> psutil.Process:
    """Of the cli that this driver has started."""
    found = [one for one in psutil.Process(driver).children(recursive=True) if one.name() == "raylet"]
    assert found, "there is no raylet"
    return found[-1]


def folder_of(raylet: psutil.Process) -> str:
    found = re.search(r"--raylet_socket_name=(/tmp/jlray-[^/]+)/", " ".join(raylet.cmdline()))
    assert found is not None
    return found[1]
