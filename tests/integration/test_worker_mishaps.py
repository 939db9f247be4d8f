"""What a worker meets once in a thousand times, made to happen: answers that are lost, sleep between a claim
and the start, an end just after a beginning, jobs that nothing can be made of."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import Requirements, RetryLost, Status
from tests.conftest import wait_until
from tests.integration.run_jobs import is_gone
from tests.integration.worker_jobs import WorkerCli, worker_cli

SLEEP = "echo $$ > {0}.part; mv {0}.part {0}; exec sleep 300"
# Each stands in for the store that the worker asks for tickets.
_ASKS = """
import time
from joblens.app.queue import worker as worker_running
from joblens.model.errors import StoreError
from joblens.stores.wrappers import StoreWrapper

class Odd(StoreWrapper):
    def __init__(self, store):
        self.store, self.count = store, 0
    def _inner(self):
        return self.store
    def close(self):
        self.store.close()
    {oddity}

opens = worker_running.open_deliveries
worker_running.open_deliveries = lambda *arguments: Odd(opens(*arguments))
"""
LOSES_THE_FIRST_CLAIM = _ASKS.format(
    oddity="""
    def claim_waiting(self, *arguments, **more):
        claims = self.store.claim_waiting(*arguments, **more)
        self.count += bool(claims)
        if claims and self.count == 1:
            raise StoreError("the connection was cut")
        return claims
"""
)
LOSES_THE_FIRST_RETURN = _ASKS.format(
    oddity="""
    def give_back(self, *arguments):
        self.count += 1
        if self.count == 1:
            raise StoreError("the connection was cut")
        self.store.give_back(*arguments)
"""
)
SLEEPS_AFTER_THE_FIRST_CLAIM = _ASKS.format(
    oddity="""
    def claim_waiting(self, *arguments, **more):
        claims = self.store.claim_waiting(*arguments, **more)
        self.count += bool(claims)
        if claims and self.count == 1:
            time.sleep(3.0)
        return claims
"""
)
# An engine that has been asked to remove what a lost attempt left, and does not answer until there is a file.
ENGINE_HANGS = """
import os, time
from types import SimpleNamespace
from joblens.agent.queue import lost_workers as lost_claims

def hang(path, uuid):
    while not os.path.exists({gate!r}):
        time.sleep(0.05)

lost_claims.read_note = lambda path: SimpleNamespace(engine="docker", is_removed=os.path.exists({gate!r}))
lost_claims.start_removal = hang
"""
WRITES_LATE = """
import time
from joblens.agent.runtime.recorder import Recorder
at_once = Recorder._apply_waiting

def late(self):
    time.sleep(1.0)
    at_once(self)

Recorder._apply_waiting = late
"""


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[WorkerCli]:
    with worker_cli("cgroup", tmp_path) as one:
        yield one


def test_a_claim_whose_answer_was_lost_is_claimed_again(cli: WorkerCli) -> None:
    uuid = cli.queue("true", retry_lost=RetryLost.NEVER)
    cli.start_worker(LOSES_THE_FIRST_CLAIM, JOBLENS_QUEUE_LEASE="1h")
    record = cli.ended(uuid)
    assert record.status is Status.SUCCESS
    assert record.attempt is not None
    assert record.attempt.number == 2
    assert record.outcome is not None
    assert record.outcome.findings == ()  # it had not begun before


def test_what_was_to_be_given_back_is_given_back_when_the_store_learns_again(cli: WorkerCli) -> None:
    pids = cli.folder / "pid"
    line = f"test $JOBLENS_ATTEMPT -gt 1 || {{ {SLEEP.format(pids)}; }}"
    uuid = cli.queue("sh", "-c", line)
    cli.start_worker(LOSES_THE_FIRST_RETURN, JOBLENS_QUEUE_LEASE="1h")
    wait_until(pids.exists, what="the job")
    cli.running_on(uuid)
    with cli.opened() as store:
        assert store.take_back(uuid, 1) is Status.QUEUED
    # It claims what is still ending there, and has to give that back.
    assert cli.ended(uuid).status is Status.SUCCESS


def test_a_worker_that_slept_between_claim_and_start_asks_before_it_begins(cli: WorkerCli) -> None:
    began = cli.folder / "began"
    uuid = cli.queue("sh", "-c", f"echo $JOBLENS_ATTEMPT >> {began}")
    cli.start_worker(SLEEPS_AFTER_THE_FIRST_CLAIM, JOBLENS_QUEUE_LEASE="2s")
    with cli.opened() as store:
        wait_until(store.holdings, what="the claim")
        assert store.take_back(uuid, 1) is Status.QUEUED
    assert cli.ended(uuid).status is Status.SUCCESS
    (attempt,) = began.read_text().split()
    assert int(attempt) > 1  # the first was another's by then


def test_a_worker_that_slept_and_still_has_its_job_begins_it(cli: WorkerCli) -> None:
    began = cli.folder / "began"
    uuid = cli.queue("sh", "-c", f"echo $JOBLENS_ATTEMPT >> {began}")
    cli.start_worker(SLEEPS_AFTER_THE_FIRST_CLAIM, JOBLENS_QUEUE_LEASE="2s")
    assert cli.ended(uuid).status is Status.SUCCESS
    assert began.read_text().split() == ["1"]


@pytest.mark.parametrize(
    "requirements", [Requirements(), Requirements(timeout_s=300.0)], ids=["in-a-slot", "in-a-session"]
)
def test_a_job_that_has_only_just_begun_and_must_not_run_twice_is_not_given_back(
    cli: WorkerCli, requirements: Requirements
) -> None:
    pids = cli.folder / "pid"
    once = cli.queue("sh", "-c", SLEEP.format(pids), retry_lost=RetryLost.NEVER, requirements=requirements)
    worker = cli.start_worker(WRITES_LATE, JOBLENS_QUEUE_LEASE="60s")
    wait_until(pids.exists, what="the job", timeout=30)
    worker.terminate()
    wait_until(lambda: "taking no more jobs" in cli.worker_logs(), what="the worker to heed it")
    worker.send_signal(signal.SIGTERM)
    worker.wait(30)
    assert cli.status(once) is Status.LOST
    assert is_gone(int(pids.read_text()))


def test_a_job_that_nothing_can_be_made_of_ends_alone(cli: WorkerCli) -> None:
    odd = cli.queue_all(
        [
            (("true",), {"cwd": "/tm\0p"}),
            (("true",), {"cwd": "", "files": {"a\0b": "x"}}),
            (("true",), {"env": {"A": "a\0b"}}),
            (("true",), {"cwd": "", "files": {"x" * 300: "x"}}),
        ]
    )
    good = cli.queue("true")
    cli.start_worker()
    for uuid in odd:
        record = cli.ended(uuid)
        assert record.status is Status.ERROR
        assert record.outcome is not None
        assert "NUL" in (record.outcome.error or "") or "too long" in (record.outcome.error or "")
    assert cli.ended(good).status is Status.SUCCESS
    assert len(cli.workers) == 1


def test_two_workers_do_not_both_tell_of_what_one_has_taken_back(cli: WorkerCli) -> None:
    """The one who comes second finds nothing to take."""
    pids = cli.folder / "pid"
    uuid = cli.queue("sh", "-c", f"test $JOBLENS_ATTEMPT -gt 1 || {{ {SLEEP.format(pids)}; }}")
    cli.start_worker()
    cli.running_on(uuid)
    cli.kill_worker()
    comes_second = _ASKS.format(
        oddity="""
    def take_back(self, *arguments):
        self.store.take_back(*arguments)  # by another, a moment ago
        return self.store.take_back(*arguments)
"""
    )
    cli.start_worker(comes_second)
    assert cli.ended(uuid).status is Status.SUCCESS
    assert "is gone" not in cli.worker_logs()


def test_an_engine_that_hangs_over_what_is_left_of_one_job_holds_up_no_other(cli: WorkerCli) -> None:
    pids, gate = cli.folder / "pid", cli.folder / "gate"
    left = cli.queue("sh", "-c", f"test $JOBLENS_ATTEMPT -gt 1 || {{ {SLEEP.format(pids)}; }}")
    cli.start_worker()
    cli.running_on(left)
    cli.kill_worker()
    cli.start_worker(ENGINE_HANGS.format(gate=str(gate)), JOBLENS_QUEUE_LEASE="1s")
    with cli.opened() as store:
        wait_until(lambda: [one.fence for one in store.holdings()] == [2], what="another claim of it")
        other = cli.queue("sleep", "2")  # for longer than a lease
        assert cli.ended(other).status is Status.SUCCESS
        assert [(one.uuid, one.expired_us) for one in store.holdings()] == [(left, 0)]
    assert cli.status(left) is Status.QUEUED  # not begun: what was left is still there
    gate.touch()
    assert cli.ended(left).status is Status.SUCCESS
