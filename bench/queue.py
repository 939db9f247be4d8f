"""Jobs on a queue of workers: throughput, database load, and the cost of an outage."""

import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import redis

from bench import queue_outages, queue_samples
from bench.commands import WORKLOADS, Workbench
from bench.goals import Figure
from bench.queue_harness import AT_ONCE, QueueHarness, wait_until
from joblens.app.jobs.requests import Request
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from tests.servers import RedisServer, own_server

JOBS = 1000
WARM_UP = 50
REPEATS = 3


def figures(bench: Workbench) -> Iterator[Figure]:
    yield _rate(bench)
    yield queue_samples.figure(bench)
    yield from queue_outages.figures(bench)


def _rate(bench: Workbench) -> Figure:
    """Alternates over the same Redis, so that other load affects both."""
    bare, ours = [], []
    with own_server(RedisServer) as server:
        for repeat in range(REPEATS):
            bare.append(_bare_rate(bench, server))
            ours.append(_our_rate(bench, server, bench.path(f"queue-{repeat}.db")))
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    return Figure(
        f"{JOBS:,} true jobs on a queue, {AT_ONCE} at a time, against bare Celery",
        median(ratios),
        "x",
        0.8,
        at_least=True,
        note=f"{median(ours):.0f} jobs/s against {median(bare):.0f}",
    )


def _our_rate(bench: Workbench, server: RedisServer, store: str) -> float:
    """From the first submission to the last outcome, each job measured and with a durable record."""
    harness = QueueHarness(bench, store, server.url)
    harness.start_worker()
    harness.submit([Request(argv=("true",))] * WARM_UP)
    wait_until(harness.is_idle, 60, "the first jobs")
    start = perf_counter()
    harness.submit([Request(argv=("true",))] * JOBS)
    wait_until(harness.is_idle, 120, "the jobs")
    seconds = perf_counter() - start
    records = list(harness.store.records(HistoryQuery(limit=JOBS)))
    harness.close()
    assert len(records) == JOBS
    for record in records:
        assert record.status is Status.SUCCESS
        assert record.outcome is not None
        assert record.outcome.usage.cpu_total_usec
    return JOBS / seconds


def _bare_rate(bench: Workbench, server: RedisServer) -> float:
    """Measures from the first submission until no message is left; results are discarded."""
    os.environ["BARE_BROKER"] = server.url
    if str(WORKLOADS) not in sys.path:
        sys.path.insert(0, str(WORKLOADS))
    from bare_celery import app, true  # type: ignore[import-not-found]

    worker = _start_bare(bench, server.url)
    with redis.Redis(unix_socket_path=server.socket) as client:
        try:
            wait_until(lambda: app.control.ping(timeout=0.5), 60, "Celery's worker")
            _run_bare(true, WARM_UP, client)
            start = perf_counter()
            _run_bare(true, JOBS, client)
            return JOBS / (perf_counter() - start)
        finally:
            worker.terminate()
            worker.wait(60)


def _start_bare(bench: Workbench, url: str) -> subprocess.Popen[bytes]:
    options = ["-c", str(AT_ONCE), "-P", "prefork", "--without-gossip", "--without-mingle", "-l", "ERROR"]
    with open(bench.path("celery.log"), "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "bare_celery", "worker", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**bench.env, "BARE_BROKER": url, "PYTHONPATH": str(WORKLOADS)},
            cwd=bench.folder,
        )


def _run_bare(task: Any, count: int, client: Any) -> None:
    for _ in range(count):
        task.delay()
    wait_until(lambda: not client.llen("celery") and not client.hlen("unacked"), 120, "Celery's jobs")
