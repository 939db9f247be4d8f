"""Sample series for charts: curves on one clock, reduced to few points with every peak preserved."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from joblens.analysis.formats.sample import is_summed_rss
from joblens.analysis.numbers.profile import real_spacing_s
from joblens.analysis.numbers.rates import (
    cpu_percent,
    elapsed_usec,
    mean_cpu_percent,
    peak_cpu_percent,
    peak_of,
    per_second,
    unreclaimable_bytes,
)
from joblens.model.jobs.job import Record, Requirements, Status
from joblens.model.jobs.sample import Sample

_SHORTEST_USEC = 40_000  # a rate over less than four ticks of the kernel would be a spike made of nothing

Curve = list[float | None]


def rate_curve(samples: Sequence[Sample], rate: Callable[[Sample, Sample], float | None]) -> Curve:
    """Returns the rate at each sample; None at the first, and at samples too soon after the previous one."""
    curve: Curve = []
    before: Sample | None = None
    shortest_usec = max(_SHORTEST_USEC, round((real_spacing_s(samples) or 0.0) * 250_000))
    for sample in samples:
        if before is not None and (elapsed_usec(before, sample) or 0) < shortest_usec:
            curve.append(None)
            continue
        curve.append(None if before is None else rate(before, sample))
        before = sample
    return curve


def device_curves(samples: Sequence[Sample]) -> dict[str, Curve]:
    """Returns network in bytes/s, power in watts, and GPUs, by their names in JobSeries, if measured and not
    always zero."""
    curves = {**_network(samples), **_power(samples), **_gpus(samples)}
    return {name: curve for name, curve in curves.items() if any(curve)}


def _network(samples: Sequence[Sample]) -> dict[str, Curve]:
    if not any(sample.network_rx_bytes for sample in samples[-1:]):
        return {}

    def rates(way: str) -> Curve:
        return rate_curve(samples, lambda earlier, later: per_second(earlier, later, f"network_{way}_bytes"))

    return {"network_rx_per_s": rates("rx"), "network_tx_per_s": rates("tx")}


def _power(samples: Sequence[Sample]) -> dict[str, Curve]:
    """Returns the job's share of the power of processors and memory."""
    if not any(sample.host_energy_package_uj is not None for sample in samples):
        return {}
    from joblens.analysis.numbers.attribution import energy_shares

    def watts(earlier: Sample, later: Sample) -> float | None:
        shares, usec = energy_shares([earlier, later]), elapsed_usec(earlier, later)
        if shares.package_uj is None or usec is None:
            return None
        return (shares.package_uj + (shares.dram_uj or 0)) / usec

    return {"power_watts": rate_curve(samples, watts)}


def _gpus(samples: Sequence[Sample]) -> dict[str, Curve]:
    if not any(sample.gpus for sample in samples):
        return {}
    from joblens.analysis.numbers.gpu import busy_curve, gpus_used, memory_curve

    used = gpus_used(samples)
    power: Curve = []
    for sample in samples:
        readings = [] if sample.gpus is None else [sample.gpus.get(name) for name in used]
        known = [reading.power_mw for reading in readings if reading is not None]
        drawn = [power_mw for power_mw in known if power_mw is not None]
        power.append(sum(drawn) / 1000 if drawn else None)
    return {
        "gpu_percent": busy_curve(samples),
        "gpu_memory_bytes": list(memory_curve(samples)),
        "gpu_power_watts": power,
    }


MOST_POINTS = 2000
SUMMED_RSS = "Summed RSS"
_FEWEST_POINTS = 60
_FEWEST_SAMPLES = 3
_CURVES = (
    "cpu_percent", "memory_bytes", "processes", "gpu_percent", "gpu_memory_bytes", "gpu_power_watts",
    "network_rx_per_s", "network_tx_per_s", "power_watts",
)  # fmt: skip


class Extremes(Struct, frozen=True):
    """Extremes of a job's curves. None: unknown."""

    cpu_peak_percent: float | None = None
    cpu_mean_percent: float | None = None
    memory_peak_bytes: float | None = None
    memory_mean_bytes: float | None = None
    processes_peak: int | None = None


class JobSeries(Struct, frozen=True, kw_only=True):
    """`at_us`: wall-clock time, ascending; the other lists have the same length, with None for unknown
    numbers. CPU: 100 is one core, over the time since the previous point. A short job may have no points.
    Optional series (GPU: 100 is one device; power) are empty if not measured."""

    job_id: int
    name: str
    attempt: int = 1
    memory_label: str = "Memory"  # SUMMED_RSS for rows that another program summed up
    at_us: Sequence[int]
    cpu_percent: Sequence[float | None]
    memory_bytes: Sequence[int | None]
    processes: Sequence[int | None]
    gpu_percent: Sequence[float | None] = ()
    gpu_memory_bytes: Sequence[float | None] = ()
    gpu_power_watts: Sequence[float | None] = ()  # of the devices, for all users
    network_rx_per_s: Sequence[float | None] = ()
    network_tx_per_s: Sequence[float | None] = ()
    power_watts: Sequence[float | None] = ()  # its share of the processors' and the memory's
    started_at_us: int | None = None  # None: only the first point is known
    ended_at_us: int | None = None
    status: Status | None = None
    asked: Requirements = Requirements()
    extremes: Extremes = Extremes()

    @property
    def label(self) -> str:
        again = f" (attempt {self.attempt})" if self.attempt > 1 else ""
        return f"{self.job_id} {self.name}{again}" if self.name else f"job {self.job_id}{again}"

    @property
    def has_curve(self) -> bool:
        """Returns whether there are samples between a job's start and end."""
        return len(self.at_us) >= _FEWEST_SAMPLES if self.started_at_us is not None else bool(self.at_us)

    @property
    def begin_us(self) -> int:
        return self.started_at_us if self.started_at_us is not None else self.at_us[0]

    @property
    def end_us(self) -> int:
        return max(self.at_us[-1], self.ended_at_us or 0) if self.at_us else self.ended_at_us or self.begin_us


class HostSeries(Struct, frozen=True, kw_only=True):
    """The whole machine at the same time. CPU: 100 is all cores."""

    at_us: Sequence[int] = ()
    cpu_percent: Sequence[float | None] = ()
    memory_bytes: Sequence[int | None] = ()


class PlotSource(Struct, frozen=True, kw_only=True):
    """Data of one run, job or file for charts; `label` for titles, `file_label` for file names."""

    label: str
    file_label: str
    jobs: tuple[JobSeries, ...]
    host: HostSeries = HostSeries()

    @property
    def reach_us(self) -> tuple[int, int]:
        return min(job.begin_us for job in self.jobs), max(job.end_us for job in self.jobs)


def series_of_samples(record: Record, samples: Sequence[Sample]) -> JobSeries:
    """Returns the series of a job. Times are its start plus the elapsed time, so that setting the wall clock
    does not distort curves."""
    attempt, outcome = record.attempt, record.outcome
    begin_us = attempt.started_at_us if attempt is not None else record.job.created_at_us
    label = SUMMED_RSS if is_summed_rss(samples) else "Memory"
    cpu, memory = rate_curve(samples, cpu_percent), _memory_curve(samples)
    processes = [sample.processes for sample in samples]
    return JobSeries(
        job_id=record.number or 0,
        name=record.job.name or record.job.external_id or " ".join(record.job.argv)[:60],
        attempt=1 if record.job.run is None else record.job.run.attempt,
        memory_label=label,
        at_us=[begin_us + sample.elapsed_us for sample in samples],
        cpu_percent=cpu,
        memory_bytes=memory,
        processes=processes,
        **device_curves(samples),
        started_at_us=begin_us,
        ended_at_us=None if outcome is None else begin_us + round(outcome.duration_s * 1_000_000),
        status=record.status,
        asked=record.job.requirements,
        extremes=_extremes_of_record(record, extremes_of(cpu, memory, processes)),
    )


def _memory_curve(samples: Sequence[Sample]) -> list[int | None]:
    if is_summed_rss(samples):
        return [sample.memory_rss_sum_bytes for sample in samples]
    return [unreclaimable_bytes(sample) for sample in samples]


def extremes_of(
    cpu: Sequence[float | None], memory: Sequence[int | None], processes: Sequence[int | None]
) -> Extremes:
    """Returns the maximum and plain mean of the points."""
    return Extremes(
        _largest(cpu),
        _mean(cpu),
        _largest(memory),
        _mean(memory),
        max((number for number in processes if number is not None), default=None),
    )


def thinned(series: JobSeries, most: int = MOST_POINTS) -> JobSeries:
    """Reduces the series to about `most` points: the minimum and maximum of every curve in each of equal
    parts of time, so that no peak is lost."""
    if len(series.at_us) <= most:
        return series
    curves = [curve for name in _CURVES if (curve := getattr(series, name))]
    indexes = _indexes_to_keep(series.at_us, curves, max(1, most // (2 * len(curves))))
    return _only(series, indexes)


def points_for_each(jobs: int, total: int = 120_000) -> int:
    """Returns the number of points per curve if many are drawn together."""
    return max(_FEWEST_POINTS, min(MOST_POINTS, total // max(1, jobs)))


def clock_starts(sources: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the zero of the time line for each source (first, last instant): sources that overlap in time
    share one; others start at their own, so that they are drawn on top of each other."""
    starts = [0] * len(sources)
    begun_us = until_us = -1
    for index in sorted(range(len(sources)), key=lambda index: sources[index]):
        first_us, last_us = sources[index]
        if begun_us < 0 or first_us > until_us:
            begun_us = first_us
        until_us = max(until_us, last_us)
        starts[index] = begun_us
    return starts


def _only(series: JobSeries, indexes: list[int]) -> JobSeries:
    thin = {
        name: [curve[index] for index in indexes]
        for name in ("at_us", *_CURVES)
        if (curve := getattr(series, name))
    }
    return structs.replace(series, **thin)


def _indexes_to_keep(at_us: Sequence[int], curves: Sequence[Sequence[Any]], parts: int) -> list[int]:
    first_us, last_us = at_us[0], at_us[-1]
    width_us = max(1, (last_us - first_us) // parts + 1)
    indexes = {0, len(at_us) - 1}
    begin = 0
    while begin < len(at_us):
        part_end_us = at_us[begin] - (at_us[begin] - first_us) % width_us + width_us
        end = begin + 1
        while end < len(at_us) and at_us[end] < part_end_us:
            end += 1
        for curve in curves:
            known = [index for index in range(begin, end) if curve[index] is not None]
            if known:
                indexes.add(min(known, key=curve.__getitem__))
                indexes.add(max(known, key=curve.__getitem__))
        begin = end
    return sorted(indexes)


def _extremes_of_record(record: Record, sampled: Extremes) -> Extremes:
    """Returns exact numbers of the record, and those of the samples where it has none."""
    outcome = record.outcome
    if outcome is None:
        return sampled
    usage = outcome.usage
    # Without a profile, the peak in the record is the average.
    shown = () if outcome.profile or sampled.cpu_peak_percent is None else (sampled.cpu_peak_percent,)
    # Without a sample between start and end, there is no average.
    is_mean_unknown = usage.memory_mean_bytes is None and "memory_mean_bytes" in usage.unknown
    return Extremes(
        peak_of(shown, peak_cpu_percent(outcome)),
        _first_known(mean_cpu_percent(outcome), sampled.cpu_mean_percent),
        _first_known(usage.memory_peak_bytes, sampled.memory_peak_bytes),
        None if is_mean_unknown else _first_known(usage.memory_mean_bytes, sampled.memory_mean_bytes),
        usage.processes_peak if usage.processes_peak is not None else sampled.processes_peak,
    )


def _first_known(*numbers: float | None) -> float | None:
    return next((number for number in numbers if number is not None), None)


def _largest(numbers: Sequence[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None
