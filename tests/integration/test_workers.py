"""A worker and its jobs: what they find, what they leave, and what becomes of them when something is lost."""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost, Status
from joblens.model.writes import CancelAsked
from tests.conftest import wait_until
from tests.integration.engines import IMAGE, Engine
from tests.integration.run_jobs import is_gone
from tests.integration.worker_jobs import MODES, WorkerCli, worker_cli

LIMITED = Requirements(timeout_s=300.0)  # such a job has a launcher of its own
SLEEP = "echo $$ > {0}.part; mv {0}.part {0}; exec sleep 300"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[WorkerCli]:
    with worker_cli("cgroup", tmp_path) as one:
        yield one


@pytest.fixture(params=MODES)
def any_cli(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerCli]:
    with worker_cli(request.param, tmp_path) as one:
        yield one


def test_a_job_has_a_folder_files_environment_and_its_record_tells_what_it_left(any_cli: WorkerCli) -> None:
    line = (
        "cat in/data.txt; echo $COLOUR $JOBLENS_ATTEMPT $WHERE; echo trouble >&2;"
        " mkdir out; echo 42 > out/result.txt; echo no > other.log"
    )
    uuid = any_cli.queue(
        "sh",
        "-c",
        line,
        cwd="",
        env={"COLOUR": "blue"},
        files={"in/data.txt": "given\n"},
        artifacts=["**/*.txt"],
    )
    any_cli.start_worker(WHERE="there")
    record = any_cli.ended(uuid)
    outcome = record.outcome
    assert outcome is not None
    assert record.status is Status.SUCCESS, outcome
    assert outcome.stdout_tail == "given\nblue 1 there\n"
    assert outcome.stderr_tail == "trouble\n"
    assert [(one.path, one.bytes) for one in outcome.artifacts] == [("out/result.txt", 3)]  # not the input
    assert outcome.artifacts[0].sha256 == "084c799cd551dd1d8d5c5f9a5d593b2e931f5e36122ee5c793c1d08a19839cc0"
    assert (Path(outcome.work_dir) / "other.log").read_text() == "no\n"
    assert os.stat(outcome.work_dir).st_mode & 0o777 == 0o700
    assert outcome.worker
    assert record.attempt is not None
    assert record.attempt.number == 1


@pytest.mark.parametrize("requirements", [Requirements(), LIMITED], ids=["in-a-slot", "in-a-session"])
def test_jobs_of_a_killed_worker_end_with_it_and_are_taken_up_by_the_next(
    any_cli: WorkerCli, requirements: Requirements
) -> None:
    pids = any_cli.folder / "pid"
    line = f"test $JOBLENS_ATTEMPT = 2 || {{ {SLEEP.format(pids)}; }}; echo done"
    uuid = any_cli.queue("sh", "-c", line, requirements=requirements)
    any_cli.start_worker()
    wait_until(pids.exists, what="the job")
    any_cli.running_on(uuid)
    any_cli.kill_worker()
    job = int(pids.read_text())
    wait_until(lambda: is_gone(job), what="the end of the job")
    assert any_cli.status(uuid) is Status.RUNNING  # nobody has looked yet
    any_cli.start_worker()
    record = any_cli.ended(uuid)
    assert record.status is Status.SUCCESS
    assert record.attempt is not None
    assert record.attempt.number == 2
    assert record.outcome is not None
    assert record.outcome.stdout_tail == "done\n"
    assert [finding.code for finding in record.outcome.findings] == ["taken-up-again"]


SLOW_TO_CLEAR = """
import time
from joblens.agent.queue import lost_workers as leftovers
ended = leftovers.kill_leftover_processes
leftovers.kill_leftover_processes = lambda *args: (time.sleep(1.5), ended(*args))
"""  # longer than an idle worker stays


def test_a_worker_does_not_leave_while_it_takes_jobs_of_a_lost_one_back(cli: WorkerCli) -> None:
    pids = cli.folder / "pid"
    line = f"test $JOBLENS_ATTEMPT = 2 || {{ {SLEEP.format(pids)}; }}; echo done"
    uuid = cli.queue("sh", "-c", line)
    cli.start_worker()
    wait_until(pids.exists, what="the job")
    cli.running_on(uuid)
    cli.kill_worker()
    cli.start_worker(SLOW_TO_CLEAR)
    assert cli.ended(uuid).status is Status.SUCCESS


def test_a_job_that_must_not_run_twice_is_lost_with_its_worker(cli: WorkerCli) -> None:
    pids = cli.folder / "pid"
    uuid = cli.queue("sh", "-c", SLEEP.format(pids), retry_lost=RetryLost.NEVER)
    cli.start_worker()
    cli.running_on(uuid)
    wait_until(pids.exists, what="the job")
    cli.kill_worker()
    cli.start_worker()
    record = cli.ended(uuid)
    assert record.status is Status.LOST
    assert record.outcome is not None
    assert "retry_lost" in (record.outcome.error or "")
    assert record.outcome.worker
    assert record.outcome.worker in (record.outcome.error or "")


@pytest.mark.parametrize("requirements", [Requirements(), LIMITED], ids=["in-a-slot", "in-a-session"])
def test_a_job_that_someone_wants_to_end_is_gone_on_the_worker(
    cli: WorkerCli, requirements: Requirements
) -> None:
    pids = cli.folder / "pid"
    uuid = cli.queue("sh", "-c", SLEEP.format(pids), requirements=requirements)
    cli.start_worker()
    wait_until(pids.exists, what="the job")
    with cli.opened() as store:
        store.apply([CancelAsked(uuid, 1, "somebody")])
    record = cli.ended(uuid)
    assert record.status is Status.CANCELLED
    assert is_gone(int(pids.read_text()))


def test_asked_to_stop_a_worker_finishes_what_runs_and_leaves_the_rest(cli: WorkerCli) -> None:
    gate = cli.folder / "gate"
    waits = f"while ! test -e {gate}; do sleep 0.02; done"
    first, second = cli.queue_all([(("sh", "-c", waits), {"requirements": Requirements(cpus=64.0)})] * 2)
    worker = cli.start_worker()
    cli.running_on(first)
    worker.terminate()
    wait_until(lambda: "taking no more jobs" in cli.worker_logs(), what="the worker to heed it")
    gate.touch()
    worker.wait(30)
    assert cli.status(first) is Status.SUCCESS
    assert cli.status(second) is Status.QUEUED
    cli.start_worker()
    record = cli.ended(second)
    assert record.status is Status.SUCCESS
    assert record.outcome is not None
    assert "taken-up-again" not in [finding.code for finding in record.outcome.findings]  # it had not begun


def test_asked_twice_a_worker_ends_its_jobs_and_gives_them_back(cli: WorkerCli) -> None:
    pids = [cli.folder / "one", cli.folder / "two"]
    line = "test $JOBLENS_ATTEMPT = 2 || {{ {0}; }}; echo done"
    jobs = [
        (("sh", "-c", line.format(SLEEP.format(path))), {"requirements": asked})
        for path, asked in zip(pids, (Requirements(), LIMITED), strict=True)
    ]
    uuids = cli.queue_all(jobs)
    worker = cli.start_worker()
    for path in pids:
        wait_until(path.exists, what="both jobs")
    worker.terminate()
    wait_until(lambda: "taking no more jobs" in cli.worker_logs(), what="the worker to heed it")
    worker.send_signal(signal.SIGTERM)
    worker.wait(30)
    assert [cli.status(uuid) for uuid in uuids] == [Status.QUEUED, Status.QUEUED]
    assert all(is_gone(int(path.read_text())) for path in pids)
    cli.start_worker()
    for uuid in uuids:
        record = cli.ended(uuid)
        assert record.status is Status.SUCCESS
        assert record.attempt is not None
        assert record.attempt.number == 2


def test_jobs_come_after_others_and_are_cancelled_when_those_fail(cli: WorkerCli) -> None:
    order = cli.folder / "order"
    first = cli.queue("sh", "-c", f"sleep 0.1; echo 1 >> {order}")
    second = cli.queue("sh", "-c", f"echo 2 >> {order}; exit 3", after=first)
    third = cli.queue("sh", "-c", f"echo 3 >> {order}", after=second)
    cli.start_worker()
    record = cli.ended(third)
    assert [cli.status(uuid) for uuid in (first, second, third)] == [
        Status.SUCCESS,
        Status.FAILED,
        Status.CANCELLED,
    ]
    assert order.read_text() == "1\n2\n"
    assert record.outcome is not None
    assert record.outcome.reason == "blocked"


@pytest.mark.parametrize("requirements", [Requirements(), LIMITED], ids=["in-a-slot", "in-a-session"])
def test_a_worker_that_finds_its_job_taken_by_another_ends_it_without_a_word(
    cli: WorkerCli, requirements: Requirements
) -> None:
    """As after a long silence: its lease ran out, and somebody took the job back."""
    pids = cli.folder / "pid"
    line = f"test $JOBLENS_ATTEMPT -gt 1 || {{ {SLEEP.format(pids)}; }}; echo done"
    uuid = cli.queue("sh", "-c", line, requirements=requirements)
    cli.start_worker()
    wait_until(pids.exists, what="the job")
    cli.running_on(uuid)
    with cli.opened() as store:
        assert store.take_back(uuid, 1) is Status.QUEUED
    record = cli.ended(uuid)
    assert record.status is Status.SUCCESS
    assert is_gone(int(pids.read_text()))
    assert record.outcome is not None
    assert record.outcome.stdout_tail == "done\n"


def test_a_job_takes_as_many_places_as_it_wants_cpus(cli: WorkerCli) -> None:
    many = cli.queue_all([(("sleep", "0.3"), {"requirements": Requirements(cpus=1000.0)})] * 3)
    cli.start_worker()
    records = [cli.ended(uuid) for uuid in many]
    spans = sorted(
        (record.attempt.started_at_us, record.outcome.ended_at_us)
        for record in records
        if record.attempt is not None and record.outcome is not None
    )
    assert len(spans) == 3
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


def test_a_job_that_cannot_begin_says_why(cli: WorkerCli) -> None:
    no_command = cli.queue("/no/such/program")
    no_folder = cli.queue("true", cwd="/no/such/folder")
    outside = cli.queue("true", cwd="", files={"../evil": "x"})
    cli.start_worker()
    for uuid, word in ((no_command, "not found"), (no_folder, "directory"), (outside, "outside")):
        record = cli.ended(uuid)
        assert record.status is Status.ERROR
        assert record.outcome is not None
        assert word in (record.outcome.error or "")
        assert record.outcome.worker
    assert not list(cli.folder.rglob("evil"))


def test_many_short_jobs_are_each_run_once_and_recorded_once(cli: WorkerCli) -> None:
    ran = cli.folder / "ran"
    uuids = cli.queue_all([(("sh", "-c", f"echo $JOBLENS_JOB_ID >> {ran}"), {})] * 150)
    cli.start_worker()
    records = [cli.ended(uuid) for uuid in uuids]
    assert {record.status for record in records} == {Status.SUCCESS}
    assert sorted(ran.read_text().split()) == sorted(uuids)
    history = (cli.store.parent / "jobs_history.jsonl").read_text().splitlines()
    assert len(history) == 150


def test_a_container_of_a_killed_worker_is_taken_away_and_the_job_started_over(
    cli: WorkerCli, docker: Engine
) -> None:
    container = ContainerJob(image=IMAGE, engine="docker", socket=docker.socket, network="none")
    line = "test $JOBLENS_ATTEMPT = 2 && echo inside || sleep 300"
    uuid = cli.queue("sh", "-c", line, cwd="", container=container)
    cli.start_worker()
    wait_until(lambda: docker.containers_of(uuid), what="the container", timeout=40)
    cli.running_on(uuid)
    cli.kill_worker()
    wait_until(lambda: not docker.containers_of(uuid), what="the end of the container", timeout=40)
    cli.start_worker()
    record = cli.ended(uuid)
    assert record.status is Status.SUCCESS, record.outcome
    assert record.outcome is not None
    assert record.outcome.stdout_tail == "inside\n"
    assert docker.containers_of(uuid) == []


def test_a_container_of_a_cancelled_job_is_gone(cli: WorkerCli, docker: Engine) -> None:
    container = ContainerJob(image=IMAGE, engine="docker", socket=docker.socket, network="none")
    uuid = cli.queue("sleep", "300", cwd="", container=container, grace_s=0.5)
    cli.start_worker()
    wait_until(lambda: docker.containers_of(uuid), what="the container", timeout=40)
    cli.running_on(uuid)
    with cli.opened() as store:
        store.apply([CancelAsked(uuid, 1, "somebody")])
    record = cli.ended(uuid)
    assert record.status is Status.CANCELLED
    assert docker.containers_of(uuid) == []
