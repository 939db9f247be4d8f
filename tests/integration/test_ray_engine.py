"""Runs of workflows whose jobs Ray gives their places, on a real cluster of this machine."""

import os
import re
import signal
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import psutil
import pytest

from joblens.model.jobs.job import Code, Status
from tests.conftest import wait_until
from tests.integration.ray_cluster import cluster
from tests.integration.ray_runs import FAR, quick_leases
from tests.integration.test_run_engine import SLOW
from tests.integration.workflow_cli import WorkflowCli
from tests.ray_head import RayCluster

__all__ = ["cluster", "quick_leases"]

MANY = """
name: many
jobs:
  - {name: "a_{i}", command: "echo {i} >> ran", parameters: {i: "1:150"}}
"""


def on(cluster: RayCluster) -> tuple[str, ...]:
    return ("--engine", "ray", "--address", cluster.address)


def start_slow(cli: WorkflowCli, cluster: RayCluster) -> "subprocess.Popen[str]":
    driver = cli.start("run", cli.write(SLOW), *on(cluster))
    wait_until(lambda: len(cli.lines("ran")) == 2, what="two jobs that run", timeout=60)
    return driver


def test_short_jobs_share_tasks_and_each_runs_once_with_a_record_of_its_own(
    cli: WorkflowCli, cluster: RayCluster
) -> None:
    cli.run(MANY, *on(cluster))
    assert Counter(cli.lines("ran")) == Counter(map(str, range(1, 151)))
    records = cli.records()
    assert {record.status for record in records.values()} == {Status.SUCCESS}
    placements = [record.attempt.placement for record in records.values() if record.attempt is not None]
    assert all(one is not None and one.engine == "ray" and one.node_id for one in placements)
    tasks = {one.job_id for one in placements if one is not None}
    assert len(tasks) < 100, "several have the same task"
    assert all(record.outcome and record.outcome.usage.cpu_total_usec for record in records.values())


def test_a_cluster_that_is_not_there_is_reported(cli: WorkflowCli) -> None:
    refused = cli.call("run", cli.write(MANY), "--engine", "ray", "--address", "127.0.0.1:1", timeout=120)
    assert refused.code != 0
    assert "127.0.0.1:1" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_however_often_the_process_that_uses_ray_dies_no_job_is_given_up(
    cli: WorkflowCli, cluster: RayCluster
) -> None:
    driver = start_slow(cli, cluster)
    for begun in (4, 6, 8):  # a job is given up at the third place in vain
        os.kill(_proxy_of(driver.pid), signal.SIGKILL)
        wait_until(partial(_have_begun, cli, begun), what="two to run again", timeout=60)
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert {record.status for record in cli.records().values()} == {Status.SUCCESS}
    ends = Counter(line for line in cli.lines("ran") if line.startswith("end"))
    assert ends == {f"end_{i}": 1 for i in range(1, 5)}


def _have_begun(cli: WorkflowCli, count: int) -> bool:
    return len(cli.lines("ran")) >= count


def _proxy_of(driver: int) -> int:
    for process in psutil.Process(driver).children():
        if "joblens.runners.ray.proxy" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
            return int(process.pid)
    raise AssertionError("there is no cli")


def test_what_jobs_print_where_the_runs_folder_is_not_seen_comes_home_as_it_is_printed(
    cli: WorkflowCli, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_RAY_RESOURCES", "apart=1")
    monkeypatch.setenv("JOBLENS_RAY_WAIT_FOR_NODES", "true")
    text = """
name: apart
jobs:
  - {name: a, command: 'echo first; while [ ! -e go ]; do sleep 0.02; done; echo last; echo made > ran'}
"""
    driver = cli.start("run", cli.write(text), *on(cluster))
    output = cli.folder / "output"
    wait_until(lambda: any(output.glob(".joblens-*")), what="the mark", timeout=60)
    for mark in output.glob(".joblens-*"):
        mark.unlink()  # as for a node that has another file system
    why = "waits at ray: wants 1 CPU, apart=1; no node has as much"
    wait_until(lambda: why in cli.call("show", "1", code=0).stdout, what="why it waits", timeout=30)
    node = cluster.add_node(apart=1)
    printed = output / "job_output" / "1_1" / "a" / "stdout.log"
    wait_until(printed.exists, what="what it prints while it runs", timeout=60)
    wait_until(lambda: printed.read_text() == "first\n")
    assert cli.call("logs", "1", code=0).stdout == "first\n"
    assert list(nodes_folder().rglob("stdout.log")), "it is written there"
    (cli.folder / "go").touch()
    result, _ = driver.communicate(timeout=60)
    cluster.remove_node(node)
    assert driver.returncode == 0, result
    assert "waits at ray job a: wants 1 CPU, apart=1; no node has as much" in result
    assert printed.read_text() == "first\nlast\n"
    attempt = cli.records()["a"].attempt
    assert attempt is not None
    assert attempt.logs_dir == str(printed.parent)
    wait_until(lambda: not list(nodes_folder().iterdir()), what="the node to be left as it was", timeout=30)


def nodes_folder() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "joblens" / "nodes"


def test_jobs_of_a_node_that_is_lost_run_again_elsewhere(
    cli: WorkflowCli, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_RAY_RESOURCES", "far=1")
    lost = cluster.add_node(far=1)
    driver = cli.start("run", cli.write(FAR), *on(cluster))
    wait_until(lambda: len(cli.lines("ran")) == 1, what="a job that runs there", timeout=60)
    cluster.remove_node(lost, allow_graceful=False)
    other = cluster.add_node(far=2)
    wait_until(lambda: len(cli.lines("ran")) >= 2, what="it to run again", timeout=60)
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=60)
    cluster.remove_node(other)
    assert driver.returncode == 0, output
    ends = Counter(line for line in cli.lines("ran") if line.startswith("end"))
    assert ends == {"end_1": 1, "end_2": 1}
    records = cli.records()
    assert {record.status for record in records.values()} == {Status.SUCCESS}
    [again] = [one for one in records.values() if one.attempt is not None and one.attempt.number > 1]
    assert again.attempt is not None
    assert again.outcome is not None
    host = again.attempt.owner.host
    result = rf"worker \S+ on {host} (was lost|had to stop): {again.job.name} is requeued"
    assert re.search(result, output), output
    assert Code.TAKEN_UP_AGAIN in {finding.code for finding in again.outcome.findings}
    assert f"✓ {again.job.name} (attempt 2): done" in output
    shown = cli.call("results", "far", "--json", code=0).json["results"]
    assert {row["job_name"]: row["attempts"] for row in shown}[again.job.name] == 2
