"""Runs of workflows whose jobs are carried out by workers of a queue."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from joblens.model.jobs.job import Record, Status
from tests.conftest import python_path, wait_until
from tests.integration.run_worker import end_worker
from tests.integration.workflow_cli import WorkflowCli, states

SLOW = """
name: slow
jobs:
  - name: part_{i}
    command: |
      echo $JOBLENS_ATTEMPT >> tries_{i}; echo begin_{i} >> ran
      while [ ! -e go ]; do sleep 0.02; done; echo end_{i} >> ran
    parameters: {i: "1:4"}
  - {name: last, command: "echo last >> ran", depends_on_regexes: ["part_"]}
"""
MANY = """
name: many
jobs:
  - name: "a_{i}"
    command: echo x >> ran
    parameters: {i: "1:30"}
    queue: other
"""


@pytest.fixture(autouse=True)
def quick_leases(monkeypatch: pytest.MonkeyPatch, store_path: Path) -> Iterator[None]:
    """A lost worker is noticed soon, and the one that was started for the jobs is gone in the end."""
    monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "3s")
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "500ms")
    monkeypatch.setenv("JOBLENS_QUEUE_POLL", "500ms")
    yield
    end_worker(store_path)


def test_records_tell_which_worker_ran_them_and_hold_nothing_of_the_drivers_environment(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C.UTF-8")
    cli.run(
        "name: one\njobs:\n  - {name: a, command: 'true', env: {PARTS: '3'}, queue: fast}\n",
        "--engine",
        "celery",
    )
    record = cli.records()["a"]
    assert record.outcome is not None
    assert record.outcome.worker
    assert record.job.queue == "fast"
    assert record.job.created_by is None
    assert set(record.job.env) == {"PARTS"}
    assert record.job.run is not None
    assert record.outcome.usage.cpu_total_usec is not None


def test_commands_that_look_at_a_run_show_it_as_any_other(cli: WorkflowCli) -> None:
    cli.run("name: one\njobs:\n  - {name: a, command: 'sleep 0.1', memory: 100m}\n", "--engine", "celery")
    assert cli.call("results", "one", "--json", code=0).json["results"][0]["status"] == "completed"
    assert cli.call("check", "one", code=0).code == 0
    assert "1 of 1 done" in cli.call("watch", "one", code=0).stdout
    again = cli.call("rerun", "one", "--all", "--json", code=0).json
    assert states(again) == {"a": "completed"}
    assert cli.newest_run().options.engine == "celery"


def test_a_job_that_is_cancelled_while_it_waits_is_not_queued_again(cli: WorkflowCli) -> None:
    driver = cli.start("run", cli.write(SLOW), "--engine", "celery", "--cpus", "4")
    wait_until(lambda: len(cli.lines("ran")) == min(4, usable()), what="jobs that run")
    wait_until(lambda: len(cli.results()) == 4, what="all of them queued")
    waiting = [one for one in cli.results() if one.status is Status.QUEUED]
    for one in waiting:
        cli.call("cancel", f"job:{one.number}", code=0)
    (cli.folder / "go").touch()
    driver.communicate(timeout=60)
    assert len([line for line in cli.lines("ran") if line.startswith("end")]) == 4 - len(waiting)
    assert driver.returncode == (1 if waiting else 0)


def queued(cli: WorkflowCli) -> list[Record]:
    store = cli.store()
    try:
        return [record for record in store.running() if record.status is Status.QUEUED]
    finally:
        store.close()


def usable() -> int:
    return len(os.sched_getaffinity(0))


def test_in_the_background_it_goes_on_by_itself(cli: WorkflowCli) -> None:
    cli.call("submit", cli.write(MANY.replace("queue: other", "")), "--engine", "celery", code=0)
    cli.call("wait", "many", code=0)
    assert {one.status for one in cli.results()} == {Status.SUCCESS}
    assert all(record.job.queue for record in cli.records().values())


def test_with_a_broker_workers_that_were_started_by_hand_run_it(cli: WorkflowCli, redis_server: Any) -> None:
    broker = ("--broker", redis_server.url)
    worker = cli.start("worker", *broker, "--concurrency", "3", "--queues", "default,other")
    try:
        wait_until(lambda: has_worker(cli), what="the worker")
        document = cli.run(MANY, "--engine", "celery", *broker)
        assert set(states(document).values()) == {"completed"}
        assert len(cli.lines("ran")) == 30
        cli.call("submit", cli.folder / "flow.yaml", *broker, code=0)
        cli.call("wait", "many", code=0)
        assert cli.newest_run().options.engine == "celery", "with a broker it goes to the queue"
        assert len(cli.lines("ran")) == 60
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


def test_a_run_is_resumed_with_its_broker_and_other_options(cli: WorkflowCli, redis_server: Any) -> None:
    url = redis_server.url
    worker = cli.start("worker", "--broker", url, "--concurrency", "2", "--queues", "side")
    try:
        wait_until(lambda: has_worker(cli), what="the worker")
        options = ("--engine", "celery", "--broker", url, "--queue", "side", "--retry-lost", "never")
        driver = cli.start("run", cli.write(SLOW), *options, "--jobs", "2")
        wait_until(lambda: len(cli.lines("ran")) == 2, what="two jobs that run")
        driver.kill()
        driver.communicate(timeout=30)
        (cli.folder / "go").touch()
        result = cli.call("resume", "slow", "--jobs", "3", code=0)
        assert result.stderr == ""
        found = cli.newest_run().options
        assert (found.broker, found.queue, found.retry_lost, found.most_jobs) == (url, "side", "never", 3)
        assert len([line for line in cli.lines("ran") if line.startswith("end")]) == 4
        assert {record.job.queue for record in cli.records().values()} == {"side"}
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


@pytest.mark.needs("celery")
def test_the_password_of_a_broker_is_not_recorded_and_is_asked_for_at_resume(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", "redis://ann:gehe1m@127.0.0.1:1/0")
    driver = cli.start("run", cli.write(SLOW), "--engine", "celery")
    wait_until(lambda: queued(cli), what="a queued job")
    driver.kill()
    driver.communicate(timeout=30)
    assert cli.newest_run().options.broker == "redis://ann:***@127.0.0.1:1/0"
    assert b"gehe1m" not in cli.store_path.read_bytes()
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", "redis://other:6379/0")
    other = cli.call("resume", "slow", code=2).stderr
    assert "using the run's broker redis://127.0.0.1:1/0, not redis://other:6379/0" in other
    monkeypatch.delenv("JOBLENS_QUEUE_BROKER")
    for command in (("resume", "slow"), ("resume", "slow", "--detach"), ("run-jobs", "slow")):
        result = cli.call(*command, code=2)
        assert "redis://ann@127.0.0.1:1/0" in result.stderr
        assert "JOBLENS_QUEUE_BROKER" in result.stderr
    cli.call("cancel", "slow", code=0)


@pytest.mark.needs("celery")
def test_workers_that_join_later_are_given_jobs_of_their_own(
    cli: WorkflowCli, tmp_path: Path, processes_to_end: "list[subprocess.Popen[Any]]", monkeypatch: Any
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", str(tmp_path / "broker"))

    def start_worker(concurrency: int) -> None:
        command = [sys.executable, "-m", "joblens", "worker", "--concurrency", str(concurrency)]
        processes_to_end.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=cli.folder))

    def workers() -> int:
        store = cli.store()
        try:
            return len(store.workers())
        finally:
            store.close()

    start_worker(1)
    wait_until(lambda: workers() == 1, what="the first worker")
    driver = cli.start("run", cli.write(SLOW), "--engine", "celery")
    wait_until(lambda: len(cli.lines("ran")) == 1, what="a job that runs")
    start_worker(3)
    wait_until(lambda: len(cli.lines("ran")) == 4, what="the others on the second worker")
    (cli.folder / "go").touch()
    driver.communicate(timeout=60)
    assert driver.returncode == 0
    assert cli.lines("ran")[-1] == "last"


def test_a_database_that_goes_away_for_a_while_costs_no_job(
    cli: WorkflowCli, own_postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_STORE", own_postgres.new_database())
    monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "30s")
    text = MANY.replace("queue: other", "").replace("echo x >> ran", "echo {i} >> ran; sleep 0.05")
    driver = cli.start("run", cli.write(text), "--engine", "celery")
    wait_until(lambda: len(cli.lines("ran")) >= 4, what="a few jobs")
    own_postgres.stop()
    own_postgres.start()
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, output
    assert sorted(map(int, cli.lines("ran"))) == list(range(1, 31))
    worker = SupervisorLock(spool_dir(os.environ["JOBLENS_STORE"]), "worker")
    wait_until(lambda: worker.holder() is None, what="the worker to end")


def has_worker(cli: WorkflowCli) -> bool:
    if not cli.store_path.exists():
        return False
    store = cli.store()
    try:
        return bool(store.workers())
    finally:
        store.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: x\njobs:\n  - {name: a, command: 'true', queue: 'no way'}\n",
            "cannot be the name of a queue",
        ),
        ("name: x\njobs:\n  - {name: a, command: 'true', retry_lost: maybe}\n", "retry_lost"),
        ("name: x\njobs:\n  - {name: a, command: 'true', num_cpus: 5000}\n", "5000 CPUs"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(cli: WorkflowCli, text: str, message: str) -> None:
    done = cli.call("run", cli.write(text), "--engine", "celery", code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    left = cli.call("results", code=2).stderr
    assert "there is no store" in left or "no workflow has been run" in left


@pytest.mark.parametrize("queue", ["", "no way"])
def test_a_queue_that_cannot_be_leaves_no_run(cli: WorkflowCli, queue: str) -> None:
    done = cli.call("run", cli.write(MANY), "--engine", "celery", "--queue", queue, code=2)
    assert done.stderr.startswith(f"joblens: error: {queue!r} cannot be the name of a queue")
    assert "there is no store" in cli.call("results", code=2).stderr, "nothing was written"


def test_a_broker_without_celery_leaves_no_run(
    cli: WorkflowCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "celery.py").write_text("raise ImportError('celery is hidden')\n")
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path / "hidden"))
    broker = ("--engine", "celery", "--broker", "redis://127.0.0.1:1/0")
    done = cli.call("run", cli.write(MANY), *broker, code=2)
    assert "a broker needs Celery, which is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "there is no store" in cli.call("results", code=2).stderr, "nothing was written"


@pytest.mark.needs("celery")
def test_a_broker_that_is_away_is_warned_of_as_everywhere(cli: WorkflowCli) -> None:
    text = "name: x\njobs:\n  - {name: a, command: 'true'}\n"
    away = ("--engine", "celery", "--broker", "redis://127.0.0.1:1/0", "--time", "3s")
    printed = cli.call("run", cli.write(text), *away, code=1).stderr
    (line,) = [line for line in printed.splitlines() if "queued anyway" in line]
    assert line.startswith("joblens: warning: the broker at redis://127.0.0.1:1/0")


def test_queue_and_broker_need_their_engine(cli: WorkflowCli) -> None:
    assert "celery" in cli.call("run", "x.yaml", "--engine", "slurmy", code=2).stderr
    assert "--engine celery" in cli.call("run", cli.write(MANY), "--queue", "x", code=2).stderr
    assert "--engine celery" in cli.call("run", "--queue", "x", "--", "true", code=2).stderr
    nonsense = cli.call("run", cli.write(MANY), "--engine", "celery", "--broker", "ftp://x", code=2)
    assert "broker" in nonsense.stderr
