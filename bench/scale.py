"""`python -m bench scale`: agents of 2,000 nodes on one PostgreSQL that shares this machine with them.

Each agent runs one job after the other (86.4 s on average, so that 10,000 of them would run ten million per
day), takes a sample every 10 s, and does everything else that a worker does. Readers query the store
meanwhile. BENCH_AGENTS, BENCH_SECONDS, BENCH_PAST_JOBS and BENCH_POOLER=no change the set-up that the goals
are for.
"""

import contextlib
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench import scale_readers
from bench.commands import Workbench
from bench.goals import Figure
from bench.queue_harness import DurablePostgres, wait_until
from bench.queue_samples import real_job
from bench.remembering import past_lives
from bench.scale_agents import SAMPLE_EVERY_S, Counts, Crew, Script
from bench.scale_costs import Scale, costs
from bench.scale_report import Cost, Outcome, Setting, judged, report
from joblens.model.delivery import Order, Ticket
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import new_uuid
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, SamplesTaken, TicketMade, Write
from joblens.stores.postgres import PostgresStore
from tests.servers import PgBouncer, own_server

AGENTS = int(os.environ.get("BENCH_AGENTS", "2000"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "120"))
PAST_JOBS = int(os.environ.get("BENCH_PAST_JOBS", "200000"))
WITH_POOLER = os.environ.get("BENCH_POOLER", "yes") != "no"
MEAN_JOB_S = 86.4
_CREWS = 4  # processes that play agents
_READERS = 2  # processes that play people
_SERVER_CONNECTIONS = 12
_SUBMIT_EVERY_S = 0.5
_TIMEOUT_S = 600.0
_SAMPLING_S = 8
_JOBS_AT_REST = 4000
_TABLES = ("job", "detail", "sample_piece", "job_details", "ticket", "worker", "rollup", "sketch", "tag")


class BigPostgres(DurablePostgres):
    """Configured for many clients: every confirmed write is on disk, and memory caches frequent reads."""

    def command(self) -> list[str]:
        connections = 100 if WITH_POOLER else AGENTS * 2 + 200
        return [
            *super().command(),
            *("-c", f"max_connections={connections}"),
            *("-c", "shared_buffers=1GB"),
            *("-c", "max_wal_size=4GB"),
            *("-c", "deadlock_timeout=1s"),
            *("-c", "autovacuum_naptime=15s"),
        ]


def figures(bench: Workbench) -> Iterator[Figure]:
    samples, details = real_job(bench, _SAMPLING_S)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(own_server(BigPostgres))
        direct = server.new_database()
        PostgresStore(direct).close()
        pooler = None
        if WITH_POOLER and shutil.which("pgbouncer"):
            settings = {
                "default_pool_size": str(_SERVER_CONNECTIONS),
                "max_client_conn": str(AGENTS * 2 + 200),
            }
            pooler = stack.enter_context(own_server(lambda folder: PgBouncer(folder, server, settings)))
        rest = _at_rest(server.new_database(), samples, details)
        _fill(direct)
        script = Script(pooler.url_of(direct) if pooler else direct, samples, details, MEAN_JOB_S)
        found = _play(script, direct, server, pooler)
        scale = Scale(server.pid, pooler.pid if pooler else None)
        each = list(costs(script, lambda count: _submit(direct, count), scale))
    setting = Setting(
        agents=AGENTS,
        past_jobs=PAST_JOBS,
        sample_every_s=SAMPLE_EVERY_S,
        way="through PgBouncer" if pooler else "without a pooler",
    )
    print(report(setting, found, rest), *each, "", sep="\n", flush=True)
    yield from judged(setting, found)


# ---- before ------------------------------------------------------------------------------------------------


def _fill(url: str) -> None:
    """Fills the history that queries have to search."""
    begin, store = time.time_ns() // 1000 - PAST_JOBS * 500_000, PostgresStore(url)
    for writes in past_lives(PAST_JOBS, begin, 500_000):
        store.apply(writes)
    store.vacuum()
    store.close()


def _at_rest(url: str, samples: tuple[Sample, ...], details: Details) -> dict[str, float]:
    """Returns bytes per job in each table after it has ended and upkeep has run."""
    store = PostgresStore(url)
    before = _sizes(url)
    for writes in past_lives(_JOBS_AT_REST, time.time_ns() // 1000, 500_000):
        ended = [write for write in writes if isinstance(write, JobEnded)]
        store.apply([write for write in writes if not isinstance(write, JobEnded)])
        for index in range(round(MEAN_JOB_S / SAMPLE_EVERY_S)):
            store.apply([SamplesTaken(write.uuid, index, (samples[index],)) for write in ended])
        store.apply([DetailsTaken(write.uuid, details) for write in ended])
        store.apply(ended)
    store.vacuum()
    store.close()
    grown = _grown(before, _sizes(url))
    return {name: size / _JOBS_AT_REST for name, (size, _) in grown.items() if size}


# ---- meanwhile ---------------------------------------------------------------------------------------------


def _play(script: Script, direct: str, server: BigPostgres, pooler: PgBouncer | None) -> Outcome:
    context = multiprocessing.get_context("fork")
    start, stop, results, connected = context.Event(), context.Event(), context.Queue(), context.Queue()
    sizes_before = _sizes(direct)
    _submit(direct, AGENTS)
    crews = [
        context.Process(target=_crew, args=(script, place, connected, start, stop, results))
        for place in range(_CREWS)
    ]
    others = [
        context.Process(target=_people, args=(script.url, start, stop, results)) for _ in range(_READERS)
    ]
    others.append(context.Process(target=_submitter, args=(script.url, stop)))
    for process in crews:
        process.start()
    for _ in crews:
        connected.get(timeout=_TIMEOUT_S)
    wait_until(lambda: not _waiting(direct), _TIMEOUT_S, "every agent to have a job", 0.5)
    for process in others:
        process.start()
    time.sleep(SAMPLE_EVERY_S)  # until everyone has come to its pace
    before = _cost(direct, server, pooler)
    start.set()
    time.sleep(SECONDS)
    after, connections = _cost(direct, server, pooler), _connections(direct)
    memory = _memory(server)
    waiting = _waiting(direct)
    stop.set()
    answers = [results.get(timeout=_TIMEOUT_S) for _ in range(_CREWS + _READERS)]
    for process in (*crews, *others):
        process.join(60)
    counts = [answer for answer in answers if isinstance(answer, Counts)]
    reads = {
        name: [one for answer in answers if isinstance(answer, dict) for one in answer[name]]
        for name in scale_readers.PEOPLE
    }
    return Outcome(
        counts=counts,
        reads=reads,
        day=_statistics_of_a_day(direct),
        before=before,
        after=after,
        sizes=_grown(sizes_before, _sizes(direct)),
        waiting=waiting,
        **_stored(direct),
        server_connections=connections,
        client_connections=AGENTS * 2 + sum(people for people, _ in scale_readers.PEOPLE.values()) * _READERS,
        server_memory_bytes=memory,
    )


def _crew(script: Script, place: int, connected: Any, start: Any, stop: Any, results: Any) -> None:
    share = range(AGENTS * place // _CREWS, AGENTS * (place + 1) // _CREWS)
    results.put(Crew(share, script, place).play(lambda: connected.put(place), start, stop))


def _people(url: str, start: Any, stop: Any, results: Any) -> None:
    random.seed(os.getpid())
    results.put(scale_readers.read(url, start, stop))


def _submitter(url: str, stop: Any) -> None:
    """Submits as many new jobs as end."""
    store, owed, last_s = PostgresStore(url), 0.0, time.monotonic()
    while not stop.wait(_SUBMIT_EVERY_S):
        now_s = time.monotonic()
        owed, last_s = owed + (now_s - last_s) * AGENTS / MEAN_JOB_S, now_s
        store.apply(_new_jobs(int(owed)))
        owed -= int(owed)
    store.close()


def _submit(url: str, count: int) -> None:
    store = PostgresStore(url)
    store.apply(_new_jobs(count))
    store.close()


def _new_jobs(count: int) -> list[Write]:
    writes: list[Write] = []
    for _ in range(count):
        uuid, step = new_uuid(), random.randrange(1000)
        argv = ("python", "simulate.py", "--mesh", "64", "--step", str(step))
        job = Job(
            uuid=uuid,
            argv=argv,
            created_at_us=time.time_ns() // 1000,
            name=f"simulate {step}",
            tool="python",
            script="simulate.py",
            params={"mesh": 64, "step": step},
            cwd="/home/ann/project",
            user="ann",
            queue="default",
        )
        order = Order(argv=argv, cwd="/home/ann/project", env={"OMP_NUM_THREADS": "1"})
        writes += [JobQueued(job), TicketMade(Ticket(uuid=uuid, queue="default", order=order))]
    return writes


# ---- cost --------------------------------------------------------------------------------------------------


def _ask(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=joblens") as connection:
        return connection.execute(question.encode()).fetchall()


def _waiting(url: str) -> int:
    return int(_ask(url, "SELECT count(*) FROM ticket WHERE worker IS NULL")[0][0])


def _stored(url: str) -> dict[str, int]:
    [(count, size)] = _ask(
        url, "SELECT sum(count)::bigint, sum(octet_length(data))::bigint FROM sample_piece"
    )
    return {"stored": count or 0, "stored_bytes": size or 0}


def _statistics_of_a_day(url: str) -> tuple[float, int]:
    """Counts job by job what is not stored as sums. Returns seconds and jobs."""
    store = PostgresStore(url)
    since_us = time.time_ns() // 1000 - 86_400_000_000
    began_s = time.perf_counter()
    found = store.statistics(HistoryQuery(since_us=since_us))
    seconds = time.perf_counter() - began_s
    store.close()
    return seconds, found.overall.jobs


def _connections(url: str) -> int:
    return int(_ask(url, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")[0][0])


def _sizes(url: str) -> dict[str, tuple[int, int]]:
    return {
        table: _ask(url, f"SELECT pg_total_relation_size('{table}'), (SELECT count(*) FROM {table})")[0]
        for table in _TABLES
    }


def _grown(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    return {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}


def _cost(url: str, server: BigPostgres, pooler: PgBouncer | None) -> Cost:
    [(commits, wal)] = _ask(
        url,
        "SELECT sum(xact_commit)::bigint, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint "
        "FROM pg_stat_database",
    )
    return Cost(
        server_cpu_s=_cpu_s(server.pid, with_those_gone=True),
        pooler_cpu_s=_cpu_s(pooler.pid) if pooler else 0.0,
        commits=commits,
        wal_bytes=wal,
        at_s=time.monotonic(),
    )


def _cpu_s(pid: int, *, with_those_gone: bool = False) -> float:
    """Returns the CPU of a process and its children, including reaped ones."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    total = 0
    for each in (str(pid), *children):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
            gone = int(fields[13]) + int(fields[14]) if with_those_gone and each == str(pid) else 0
            total += int(fields[11]) + int(fields[12]) + gone
    return total / os.sysconf("SC_CLK_TCK")


def _memory(server: BigPostgres) -> int:
    """Returns private memory of its processes, and their share of common memory."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii").split()
    total = 0
    for pid in (str(server.pid), *children):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total
