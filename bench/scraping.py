"""Cost of a Prometheus scrape while many jobs run."""

import statistics
import time
import urllib.request
from collections.abc import Iterator

from bench.commands import Workbench
from bench.goals import Figure
from bench.remembering import past_lives, started_life
from joblens.app.metrics.exporter import Address, serving
from joblens.app.metrics.scraper import MetricOptions, Scraper
from joblens.model.jobs.sample import Sample
from joblens.model.writes import JobQueued, SamplesTaken
from joblens.stores.sqlite import SqliteStore
from joblens.views.prometheus.compat_families import COMPAT

RUNNING = 1000
ENDED = 10_000
SAMPLES = 60  # of each running job
SCRAPES = 15


def figures(bench: Workbench) -> Iterator[Figure]:
    """Over HTTP from an exporter in this process, with new samples of every job before each scrape."""
    store = SqliteStore(bench.path("scraped.db"))
    for writes in past_lives(ENDED, 1_700_000_000_000_000, 1_000_000):
        store.apply(writes)
    uuids = _start_jobs(store)
    plain = MetricOptions()
    everything = MetricOptions(job_ids=True, compat=COMPAT)
    for what, options in (("", plain), (", with job ids and all compatibility names", everything)):
        took_s, size, first_s = _scrape(store, uuids, options)
        note = f"slowest {max(took_s) * 1e3:.0f} ms, first {first_s * 1e3:.0f} ms, {size / 1e6:.2f} MB"
        yield Figure(
            f"/metrics with {RUNNING:,} running jobs{what}",
            statistics.median(took_s) * 1e3,
            "ms",
            200,
            note=note,
        )
    store.close()


def _start_jobs(store: SqliteStore) -> list[str]:
    uuids = []
    for place in range(RUNNING):
        writes = started_life(place)
        queued = writes[0]
        assert isinstance(queued, JobQueued)
        uuids.append(queued.job.uuid)
        store.apply([*writes, SamplesTaken(uuids[-1], 0, tuple(map(_sample, range(SAMPLES))))])
    return uuids


def _sample(index: int) -> Sample:
    return Sample(
        at_us=1_794_000_000_000_000 + index * 1_000_000,
        elapsed_us=index * 1_000_000,
        cpu_total_usec=index * 950_000,
        cpu_user_usec=index * 900_000,
        cpu_system_usec=index * 50_000,
        memory_current_bytes=(100 << 20) + index * 4096,
        memory_kernel_peak_bytes=(120 << 20) + index * 4096,
        memory_anon_bytes=(80 << 20) + index * 4096,
        memory_file_bytes=15 << 20,
        memory_kernel_bytes=2 << 20,
        memory_shmem_bytes=1 << 20,
        memory_limit_bytes=1 << 30,
        cpu_some_usec=index * 1000,
        memory_some_usec=index * 10,
        io_some_usec=index * 10,
        faults_minor=index * 300,
        io_read_bytes=index << 20,
        io_write_bytes=index << 19,
        io_call_read_bytes=index << 20,
        io_call_write_bytes=index << 19,
        network_rx_bytes=index * 1500,
        network_tx_bytes=index * 900,
        processes=3,
        threads=9,
        context_switches=index * 40,
        cpu_throttled_usec=0,
        oom_kills=0,
        memory_swap_bytes=0,
        faults_major=0,
    )


def _scrape(store: SqliteStore, uuids: list[str], options: MetricOptions) -> tuple[list[float], int, float]:
    """-> times of the scrapes after the first, size of the last answer, time of the first"""
    took_s: list[float] = []
    size = 0
    with serving(Address(port=0), Scraper(store, options)) as address:
        for _ in range(SCRAPES + 1):
            began = time.perf_counter()
            with urllib.request.urlopen(address.url) as answer:
                size = len(answer.read())
            took_s.append(time.perf_counter() - began)
            index = store.samples(uuids[0])[-1][0] + 1
            store.apply([SamplesTaken(uuid, index, (_sample(index),)) for uuid in uuids])
    return took_s[1:], size, took_s[0]
