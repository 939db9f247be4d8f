"""The store hangs, machines sleep, and workers die while the store is away: nobody who lives loses a job, and
what has ended is not run again."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import RetryLost, Status
from tests.conftest import wait_until
from tests.integration.delivery_harness import DeliveryHarness, later
from tests.servers import PostgresServer

pytest.importorskip("celery")

LEASE_S = 2.0
OpenHarness = Callable[[str], DeliveryHarness]


@pytest.fixture
def open_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenHarness]:
    harnesses: list[DeliveryHarness] = []

    def open_it(store: str) -> DeliveryHarness:
        broker = str(tmp_path / "broker")
        harnesses.append(DeliveryHarness(tmp_path, store, broker, lease_s=LEASE_S, patch=monkeypatch))
        return harnesses[-1]

    yield open_it
    for harness in harnesses:
        harness.close()


def _are_running(harness: DeliveryHarness, uuids: list[str]) -> bool:
    return set(harness.store.states(uuids).values()) == {Status.RUNNING}


def _two_at_work(harness: DeliveryHarness, command: str) -> list[str]:
    """Two workers with a job each that must not run twice and one that may, for longer than a lease."""
    names = ["once-a", "once-b"], ["safe-a", "safe-b"]
    uuids = [
        *harness.submit(names[0], command, retry_lost=RetryLost.NEVER),
        *harness.submit(names[1], command),
    ]
    for _ in range(2):
        harness.start_worker(2)
    wait_until(lambda: _are_running(harness, uuids), timeout=40, what="four jobs")
    assert len({holding.worker for holding in harness.store.holdings()}) == 2
    later(1.5 * LEASE_S)  # until each of them may judge the other
    return uuids


def _check_each_ran_once(harness: DeliveryHarness, uuids: list[str], gate: Path) -> None:
    later(1.5 * LEASE_S)
    assert _are_running(harness, uuids), harness.logs()
    gate.touch()
    harness.wait_for(uuids, len(uuids))
    assert {record.status for record in harness.records().values()} == {Status.SUCCESS}
    assert {name: len(starts) for name, starts in harness.starts().items()} == dict.fromkeys(
        harness.records(), 1
    )
    assert "is gone" not in harness.logs()


def test_a_database_that_hangs_for_longer_than_a_lease_costs_nobody_a_job(
    open_harness: OpenHarness, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    harness, gate = open_harness(own_postgres.new_database()), tmp_path / "gate"
    uuids = _two_at_work(harness, f'while [ ! -e "{gate}" ]; do sleep 0.1; done')
    own_postgres.freeze()
    later(2 * LEASE_S)
    own_postgres.thaw()
    _check_each_ran_once(harness, uuids, gate)


def test_machines_that_sleep_for_longer_than_a_lease_lose_no_job(
    open_harness: OpenHarness, tmp_path: Path
) -> None:
    harness, gate = open_harness(str(tmp_path / "store" / "joblens.db")), tmp_path / "gate"
    uuids = _two_at_work(harness, f'while [ ! -e "{gate}" ]; do sleep 0.1; done')
    for worker in harness.processes:
        worker.send_signal(signal.SIGSTOP)
    later(2 * LEASE_S)
    for worker in harness.processes:
        worker.send_signal(signal.SIGCONT)
    _check_each_ran_once(harness, uuids, gate)


def test_jobs_that_ended_while_the_store_was_away_are_not_run_again_when_their_worker_is_killed(
    open_harness: OpenHarness, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    harness, gate = open_harness(own_postgres.new_database()), tmp_path / "gate"
    command = f'while [ ! -e "{gate}" ]; do sleep 0.05; done'
    uuids = [
        *harness.submit(["safe"], command),
        *harness.submit(["once"], command, retry_lost=RetryLost.NEVER),
    ]
    first = harness.start_worker(2)
    wait_until(lambda: _are_running(harness, uuids), timeout=40, what="both jobs")
    harness.start_worker(2)
    wait_until(lambda: len(harness.store.workers()) == 2, timeout=40, what="another worker")
    own_postgres.stop()
    gate.touch()
    journal = wait_until(lambda: _journals_with(tmp_path, "success", 2), what="both outcomes in a journal")
    harness.kill_worker(first)
    own_postgres.start()
    harness.wait_for(uuids, 2)
    assert {record.status for record in harness.records().values()} == {Status.SUCCESS}
    assert {name: len(starts) for name, starts in harness.starts().items()} == {"safe": 1, "once": 1}
    assert "ended as lost" not in harness.logs()
    wait_until(lambda: not any(path.exists() for path in journal), what="its journal to be taken in")


def test_what_was_kept_while_the_store_was_away_comes_in_without_another_job(
    open_harness: OpenHarness, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """Somebody called it lost meanwhile; its worker has nothing else to write."""
    harness, gate = open_harness(own_postgres.new_database()), tmp_path / "gate"
    (uuid,) = harness.submit(
        ["once"], f'while [ ! -e "{gate}" ]; do sleep 0.05; done', retry_lost=RetryLost.NEVER
    )
    harness.start_worker(1)
    wait_until(lambda: _are_running(harness, [uuid]), timeout=40, what="the job")
    own_postgres.stop()
    gate.touch()
    wait_until(lambda: _journals_with(tmp_path, "success", 1), what="its outcome in a journal")
    harness.processes[0].send_signal(signal.SIGSTOP)
    own_postgres.start()
    assert wait_until(lambda: _taken_back(harness, uuid), what="the database") is Status.LOST
    harness.processes[0].send_signal(signal.SIGCONT)
    wait_until(lambda: harness.store.find(uuid).status is Status.SUCCESS, what="its true outcome")
    assert harness.processes[0].poll() is None


def _taken_back(harness: DeliveryHarness, uuid: str) -> Status | None:
    from joblens.model.errors import StoreError

    try:
        status: Status | None = harness.store.take_back(uuid, 1)
    except StoreError:
        return None
    return status


def _journals_with(folder: Path, word: str, count: int) -> list[Path]:
    """Journals below `folder`, once `word` is so many times in them."""
    found = [path for path in folder.rglob("*.journal") if path.stat().st_size]
    result = sum(path.read_text(errors="replace").count(f'"status":"{word}"') for path in found)
    return found if result >= count else []
