"""The numbers of two jobs, and which of them changed by more than is usual."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, structs

from joblens.analysis.comparing.job_diff_values import NumberChange
from joblens.analysis.comparing.job_differences import JobView
from joblens.analysis.comparing.job_noise import Noise, has_changed
from joblens.analysis.numbers.rates import cpu_percent, elapsed_usec, host_cpu_percent
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample

_IDLE_PERCENT = 5.0  # of a core; less is nobody computing


class _Number(Struct, frozen=True):
    title: str
    unit: str
    usage: str = ""  # name of the number it is read from
    scale: float = 1.0


_USEC, _UJ = 1e-6, 1e-6
NUMBERS = {
    "duration_s": _Number("wall time", "s"),
    "waited_s": _Number("waited to start", "s"),
    "cpu_s": _Number("CPU time", "s", "cpu_total_usec", _USEC),
    "cpu_system_s": _Number("of it in the kernel", "s", "cpu_system_usec", _USEC),
    "throttled_s": _Number("held back by its CPU limit", "s", "cpu_throttled_usec", _USEC),
    "idle_s": _Number("computed nothing", "s"),
    "memory_peak_bytes": _Number("peak memory", "bytes", "memory_peak_bytes"),
    "io_read_bytes": _Number("read from disk", "bytes", "io_read_bytes"),
    "io_write_bytes": _Number("written to disk", "bytes", "io_write_bytes"),
    "io_call_read_bytes": _Number("read by calls", "bytes", "io_call_read_bytes"),
    "io_call_write_bytes": _Number("written by calls", "bytes", "io_call_write_bytes"),
    "network_rx_bytes": _Number("received", "bytes", "network_rx_bytes"),
    "network_tx_bytes": _Number("sent", "bytes", "network_tx_bytes"),
    "gpu_busy_s": _Number("GPU busy", "s", "gpu_busy_usec", _USEC),
    "gpu_memory_peak_bytes": _Number("peak GPU memory", "bytes", "gpu_memory_peak_bytes"),
    "cpu_pressure_s": _Number("waited for a CPU", "s", "cpu_pressure_usec", _USEC),
    "memory_pressure_s": _Number("waited for memory", "s", "memory_pressure_usec", _USEC),
    "io_pressure_s": _Number("waited for I/O", "s", "io_pressure_usec", _USEC),
    "faults_major": _Number("pages read back from disk", "count", "faults_major"),
    "processes_peak": _Number("processes at once", "count", "processes_peak"),
    "threads_peak": _Number("threads at once", "count", "threads_peak"),
    "instructions": _Number("instructions", "count", "instructions"),
    "gpu_energy_j": _Number("energy of GPUs", "J", "gpu_energy_uj", _UJ),
    "energy_j": _Number("energy of processors", "J", "energy_package_uj", _UJ),
    "host_busy_percent": _Number("machine busy", "%"),
}


def number_changes(before: JobView, after: JobView, noises: Mapping[str, Noise]) -> tuple[NumberChange, ...]:
    one, other = _all_numbers(before), _all_numbers(after)
    return tuple(
        _judged(key, number, one.get(key), other.get(key), noises.get(key))
        for key, number in NUMBERS.items()
        if one.get(key) is not None or other.get(key) is not None
    )


def _judged(
    key: str, number: _Number, before: float | None, after: float | None, noise: Noise | None
) -> NumberChange:
    change = NumberChange(key=key, title=number.title, unit=number.unit, before=before, after=after)
    if before is None or after is None:
        return change
    verdict = (
        "same" if not has_changed(before, after, number.unit, noise) else "up" if after > before else "down"
    )
    if noise is None:
        return structs.replace(change, verdict=verdict)
    usual = noise.between_two
    # In percent of what it was, a drop by the same factor is less than a rise.
    usual_percent = 100 * (usual if after >= before else usual / (1 + usual))
    return structs.replace(change, verdict=verdict, usual_percent=usual_percent, earlier_runs=noise.runs)


def numbers_of(record: Record) -> dict[str, float | None]:
    """Those that the record has; samples are not needed."""
    outcome, attempt = record.outcome, record.attempt
    if outcome is None:
        return {}
    found: dict[str, float | None] = {"duration_s": outcome.duration_s}
    if attempt is not None:
        waited_us = attempt.started_at_us - record.job.created_at_us
        found["waited_s"] = max(0.0, waited_us / 1e6)
    for key, number in NUMBERS.items():
        if number.usage:
            value = getattr(outcome.usage, number.usage)
            found[key] = None if value is None else value * number.scale
    return found


def _all_numbers(view: JobView) -> dict[str, float | None]:
    samples = view.samples
    return {
        **numbers_of(view.record),
        "idle_s": _idle_s(samples),
        "host_busy_percent": host_cpu_percent(samples[0], samples[-1]) if len(samples) > 1 else None,
    }


def _idle_s(samples: Sequence[Sample]) -> float | None:
    """Time between samples in which next to no CPU time was used."""
    idle_us, seen = 0, False
    for earlier, later in pairwise(samples):
        busy, usec = cpu_percent(earlier, later), elapsed_usec(earlier, later)
        if busy is None or usec is None:
            continue
        seen = True
        idle_us += usec if busy < _IDLE_PERCENT else 0
    return idle_us / 1e6 if seen else None
