"""Scraper: reads running and ended jobs from the store and renders them as Prometheus metrics.

The cost of a scrape does not depend on the history: it reads running jobs that changed, their last samples
in one question, and the jobs that ended since the scrape before.
"""

import threading
import time
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from joblens import __version__
from joblens.analysis.numbers.name_totals import Buckets, NameTotals
from joblens.app.jobs.queries import RunningJobs, SampleTails
from joblens.model.errors import InputError, JoblensError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import Store
from joblens.views.prometheus.compat_families import COMPAT, add_compat
from joblens.views.prometheus.exposition import Families, labels
from joblens.views.prometheus.own_families import RunningJob, add_jobs, add_running, add_totals

# Ends may reach the store late, out of a journal or from a machine whose clock differs.
_OVERLAP_US = 30_000_000
_AT_ONCE = 250  # records in one question


class MetricOptions(Struct, frozen=True, kw_only=True):
    job_ids: bool = False  # one series per running job
    compat: tuple[str, ...] = ()  # names of other exporters, see compat_families.COMPAT
    cluster: str = "joblens"  # label of the compatibility metrics
    most_names: int = 100  # names with series of their own; jobs of all others are counted as 'other'
    most_tags: int = 100
    most_jobs: int = 5000  # with series of their own
    host: str = ""  # only jobs of this machine; '': of all


def compat_names(text: str, option: str) -> tuple[str, ...]:
    """Returns the names in the value of an option. Raises InputError."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in COMPAT]
    if unknown:
        raise InputError(f"{option}: unknown name '{unknown[0]}'", hint=f"choose from {', '.join(COMPAT)}")
    return names


def _now_us() -> int:
    return time.time_ns() // 1000


class Scraper:
    """One per exporter: counters continue from scrape to scrape. Threads wait for each other."""

    def __init__(self, store: Store, options: MetricOptions, now_us: Callable[[], int] = _now_us) -> None:
        self._store = store
        self._options = options
        self._now_us = now_us
        self._lock = threading.Lock()
        self._since_us = self._ended_after_us = now_us()
        self._names, self._tags = Buckets(options.most_names), Buckets(options.most_tags)
        self._totals = NameTotals(self._names, self._since_us)
        self._running = RunningJobs(store)
        self._tails = SampleTails(store, 1)
        self._gpus: dict[str, tuple[tuple[str, ...], tuple[GpuFacts, ...]]] = {}

    def render(self, *, is_openmetrics: bool = False) -> str:
        """Raises StoreError where the store cannot be read."""
        with self._lock:
            began = time.perf_counter()
            families = self._families()
            took = families.gauge(
                "joblens_scrape_duration_seconds", "Time to read the store for this answer."
            )
            took.add("", time.perf_counter() - began)
        return families.as_openmetrics() if is_openmetrics else families.as_text()

    def _families(self) -> Families:
        jobs = self._read_jobs()
        self._read_ended()
        self._totals.forget_others({job.record.job.uuid for job in jobs})
        options, families = self._options, Families()
        families.info("joblens_build_info", "Version of joblens.").add(labels({"version": __version__}), 1)
        add_running(families, jobs, self._names, self._tags, self._now_us())
        add_totals(families, self._totals.by_name)
        shown = [job for job in jobs if job.record.status is Status.RUNNING][: options.most_jobs]
        if options.job_ids:
            add_jobs(families, shown)
        if options.compat:
            add_compat(families, shown, options.compat, options.cluster)
        return families

    def _read_jobs(self) -> list[RunningJob]:
        records = [record for record in self._running.poll() if self._is_here(record)]
        running = [record for record in records if record.status is Status.RUNNING]
        tails = self._tails.read([record.job.uuid for record in running])
        for record in running:
            if tail := tails.get(record.job.uuid):
                self._totals.take_sample(record, tail[-1])
        return [self._job(record) for record in records]

    def _job(self, record: Record) -> RunningJob:
        progress = self._totals.progress_of(record.job.uuid)
        if progress is None:
            return RunningJob(record)
        gpus = tuple((progress.gpu_sample.gpus or {}) if progress.gpu_sample is not None else {})
        facts = self._gpu_facts(record.job.uuid, gpus) if gpus else ()
        return RunningJob(record, progress.sample, progress.gpu_sample, facts, progress.counted)

    def _gpu_facts(self, uuid: str, gpus: tuple[str, ...]) -> tuple[GpuFacts, ...]:
        """Asked once for each set of GPUs that a job uses."""
        known = self._gpus.get(uuid)
        if known is None or known[0] != gpus:
            try:
                facts = self._store.details(uuid).gpus or ()
            except JoblensError:
                return ()
            known = self._gpus[uuid] = (gpus, facts)
        return known[1]

    def _read_ended(self) -> None:
        """Ends since the last time, newest first, with some overlap."""
        ended: list[Record] = []
        newest_us = self._ended_after_us
        for record in self._newest_ended():
            ended_at_us = record.outcome.ended_at_us if record.outcome is not None else 0
            if ended_at_us < max(self._since_us, self._ended_after_us - _OVERLAP_US):
                break
            newest_us = max(newest_us, ended_at_us)
            if self._is_here(record):
                ended.append(record)
        self._ended_after_us = newest_us
        self._totals.take_ended(ended)
        uuids = {record.job.uuid for record in ended}
        self._totals.forget_ended(uuids)
        self._gpus = {uuid: facts for uuid, facts in self._gpus.items() if uuid not in uuids}

    def _newest_ended(self) -> Iterator[Record]:
        """However many there are: one that is not read is missing in a counter from then on."""
        query = HistoryQuery(sort=SortKey.ENDED, include_unfinished=False, limit=_AT_ONCE)
        while True:
            page = self._store.page(query)
            yield from page.records
            if page.next is None:
                return
            query = replace(query, after=page.next)

    def _is_here(self, record: Record) -> bool:
        host, attempt = self._options.host, record.attempt
        return not host or (attempt is not None and attempt.owner.host == host)


def render(store: Store, options: MetricOptions | None = None) -> str:
    """Returns one scrape as text 0.0.4. Servers keep a Scraper, whose counters continue."""
    return Scraper(store, options or MetricOptions()).render()
