"""A sample as one JSON object of the Joblet form, and back; and rows of the Torc time series.

Joblet's own keys come first in each group, ours beside them. Where Joblet writes 0 for 'no limit' or for a
number it never fills, we write null."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.formats.gpu import gpus_form
from joblens.analysis.formats.sample_keys import (
    COUNTERS,
    DEVICE_KEYS,
    HUNDREDTHS,
    INTERFACE_KEYS,
    PRESSURE_TOTALS,
    RATES,
)
from joblens.analysis.numbers.rates import (
    cpu_percent,
    growth,
    per_second,
    throttle_percent,
    unreclaimable_bytes,
)
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_instant

TimeSeriesRow = tuple[int, float, int, int]  # at_us, cpu_percent, memory_bytes, num_processes


def to_sample_object(
    sample: Sample, previous: Sample | None, record: Record, gpus: Sequence[GpuFacts] = ()
) -> dict[str, Any]:
    """Rates are since the previous sample; the first has none. `gpus` is what is known of them beside
    their numbers (`Details.gpus`)."""
    groups: dict[str, Any] = {name: _group_form(sample, previous, name) for name in COUNTERS}
    cpu, memory, io, network = groups["cpu"], groups["memory"], groups["io"], groups["network"]
    cpu["usage_percent"] = None if previous is None else cpu_percent(previous, sample)
    cpu["throttle_percent"] = None if previous is None else throttle_percent(previous, sample)
    cpu["instructions_per_cycle"] = _instructions_per_cycle(sample, previous)
    memory["usage_percent"] = _limit_percent(sample)
    memory["unreclaimable"] = unreclaimable_bytes(sample)
    io["devices"] = _entries_form(sample.devices, "device", DEVICE_KEYS)
    for total in ("discard_bytes", "discard_ops"):
        io[f"total_{total}"] = _total(sample.devices, total)
    network["interfaces"] = _entries_form(sample.interfaces, "interface", INTERFACE_KEYS)
    for total in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"):
        network[f"total_{total}"] = _total(sample.interfaces, total)
    groups["energy"].update(_watts(sample, previous))
    head = {
        "job_id": record.job.uuid,
        "timestamp": format_instant(sample.at_us),
        "sample_interval": _interval_ns(sample, previous, record),
        "cgroup_path": _cgroup_path(record),
        "limits": _limits_form(record),
    }
    parts = {name: groups[name] for name in ("cpu", "memory", "io", "network", "process")}
    rest = {"energy": groups["energy"], "host": groups["host"], "elapsed_us": sample.elapsed_us}
    return {**head, **parts, "gpu": gpus_form(sample, previous, gpus), **rest}


def from_sample_object(fields: Any, previous: Sample | None = None) -> Sample:
    """One sample of the Joblet form: the full one (ours or Joblet's live stream) or one of its two short
    ones (its stored files, its protocol). `previous` is the sample before it in the same file: time since
    the start counts from the first, and a short form's CPU share is added up to a counter.
    Raises FormatError with what is wrong."""
    from joblens.analysis.formats.sample_import import read_sample_object

    return read_sample_object(fields, previous)


def is_summed_rss(samples: Sequence[Sample]) -> bool:
    """Whether they came from a time series of Torc."""
    return any(sample.memory_rss_sum_bytes is not None for sample in samples)


def time_series_rows(samples: Sequence[Sample], record: Record) -> list[TimeSeriesRow]:
    """The rows of a job in Torc's job_resource_samples: samples taken while it ran, with CPU since the
    sample before.

    The first sample is taken before the program is loaded and the last after its end: they are no rows, so
    that the average of the rows is the job's. A job that ended before it was sampled in between is one row
    with its average CPU and its peak memory. Torc's readers accept no NULL: a row that lacks a number is
    left out."""
    if is_summed_rss(samples):  # every row of such a file was taken while the job ran
        taken, before = samples, Sample(at_us=0, elapsed_us=0, cpu_total_usec=0)
    elif taken := _while_running(samples):
        before = samples[0]
    else:
        return _only_row(samples, record)
    rows: list[TimeSeriesRow] = []
    for sample in taken:
        percent = cpu_percent(before, sample) if sample.elapsed_us > before.elapsed_us else 0.0
        summed = sample.memory_rss_sum_bytes
        memory = unreclaimable_bytes(sample) if summed is None else summed
        rows += _complete(sample.at_us, percent, memory, sample.processes)
        before = before if sample.cpu_total_usec is None else sample
    return rows


def _while_running(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Without the first, and without those that found no process any more."""
    end = len(samples) - 1
    while end > 1 and samples[end - 1].processes == 0:
        end -= 1
    return samples[1:end]


def _only_row(samples: Sequence[Sample], record: Record) -> list[TimeSeriesRow]:
    if len(samples) < 2 or record.outcome is None:
        return []
    usage, last = record.outcome.usage, samples[-1]
    percent = None
    if usage.cpu_total_usec is not None and last.elapsed_us > 0:
        percent = 100.0 * usage.cpu_total_usec / last.elapsed_us
    return _complete(last.at_us, percent, usage.memory_peak_bytes, usage.processes_peak)


def _complete(
    at_us: int, percent: float | None, memory_bytes: int | None, processes: int | None
) -> list[TimeSeriesRow]:
    if percent is None or memory_bytes is None or processes is None:
        return []
    return [(at_us, percent, memory_bytes, processes)]


def _group_form(sample: Sample, previous: Sample | None, group: str) -> dict[str, Any]:
    form = {key: getattr(sample, field) for key, field in COUNTERS[group]}
    for key, field in HUNDREDTHS.get(group, ()):
        hundredths = getattr(sample, field)
        form[key] = None if hundredths is None else hundredths / 100
    for key, field in PRESSURE_TOTALS.get(group, ()):
        form[key] = getattr(sample, field)
    for key, counter in RATES.get(group, ()):
        form[key] = None if previous is None else per_second(previous, sample, counter)
    return form


def _instructions_per_cycle(sample: Sample, previous: Sample | None) -> float | None:
    if previous is None:
        return None
    instructions, cycles = growth(previous, sample, "instructions"), growth(previous, sample, "cycles")
    return None if instructions is None or not cycles else instructions / cycles


def _watts(sample: Sample, previous: Sample | None) -> dict[str, float | None]:
    """Of the whole machine, since the sample before."""
    watts: dict[str, float | None] = {}
    for part in ("package", "dram"):
        rate = None if previous is None else per_second(previous, sample, f"host_energy_{part}_uj")
        watts[f"host_{part}_watts"] = None if rate is None else rate / 1_000_000
    return watts


def _limit_percent(sample: Sample) -> float | None:
    if sample.memory_current_bytes is None or not sample.memory_limit_bytes:
        return None
    return 100.0 * sample.memory_current_bytes / sample.memory_limit_bytes


def _entries_form(
    entries: Mapping[str, Struct] | None, kind: str, keys: Sequence[tuple[str, str]]
) -> dict[str, Any] | None:
    if entries is None:
        return None
    return {
        name: {kind: name, **{key: getattr(entry, field) for key, field in keys}}
        for name, entry in entries.items()
    }


def _total(entries: Mapping[str, Struct] | None, field: str) -> int | None:
    return None if entries is None else sum(getattr(entry, field) for entry in entries.values())


def _interval_ns(sample: Sample, previous: Sample | None, record: Record) -> int:
    if previous is None:
        return round(record.job.interval_s * 1_000_000_000)
    return max(0, sample.elapsed_us - previous.elapsed_us) * 1000


def _cgroup_path(record: Record) -> str:
    groups = {} if record.attempt is None else record.attempt.groups
    return groups.get("unified") or next(iter(groups.values()), "")


def _limits_form(record: Record) -> dict[str, int | None]:
    asked = record.job.requirements if record.job.enforce else None
    cpus = None if asked is None else asked.cpus
    return {
        "cpu": None if cpus is None else round(100 * cpus),
        "memory": None if asked is None else asked.memory_bytes,
        "io": None,
    }
