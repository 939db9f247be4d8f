"""Workers, the broker and the database are killed while jobs flow: every job has one outcome and no other."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Requirements, RetryLost, Status
from tests.conftest import wait_until
from tests.integration.delivery_harness import DeliveryHarness, later, outcomes
from tests.servers import PostgresServer, RedisServer

pytest.importorskip("celery")

JOBS = 500

OpenHarness = Callable[..., DeliveryHarness]


@pytest.fixture
def open_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenHarness]:
    harnesses: list[DeliveryHarness] = []

    def open_it(store: str, broker: str | None, *, lease_s: float = 3.0) -> DeliveryHarness:
        harnesses.append(DeliveryHarness(tmp_path, store, broker, lease_s=lease_s, patch=monkeypatch))
        return harnesses[-1]

    yield open_it
    for harness in harnesses:
        harness.close()


def test_500_jobs_have_500_outcomes_whatever_is_killed(
    open_harness: OpenHarness, own_postgres: PostgresServer, redis_server: RedisServer
) -> None:
    harness = open_harness(own_postgres.new_database(), redis_server.url)
    safe = [f"safe{number:03}" for number in range(JOBS - 100)]
    once = [f"once{number:02}" for number in range(60)]
    limited = [f"limited{number:02}" for number in range(40)]
    uuids = [
        *harness.submit(safe[:200], "sleep 0.2"),
        *harness.submit(once, "sleep 0.2", retry_lost=RetryLost.NEVER),
        *harness.submit(limited, "sleep 0.1", requirements=Requirements(timeout_s=60.0)),
        *harness.submit(safe[200:], "sleep 0.2"),
    ]
    workers = [harness.start_worker() for _ in range(3)]

    harness.wait_for(uuids, 60)
    harness.kill_worker(workers[0])
    harness.start_worker()

    harness.wait_for(uuids, 130)
    redis_server.kill()
    later(1.5)
    redis_server.start()

    harness.wait_for(uuids, 200)
    own_postgres.kill()
    later(2.0)
    own_postgres.start()

    harness.wait_for(uuids, 280)
    for worker in harness.processes[1:3]:
        harness.kill_worker(worker)
    harness.start_worker()
    harness.start_worker()

    harness.wait_for(uuids, 350)
    own_postgres.kill()
    redis_server.kill()
    harness.kill_worker(harness.processes[3])
    own_postgres.start()
    redis_server.start()
    harness.start_worker()

    harness.wait_for(uuids, JOBS)
    _check_every_outcome(harness, safe + limited, once)


def _check_every_outcome(harness: DeliveryHarness, safe: list[str], once: list[str]) -> None:
    records, starts = harness.records(), harness.starts()
    assert sorted(records) == sorted(safe + once)
    assert sum(outcomes(records).values()) == JOBS
    statistics = harness.store.statistics(HistoryQuery()).overall.by_status
    assert sum(statistics.values()) == JOBS  # each was counted once
    assert {records[name].status for name in safe} == {Status.SUCCESS}
    assert {records[name].status for name in once} <= {Status.SUCCESS, Status.LOST}
    for name in once:
        assert len(starts[name]) <= 1, f"{name} must not run twice"
    for name, record in records.items():
        assert record.outcome is not None
        if record.status is Status.SUCCESS:
            # Once its success was known, it never ran again.
            assert max(starts[name]) <= record.outcome.ended_at_us, name
    assert harness.is_quiet()
    assert harness.store.check().ok


def test_jobs_of_a_killed_worker_end_with_it_and_are_taken_up_again(
    open_harness: OpenHarness, tmp_path: Path
) -> None:
    """With a folder as broker and a file as store: nothing else is there that could help."""
    harness = open_harness(str(tmp_path / "store" / "joblens.db"), str(tmp_path / "broker"))
    gate = tmp_path / "gate"
    uuids = harness.submit(
        ["held"], f'echo $$ > "{tmp_path}/pid"; while [ ! -e "{gate}" ]; do sleep 0.05; done'
    )
    first = harness.start_worker(1)
    wait_until(lambda: harness.starts().get("held"), timeout=30, what="its start")
    pid = int(wait_until((tmp_path / "pid").read_text, what="its process id"))
    harness.kill_worker(first)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the end of what its worker left running")
    gate.touch()
    harness.start_worker(1)
    harness.wait_for(uuids, 1)
    record = harness.records()["held"]
    assert (record.status, len(harness.starts()["held"])) == (Status.SUCCESS, 2)
    assert record.attempt is not None
    assert record.attempt.number == 2


def test_a_job_that_must_not_run_twice_is_lost_with_its_worker(
    open_harness: OpenHarness, tmp_path: Path
) -> None:
    harness = open_harness(str(tmp_path / "store" / "joblens.db"), str(tmp_path / "broker"))
    uuids = harness.submit(["held"], "sleep 600", retry_lost=RetryLost.NEVER)
    first = harness.start_worker(1)
    wait_until(lambda: harness.starts().get("held"), timeout=30, what="its start")
    harness.kill_worker(first)
    harness.start_worker(1)
    harness.wait_for(uuids, 1)
    record = harness.records()["held"]
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (Status.LOST, "lost")
    assert "must not run twice" in str(record.outcome.error)
    (after,) = harness.submit(["after"], "true")
    harness.wait_for([after], 1)
    assert len(harness.starts()["held"]) == 1


def test_a_worker_that_comes_back_from_the_dead_changes_nothing(
    open_harness: OpenHarness, redis_server: RedisServer, tmp_path: Path
) -> None:
    harness = open_harness(str(tmp_path / "store" / "joblens.db"), redis_server.url, lease_s=1.5)
    gate = tmp_path / "gate"
    uuids = harness.submit(["held"], f'while [ ! -e "{gate}" ]; do sleep 0.05; done')
    first = harness.start_worker(1)
    wait_until(lambda: harness.starts().get("held"), timeout=30, what="its start")
    wait_until(lambda: harness.store.find(uuids[0]).status is Status.RUNNING, what="its start in the store")
    first.send_signal(signal.SIGSTOP)
    harness.start_worker(1)
    wait_until(lambda: len(harness.starts()["held"]) == 2, timeout=30, what="another worker to take it up")
    wait_until(lambda: harness.store.find(uuids[0]).status is Status.RUNNING, what="its second start")
    first.send_signal(signal.SIGCONT)
    # It learns that the job is another's, and ends its own.
    (mine,) = [each for each in harness.store.holdings() if each.uuid == uuids[0]]
    wait_until(lambda: len(_running(gate)) == 1, what="the end of the first one's process")
    gate.touch()
    harness.wait_for(uuids, 1)
    record = harness.records()["held"]
    assert record.outcome is not None
    assert (record.status, record.outcome.worker) == (Status.SUCCESS, mine.worker)
    assert (mine.fence, record.attempt is not None and record.attempt.number) == (2, 2)
    assert harness.store.statistics(HistoryQuery()).overall.by_status == {"success": 1}
    assert first.poll() is None  # it goes on working


def _running(gate: Path) -> list[int]:
    """Shells that wait for the gate."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdigit() else b""
        except OSError:
            continue
        if (
            command.startswith((b"/bin/sh\0-c", b"sh\0-c", b"/bin/bash\0-c"))
            and str(gate).encode() in command
        ):
            found.append(int(entry))
    return found
