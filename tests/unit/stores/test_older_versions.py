"""Stores, journals and files of the version before packages (SQLite schema 7, PostgreSQL schema 4), as that
version wrote them: `tests/record_older_store.py`."""

import ast
import gzip
import os
import stat
from pathlib import Path

import apsw
import pytest

from joblens.agent.launcher.slot_ledger import outcome_path, read_launcher_outcome
from joblens.model.delivery import WorkerInfo
from joblens.model.errors import StoreCorrupt, StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.model.sql import SqlLimits
from joblens.stores.sql import Queries
from joblens.stores.sqlite import SqliteStore, migration
from joblens.stores.sqlite.opening import SCHEMA_VERSION
from joblens.stores.wrappers.journal import JournaledStore, JournalOwner, file_name
from tests.builders.writes import whole_job
from tests.conftest import REPOSITORY

FIXTURE = REPOSITORY / "tests" / "fixtures" / "older_store"
OLDER = 7
ENDED = {"failing": "failed", "sampled": "success"}
IN_RUN = ["failed", "success", "success"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "store" / "joblens.db"
    file.parent.mkdir(mode=0o700)
    file.write_bytes(gzip.decompress((FIXTURE / "joblens.db.gz").read_bytes()))
    file.chmod(0o600)
    return str(file)


def version_of(path: str) -> int:
    connection = apsw.Connection(path)
    version = connection.pragma("user_version")
    connection.close()
    assert isinstance(version, int)
    return version


def upgrade(path: str) -> None:
    store = SqliteStore(path, warn=lambda _: None)
    store.upgrade()
    store.close()


def assert_has_everything(store: SqliteStore) -> None:
    records = store.records(HistoryQuery(limit=100))
    by_id = {one.job.external_id: one.status.value for one in records if one.job.external_id}
    assert by_id == {**ENDED, "waiting": "queued", "orphaned": "running"}
    sampled = store.find("sampled")
    assert sampled.job.tags == ("kept",)
    assert sampled.outcome is not None
    assert sampled.outcome.usage.sources["cpu"]
    assert len(store.samples(sampled.job.uuid)) >= 5
    assert sampled.attempt is not None
    provenance = store.provenance(sampled.attempt.provenance)
    assert provenance is not None
    assert provenance.host == "older-host"
    run = store.find_run("1.1")
    assert run.jobs == 3
    results = store.run_results(run.uuid)
    assert sorted(one.status.value for one in results if one.status) == IN_RUN
    assert store.statistics(HistoryQuery()).overall.by_status == {"failed": 2, "success": 3}


# -- migration


def test_an_older_store_is_migrated_after_a_backup_of_it(path: str) -> None:
    untouched = Path(path).with_name("untouched.db")
    untouched.write_bytes(Path(path).read_bytes())
    messages: list[str] = []
    store = SqliteStore(path, warn=messages.append)
    assert_has_everything(store)
    assert messages == []
    store.apply(whole_job("a1", sample_count=2))
    assert store.check().ok
    store.close()
    backup = f"{path}.schema-{OLDER}"
    (message,) = messages
    assert message.endswith(f"schema version {OLDER} to {SCHEMA_VERSION}; {backup} is a copy from before")
    assert (version_of(path), version_of(backup)) == (SCHEMA_VERSION, OLDER)
    assert stat.S_IMODE(os.stat(backup).st_mode) == 0o600
    copied, original = apsw.Connection(backup), apsw.Connection(str(untouched))
    for (table,) in original.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        rows = f"SELECT * FROM {table}"
        assert copied.execute(rows).fetchall() == original.execute(rows).fetchall()


def test_a_migration_that_fails_changes_nothing_and_leaves_no_backup(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Path(path).read_bytes()
    monkeypatch.setattr(migration, "read_text", lambda _: "ALTER TABLE nothing ADD COLUMN a")
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="schema version 7, but not its tables"):
        store.apply(whole_job("a1"))
    store.close()
    assert Path(path).read_bytes() == before
    assert {one.name.removesuffix("-wal").removesuffix("-shm") for one in Path(path).parent.iterdir()} == {
        "joblens.db"
    }


def test_a_process_that_finds_the_store_migrated_meanwhile_makes_no_backup(path: str) -> None:
    upgrade(path)
    os.unlink(f"{path}.schema-{OLDER}")
    connection = apsw.Connection(path)
    migration.migrate(connection, path, pytest.fail)
    assert not os.path.exists(f"{path}.schema-{OLDER}")


# -- reading only


@pytest.mark.parametrize("read_only", [True, False])
def test_a_reader_of_an_older_store_leaves_it_as_it_is(path: str, *, read_only: bool) -> None:
    before = Path(path).read_bytes()
    store = SqliteStore(path, read_only=read_only, warn=pytest.fail)
    assert_has_everything(store)
    check = store.check()
    assert (check.ok, check.schema_version) == (True, OLDER)
    store.close()
    assert Path(path).read_bytes() == before
    assert [one.name for one in Path(path).parent.iterdir() if "schema" in one.name] == []


@pytest.mark.parametrize("read_only", [True, False])
def test_a_reader_of_an_older_store_sees_what_older_processes_write(path: str, *, read_only: bool) -> None:
    store = SqliteStore(path, read_only=read_only, warn=pytest.fail)
    assert store.find("orphaned").status is Status.RUNNING
    apsw.Connection(path).execute("UPDATE job SET status = 'lost' WHERE external_id = 'orphaned'")
    assert store.find("orphaned").status is Status.LOST
    assert version_of(path) == OLDER
    upgrade(path)
    apsw.Connection(path).execute("UPDATE job SET status = 'failed' WHERE external_id = 'orphaned'")
    assert store.find("orphaned").status is Status.FAILED
    store.close()


def test_an_older_store_opened_for_reading_only_is_not_changed(path: str) -> None:
    store = SqliteStore(path, read_only=True, warn=pytest.fail)
    for change in (
        lambda: store.apply(whole_job("a1")),
        lambda: store.prune(before_us=1, max_bytes=None, dry_run=False),
        store.vacuum,
    ):
        with pytest.raises(StoreError, match="reading only"):
            change()
    store.close()
    assert version_of(path) == OLDER


def test_sql_reads_an_older_store_as_it_is(path: str) -> None:
    store = SqliteStore(path, read_only=True)
    limits = SqlLimits(is_trusted=True)
    answer = store.sql("SELECT own_id FROM jobs WHERE status = 'failed' AND own_id <> ''", limits)
    store.close()
    assert answer.rows == [("failing",)]
    assert version_of(path) == OLDER


# -- journals


def test_the_journal_of_an_older_joblens_is_replayed(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir(mode=0o700)
    dead = JournalOwner(os.uname().nodename, "another boot", 1, 1)
    (folder / file_name(path, dead)).write_bytes((FIXTURE / "writes.journal").read_bytes())
    messages: list[str] = []
    store = JournaledStore(lambda: SqliteStore(path, warn=lambda _: None), str(folder), messages.append)
    record = store.find("journaled")
    assert (record.job.argv, record.status) == (("true",), Status.SUCCESS)
    assert len(store.samples(record.job.uuid)) >= 1
    store.close()
    assert messages == []
    assert list(folder.iterdir()) == []


# -- launchers and workers that still run


def test_the_outcome_that_an_older_launcher_left_is_read(path: str, tmp_path: Path) -> None:
    store = SqliteStore(path, warn=lambda _: None)
    record = store.find("orphaned")
    store.close()
    text = (FIXTURE / "orphaned.outcome").read_text()
    wait_status, totals, ended_at_us, *_ = ast.literal_eval(text)
    Path(outcome_path(str(tmp_path), record.job.uuid)).write_text(text)
    left = read_launcher_outcome(str(tmp_path), record.job.uuid, None)
    assert left is not None
    assert record.attempt is not None
    assert (left.wait_status, left.ended_at_us) == (wait_status, ended_at_us)
    assert ended_at_us > record.attempt.started_at_us
    assert left.reaped.max_rss_bytes == totals[2] > 0


def test_a_ticket_of_an_older_joblens_is_claimed(path: str) -> None:
    store = SqliteStore(path, warn=lambda _: None)
    worker = WorkerInfo(name="new", host="h", pid=1, user="root", queues=("batch",), concurrency=1)
    (claim,) = store.claim_waiting(worker, 1, 30.0)
    store.close()
    assert claim.ticket.order is not None
    assert claim.ticket.order.argv == ("true",)


@pytest.mark.parametrize("file", ["queries.sql", "ticket_queries.sql"])
def test_statements_of_an_older_joblens_that_is_connected_fit_the_migrated_store(
    path: str, file: str
) -> None:
    upgrade(path)
    connection = apsw.Connection(path)
    statements = Queries.parse((FIXTURE / "sqlite" / file).read_text())
    whole = {
        name: text
        for name, text in statements.items()
        if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"))
        and "{" not in text.replace("{conditions}", "")
    }
    assert len(whole) > 30
    for name, text in whole.items():
        try:
            connection.execute(f"EXPLAIN {text.replace('{conditions}', 'TRUE')}")
        except apsw.BindingsError:
            pass  # it was compiled
        except apsw.SQLError as error:
            pytest.fail(f"{name}: {error}")
