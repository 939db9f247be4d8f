"""Lists of jobs in a store of a million: newest first, by every filter, page after page, on both stores.

The jobs are made by the database itself, which takes a fraction of the time of writing them one by one.
JOBLENS_BENCH_JOBS sets how many there are."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
from msgspec.structs import replace

from bench.commands import Workbench
from bench.goals import Figure
from bench.server import serving
from joblens.app.jobs.series import series
from joblens.model.history import OVER_LIMIT, HistoryQuery
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Status
from joblens.model.runs.run import Run, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.writes import (
    JobEnded,
    JobQueued,
    JobStarted,
    RunCreated,
    SamplesTaken,
    WorkflowCreated,
)
from joblens.ports.store import Store
from joblens.stores.sqlite import SqliteStore
from tests.unit.stores.sample_series import busy_series

JOBS = int(os.environ.get("JOBLENS_BENCH_JOBS", "1_000_000"))
BEGAN_US = 1_700_000_000_000_000
APART_US = 30_000_000
DAY_S = 86_400
PAGE = 50
PAGES = 4  # of each list, one after the other
GOAL_MS, SUBSTRING_GOAL_MS = 50.0, 300.0

# Expressions of the number n that both databases understand. A tenth of the jobs are of an old project.
_DICE = "(n * 48271 % 2147483647)"
_IS_OLD = f"(n > {JOBS // 10} AND n <= {JOBS // 5})"
_UUID = "('00000000-0000-4000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2))"
_NAME = f"CASE WHEN {_IS_OLD} THEN 'legacy-' ELSE 'train-' END || CAST({_DICE} % 20000 AS TEXT)"
_TOOL = f"CASE WHEN {_DICE} % 1000 = 7 THEN 'rare' ELSE 'tool' || CAST({_DICE} % 5 AS TEXT) END"
_USER = f"'user' || CAST({_DICE} % 20 AS TEXT)"
_HOST = f"CASE WHEN {_IS_OLD} THEN 'retired' ELSE 'node' || CAST({_DICE} % 60 AS TEXT) END"
_STATUS = (
    f"CASE WHEN {_DICE} % 10000 = 3 THEN 'error' WHEN {_DICE} % 100 < 2 THEN 'timeout' "
    f"WHEN {_DICE} % 100 < 10 THEN 'failed' ELSE 'success' END"
)
_RUN = "CASE WHEN n % 2 = 0 THEN n / 20000 + 1 END"
_BEGAN = f"({BEGAN_US} + n * {APART_US})"
_JOB = (
    f'\'{{"uuid":"\' || {_UUID} || \'","argv":["true"],"created_at_us":\' || CAST({_BEGAN} AS TEXT) || '
    f'\',"name":"\' || {_NAME} || \'","tool":"\' || {_TOOL} || \'","user":"\' || {_USER} || \'"}}\''
)
_ATTEMPT = (
    f'\'{{"started_at_us":\' || CAST({_BEGAN} AS TEXT) || \',"owner":{{"host":"\' || {_HOST} || '
    '\'","pid":1,"start_ticks":1,"boot_id":"b"}}\''
)
_OUTCOME = (
    f'\'{{"status":"\' || {_STATUS} || \'","ended_at_us":\' || CAST({_BEGAN} + 9000000 AS TEXT) || '
    "',\"duration_s\":9.0}'"
)
_TAG = (
    f"CASE WHEN {_IS_OLD} THEN 'old-project' WHEN {_DICE} % 500 = 1 THEN 'rare' "
    f"ELSE 'team=' || CAST({_DICE} % 8 AS TEXT) END"
)
_CODE = (
    f"CASE WHEN {_DICE} % 4000 = 9 THEN 'swapped' WHEN {_DICE} % 100 < 2 THEN 'timed-out' "
    "ELSE 'memory-unused' END"
)

QUERIES: dict[str, list[HistoryQuery]] = {
    "no filter": [HistoryQuery()],
    "state": [
        HistoryQuery(statuses=(status,))
        for status in (Status.SUCCESS, Status.FAILED, Status.TIMEOUT, Status.ERROR)
    ]
    + [HistoryQuery(statuses=(Status.TIMEOUT, Status.ERROR)), HistoryQuery(statuses=(Status.RUNNING,))],
    "name prefix": [
        HistoryQuery(names=(name,)) for name in ("train-1*", "train-19999*", "legacy-*", "legacy-77*", "x*")
    ],
    "tool": [HistoryQuery(tools=(tool,)) for tool in ("tool1", "rare", "none")]
    + [HistoryQuery(tools=("tool1", "rare"))],
    "tag": [HistoryQuery(tags=(tag,)) for tag in ("team=3", "rare", "old-project", "none")],
    "user": [HistoryQuery(user=user) for user in ("user7", "nobody")],
    "host": [
        HistoryQuery(hosts=hosts) for hosts in (("node7",), ("retired",), ("node1", "node2"), ("none",))
    ],
    "run": [HistoryQuery(run_uuid=f"run-{number}") for number in (1, 5, 20)],
    "time range": [
        HistoryQuery(until_us=BEGAN_US + JOBS // 2 * APART_US),
        HistoryQuery(since_us=BEGAN_US + JOBS // 3 * APART_US, until_us=BEGAN_US + JOBS // 2 * APART_US),
    ],
    "finding": [
        HistoryQuery(findings=codes)
        for codes in (("memory-unused",), ("swapped",), ("timed-out",), OVER_LIMIT, ("none",))
    ],
    "substring": [HistoryQuery(name_contains=text) for text in ("ain-123", "gacy", "acy-1999", "nowhere")],
}


# The same filters as a client of the server asks for them: frequent, rare and unknown values.
ASKED: dict[str, tuple[str, ...]] = {
    "no filter": ("",),
    "state": ("status=success", "status=failed", "status=error", "status=running"),
    "name prefix": ("name=train-1*", "name=legacy-77*", "name=x*"),
    "tool": ("tool=tool1", "tool=rare", "tool=none"),
    "tag": ("tag=team%3D3", "tag=rare", "tag=old-project"),
    "user": ("user=user7", "user=nobody"),
    "host": ("host=node7", "host=retired", "host=none"),
    "run": ("run=run-1", "run=run-2"),
    "time range": (
        f"until={time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime((BEGAN_US + JOBS // 2 * APART_US) / 1e6))}",
    ),
    "finding": ("finding=memory-unused", "finding=swapped", "finding=none"),
    "substring": ("name_contains=ain-123", "name_contains=acy-1999", "name_contains=nowhere"),
}
ANSWERS = 40  # of each question


def figures(bench: Workbench) -> Iterator[Figure]:
    with sqlite_store(bench) as store:
        yield from _measured(store, "SQLite")
        yield from _served(bench, bench.path("lists.db"), "SQLite")
        yield from _day(store, "SQLite")
    with _postgres(bench) as store:
        yield from _measured(store, "PostgreSQL")
        yield from _served(bench, store.url, "PostgreSQL")
        yield from _day(store, "PostgreSQL")


def _served(bench: Workbench, url: str, name: str) -> Iterator[Figure]:
    """From a request to the server to the whole answer, over a new connection each time."""
    with serving(bench, url) as server:
        for filter_name, questions in ASKED.items():
            times_ms = [
                server.ask_s(f"/jobs?limit={PAGE}&{each}") * 1000
                for _ in range(ANSWERS)
                for each in questions
            ]
            goal = SUBSTRING_GOAL_MS if filter_name == "substring" else GOAL_MS
            note = f"median {_percentile(times_ms, 50):.1f} ms, {len(times_ms)} answers"
            what = f"server on {name}, list by {filter_name} of {JOBS:,} jobs, p99"
            yield Figure(what, _percentile(times_ms, 99), "ms", goal, note=note)


def _day(store: Store, name: str) -> Iterator[Figure]:
    """One day of samples as points, as a dashboard asks for them."""
    uuid, taken = new_uuid(), busy_series(DAY_S)
    began_us = taken[0].at_us
    owner = Owner("node", 1, 1, "boot")
    store.apply([JobQueued(Job(uuid=uuid, argv=("true",), created_at_us=began_us))])
    store.apply([JobStarted(uuid, Attempt(started_at_us=began_us, owner=owner))])
    for first in range(0, DAY_S, 120):
        store.apply([SamplesTaken(uuid, first, tuple(taken[first : first + 120]))])
    end = Outcome(status=Status.SUCCESS, ended_at_us=taken[-1].at_us, duration_s=float(DAY_S))
    store.apply([JobEnded(uuid, end)])
    record = store.find(uuid)
    for fields in (("memory_current_bytes",), ("cpu_total_usec/s", "memory_current_bytes")):
        times_ms = []
        for _ in range(9):
            start = time.perf_counter()
            series(store, record, fields, points=1000)
            times_ms.append((time.perf_counter() - start) * 1000)
        what = f"{name}, {DAY_S:,} samples as 1,000 points of {' and '.join(fields)}"
        yield Figure(what, _percentile(times_ms, 50), "ms", 100.0, note=f"slowest {max(times_ms):.0f} ms")


def _measured(store: Store, name: str) -> Iterator[Figure]:
    for filter_name, queries in QUERIES.items():
        times_ms = [each for _ in range(5) for query in queries for each in _pages_ms(store, query)]
        goal = SUBSTRING_GOAL_MS if filter_name == "substring" else GOAL_MS
        note = f"median {_percentile(times_ms, 50):.1f} ms, {len(times_ms)} pages of {PAGE}"
        what = f"{name}, list by {filter_name} of {JOBS:,} jobs, p99"
        yield Figure(what, _percentile(times_ms, 99), "ms", goal, note=note)


def _pages_ms(store: Store, query: HistoryQuery) -> Iterator[float]:
    after: str | None = None
    for _ in range(PAGES):
        start = time.perf_counter()
        page = store.page(replace(query, limit=PAGE, after=after))
        yield (time.perf_counter() - start) * 1000
        after = page.next
        if after is None:
            return


def _percentile(values: list[float], percent: int) -> float:
    ranked = sorted(values)
    return ranked[-(-len(ranked) * percent // 100) - 1]


@contextmanager
def sqlite_store(bench: Workbench) -> Iterator[Store]:
    path = bench.path("lists.db")
    empty = SqliteStore(path)
    _create_runs(empty)
    empty.close()
    connection = apsw.Connection(path)
    connection.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
    series = f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {JOBS})"
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    for index, _ in indexes:
        connection.execute(f"DROP INDEX {index}")
    for statement in _fill("user", lambda text: f"CAST({text} AS BLOB)"):
        connection.execute(statement.replace("{series}", series))
    for _, definition in indexes:
        connection.execute(str(definition))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.close()
        Path(path).unlink()


@contextmanager
def _postgres(bench: Workbench) -> Iterator[Store]:
    import psycopg

    from joblens.stores.postgres import PostgresStore
    from tests.servers import PostgresServer

    server = PostgresServer(Path(bench.path("lists-postgres")))
    server.folder.mkdir(parents=True, exist_ok=True)
    server.folder.parent.chmod(0o711)  # the server's own user goes through it
    server.start()
    try:
        url = server.new_database()
        empty = PostgresStore(url)
        _create_runs(empty)
        empty.close()
        with psycopg.connect(url, autocommit=True, options="-c search_path=joblens") as connection:
            indexes = connection.execute(
                "SELECT indexname, indexdef FROM pg_indexes "
                "WHERE schemaname = 'joblens' AND tablename = 'job' AND indexdef NOT LIKE '%UNIQUE%'"
            ).fetchall()
            for index, _ in indexes:
                connection.execute(f"DROP INDEX {index}".encode())
            series = f"WITH numbers AS (SELECT n FROM generate_series(1::bigint, {JOBS}) AS n)"
            for statement in _fill("user_name", lambda text: f"convert_to({text}, 'UTF8')"):
                connection.execute(statement.replace("{series}", series).encode())
            for _, definition in indexes:
                connection.execute(definition.encode())
            connection.execute(b"SELECT setval(pg_get_serial_sequence('job', 'id'), max(id)) FROM job")
            connection.execute("VACUUM ANALYZE")
        store = PostgresStore(url)
        try:
            yield store
        finally:
            store.close()
    finally:
        server.kill()


def _create_runs(store: Store) -> None:
    """Their numbers in the database count from 1: jobs name them."""
    store.apply([WorkflowCreated(Workflow(uuid="w", name="w", created_at_us=BEGAN_US, user="user1"))])
    for number in range(1, JOBS // 20000 + 3):
        run = Run(uuid=f"run-{number}", workflow_uuid="w", created_at_us=BEGAN_US, user="user1")
        store.apply([RunCreated(run)])


def _fill(user: str, blob: Callable[[str], str]) -> Iterator[str]:
    yield (
        f"INSERT INTO job (id, uuid, name, tool, {user}, status, began_at_us, ended_at_us, duration_us, "
        "cpu_usec, memory_bytes, sample_bytes, exit_code, reason, run_id, run_index, run_attempt, host) "
        "{series} "
        f"SELECT n, {_UUID}, {_NAME}, {_TOOL}, {_USER}, {_STATUS}, {_BEGAN}, {_BEGAN} + 9000000, 9000000, "
        f"{_DICE} % 9000000, {_DICE}, 0, 0, 'exited', {_RUN}, CASE WHEN n % 2 = 0 THEN n END, 1, {_HOST} "
        "FROM numbers"
    )
    documents = ", ".join(blob(text) for text in (_JOB, _ATTEMPT, _OUTCOME))
    yield f"INSERT INTO detail (job_id, job, attempt, outcome) {{series}} SELECT n, {documents} FROM numbers"
    yield f"INSERT INTO tag (tag, job_id, began_at_us) {{series}} SELECT {_TAG}, n, {_BEGAN} FROM numbers"
    found = f"SELECT {_CODE}, {_BEGAN}, n FROM numbers"
    yield f"INSERT INTO finding (code, began_at_us, job_id) {{series}} {found}"
