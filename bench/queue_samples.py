"""Samples that many agents write into one PostgreSQL at the same time, the server on the same machine."""

import multiprocessing
import subprocess
import sys
import time
from multiprocessing.synchronize import Barrier
from typing import Any

from bench.commands import JOBLENS, WORKLOADS, Workbench
from bench.goals import Figure
from bench.queue_desk import DurablePostgres
from bench.remembering import started_life
from joblens.model.history import HistoryQuery
from joblens.model.sample import Sample
from joblens.model.writes import SamplesTaken
from joblens.stores.postgres import PostgresStore
from joblens.stores.sqlite import SqliteStore
from tests.servers import own_server

AGENTS = 50
SECONDS = 10.0
JOBS_EACH = 4
PIECE = 100  # samples of a job that are written together, as by a journal that is brought in
SAMPLING_S = 8


def figure(bench: Workbench) -> Figure:
    samples = _real_samples(bench)
    with own_server(DurablePostgres) as server:
        url = server.new_database()
        PostgresStore(url).close()
        rate, seconds = _measure(url, samples)
        return Figure(
            f"samples into PostgreSQL from {AGENTS} agents",
            rate,
            "a second",
            200_000,
            at_least=True,
            note=f"in {seconds:.0f} s, {JOBS_EACH} jobs each, {PIECE} samples of a job at a time",
        )


def _real_samples(bench: Workbench) -> tuple[Sample, ...]:
    """Of a job that computes, reads and writes, with the instruments it has by default."""
    path = bench.path("samples.db")
    job = [sys.executable, str(WORKLOADS / "mixed.py"), str(SAMPLING_S)]
    run = [*JOBLENS, "run", "--interval", "50ms", "--", *job]
    subprocess.run(run, env={**bench.env, "JOBLENS_STORE": path}, check=True, stdout=subprocess.DEVNULL)
    store = SqliteStore(path)
    (record,) = store.records(HistoryQuery())
    samples = [sample for _, sample in store.samples(record.job.uuid)]
    store.close()
    return tuple(samples[:PIECE])


def _measure(url: str, samples: tuple[Sample, ...]) -> tuple[float, float]:
    context = multiprocessing.get_context("fork")
    begin, results = context.Barrier(AGENTS), context.Queue()
    agents = [context.Process(target=_agent, args=(url, samples, begin, results)) for _ in range(AGENTS)]
    for agent in agents:
        agent.start()
    told = [results.get(timeout=300) for _ in agents]
    for agent in agents:
        agent.join(60)
    seconds = max(end for _, _, end in told) - min(start for _, start, _ in told)
    written = sum(count for count, _, _ in told)
    assert _stored(url) == written
    return written / seconds, seconds


def _agent(url: str, samples: tuple[Sample, ...], begin: Barrier, results: Any) -> None:
    store = PostgresStore(url)
    uuids = []
    for place in range(JOBS_EACH):
        writes = started_life(place)
        store.apply(writes)
        uuids.append(writes[0].job.uuid)
    begin.wait(240)
    start = time.monotonic()
    first = 0
    while time.monotonic() - start < SECONDS:
        store.apply([SamplesTaken(uuid, first, samples) for uuid in uuids])
        first += len(samples)
    results.put((first * JOBS_EACH, start, time.monotonic()))
    store.close()


def _stored(url: str) -> int:
    """Counted by reading them as everybody does."""
    store = PostgresStore(url)
    try:
        records = store.records(HistoryQuery(limit=AGENTS * JOBS_EACH))
        return sum(len(store.samples(record.job.uuid)) for record in records)
    finally:
        store.close()
