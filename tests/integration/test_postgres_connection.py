"""A connection to a real server: it comes back after an outage, waits for nothing for ever, and tells no
password."""

import multiprocessing
import os
import re
import threading
from typing import Any

import pytest

from joblens.model.errors import InputError, StoreError, StoreTooNew
from tests.builders.writes import ended, queued
from tests.conftest import REPOSITORY
from tests.servers import PostgresServer

pytest.importorskip("psycopg")

import psycopg

from joblens.stores.postgres import PostgresStore, sql
from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.sql import SCHEMA_VERSION, prepare
from joblens.stores.sql import Queries


def opened(url: str, **options: Any) -> Database:
    def prepared(connection: Connection) -> None:
        prepare(connection, "it")

    database = Database(url, on_connect=prepared, **options)
    with database.use():
        return database


def test_a_server_that_was_restarted_is_connected_to_again_without_an_error(
    own_postgres: PostgresServer,
) -> None:
    database = opened(own_postgres.new_database())
    own_postgres.stop()
    own_postgres.start()
    with database.use() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert database.times_connected == 2
    database.close()


def test_while_a_server_is_away_every_call_fails_at_once_and_the_first_after_it_succeeds(
    own_postgres: PostgresServer,
) -> None:
    database = opened(own_postgres.new_database())
    own_postgres.kill()
    for _ in range(3):
        with pytest.raises(StoreError, match="cannot be reached"), database.use() as connection:
            connection.execute("SELECT 1")
    own_postgres.start()
    with database.use() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    database.close()


def test_a_server_that_goes_away_in_the_middle_of_a_transaction_leaves_nothing_half_done(
    own_postgres: PostgresServer,
) -> None:
    database = opened(own_postgres.new_database())

    def half(connection: Connection) -> None:
        connection.execute("INSERT INTO cancel_request VALUES ('a', 1, '')")
        own_postgres.kill()
        connection.execute("INSERT INTO cancel_request VALUES ('b', 1, '')")

    with pytest.raises(StoreError):
        database.write(half)
    own_postgres.start()
    with database.use() as connection:
        assert connection.execute("SELECT count(*) FROM cancel_request").fetchone() == (0,)
    database.close()


def test_a_server_that_says_nothing_any_more_is_given_up(own_postgres: PostgresServer) -> None:
    database = opened(own_postgres.new_database(), answer_s=0.2)
    own_postgres.freeze()
    try:
        with pytest.raises(StoreError, match="no answer within"), database.use() as connection:
            connection.execute("SELECT 1")
    finally:
        own_postgres.thaw()
    with database.use() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    database.close()


def test_what_is_slow_is_ended_by_the_server_unless_it_may_be_slow(postgres_url: str) -> None:
    database = opened(postgres_url, answer_s=0.1)
    with pytest.raises(StoreError, match="did not answer in time"), database.use() as connection:
        connection.execute("SELECT pg_sleep(30)")
    with database.use(timeout_s=30.0) as connection:
        connection.execute("SELECT pg_sleep(0.2)")
    database.close()


def test_those_who_are_in_each_others_way_try_again_until_both_are_through(postgres_url: str) -> None:
    database = opened(postgres_url)
    with database.use() as connection:
        connection.execute("INSERT INTO cancel_request VALUES ('a', 0, ''), ('b', 0, '')")
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    def crosswise(first: str, second: str) -> None:
        own = Database(postgres_url)

        def work(connection: Connection) -> None:
            tries.append(first)
            add = b"UPDATE cancel_request SET asked_at_us = asked_at_us + 1 WHERE uuid = %s RETURNING 1"
            connection.execute(add, (first,)).fetchall()
            if tries.count(first) == 1:
                both_hold_one.wait(30)
            connection.execute(add, (second,))

        own.write(work)
        own.close()

    threads = [threading.Thread(target=crosswise, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with database.use() as connection:
        assert connection.execute("SELECT asked_at_us FROM cancel_request").fetchall() == [(2,), (2,)]
    assert len(tries) > 2
    database.close()


def _open_and_leave(url: str, begin: Any, result: Any) -> None:
    begin.wait()
    try:
        opened(url).close()
        result.put("")
    except Exception as error:  # noqa: BLE001 - it is looked at there
        result.put(repr(error))


def test_fifty_processes_that_find_an_empty_database_make_its_tables_once(postgres_url: str) -> None:
    begin, result = multiprocessing.Barrier(50), multiprocessing.Queue()  # type: ignore[var-annotated]
    processes = [
        multiprocessing.Process(target=_open_and_leave, args=(postgres_url, begin, result)) for _ in range(50)
    ]
    for process in processes:
        process.start()
    assert [result.get(timeout=60) for _ in processes] == [""] * 50
    for process in processes:
        process.join()
    database = opened(postgres_url)
    with database.use() as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(SCHEMA_VERSION,)]
    database.close()


def test_an_older_store_is_brought_up_to_date_with_what_is_missing_only(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(postgres_url).close()
    steps = {"two.sql": "CREATE TABLE two (a int)", "three.sql": "ALTER TABLE two ADD COLUMN b int"}
    files = [
        (SCHEMA_VERSION, "never.sql"),
        (SCHEMA_VERSION + 1, "two.sql"),
        (SCHEMA_VERSION + 2, "three.sql"),
    ]
    monkeypatch.setattr(sql, "SCHEMA_VERSION", SCHEMA_VERSION + 2)
    monkeypatch.setattr(sql, "migration_files", lambda: files)
    monkeypatch.setattr(sql, "read_text", steps.__getitem__)
    for _ in range(2):
        database = opened(postgres_url)
        with database.use() as connection:
            assert connection.execute("SELECT a, b FROM two").fetchall() == []
            version = connection.execute("SELECT version FROM schema_version").fetchall()
            assert version == [(SCHEMA_VERSION + 2,)]
        database.close()


def test_a_step_that_fails_leaves_an_older_store_as_it_was(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(postgres_url).close()
    monkeypatch.setattr(sql, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(sql, "migration_files", lambda: [(SCHEMA_VERSION + 1, "two.sql")])
    monkeypatch.setattr(sql, "read_text", lambda _: "CREATE TABLE two (a int); SELECT 1/0")
    with pytest.raises(StoreError, match="DivisionByZero"):
        opened(postgres_url)
    monkeypatch.undo()
    database = opened(postgres_url)
    with database.use() as connection:
        assert connection.execute("SELECT to_regclass('joblens.two')").fetchone() == (None,)
    database.close()


def test_a_store_of_a_newer_joblens_is_left_alone(postgres_url: str) -> None:
    database = opened(postgres_url)
    with database.use() as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    database.close()
    with pytest.raises(StoreTooNew, match="schema version 99"):
        opened(postgres_url)


def test_an_older_joblens_that_is_connected_finishes_and_cannot_connect_again(postgres_url: str) -> None:
    older = PostgresStore(postgres_url)
    newer = opened(postgres_url)
    with newer.use() as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    newer.close()
    older.apply([queued("a1"), ended("a1")])
    assert older.find("a1").outcome is not None
    older.close()
    with pytest.raises(StoreTooNew, match="schema version 99"):
        PostgresStore(postgres_url)


OLDER = REPOSITORY / "tests" / "fixtures" / "older_store" / "postgres"


@pytest.mark.parametrize("file", ["reading.sql", "writing.sql", "ticket_queries.sql"])
def test_statements_of_an_older_joblens_that_is_connected_fit_the_migrated_store(
    postgres_url: str, file: str
) -> None:
    opened(postgres_url).close()
    statements = Queries.parse(sql.qualified((OLDER / file).read_text()))
    whole = {
        name: text.replace("{conditions}", "TRUE")
        for name, text in statements.items()
        if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")) and "{key}" not in text
    }
    assert len(whole) > 10
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name, text in whole.items():
            try:
                connection.execute(f"PREPARE older AS {_numbered(text)}".encode())
            except psycopg.Error as error:
                pytest.fail(f"{name}: {error}")
            connection.execute("DEALLOCATE older")


def _numbered(statement: str) -> str:
    """Returns it with the server's own names of parameters."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1] or str(found.start()), len(numbers) + 1)}"

    return re.sub(r"%(?:\((\w+)\))?[sb]", number, statement)


def test_a_child_process_gets_a_connection_of_its_own(postgres_url: str) -> None:
    database = opened(postgres_url)

    def backend() -> int:
        with database.use() as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            return 0 if row is None else int(row[0])

    before = backend()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(backend()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 32)) not in (0, before)
    assert backend() == before
    os.close(reading)
    os.close(writing)
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:hunter2@127.0.0.1:1/base",
        "postgres://someone:hunter2@127.0.0.1:1/base?sslmode=disable",
        "postgresql://someone@127.0.0.1:1/base?password=hunter2",
        "postgresql://someone:hunter2/hunter2@127.0.0.1:1/base",
        "postgresql://someone:hunter2@hunter2@127.0.0.1:1/base",
        "postgresql://someone:hunter2?hunter2@127.0.0.1:1/base",
        "postgresql://someone:hunter2#hunter2@127.0.0.1:1/base",
    ],
)
def test_a_password_is_in_no_message(url: str) -> None:
    with pytest.raises((StoreError, InputError)) as caught, Database(url).use():
        pass
    error: BaseException | None = caught.value
    assert isinstance(error, StoreError | InputError)
    assert "hunter2" not in error.hint
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or error.__context__


def test_a_database_that_is_not_there_is_reported(
    shared_postgres: PostgresServer,
) -> None:
    with pytest.raises(StoreError, match="does not exist"), Database(shared_postgres.url("no_such")).use():
        pass


def test_waiting_for_a_lock_has_an_end(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblens.stores.postgres.connection._LOCK_S", 0.1)
    holder, waiter = opened(postgres_url), opened(postgres_url)
    with holder.use() as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE job")
        with pytest.raises(StoreError, match="is locked by another session"):
            waiter.write(lambda second: second.execute("LOCK TABLE job"))
        connection.execute("ROLLBACK")
    holder.close()
    waiter.close()
