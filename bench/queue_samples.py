"""Samples that many agents write into one PostgreSQL at the same time, the server on the same machine."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

from bench.commands import JOBLENS, WORKLOADS, Workbench
from bench.goals import Figure
from bench.queue_harness import DurablePostgres
from bench.remembering import started_life
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import Details
from joblens.model.jobs.sample import Sample
from joblens.model.writes import JobQueued, SamplesTaken, Write
from joblens.stores.postgres import PostgresStore
from joblens.stores.sqlite import SqliteStore
from tests.servers import own_server

AGENTS = 50
SECONDS = 5.0
SAMPLING_S = 8


class Shape(NamedTuple):
    """How an agent's samples come: of so many jobs at once, so many of each together."""

    jobs: int
    piece: int


LONG = Shape(4, 100)  # sampled fast, or written from a journal
LIVE = Shape(100, 2)  # as a recorder writes many running jobs, every second tick


def figure(bench: Workbench) -> Figure:
    samples = real_job(bench, SAMPLING_S)[0][: LONG.piece]
    with own_server(DurablePostgres) as server:
        url = server.new_database()
        PostgresStore(url).close()
        rate, seconds, cpu_us = _measure(server, url, samples, LONG)
        live_url = server.new_database()
        PostgresStore(live_url).close()
        live_rate, _, live_cpu_us = _measure(server, live_url, samples, LIVE)
        return Figure(
            f"samples into PostgreSQL from {AGENTS} agents",
            rate,
            "a second",
            200_000,
            at_least=True,
            note=f"{LONG.piece} together, {seconds:.0f} s, {cpu_us:.1f} µs of CPU each, agents and server; "
            f"{LIVE.piece} together of {LIVE.jobs} jobs an agent: {live_rate:,.0f}, {live_cpu_us:.1f} µs",
        )


def real_job(bench: Workbench, seconds: int) -> tuple[tuple[Sample, ...], Details]:
    """Returns samples of a job that computes, reads and writes, with the default instruments."""
    path = bench.path("samples.db")
    job = [sys.executable, str(WORKLOADS / "mixed.py"), str(seconds)]
    run = [*JOBLENS, "run", "--interval", "50ms", "--", *job]
    subprocess.run(run, env={**bench.env, "JOBLENS_STORE": path}, check=True, stdout=subprocess.DEVNULL)
    store = SqliteStore(path)
    (record,) = store.records(HistoryQuery())
    samples = [sample for _, sample in store.samples(record.job.uuid)]
    details = store.details(record.job.uuid)
    store.close()
    return tuple(samples), details


def _measure(
    server: DurablePostgres, url: str, samples: tuple[Sample, ...], shape: Shape
) -> tuple[float, float, float]:
    """Returns samples/s, seconds, and CPU microseconds per sample of agents and server together."""
    context = multiprocessing.get_context("fork")
    begin, end, results = context.Barrier(AGENTS + 1), context.Barrier(AGENTS + 1), context.Queue()
    arguments = (url, samples[: shape.piece], shape.jobs, begin, end, results)
    agents = [context.Process(target=_agent, args=arguments) for _ in range(AGENTS)]
    for agent in agents:
        agent.start()
    begin.wait(240)
    server_before_s = _cpu_s(server)
    result = [results.get(timeout=300) for _ in agents]
    server_s = _cpu_s(server) - server_before_s
    end.wait(60)
    for agent in agents:
        agent.join(60)
    seconds = max(one.end for one in result) - min(one.start for one in result)
    written = sum(one.written for one in result)
    assert _stored(url, AGENTS * shape.jobs) == written
    cpu_s = server_s + sum(one.cpu_s for one in result)
    return written / seconds, seconds, cpu_s / written * 1e6


class _WriterResult(NamedTuple):
    written: int
    start: float
    end: float
    cpu_s: float


def _agent(
    url: str, samples: tuple[Sample, ...], jobs: int, begin: Barrier, end: Barrier, results: Any
) -> None:
    store = PostgresStore(url)
    uuids = []
    for place in range(jobs):
        writes = started_life(place)
        store.apply(writes)
        uuids.append(_uuid_of(writes[0]))
    begin.wait(240)
    start, cpu_s, first = time.monotonic(), time.process_time(), 0
    while time.monotonic() - start < SECONDS:
        store.apply([SamplesTaken(uuid, first, samples) for uuid in uuids])
        first += len(samples)
    results.put(_WriterResult(first * jobs, start, time.monotonic(), time.process_time() - cpu_s))
    end.wait(300)
    store.close()


def _cpu_s(server: DurablePostgres) -> float:
    """Of the server and its processes that are there: each agent has one as long as it is connected."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii").split()
    total = 0
    for pid in (str(server.pid), *children):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _uuid_of(write: Write) -> str:
    assert isinstance(write, JobQueued)
    return write.job.uuid


def _stored(url: str, jobs: int) -> int:
    """Counted by reading them as everybody does."""
    store = PostgresStore(url)
    try:
        records = store.records(HistoryQuery(limit=jobs))
        return sum(len(store.samples(record.job.uuid)) for record in records)
    finally:
        store.close()
