"""Runs whose jobs a cluster gives their places: a cluster of this machine (tests.local_backend)."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import AllocationEnded, WorkPlaced
from tests.conftest import Finished, wait_until
from tests.integration.workflow_cli import WorkflowCli

SLOW = """
name: slow
jobs:
  - name: part_{i}
    command: |
      echo $JOBLENS_ATTEMPT >> tries_{i}; echo begin_{i} >> ran
      while [ ! -e go ]; do sleep 0.02; done; echo end_{i} >> ran
    parameters: {i: "1:2"}
  - {name: last, command: "echo last >> ran", depends_on_regexes: ["part_"]}
"""


@pytest.fixture(autouse=True)
def quick_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "3s")


def run(cli: WorkflowCli, text: str, *arguments: str, code: int = 0) -> Finished:
    return cli.call_local_cluster("run", cli.write(text), "--engine", "slurm", *arguments, code=code)


def start_slow(cli: WorkflowCli) -> "subprocess.Popen[str]":
    """A driver of SLOW, once two of its jobs run."""
    driver = cli.start_local_cluster("run", cli.write(SLOW), "--engine", "slurm")
    wait_until(lambda: len(cli.lines("ran")) == 2, what="two jobs that run")
    return driver


def places_of(cli: WorkflowCli) -> tuple[dict[str, tuple[str, ...]], dict[str, bool]]:
    """-> places with the jobs they were for, and how those ended of which that was noted"""
    placed: dict[str, tuple[str, ...]] = {}
    ended: dict[str, bool] = {}
    store = cli.store()
    try:
        for _, event in store.run_events(cli.newest_run().uuid):
            if isinstance(event.fact, WorkPlaced):
                placed |= {one.placement.job_id: one.uuids for one in event.fact.placed}
            elif isinstance(event.fact, AllocationEnded):
                ended |= dict.fromkeys(event.fact.job_ids, event.fact.is_gone)
    finally:
        store.close()
    return placed, ended


def worker_pid(record: Record) -> int:
    assert record.attempt is not None
    return record.attempt.owner.pid


def test_records_tell_where_the_cluster_has_put_the_job(cli: WorkflowCli) -> None:
    run(cli, "name: one\njobs:\n  - {name: a, command: sleep 0.1}\n")
    record = cli.records()["a"]
    assert record.attempt is not None
    assert record.attempt.placement is not None
    assert record.outcome is not None
    assert record.outcome.usage.cpu_total_usec is not None
    assert record.attempt.placement.engine == "slurm"
    placed, ended = places_of(cli)
    assert placed == {record.attempt.placement.job_id: (record.job.uuid,)}
    assert set(ended) == set(placed), "what was asked of the cluster is over"


def test_nothing_of_a_run_that_is_over_stays_on_disk(cli: WorkflowCli, store_path: Path) -> None:
    run(cli, "name: one\njobs:\n  - {name: a, command: 'true'}\n")
    hires = store_path.parent / "hires"
    assert not hires.exists() or list(hires.iterdir()) == []


def test_many_jobs_share_one_place_that_serves_their_queue(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_TEST_PACKS", "2")
    text = 'name: many\njobs:\n  - {name: "a_{i}", command: "echo x >> ran", parameters: {i: "1:30"}}\n'
    run(cli, text)
    assert len(cli.lines("ran")) == 30
    placed, _ = places_of(cli)
    assert list(placed.values()) == [()]


def test_jobs_of_one_place_share_its_memory(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_TEST_PACKS", "4")
    monkeypatch.setenv("JOBLENS_TEST_MEMORY", str(1 << 30))
    text = """
name: large
jobs:
  - name: "large_{i}"
    command: "echo begin >> ran; sleep 0.1; echo end >> ran"
    memory: 600m
    parameters: {i: "1:3"}
"""
    run(cli, text)
    assert cli.lines("ran") == ["begin", "end"] * 3, "two at a time would not have fitted"


def test_jobs_of_one_place_get_its_gpus_by_name(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_TEST_PACKS", "2")
    monkeypatch.setenv("JOBLENS_TEST_GPUS", "3,GPU-5")
    text = """
name: devices
jobs:
  - name: "device_{i}"
    command: "echo $CUDA_VISIBLE_DEVICES >> ran; while [ $(wc -l < ran) -lt 2 ]; do sleep 0.02; done"
    num_gpus: 1
    parameters: {i: "1:2"}
"""
    run(cli, text)
    assert sorted(cli.lines("ran")) == ["3", "GPU-5"]
    records = cli.records().values()
    assert sorted(record.gpu_devices for record in records) == [("3",), ("GPU-5",)]
    assert "GPU-5" in cli.call("show", "device_1").stdout + cli.call("show", "device_2").stdout


def test_a_job_that_ends_cleanly_because_its_place_ends_is_not_done(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster tells everything in a place to end, and the worker may hear of its jobs' ends first: here it
    sleeps until they have ended."""
    monkeypatch.setenv("JOBLENS_TEST_PACKS", "4")
    text = """
name: obedient
jobs:
  - name: "part_{i}"
    command: |
      trap 'echo {i} >> saved; exit 0' TERM; echo $$ >> pids
      while [ ! -e go ]; do sleep 0.02; done; echo {i} >> ran
    parameters: {i: "1:4"}
"""
    driver = cli.start_local_cluster("run", cli.write(text), "--engine", "slurm")
    wait_until(lambda: len(cli.lines("pids")) == 4, what="four jobs that run")
    wait_until(lambda: all(one.attempt is not None for one in cli.records().values()))
    worker = worker_pid(cli.records()["part_1"])
    os.kill(worker, signal.SIGSTOP)
    for pid in cli.lines("pids"):
        os.kill(int(pid), signal.SIGTERM)
    wait_until(lambda: len(cli.lines("saved")) == 4, what="jobs to exit when asked to")
    os.kill(worker, signal.SIGTERM)
    os.kill(worker, signal.SIGCONT)
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert sorted(cli.lines("ran")) == ["1", "2", "3", "4"], output


def test_the_place_of_a_killed_worker_is_gone_and_its_job_gets_another(cli: WorkflowCli) -> None:
    driver = start_slow(cli)
    wait_until(lambda: cli.records()["part_1"].attempt is not None, what="its record")
    os.kill(worker_pid(cli.records()["part_1"]), signal.SIGKILL)
    wait_until(lambda: len(cli.lines("ran")) == 3, what="it to be taken up again")
    (cli.folder / "go").touch()
    driver.communicate(timeout=60)
    placed, ended = places_of(cli)
    part_1 = cli.records()["part_1"].job.uuid
    first, _ = (job_id for job_id, uuids in placed.items() if part_1 in uuids)
    assert ended[first]


def test_a_job_that_must_not_run_twice_ends_as_lost_with_a_worker_that_is_asked_to_end(
    cli: WorkflowCli,
) -> None:
    text = "name: once\njobs:\n  - {name: a, command: 'echo begun >> ran; sleep 60', retry_lost: never}\n"
    driver = cli.start_local_cluster("run", cli.write(text), "--engine", "slurm")
    wait_until(lambda: cli.lines("ran") == ["begun"], what="the job")
    wait_until(lambda: cli.records()["a"].attempt is not None, what="its record")
    os.kill(worker_pid(cli.records()["a"]), signal.SIGTERM)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 1, output
    assert cli.records()["a"].status is Status.LOST
    assert "lost with its worker" in output
    assert cli.lines("ran") == ["begun"]


def test_a_worker_that_is_asked_to_end_gives_back_what_it_has(cli: WorkflowCli) -> None:
    driver = start_slow(cli)
    wait_until(lambda: cli.records()["part_1"].attempt is not None, what="its record")
    os.kill(worker_pid(cli.records()["part_1"]), signal.SIGTERM)
    wait_until(lambda: len(cli.lines("ran")) == 3, what="it to be taken up again")
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert {one.status for one in cli.results()} == {Status.SUCCESS}


def test_a_worker_that_dies_while_nobody_drives_is_found_to_be_gone_by_the_next_driver(
    cli: WorkflowCli,
) -> None:
    driver = start_slow(cli)
    wait_until(lambda: cli.records()["part_1"].attempt is not None, what="its record")
    driver.kill()
    driver.communicate()
    os.kill(worker_pid(cli.records()["part_1"]), signal.SIGKILL)
    resumed = cli.start_local_cluster("resume", "slow")
    wait_until(lambda: len(cli.lines("ran")) == 3, what="it to be taken up again")
    (cli.folder / "go").touch()
    output, _ = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, output
    assert cli.lines("tries_1") == ["1", "2"]
    placed, _ = places_of(cli)
    assert len(placed) == 4, "nothing else was placed twice"


def test_places_in_which_nothing_begins_are_not_asked_for_for_ever(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_TEST_BROKEN", "1")
    run(cli, "name: one\njobs:\n  - {name: a, command: 'true'}\n", code=1)
    record = cli.records()["a"]
    assert record.status is Status.ERROR
    assert record.outcome is not None
    assert "ended before its worker started (exit 3), as did 2 before it" in (record.outcome.error or "")


def test_what_the_cluster_will_never_take_ends_with_its_words_and_the_others_run(cli: WorkflowCli) -> None:
    jobs = ("{name: refused, command: 'true', memory: 50m}", "{name: b, command: 'true'}")
    text = "name: two\njobs:\n" + "".join(f"  - {job}\n" for job in jobs)
    run(cli, text, code=1)
    records = cli.records()
    assert records["b"].status is Status.SUCCESS
    assert records["refused"].status is Status.ERROR
    outcome = records["refused"].outcome
    assert outcome is not None
    assert "the cluster will never take refused" in (outcome.error or "")


def test_jobs_wait_for_a_cluster_that_is_away(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> None:
    away = cli.folder / "away"
    away.touch()
    monkeypatch.setenv("JOBLENS_TEST_AWAY", str(away))
    driver = cli.start_local_cluster(
        "run", cli.write("name: one\njobs:\n  - {name: a, command: 'true'}\n"), "--engine", "slurm"
    )
    assert driver.stdout is not None
    for line in driver.stdout:
        if "the cluster is unreachable" in line:
            break
    away.unlink()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output


def test_ordinary_workers_leave_jobs_of_a_cluster_alone(cli: WorkflowCli) -> None:
    driver = start_slow(cli)
    cli.call("submit", "--queue", "default", "--wait", "--", "true", code=0)
    (cli.folder / "go").touch()
    driver.communicate(timeout=60)
    placements = [one.attempt.placement for one in cli.records().values() if one.attempt and one.job.run]
    assert all(placements)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--address", "auto"), "--address has no effect with --engine local: it needs --engine ray"),
        (("--partition", "x"), "--partition has no effect with --engine local: it needs --engine slurm"),
        (("--engine", "slurm", "--walltime", "soon"), "'soon' is not a Slurm duration"),
        (("--engine", "slurm", "--sbatch", "constraint"), "not an sbatch option"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    cli: WorkflowCli, options: tuple[str, ...], message: str
) -> None:
    path = cli.write("name: one\njobs:\n  - {name: a, command: 'true'}\n")
    done = cli.call("run", path, *options, code=2)
    assert message in done.stderr
    assert not cli.store_path.exists()
