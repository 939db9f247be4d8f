"""Through PgBouncer in transaction mode: many agents, few connections to the server, and nothing that one
leaves in a session for another to find."""

import threading
from collections.abc import Iterator

import pytest

from joblens.model.history import HistoryQuery
from tests.builders.writes import queued, samples, started
from tests.servers import PgBouncer, PostgresServer, own_server, skip_without

pytest.importorskip("psycopg")

import psycopg

from joblens.stores.postgres import PostgresStore

_AT_ONCE = 30


@pytest.fixture
def through(shared_pooler: PgBouncer, postgres_url: str) -> str:
    return shared_pooler.url_of(postgres_url)


@pytest.fixture
def narrow(shared_postgres: PostgresServer) -> Iterator[PgBouncer]:
    """One connection to the server for everybody, and what clients ask for at the start is not refused but
    forgotten."""
    skip_without("pgbouncer")
    settings = {"default_pool_size": "1", "ignore_startup_parameters": "options"}
    with own_server(lambda folder: PgBouncer(folder, shared_postgres, settings)) as pooler:
        yield pooler


def test_a_pooler_that_forgets_settings_is_noticed(narrow: PgBouncer, postgres_url: str) -> None:
    store = PostgresStore(narrow.url_of(postgres_url))
    store.apply([queued("a")])
    assert [record.job.uuid for record in store.records(HistoryQuery())] == ["a"]
    store.close()


def test_stores_that_share_one_connection_do_not_get_into_each_others_way(
    narrow: PgBouncer, postgres_url: str
) -> None:
    stores = [PostgresStore(narrow.url_of(postgres_url)) for _ in range(5)]
    for round_ in range(8):  # more often than a driver takes to prepare a statement
        for place, store in enumerate(stores):
            if not round_:
                store.apply([queued(f"{place}"), started(f"{place}")])
            store.apply([samples(f"{place}", round_, 1)])
            assert len(store.samples(f"{place}")) == round_ + 1
    for store in stores:
        store.close()


def test_nothing_is_left_in_the_session_that_the_next_one_gets(narrow: PgBouncer, postgres_url: str) -> None:
    store = PostgresStore(narrow.url_of(postgres_url))
    store.apply([queued("a")])
    store.vacuum()
    assert store.check().ok
    with psycopg.connect(narrow.url_of(postgres_url), autocommit=True, prepare_threshold=None) as other:
        for name in ("search_path", "statement_timeout", "lock_timeout"):
            usual = other.execute("SELECT reset_val, setting FROM pg_settings WHERE name = %s", (name,))
            reset, now = usual.fetchone() or ("", "?")
            assert now == reset, name
        assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    store.close()


def test_many_may_open_a_new_store_at_once_and_only_a_few_connections_are_made(
    through: str, postgres_url: str
) -> None:
    opened: list[PostgresStore] = []
    problems: list[Exception] = []

    def open_one(place: int) -> None:
        try:
            store = PostgresStore(through)
            opened.append(store)
            store.apply([queued(f"job {place}")])
        except Exception as error:  # noqa: BLE001 - told by the test
            problems.append(error)

    threads = [threading.Thread(target=open_one, args=(place,)) for place in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert len(list(opened[0].records(HistoryQuery()))) == _AT_ONCE
    with psycopg.connect(postgres_url) as direct:
        row = direct.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    assert 1 <= row[0] <= 8
    for store in opened:
        store.close()
