"""Many writers on one real server: nothing is lost, nothing is there twice, and what is written under an old
fence is not seen."""

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Status
from joblens.model.runs.run import RunEnded, RunEvent, RunStatus
from joblens.model.values.ids import new_uuid
from joblens.model.writes import DetailsTaken, RunNoted, Write
from tests.builders.writes import ended, queued, sample, samples, started, threads, whole_job

pytest.importorskip("psycopg")

from joblens.stores.postgres import PostgresStore

WRITERS = 50


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    yield opened
    opened.close()


def ask(store: PostgresStore, sql: str) -> list[tuple[Any, ...]]:
    with store._database.use() as connection:
        return connection.execute(sql.encode()).fetchall()


def _all_at_once(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
    begin = multiprocessing.Barrier(len(arguments))
    processes = [multiprocessing.Process(target=work, args=(begin, *each)) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def _write_jobs(begin: Any, url: str, writer: int) -> None:
    """As an agent does: three jobs side by side, a few samples at a time, then how they ended."""
    store = PostgresStore(url)
    begin.wait(60)
    uuids = [f"{writer:02}-{job}" for job in range(3)]
    store.apply([queued(uuid, name=f"of {writer}", tool="tool", tags=("shared",)) for uuid in uuids])
    store.apply([started(uuid) for uuid in uuids])
    for first in range(0, 60, 20):
        store.apply([samples(uuid, first, 20) for uuid in uuids])
    store.apply([ended(uuid, duration_s=1.0 + writer) for uuid in uuids])
    store.close()


def test_fifty_writers_at_once_lose_nothing(postgres_url: str, store: PostgresStore) -> None:
    _all_at_once(_write_jobs, [(postgres_url, writer) for writer in range(WRITERS)])
    records = list(store.records(HistoryQuery(limit=None)))
    assert {record.job.uuid for record in records} == {
        f"{writer:02}-{job}" for writer in range(WRITERS) for job in range(3)
    }
    assert len(records) == len({record.number for record in records}) == 3 * WRITERS
    assert {record.status for record in records} == {Status.SUCCESS}
    whole = [(index, sample(index)) for index in range(60)]
    assert all(store.samples(record.job.uuid) == whole for record in records)
    statistics = store.statistics(HistoryQuery())
    assert statistics.overall.by_status == {"success": 3 * WRITERS}
    assert statistics.overall.duration_s.max == 1.0 + WRITERS - 1
    assert statistics.overall.duration_s.mean == pytest.approx(1.0 + (WRITERS - 1) / 2)
    check = store.check()
    assert (check.problems, check.jobs) == ((), 3 * WRITERS)


def _write_the_same(begin: Any, url: str, seed: int) -> None:
    store = PostgresStore(url)
    begin.wait(60)
    order = sorted(range(20), key=lambda number: (number * 7 + seed * 3) % 20)
    writes = [write for number in order for write in whole_job(f"same-{number:02}", sample_count=5)]
    for start in range(0, len(writes), 16):
        store.apply(writes[start : start + 16])
    store.close()


def test_what_many_write_at_once_in_any_order_is_there_once(postgres_url: str, store: PostgresStore) -> None:
    _all_at_once(_write_the_same, [(postgres_url, seed) for seed in range(12)])
    records = list(store.records(HistoryQuery(limit=None)))
    assert sorted(record.job.uuid for record in records) == [f"same-{number:02}" for number in range(20)]
    assert store.statistics(HistoryQuery()).overall.by_status == {"success": 20}
    assert [index for index, _ in store.samples("same-07")] == [0, 1, 2, 3, 4]
    assert store.check().problems == ()


def test_a_follower_of_a_run_misses_no_event_while_several_write(
    postgres_url: str, store: PostgresStore
) -> None:
    def write() -> None:
        own = PostgresStore(postgres_url)
        for at_us in range(40):
            own.apply([RunNoted(RunEvent(new_uuid(), "run", at_us, RunEnded(RunStatus.FAILED)))])
        own.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    seen: list[str] = []
    last = 0
    is_over = False
    while not is_over:
        is_over = not any(writer.is_alive() for writer in writers)
        news = store.run_events("run", last)
        seen += [event.uuid for _, event in news]
        last = news[-1][0] if news else last
    assert Counter(seen) == Counter(event.uuid for _, event in store.run_events("run"))
    assert len(seen) == 160


def test_samples_become_blocks_when_their_job_has_ended(store: PostgresStore) -> None:
    store.apply([queued("a"), started("a")])
    for first in range(0, 2000, 100):
        store.apply([samples("a", first, 100)])
    before = store.samples("a")
    store.apply([ended("a")])
    kinds = "SELECT count(*), sum(count), min(get_byte(data, 0)), max(get_byte(data, 0)) FROM sample_piece"
    assert ask(store, kinds) == [(2, 2000, 4, 4)]
    assert store.samples("a") == before == [(index, sample(index)) for index in range(2000)]
    assert ask(store, "SELECT sample_bytes = (SELECT sum(length(data)) FROM sample_piece) FROM job") == [
        (True,)
    ]


def test_blocks_are_whole_whatever_the_pieces_they_come_from(store: PostgresStore) -> None:
    store.apply([queued("a"), started("a")])
    pieces = [
        (0, 1500),
        (1400, 1000),
        (2400, 700),
        (3100, 1),
        (3102, 1919),
        (5021, 500),
        (3000, 900),
        (4000, 1),
    ]
    for first, count in pieces:
        store.apply([samples("a", first, count)])
    store.apply([ended("a")])
    counts = [count for (count,) in ask(store, "SELECT count FROM sample_piece ORDER BY first_index")]
    assert counts == [1920, 1920, 1681]
    assert store.samples("a") == [(index, sample(index)) for index in range(5521)]


def test_small_pieces_of_a_job_that_runs_are_put_together(store: PostgresStore) -> None:
    store.apply([queued("a"), started("a"), samples("a", 0, 1)])
    for index in range(1, 200):
        store.apply([samples("a", index, 1)])
    ((rows,),) = ask(store, "SELECT count(*) FROM sample_piece")
    assert rows < 70
    assert store.samples("a") == [(index, sample(index)) for index in range(200)]
    assert store.samples("a", after=150) == [(index, sample(index)) for index in range(151, 200)]


def test_pieces_that_overlap_or_come_again_are_read_once(store: PostgresStore) -> None:
    store.apply([queued("a"), started("a")])
    for first, count in ((0, 10), (5, 10), (0, 10), (20, 3), (2, 1)):
        store.apply([samples("a", first, count)])
    wanted = [(index, sample(index)) for index in (*range(15), 20, 21, 22)]
    assert store.samples("a") == wanted
    store.apply([samples("a", 12, 30), ended("a")])
    assert store.samples("a") == [(index, sample(index)) for index in range(42)]


def test_samples_that_come_late_count_in_what_can_be_pruned(store: PostgresStore) -> None:
    store.apply(whole_job("a", sample_count=5))
    ((before,),) = ask(store, "SELECT sample_bytes FROM job")
    store.apply([samples("a", 5, 20)])
    store.apply([samples("a", 25, 20), threads("a")])
    ((after,),) = ask(store, "SELECT sample_bytes FROM job")
    assert after > before > 0
    assert [index for index, _ in store.samples("a")] == list(range(45))


def test_what_a_worker_wrote_that_lost_the_job_is_not_seen(store: PostgresStore) -> None:
    store.apply([queued("a")])
    ask(store, "UPDATE job SET fence = 1 RETURNING 1")
    store.apply(_under(1, [started("a"), samples("a", 0, 3)]))
    assert len(store.samples("a")) == 3
    ask(store, "UPDATE job SET fence = 2 RETURNING 1")
    store.apply(_under(1, [samples("a", 3, 3)]))
    store.apply(_under(1, [ended("a", Status.FAILED)]))
    store.apply([samples("a", 0, 1)])
    assert (store.samples("a"), store.find("a").outcome) == ([], None)
    store.apply(_under(2, [started("a"), samples("a", 0, 2), ended("a")]))
    assert [index for index, _ in store.samples("a")] == [0, 1]
    assert store.find("a").status is Status.SUCCESS
    store.vacuum()
    assert ask(store, "SELECT DISTINCT fence FROM sample_piece") == [(2,)]


def _under(fence: int, writes: list[Write]) -> list[Write]:
    return [replace(write, fence=fence) for write in writes]


def test_the_largest_value_goes_with_a_lost_job_whose_true_end_comes_by_another_writer(
    postgres_url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.stores.postgres.writer._shard", lambda: 1)
    store.apply(
        [*whole_job("a", Status.LOST, duration_s=100.0), *whole_job("b", Status.LOST, duration_s=7.0)]
    )
    monkeypatch.setattr("joblens.stores.postgres.writer._shard", lambda: 2)
    store.apply([ended("a", Status.SUCCESS, duration_s=3.0)])
    query = HistoryQuery(statuses=(Status.LOST,))
    lost = store.statistics(query).overall
    assert (lost.by_status, lost.duration_s.max) == ({"lost": 1}, 7.0)
    assert store.check().problems == ()


def test_a_name_with_a_character_that_the_server_cannot_hold_is_kept_whole_in_the_record(
    store: PostgresStore,
) -> None:
    store.apply([queued("a", name="be\0fore", tags=("t\0",))])
    assert store.find("a").job.name == "be\0fore"
    assert ask(store, "SELECT name FROM job") == [("be\N{REPLACEMENT CHARACTER}fore",)]


def test_numbers_are_learnt_again_after_the_database_was_replaced(
    postgres_url: str, store: PostgresStore
) -> None:
    store.apply([queued("first"), queued("a"), started("a"), samples("a", 0, 1)])
    ask(
        store,
        "WITH gone AS (DELETE FROM job), too AS (DELETE FROM detail) DELETE FROM sample_piece RETURNING 1",
    )
    store.close()  # as a lost connection does
    store.apply([samples("a", 1, 1)])
    assert [index for index, _ in store.samples("a")] == [1]


def test_details_that_come_with_every_sample_are_brought_up_to_date(store: PostgresStore) -> None:
    store.apply([queued("a"), started("a")])
    for look in range(4):
        store.apply([samples("a", look, 1), DetailsTaken("a", Details(unknown={"gpu": f"look {look}"}))])
        assert store.details("a").unknown == {"gpu": f"look {look}"}
    store.apply([DetailsTaken("a", Details(unknown={"gpu": "look 3"}))])
    assert len(store.samples("a")) == 4
    store.apply([ended("a"), DetailsTaken("a", Details(unknown={"gpu": "at the end"}))])
    store.apply([DetailsTaken("a", Details(unknown={"gpu": "late"}))])
    assert store.details("a").unknown == {"gpu": "late"}


def test_details_of_one_job_that_two_write_are_put_together(postgres_url: str, store: PostgresStore) -> None:
    other = PostgresStore(postgres_url)
    store.apply([queued("a"), started("a"), DetailsTaken("a", Details(unknown={"gpu": "1"}))])
    store.apply([DetailsTaken("a", Details(unknown={"gpu": "2"}))])
    other.apply([threads("a")])
    store.apply([DetailsTaken("a", Details(unknown={"gpu": "3"}))])
    store.apply([DetailsTaken("a", Details(unknown={"gpu": "4"}))])
    assert store.details("a").unknown == {"gpu": "4"}
    assert store.details("a").threads is not None
    other.close()
