"""A database that goes away for a while costs nothing but delay: what jobs do waits in a journal."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from joblens.model.errors import StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.stores.postgres import PostgresStore
from joblens.stores.wrappers.journal import JournaledStore
from tests.builders.writes import ended, queued, samples, started
from tests.conftest import RunJoblens, wait_until
from tests.servers import PostgresServer, is_over, own_server, postgres_program, skip_without

JOBLENS = [sys.executable, "-m", "joblens"]


@pytest.fixture(scope="module")
def stopped_by_some() -> Iterator[PostgresServer]:
    """One for all of these tests: making one takes longer than any of them."""
    skip_without(postgres_program("postgres"))
    with own_server(PostgresServer) as server:
        yield server


@pytest.fixture
def server(stopped_by_some: PostgresServer) -> PostgresServer:
    if is_over(stopped_by_some.pid):
        stopped_by_some.start()
    return stopped_by_some


@pytest.fixture
def url(server: PostgresServer, joblens: RunJoblens, monkeypatch: pytest.MonkeyPatch) -> str:
    url = server.new_database()
    monkeypatch.setenv("JOBLENS_STORE", url)
    return url


@pytest.fixture
def journaled(url: str, tmp_path: Path) -> Iterator[JournaledStore]:
    """Its tries come as fast as they are asked for."""
    store = JournaledStore(lambda: PostgresStore(url), str(tmp_path / "journal"), lambda _: None, url)
    yield store
    store.close()


def _journals() -> list[Path]:
    folder = Path(os.environ["XDG_STATE_HOME"]) / "joblens" / "journal"
    return list(folder.glob("*.journal")) if folder.exists() else []


def _start(*arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*JOBLENS, *arguments], cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


@contextlib.contextmanager
def _store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    try:
        yield store
    finally:
        store.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_job_that_outlives_an_outage_has_all_its_samples_in_order_and_once(
    how: str,
    server: PostgresServer,
    url: str,
    tmp_path: Path,
    processes_to_end: "list[subprocess.Popen[Any]]",
) -> None:
    """Whether the server said goodbye or not."""
    job = _start("run", "--interval", "50ms", "--", "sh", "-c", "read line < go; exit 3", cwd=tmp_path)
    os.mkfifo(tmp_path / "go")
    processes_to_end.append(job)
    with _store(url) as store:
        wait_until(lambda: store.running() and len(store.samples(store.running()[0].job.uuid)) > 5)
    getattr(server, how)()
    (journal,) = wait_until(_journals, what="a journal")
    size = journal.stat().st_size
    wait_until(lambda: journal.stat().st_size > size + 2000, what="samples in the journal")
    server.start()
    wait_until(lambda: not _journals(), what="the journal to be brought in")
    (tmp_path / "go").write_text("on\n")
    _, result = job.communicate(timeout=30)
    assert job.returncode == 3
    assert result.count("cannot be reached") + result.count("did not answer") <= 1
    assert "works again" in result
    with _store(url) as store:
        record = store.find("1")
        assert (record.status, len(list(store.records(HistoryQuery())))) == (Status.FAILED, 1)
        found = store.samples(record.job.uuid)
        assert [index for index, _ in found] == list(range(len(found)))
        times = [one.at_us for _, one in found]
        assert times == sorted(times)
        assert store.check().problems == ()


def test_jobs_that_ran_while_the_database_was_away_come_in_with_the_next_command(
    server: PostgresServer, url: str, joblens: RunJoblens
) -> None:
    joblens("run", "--name", "before", "--", "true", code=0)
    server.stop()
    for number in range(3):
        done = joblens("run", "--name", f"away{number}", "--", "sh", "-c", f"exit {number}", code=number)
        assert "kept in a journal" in done.stderr
    assert "cannot be reached" in joblens("history", code=125).stderr
    server.start()
    rows = joblens("history", "--json", code=0).json
    assert {row["name"] for row in rows} == {"before", "away0", "away1", "away2"}
    assert not _journals()


def test_what_cannot_be_queued_is_said_at_once(server: PostgresServer, url: str, joblens: RunJoblens) -> None:
    server.stop()
    done = joblens("submit", "--", "true", code=125)
    assert "cannot be queued" in done.stderr
    server.start()
    assert joblens("history", "--json", code=0).json == []


def test_a_background_job_goes_on_through_an_outage(
    server: PostgresServer, url: str, joblens: RunJoblens, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    uuid = joblens("submit", "--", "sh", "-c", f"read line < {tmp_path}/go", code=0).stdout.strip()
    with _store(url) as store:
        wait_until(lambda: store.find(uuid).status is Status.RUNNING, what="the job to start")
    server.stop()
    (tmp_path / "go").write_text("on\n")
    wait_until(_journals, what="its end in a journal")
    server.start()
    with _store(url) as store:
        wait_until(lambda: store.find(uuid).status is Status.SUCCESS, what="its outcome to come in")


WAITING = {
    "wait": ("wait", "1"),
    "status": ("status", "-m", "-i", "50ms", "1"),
    "submit": ("submit", "--wait", "--", "sh", "-c", "read line < go; exit 3"),
}


@pytest.mark.parametrize("command", sorted(WAITING))
def test_who_waits_for_a_job_goes_on_waiting_through_an_outage(
    command: str,
    server: PostgresServer,
    url: str,
    joblens: RunJoblens,
    tmp_path: Path,
    processes_to_end: "list[subprocess.Popen[Any]]",
) -> None:
    os.mkfifo(tmp_path / "go")
    if command != "submit":
        joblens("submit", "--cwd", str(tmp_path), *WAITING["submit"][2:], code=0)
    waiting = _start(*WAITING[command], cwd=tmp_path)
    processes_to_end.append(waiting)
    with _store(url) as store:
        wait_until(lambda: any(record.attempt for record in store.running()), what="the job to run")
        wait_until(lambda: _askers(store) > 2, what="somebody who waits")
    server.stop()
    assert waiting.stderr is not None
    output = waiting.stderr.readline()
    assert "retrying until it answers" in output
    server.start()
    (tmp_path / "go").write_text("on\n")
    _, result = waiting.communicate(timeout=60)
    assert waiting.returncode == (0 if command == "status" else 3)
    assert result.count("answers again") == 1
    assert "retrying until it answers" not in result


def _askers(store: PostgresStore) -> int:
    """Who has asked this database something after connecting to it: we, the supervisor, others."""
    with store._database.use() as connection:
        ((count,),) = connection.execute(
            b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            b" AND backend_type = 'client backend' AND query_start > backend_start + interval '0.2 s'"
        ).fetchall()
    return int(count)


def test_a_workflow_goes_on_through_an_outage(
    server: PostgresServer,
    url: str,
    joblens: RunJoblens,
    tmp_path: Path,
    processes_to_end: "list[subprocess.Popen[Any]]",
) -> None:
    os.mkfifo(tmp_path / "go")
    jobs = "".join(
        f'  - {{name: after{number}, command: "true", depends_on: [first]}}\n' for number in range(20)
    )
    (tmp_path / "flow.yaml").write_text(
        f'name: flow\njobs:\n  - {{name: first, command: "read line < go"}}\n{jobs}'
    )
    run = _start("run", "flow.yaml", cwd=tmp_path)
    processes_to_end.append(run)
    with _store(url) as store:
        wait_until(lambda: any(record.attempt for record in store.running()), what="the first job to run")
    server.stop()
    (tmp_path / "go").write_text("on\n")
    wait_until(_journals, what="the others in a journal")
    server.start()
    run.communicate(timeout=60)
    assert run.returncode == 0
    joblens("results", "flow", code=0)  # where the run was over before the server was back, this brings it in
    assert not _journals()
    with _store(url) as store:
        results = store.run_results(store.find_run("flow").uuid)
        assert [(one.index, one.attempt, one.status) for one in results] == [
            (index, 1, Status.SUCCESS) for index in range(21)
        ]


def test_reading_fails_at_once_while_it_is_away_and_works_when_it_is_back(
    server: PostgresServer, url: str
) -> None:
    with _store(url) as store:
        store.apply([queued("a1")])
        server.stop()
        for _ in range(3):
            with pytest.raises(StoreError, match="cannot be reached"):
                store.find("a1")
        server.start()
        assert store.find("a1").status is Status.QUEUED


def test_what_was_written_twice_because_nobody_knows_whether_it_arrived_is_there_once(
    server: PostgresServer, url: str, journaled: JournaledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.stores.wrappers.journal._FIRST_PAUSE_S", 0.0)
    journaled.apply([queued("a1"), started("a1"), samples("a1", 0, 10)])
    server.kill()
    journaled.apply([samples("a1", 5, 10)])  # some of them again
    journaled.apply([ended("a1")])
    journaled.apply([queued("b1"), started("b1")])
    server.start()
    journaled.apply([ended("b1")])
    assert [index for index, _ in journaled.samples("a1")] == list(range(15))
    assert {record.job.uuid: record.status for record in journaled.records(HistoryQuery())} == {
        "a1": Status.SUCCESS,
        "b1": Status.SUCCESS,
    }
    assert journaled.check().problems == ()
