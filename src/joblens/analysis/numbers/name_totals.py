"""Totals by job name: counters that never decrease, accumulated from samples and outcomes.

Sums over running jobs would drop when a job ends. These counters grow by the usage of each job since its last
sample, and at its end by the rest in its record, so that jobs between two polls count too.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from joblens.analysis.numbers.attribution import energy_shares
from joblens.analysis.numbers.gpu import gpu_totals
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample

OTHER = "other"  # bucket of names and tags beyond the limit
DURATION_BUCKETS_S = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)

# Counters that samples and usage both have under one name.
_COUNTERS = (
    "cpu_user_usec",
    "cpu_system_usec",
    "io_read_bytes",
    "io_write_bytes",
    "network_rx_bytes",
    "network_tx_bytes",
    "oom_kills",
)
_ENDS = tuple(status for status in Status if status.is_final and status is not Status.MEASURED)
# Numbers of usage that are derived from several samples.
_DERIVED = ("energy_package_uj", "energy_dram_uj", "gpu_energy_uj", "gpu_busy_usec")


class Totals(Struct):
    """Totals of all jobs with one name."""

    used: dict[str, int] = field(default_factory=dict)  # by name of a number of Usage; missing: unknown
    # By status, from 0: increase() of Prometheus ignores the first value of a series.
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ENDS, 0))
    durations: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS_S) + 1))
    duration_sum_s: float = 0.0

    def add(self, number: str, amount: int) -> None:
        self.used[number] = self.used.get(number, 0) + amount


class JobProgress(Struct):
    """Last counted values of one running job; `sample` and `gpu_sample`: the last of each."""

    counted: dict[str, int] = field(default_factory=dict)
    is_partial: bool = False  # it started before counting did
    sample: Sample | None = None
    gpu_sample: Sample | None = None


class Buckets:
    """Names with their own buckets, in order of arrival; later names share one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


class NameTotals:
    """Totals by name. `since_us`: earlier usage is excluded, because a previous process has counted it."""

    def __init__(self, names: Buckets, since_us: int) -> None:
        self._names = names
        self._since_us = since_us
        self._running: dict[str, JobProgress] = {}
        self._ended: set[str] = set()
        self.by_name: dict[str, Totals] = {}

    def progress_of(self, uuid: str) -> JobProgress | None:
        return self._running.get(uuid)

    def take_sample(self, record: Record, sample: Sample) -> None:
        """Counts usage since the job's last sample."""
        uuid = record.job.uuid
        progress = self._running.get(uuid)
        is_new = progress is None
        if progress is None:
            progress = self._running[uuid] = JobProgress()
        elif progress.sample is not None and sample.at_us <= progress.sample.at_us:
            return
        now = _counters_of(sample) | _derived_since(progress, sample)
        progress.sample = sample
        if sample.gpus is not None:
            progress.gpu_sample = sample
        if is_new and self._began_before(record):
            progress.counted, progress.is_partial = now, True
            totals = self._totals_of(record)
            for name in now:
                totals.add(name, 0)  # the series exists from the start
        else:
            self._count(record, progress, now)

    def take_ended(self, records: Iterable[Record]) -> None:
        """Counts ended jobs, and usage since their last samples. Duplicate records count once; call
        `forget_ended` with those that may occur again."""
        for record in records:
            outcome, uuid = record.outcome, record.job.uuid
            if outcome is None or uuid in self._ended:
                continue
            self._ended.add(uuid)
            totals = self._totals_of(record)
            totals.ended[record.status] = totals.ended.get(record.status, 0) + 1
            totals.duration_sum_s += outcome.duration_s
            bucket = sum(outcome.duration_s > bound for bound in DURATION_BUCKETS_S)
            totals.durations[bucket] += 1
            progress = self._running.pop(uuid, None)
            if progress is not None or not self._began_before(record):
                # Shares of a job that began earlier were not counted from its start.
                names = _COUNTERS if progress is not None and progress.is_partial else (*_COUNTERS, *_DERIVED)
                usage = {name: getattr(outcome.usage, name) for name in names}
                known = {name: value for name, value in usage.items() if value is not None}
                self._count(record, progress or JobProgress(), known)

    def forget_ended(self, still_reported: set[str]) -> None:
        self._ended &= still_reported

    def forget_others(self, running: set[str]) -> None:
        """Drops jobs that neither run nor were reported as ended."""
        self._running = {uuid: progress for uuid, progress in self._running.items() if uuid in running}

    def _began_before(self, record: Record) -> bool:
        return record.attempt is not None and record.attempt.started_at_us < self._since_us

    def _totals_of(self, record: Record) -> Totals:
        return self.by_name.setdefault(self._names.of(record.job.name), Totals())

    def _count(self, record: Record, progress: JobProgress, now: dict[str, int]) -> None:
        totals = self._totals_of(record)
        for name, value in now.items():
            before = progress.counted.get(name, 0)
            totals.add(name, max(0, value - before))
            progress.counted[name] = max(before, value)


def _counters_of(sample: Sample) -> dict[str, int]:
    values = {name: getattr(sample, name) for name in _COUNTERS}
    return {name: value for name, value in values.items() if value is not None}


def _derived_since(progress: JobProgress, sample: Sample) -> dict[str, int]:
    """Returns the job's shares of energy and GPU time: the counted ones plus those since the last sample."""
    grown: dict[str, int | None] = {}
    if progress.sample is not None and sample.host_energy_package_uj is not None:
        shares = energy_shares((progress.sample, sample))
        grown |= {"energy_package_uj": shares.package_uj, "energy_dram_uj": shares.dram_uj}
    if progress.gpu_sample is not None and sample.gpus:
        grown["gpu_energy_uj"] = gpu_totals((progress.gpu_sample, sample)).energy_uj
    found = {
        name: progress.counted.get(name, 0) + amount for name, amount in grown.items() if amount is not None
    }
    busy = [reading.job_busy_usec for reading in (sample.gpus or {}).values()]
    if known := [value for value in busy if value is not None]:
        found["gpu_busy_usec"] = sum(known)
    return found
