"""What is true of the SQLite store beyond the contract: its file, its versions, its failures."""

import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from joblens.model.errors import InputError, StoreCorrupt, StoreError, StoreTooNew
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.model.writes import SamplesTaken
from joblens.stores.sqlite import SqliteStore
from joblens.stores.sqlite.job_store import SqliteJobStore
from joblens.stores.sqlite.opening import APPLICATION_ID, SCHEMA_VERSION
from joblens.stores.sqlite.sql import migration_files, read_text
from tests.builders.writes import ended, queued, samples, started, threads, whole_job
from tests.unit.stores.sample_series import busy_series


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "private" / "joblens.db")


def _mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def _schema(connection: apsw.Connection) -> list[tuple[object, ...]]:
    """Without comments and blanks: a column that was added later has neither."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")
    return [(*row[:3], _tokens(str(row[3]))) for row in rows]


def _tokens(sql: str) -> str:
    return "".join(line.split("--", 1)[0] for line in sql.splitlines()).replace(" ", "")


# -- the file


def test_a_backup_where_nothing_can_be_written_is_bad_input(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=f"{tmp_path} cannot be written"):
        store.backup(str(tmp_path / "copy.db"))
    store.close()


def test_the_file_and_all_beside_it_are_private(path: str) -> None:
    old = os.umask(0)
    try:
        store = SqliteStore(path)
        store.apply(whole_job())
        store.backup(f"{path}.copy")
    finally:
        os.umask(old)
    folder = Path(path).parent
    assert _mode(folder) == 0o700
    names = {file.name: _mode(file) for file in folder.iterdir()}
    assert names == dict.fromkeys(
        ("joblens.db", "joblens.db-wal", "joblens.db-shm", "joblens.db.copy"), 0o600
    )
    store.close()


def test_a_local_store_has_a_write_ahead_log(path: str) -> None:
    SqliteStore(path).close()
    assert apsw.Connection(path).pragma("journal_mode") == "wal"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "cifs", "fuse"])
def test_a_network_file_system_gets_no_write_ahead_log_and_a_word_about_it(
    path: str, tmp_path: Path, kind: str
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"40 22 0:50 / {tmp_path} rw,relatime shared:1 - {kind} server:/x rw\n"
    )
    warnings: list[str] = []
    store = SqliteStore(path, mountinfo=str(mountinfo), warn=warnings.append)
    store.apply(whole_job("a1", sample_count=2))
    assert store.find("a1").status is Status.SUCCESS
    store.close()
    assert apsw.Connection(path).pragma("journal_mode") == "delete"
    (warning,) = warnings
    assert kind in warning
    assert "PostgreSQL" in warning


def test_an_empty_file_becomes_a_store(path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).touch()
    store = SqliteStore(path)
    store.apply(whole_job("a1"))
    assert store.find("a1").number == 1
    store.close()


@pytest.mark.parametrize("pages", [1, 2, 20, -1])
def test_a_store_that_was_only_half_created_is_created_again(path: str, pages: int) -> None:
    SqliteStore(path).close()
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: pages * 4096])
    store = SqliteStore(path)
    store.apply(whole_job())
    assert store.check().problems == ()
    store.close()
    assert os.listdir(Path(path).parent) == ["joblens.db"]


def test_a_cut_off_store_with_records_is_never_replaced(path: str) -> None:
    store = SqliteStore(path)
    store.apply(whole_job())
    store.close()
    Path(path).write_bytes(Path(path).read_bytes()[:-4096])
    before = Path(path).read_bytes()
    with pytest.raises(StoreCorrupt, match="damaged") as caught:
        SqliteStore(path)
    assert Path(path).read_bytes() == before
    assert caught.value.hint
    assert "joblens " not in caught.value.hint  # no command that fails in the same way
    assert os.listdir(Path(path).parent) == ["joblens.db"]


def test_of_several_processes_one_creates_a_half_created_store_again(path: str) -> None:
    SqliteStore(path).close()
    Path(path).write_bytes(Path(path).read_bytes()[:40960])
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: SqliteStore(path), range(8)))
    for number, store in enumerate(stores):
        store.apply(whole_job(f"a{number}"))  # raises StoreVanished where another one replaced its file
        store.close()
    with contextlib.closing(SqliteStore(path)) as store:
        assert store.check().jobs == 8


def test_an_sqlite_file_of_something_else_is_refused(path: str) -> None:
    Path(path).parent.mkdir()
    apsw.Connection(path).execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="not a joblens store"):
        SqliteStore(path)


def test_a_file_that_is_no_database_is_called_no_store(path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(StoreCorrupt, match=r"joblens\.db is not a joblens store"):
        SqliteStore(path)


def test_a_backup_follows_no_link_that_someone_laid_in_its_way(path: str, tmp_path: Path) -> None:
    store = SqliteStore(path)
    store.apply(whole_job("a1"))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("copy.db.partial", "copy.db.part"):
        (tmp_path / name).symlink_to(precious)
    store.backup(str(tmp_path / "copy.db"))
    assert precious.read_text() == "mine"
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="exists already"):
        store.backup(str(tmp_path / "dangling.db"))
    store.close()
    assert {file.name for file in tmp_path.iterdir()} - {"home"} >= {"copy.db", "precious"}
    assert not [file for file in tmp_path.iterdir() if file.suffix == ".partial" and not file.is_symlink()]


def test_a_backup_is_a_whole_store_and_never_overwrites(path: str, tmp_path: Path) -> None:
    store = SqliteStore(path)
    store.apply(whole_job("a1", sample_count=9))
    copy = str(tmp_path / "copy.db")
    store.backup(copy)
    store.apply(whole_job("b1"))
    with pytest.raises(InputError, match="exists already"):
        store.backup(copy)
    with pytest.raises(InputError, match="no directory"):
        store.backup(str(tmp_path / "no" / "such" / "folder.db"))
    store.close()
    copied = SqliteStore(copy)
    assert len(copied.samples("a1")) == 9
    assert copied.check().jobs == 1
    copied.close()


# -- versions


def test_the_schema_is_the_sum_of_its_migrations() -> None:
    whole, stepwise = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    whole.execute(read_text("schema.sql"))
    for file in migration_files():
        stepwise.execute(read_text(file))
    assert _schema(whole) == _schema(stepwise)
    assert len(migration_files()) == SCHEMA_VERSION


def _version_1_store(path: str) -> None:
    """A store with the first schema and two ended jobs, put together by hand: no release had it."""
    Path(path).parent.mkdir(mode=0o700)
    connection = apsw.Connection(path)
    connection.execute(read_text(migration_files()[0]))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1")
    connection.execute("PRAGMA journal_mode = WAL")
    rows = [(1, "aaaa", "t", "success", 2_000_000, 500_000), (2, "bbbb", "t", "failed", 4_000_000, None)]
    for number, uuid, tool, status, duration_us, cpu_usec in rows:
        connection.execute(
            "INSERT INTO job VALUES (?, ?, NULL, '', ?, 'me', ?, 1000, ?, ?, ?, 4096, 0)",
            (number, uuid, tool, status, 1000 + duration_us, duration_us, cpu_usec),
        )
        outcome = (
            f'{{"status":"{status}","ended_at_us":{1000 + duration_us},"duration_s":{duration_us / 1e6}}}'
        )
        job = f'{{"uuid":"{uuid}","argv":["true"],"created_at_us":1000,"tool":"{tool}"}}'
        connection.execute(
            "INSERT INTO detail VALUES (?, ?, NULL, ?)", (number, job.encode(), outcome.encode())
        )
    connection.close()


def test_an_old_store_is_brought_up_to_date_with_all_it_holds(path: str) -> None:
    _version_1_store(path)
    store = SqliteStore(path, warn=lambda _: None)
    assert [record.job.uuid for record in store.records(HistoryQuery(ascending=True))] == ["aaaa", "bbbb"]
    overall = store.statistics(HistoryQuery()).overall
    assert overall.by_status == {"success": 1, "failed": 1}
    assert overall.duration_s.total == 6.0
    store.apply(whole_job("cccc", sample_count=2))
    check = store.check()
    assert (check.problems, check.schema_version, check.jobs) == ((), SCHEMA_VERSION, 3)
    store.close()
    fresh = str(Path(path).with_name("fresh.db"))
    SqliteStore(fresh).close()
    assert _schema(apsw.Connection(path)) == _schema(apsw.Connection(fresh))


def test_a_store_from_before_there_were_details_takes_some(path: str) -> None:
    Path(path).parent.mkdir(mode=0o700)
    connection = apsw.Connection(path)
    for file in migration_files()[:3]:
        connection.execute(read_text(file))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 3")
    connection.close()
    store = SqliteStore(path, warn=lambda _: None)
    store.apply([*whole_job("a1", sample_count=2), threads("a1")])
    assert store.details("a1") == threads("a1").details
    assert store.check().ok
    store.close()


def test_a_store_whose_version_was_changed_says_so(path: str) -> None:
    SqliteStore(path).close()
    apsw.Connection(path).execute("PRAGMA user_version = 3")
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="number of schema version 3, but not its tables"):
        store.running()
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_store_is_refused_and_not_touched(path: str, read_only: bool) -> None:
    SqliteStore(path).close()
    apsw.Connection(path).execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = Path(path).read_bytes()
    with pytest.raises(StoreTooNew, match=f"schema version {SCHEMA_VERSION + 1}"):
        SqliteStore(path, read_only=read_only)
    assert Path(path).read_bytes() == before


# -- reading only


def test_a_store_can_be_read_where_nothing_may_be_written(path: str) -> None:
    writer = SqliteStore(path)
    writer.apply(whole_job("a1", sample_count=2))
    writer.close()
    store = SqliteStore(path, read_only=True)
    assert len(store.samples("a1")) == 2
    with pytest.raises(StoreError, match="reading only"):
        store.apply(whole_job("b1"))
    store.close()


def test_reading_where_there_is_no_store_says_so(path: str) -> None:
    with pytest.raises(StoreError, match="no store at"):
        SqliteStore(path, read_only=True)
    assert not Path(path).exists()


# -- failures


def test_a_damaged_last_block_costs_only_its_own_samples(path: str) -> None:
    warnings: list[str] = []
    store = SqliteStore(path, warn=warnings.append)
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 300)])
    store.apply([samples("a1", 300, 300)])
    connection = apsw.Connection(path)
    (last,) = connection.execute("SELECT max(first_key) FROM sample_block").fetchall()[0]
    connection.execute("UPDATE sample_block SET data = substr(data, 1, 60) WHERE first_key = ?", (last,))
    assert [index for index, _ in store.samples("a1")] == list(range(300))
    assert "samples of job 1 from index 300 on are lost" in warnings[0]
    store.apply([samples("a1", 600, 2), ended("a1")])
    assert [index for index, _ in store.samples("a1")] == [*range(300), 600, 601]
    assert not store.check().ok
    store.close()


def test_a_damaged_sample_does_not_keep_its_job_from_ending(path: str) -> None:
    warnings: list[str] = []
    store = SqliteStore(path, warn=warnings.append)
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 3)])
    apsw.Connection(path).execute("UPDATE sample_tail SET data = x'00' WHERE sample_key & 3 = 1")
    store.apply([ended("a1")])
    assert store.find("a1").status is Status.SUCCESS
    assert [index for index, _ in store.samples("a1")] == [0, 2]
    assert "from index 1 on" in warnings[0]
    store.close()


def test_damaged_details_are_reported_and_made_good_by_the_next(path: str) -> None:
    warnings: list[str] = []
    store = SqliteStore(path, warn=warnings.append)
    store.apply([queued("a1"), started("a1"), threads("a1"), samples("a1", 0, 1)])
    apsw.Connection(path).execute("UPDATE job_details SET data = x'28b52ffd00'")
    assert store.details("a1").threads is None
    assert "details of job a1 are lost" in warnings[0]
    assert "job 1: details" in store.check().problems[0]
    store.apply([threads("a1", cpu_usec=8)])
    assert store.details("a1") == threads("a1", cpu_usec=8).details
    store.close()


def test_the_size_of_samples_counts_blocks_and_details(path: str) -> None:
    store = SqliteStore(path)
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 300), threads("a1", count=5)])
    store.apply([samples("a1", 300, 1), threads("a1", at_us=10**16, count=50)])
    store.apply([threads("a1", at_us=2 * 10**16, count=2), ended("a1")])
    connection = apsw.Connection(path)
    blocks = connection.execute("SELECT sum(length(data)) FROM sample_block").get
    details = connection.execute("SELECT sum(length(data)) FROM job_details").get
    assert connection.execute("SELECT sample_bytes FROM job").get == blocks + details
    store.close()


def test_a_long_job_is_kept_in_few_large_blocks(path: str) -> None:
    store = SqliteStore(path)
    store.apply([queued("a1"), started("a1")])
    for first in range(0, 4500, 60):
        store.apply([samples("a1", first, 60)])
    connection = apsw.Connection(path)
    assert connection.execute("SELECT count(*) FROM sample_block").get < 12
    store.apply([ended("a1")])
    counts = [row[0] for row in connection.execute("SELECT count FROM sample_block ORDER BY first_key")]
    assert counts == [1920, 1920, 660]
    assert [index for index, _ in store.samples("a1")] == list(range(4500))
    assert (
        connection.execute("SELECT sample_bytes FROM job").get
        == connection.execute("SELECT sum(length(data)) FROM sample_block").get
    )
    store.close()


def test_wrong_sums_are_found_by_the_check(path: str) -> None:
    store = SqliteStore(path)
    store.apply(whole_job("a1", tool="t"))
    apsw.Connection(path).execute("UPDATE rollup SET total = total + 1 WHERE metric = 'cpu'")
    assert "cpu of success jobs of tool 't'" in store.check().problems[0]
    store.close()


def test_a_store_locked_for_too_long_fails_with_a_reason(path: str) -> None:
    store = SqliteStore(path, busy_timeout_s=0.05)
    other = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process"):
        store.apply(whole_job("a1"))
    other.execute("ROLLBACK")
    store.apply(whole_job("a1"))
    store.close()


def test_a_full_database_names_the_disk(path: str) -> None:
    store = SqliteStore(path)
    store._connection.execute("PRAGMA max_page_count = 40")
    many = [write for _ in range(500) for write in whole_job()]
    with pytest.raises(StoreError, match="the disk is full") as caught:
        store.apply(many)
    assert "free some space" in caught.value.hint
    assert store.check().ok
    store.close()


def test_threads_share_one_store(path: str) -> None:
    store = SqliteStore(path)

    def write() -> None:
        for _ in range(20):
            store.apply(whole_job(sample_count=1))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        list(store.records(HistoryQuery(limit=5)))
    assert store.statistics(HistoryQuery()).overall.jobs == 80
    store.close()


def test_pruned_space_is_given_back(path: str) -> None:
    store = SqliteStore(path)
    for number in range(10):
        store.apply([*whole_job(f"a{number}"), SamplesTaken(f"a{number}", 0, tuple(busy_series(200)))])
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = os.path.getsize(path)
    store.prune(before_us=1 << 62, max_bytes=None, dry_run=False)
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert os.path.getsize(path) < before - 50_000
    store.close()


def test_a_batch_of_outcomes_waits_for_the_disk_and_one_of_samples_does_not(path: str) -> None:
    store = SqliteStore(path)
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 1)])
    assert store._connection.pragma("synchronous") == 1
    store.apply([ended("a1")])
    assert store._connection.pragma("synchronous") == 2
    store.close()


@pytest.mark.root
def test_a_log_that_could_only_be_read_when_it_was_opened_is_written_once_it_is_ours() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/joblens.db"
        os.chown(folder, _NOBODY, _NOBODY)
        with _as_nobody():
            SqliteStore(path).close()
        Path(f"{path}-wal").touch(0o644)  # as root's process leaves it for a moment
        with _as_nobody():
            store = SqliteStore(path)
            with pytest.raises(StoreError):
                store.apply([queued("a")])
        os.chown(f"{path}-wal", _NOBODY, _NOBODY)
        with _as_nobody():
            store.apply([queued("a")])
            assert store.count(HistoryQuery()) == 1
            store.close()


_NOBODY = 65534


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_two_threads_may_ask_the_first_question_of_a_process_that_runs_jobs(path: str) -> None:
    store = SqliteJobStore(path)
    look_up = SqliteJobStore.__getattr__  # called by a thread that did not find the question
    assert store.running() == []  # and meanwhile another thread asked one
    assert look_up(store, "cancel_requests")() == {}
    with pytest.raises(AttributeError, match="unknown"):
        look_up(store, "unknown")
    store.close()


def test_samples_are_not_synced_one_by_one_on_a_connection_that_was_opened_again(path: str) -> None:
    store = SqliteJobStore(path)
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 1)])
    for index in (1, 2):
        store.apply([samples("a1", index, 1)])
        assert store._connection.pragma("synchronous") == 1
        store._is_stale = True
    store.close()
