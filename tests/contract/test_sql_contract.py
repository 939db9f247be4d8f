"""What every store must do with queries in SQL: only views can be read, nothing can change, limits hold."""

import time
import tracemalloc

import pytest

from joblens.app.html_report.writing import reader
from joblens.app.server.overview import DayCounts, retried_of
from joblens.model.access import ApiToken, Role, Scope
from joblens.model.errors import InputError
from joblens.model.history import Annotation
from joblens.model.jobs.job import Finding, Severity, Status
from joblens.model.sql import VIEWS, SqlLimits
from joblens.model.writes import JobAnnotated
from joblens.ports.store import QueueStore
from tests.builders.runs import attempt, begun, run, workflow
from tests.builders.writes import NOON_US, SECOND, ended, queued, samples, started, whole_job

LIMITS = SqlLimits(seconds=20)


@pytest.fixture
def filled(store: QueueStore) -> QueueStore:
    finding = Finding("swapped", Severity.INFO, "text")
    store.apply([workflow("w1", user="ann"), run("r1", "w1"), begun("r1")])
    store.apply(attempt("r1", 0, uuid="a0", user="ann", name="in-run"))
    store.apply([queued("a1", user="bob", name="one", tags=("x",)), started("a1"), samples("a1", 0, 40)])
    store.apply([ended("a1", findings=(finding,))])
    store.apply([JobAnnotated(Annotation(uuid="n", job_uuid="a1", at_us=1, author="ann", text="note"))])
    store.apply(whole_job("a2", user="bob"))
    store.delete_jobs(["a2"], by="bob", at_us=NOON_US)
    store.add_token(
        ApiToken(
            id="t",
            name="t",
            hash="secret",
            user="ann",
            role=Role.ADMIN,
            scope=Scope.ALL,
            created_at_us=NOON_US,
        )
    )
    return store


def test_every_view_has_its_columns_and_rows(filled: QueueStore) -> None:
    answers = {view: filled.sql(f"SELECT * FROM {view}", LIMITS) for view in VIEWS}
    assert {view: answer.columns for view, answer in answers.items()} == VIEWS
    assert [view for view, answer in answers.items() if not answer.rows] == []


def test_columns_are_named_without_rows_too(filled: QueueStore) -> None:
    answer = filled.sql("SELECT name, cpu_s AS cpu FROM jobs WHERE number < 0", LIMITS)
    assert (answer.columns, answer.rows) == (("name", "cpu"), [])


def test_views_can_be_joined_grouped_and_sorted(filled: QueueStore) -> None:
    text = """
        WITH named AS (SELECT number, name FROM jobs)  -- a comment
        SELECT named.name, count(*) AS n, sum(samples.samples) AS samples
        FROM named JOIN samples ON samples.job_number = named.number
        GROUP BY named.name ORDER BY named.name DESC;
    """
    assert filled.sql(text, LIMITS).rows == [("one", 1, 40), ("in-run", 1, 0)]


def test_a_user_sees_own_rows(filled: QueueStore) -> None:
    rows = {"ann": (["in-run"], 0), "bob": (["one"], 1), "o'x": ([], 0), None: (["in-run", "one"], 1)}
    for user, (names, tags) in rows.items():
        found = filled.sql("SELECT name FROM jobs ORDER BY name", LIMITS, only_user=user)
        assert [name for (name,) in found.rows] == names, user
        assert filled.sql("SELECT count(*) FROM tags", LIMITS, only_user=user).rows == [(tags,)], user


_REFUSED = (
    "SELECT * FROM api_token",
    "SELECT * FROM joblens.api_token",
    "SELECT * FROM main.api_token",
    "WITH jobs AS (SELECT * FROM api_token) SELECT * FROM jobs",
    "WITH jobs AS (SELECT * FROM joblens.api_token) SELECT * FROM jobs",
    "SELECT (SELECT hash FROM joblens.api_token) FROM jobs",
    "SELECT number FROM jobs WHERE EXISTS (SELECT 1 FROM api_token)",
    "SELECT 1) UNION SELECT hash FROM (SELECT hash FROM api_token",
    "SELECT * FROM sqlite_schema",
    "SELECT * FROM pg_catalog.pg_authid",
    "SELECT * FROM pragma_table_info('job')",
    "SELECT load_extension('x') FROM jobs",
    "SELECT pg_sleep(1)",
    "SELECT query_to_xml('SELECT * FROM joblens.api_token', true, true, '')",
    "SELECT table_to_xml('joblens.api_token', true, true, '')",
    "SELECT set_config('work_mem', '1GB', false)",
    "SELECT pg_read_file('/etc/passwd')",
    "DELETE FROM jobs",
    "DELETE FROM job",
    "INSERT INTO job DEFAULT VALUES",
    "WITH gone AS (DELETE FROM joblens.job RETURNING id) SELECT * FROM gone",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE job",
    "SELECT * INTO other FROM jobs",
    "ATTACH 'x.db' AS x",
    "PRAGMA user_version = 3",
    "CREATE TABLE x (y integer)",
    "COMMIT",
    "SELEKT 1",
    "",
    "SELECT nothing FROM jobs",
    "SELECT * FROM nowhere",
)


def test_anything_but_a_query_over_views_is_refused(filled: QueueStore) -> None:
    assert [text for text in _REFUSED if not _is_refused(filled, text)] == []
    assert filled.sql("SELECT count(*) FROM jobs", LIMITS).rows == [(2,)]
    assert filled.check().ok


def _is_refused(store: QueueStore, text: str) -> bool:
    try:
        store.sql(text, LIMITS)
    except InputError:
        return True
    return False


def test_rows_beyond_the_limit_are_cut(filled: QueueStore) -> None:
    answer = filled.sql("SELECT number FROM jobs ORDER BY number", SqlLimits(rows=1))
    assert (len(answer.rows), answer.is_truncated) == (1, True)
    assert not filled.sql("SELECT number FROM jobs", SqlLimits(rows=2)).is_truncated


def test_values_beyond_the_limit_are_cut(filled: QueueStore) -> None:
    answer = filled.sql("SELECT uuid, name FROM jobs", SqlLimits(bytes=10))
    assert (len(answer.rows), answer.is_truncated) == (1, True)


def test_an_answer_is_not_read_whole_before_it_is_cut(filled: QueueStore) -> None:
    numbers = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300) SELECT x FROM n"
    value = f"replace(replace('{'a' * 100}', 'a', '{'a' * 100}'), 'a', '{'b' * 100}')"
    tracemalloc.start()
    try:
        answer = filled.sql(
            f"SELECT x, {value} AS text FROM ({numbers}) AS numbers", SqlLimits(bytes=5 << 20)
        )
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert (len(answer.rows), answer.is_truncated) == (5, True)


def test_a_query_that_takes_too_long_ends(filled: QueueStore) -> None:
    endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(InputError, match=r"took longer than 0\.2s"):
        filled.sql(endless, SqlLimits(seconds=0.2))
    assert filled.sql("SELECT count(*) FROM jobs", LIMITS).rows == [(2,)]


def test_a_time_limit_of_years_is_as_good_as_none(filled: QueueStore) -> None:
    assert filled.sql("SELECT 1", SqlLimits(seconds=1e10)).rows == [(1,)]


def test_retried_attempts_are_no_failed_jobs(store: QueueStore) -> None:
    """The overview and reports ask this of every store."""
    now_us = time.time_ns() // 1000
    store.apply([workflow("w1"), run("r1", "w1", jobs=2), begun("r1")])
    store.apply(attempt("r1", 0, 1, Status.FAILED, uuid="a1", at_us=now_us - 9))
    store.apply(attempt("r1", 0, 2, uuid="a2", at_us=now_us - 8))
    store.apply(attempt("r1", 1, 1, Status.TIMEOUT, uuid="b1", at_us=now_us - 7))
    store.apply(whole_job("c1", Status.FAILED, at_us=now_us - 6))
    records = [store.find(uuid) for uuid in ("a1", "a2", "b1", "c1")]
    assert retried_of(store, records) == {records[0].number}
    today = DayCounts().answer(store, reader("ann"), now_us - 3600 * SECOND).today
    assert (today.jobs, today.failed) == (4, 2)
