"""Comparison of two jobs: which numbers changed by more than noise, and likely causes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, structs

from joblens.analysis.comparing.job_differences import (
    Cause,
    Difference,
    JobDiff,
    JobView,
    Noise,
    NumberChange,
    differences,
    has_changed,
)
from joblens.analysis.numbers.rates import cpu_percent, elapsed_usec, host_cpu_percent
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_bytes, format_duration, listed

_IDLE_PERCENT = 5.0  # of a core; less is idle


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
    "cpu_system_s": _Number("CPU time in the kernel", "s", "cpu_system_usec", _USEC),
    "throttled_s": _Number("throttled by its CPU limit", "s", "cpu_throttled_usec", _USEC),
    "idle_s": _Number("idle", "s"),
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
    "processes_peak": _Number("processes seen at once", "count", "processes_peak"),
    "threads_peak": _Number("threads seen at once", "count", "threads_peak"),
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
    # As a percentage, a drop by some factor is smaller than a rise by it.
    usual_percent = 100 * (usual if after >= before else usual / (1 + usual))
    return structs.replace(change, verdict=verdict, usual_percent=usual_percent, earlier_runs=noise.runs)


def numbers_of(record: Record) -> dict[str, float | None]:
    """Returns the numbers in the record; needs no samples."""
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
    """Returns the time between samples in which hardly any CPU time was used."""
    idle_us, is_known = 0, False
    for earlier, later in pairwise(samples):
        busy, usec = cpu_percent(earlier, later), elapsed_usec(earlier, later)
        if busy is None or usec is None:
            continue
        is_known = True
        idle_us += usec if busy < _IDLE_PERCENT else 0
    return idle_us / 1e6 if is_known else None


_SHARE = 0.25  # least reported share of the time lost or won
_FITS = 0.15  # tolerance between two ratios, as logarithms, per factor e
_LEAST_SCALE = 0.18  # a smaller change fits everything
_HEADLINES = (
    "duration_s", "cpu_s", "memory_peak_bytes", "io_read_bytes", "io_write_bytes", "network_rx_bytes",
    "network_tx_bytes", "gpu_busy_s", "gpu_memory_peak_bytes", "waited_s",
)  # fmt: skip
_WAITING = (
    ("throttled_s", "throttled by its CPU limit"),
    ("cpu_pressure_s", "waiting for a CPU"),
    ("io_pressure_s", "waiting for the disk"),
    ("memory_pressure_s", "waiting for memory"),
    ("idle_s", "idle"),
)
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
# Numbers that each kind of difference can affect, most significant first.
_ALL = frozenset(_HEADLINES) - {"waited_s"}
_CAN_MOVE: Mapping[str, frozenset[str]] = {
    "inputs": _ALL,
    "command": _ALL,
    "parameters": _ALL,
    "code": _ALL,
    "requirements": frozenset({"duration_s", "cpu_s", "memory_peak_bytes", "waited_s", "gpu_busy_s"}),
    "programs": _ALL,
    "versions": _ALL,
    "container": _ALL,
    "machine": frozenset({"duration_s", "cpu_s", "gpu_busy_s", "memory_peak_bytes"}),
    "environment": _ALL,
    "seeds": _ALL,
    "placement": frozenset({"waited_s", "duration_s"}),
}
_GROUP_TEXTS = {
    "inputs": "inputs differ",
    "command": "the command differs",
    "parameters": "parameters differ",
    "code": "the code differs",
    "requirements": "requirements differ",
    "programs": "programs differ",
    "versions": "versions differ",
    "container": "the container differs",
    "machine": "the machine differs",
    "environment": "the environment differs",
    "seeds": "seeds differ",
    "placement": "the placement differs",
}
_NAMED = 3  # listed differences of one kind


class _Moved(Struct, frozen=True):
    numbers: Mapping[str, NumberChange]

    def by(self, key: str) -> float:
        number = self.numbers.get(key)
        if number is None or not number.has_moved or number.before is None or number.after is None:
            return 0.0
        return number.after - number.before

    def describe(self, keys: Iterable[str]) -> str:
        return ", ".join(how_much(self.numbers[key]) for key in keys)


def causes(
    before: JobView, after: JobView, differences: Sequence[Difference], numbers: Sequence[NumberChange]
) -> tuple[Cause, ...]:
    moved = _Moved({number.key: number for number in numbers})
    headlines = [key for key in _HEADLINES if moved.by(key)]
    found = [*_endings(before.record, after.record)]
    if not headlines:
        return tuple(found)
    found += _of_time(moved)
    found += _load(moved)
    fitting = list(_that_fit(before, after, differences, moved, headlines))
    found += fitting
    fitted = {cause.text.split(":", 1)[0] for cause in fitting}
    possible = list(_possible(differences, moved, headlines, fitted))
    found += possible
    if not fitting and not possible:
        found.append(
            Cause(
                kind="possible",
                text="no recorded difference explains it: perhaps other load on the machine, or caches",
                numbers=tuple(headlines),
            )
        )
    return tuple(found)


def how_much(number: NumberChange) -> str:
    """Returns 'wall time +44%'."""
    ratio = number.ratio
    if ratio is None:
        return number.title
    return f"{number.title} x{ratio:.2g}" if ratio >= 2 else f"{number.title} {100 * (ratio - 1):+.0f}%"


def _endings(before: Record, after: Record) -> Iterator[Cause]:
    if before.status is after.status:
        return
    ends = ", ".join(f"{record.status.value}{_after(record)}" for record in (before, after))
    yield Cause(kind="measured", text=f"statuses differ ({ends}): the numbers cover only the time until then")


def _after(record: Record) -> str:
    return "" if record.outcome is None else f" after {format_duration(record.outcome.duration_s)}"


def _of_time(moved: _Moved) -> Iterator[Cause]:
    """Attributes a change of time to computing or waiting."""
    wall, cpu = moved.by("duration_s"), moved.by("cpu_s")
    if not wall:
        return
    if cpu and (cpu > 0) == (wall > 0):
        yield Cause(kind="measured", text=_computing(moved), numbers=("duration_s", "cpu_s"))
    elif moved.numbers.get("cpu_s") is not None and moved.numbers["cpu_s"].verdict == "same":
        more = "more" if wall > 0 else "less"
        yield Cause(
            kind="measured",
            text=f"CPU time is unchanged: it waited {more}",
            numbers=("duration_s", "cpu_s"),
        )
    for key, words in _WAITING:
        gap = moved.by(key)
        if gap and (gap > 0) == (wall > 0) and abs(gap) >= _SHARE * abs(wall):
            more = "more" if gap > 0 else "less"
            yield Cause(
                kind="measured",
                text=f"{format_duration(abs(gap))} {more} {words}",
                numbers=("duration_s", key),
            )


def _computing(moved: _Moved) -> str:
    change = moved.describe(("cpu_s", "duration_s"))
    instructions = moved.numbers.get("instructions")
    if instructions is None or instructions.verdict == "unknown":
        return f"it used {'more' if moved.by('cpu_s') > 0 else 'less'} CPU time: {change}"
    if instructions.has_moved:
        more = "more" if moved.by("instructions") > 0 else "less"
        return f"it executed {more} instructions: {how_much(instructions)}, {change}"
    speed = "slower" if moved.by("cpu_s") > 0 else "faster"
    return f"the same number of instructions ran {speed} (processor, memory, other load): {change}"


def _load(moved: _Moved) -> Iterator[Cause]:
    busy = moved.numbers.get("host_busy_percent")
    if busy is None or not busy.has_moved or busy.before is None or busy.after is None:
        return
    if moved.by("duration_s") * (busy.after - busy.before) > 0:
        text = f"the machine was {'busier' if busy.after > busy.before else 'less busy'}"
        yield Cause(
            kind="measured",
            text=f"{text}: {busy.before:.0f}% → {busy.after:.0f}% of all its CPUs, including this job",
            numbers=("duration_s",),
        )


# ---- differences of the same size -----------------------------------------------------------------------


def _that_fit(
    before: JobView,
    after: JobView,
    differences: Sequence[Difference],
    moved: _Moved,
    headlines: Sequence[str],
) -> Iterator[Cause]:
    sizes = _input_bytes(before.record), _input_bytes(after.record)
    if sizes[0] and sizes[1]:
        text = f"inputs: {format_bytes(sizes[0])} → {format_bytes(sizes[1])}"
        yield from _scaled(text, sizes[1] / sizes[0], moved, headlines)
    for difference in differences:
        if difference.group not in ("parameters", "command") and difference.name not in _THREADS:
            continue
        one, other = _number(difference.before), _number(difference.after)
        if one and other:
            text = f"{difference.group}: {difference.name} {difference.before} → {difference.after}"
            yield from _scaled(text, other / one, moved, headlines)
    cpus = [one for one in differences if one.group == "requirements" and one.name == "cpus"]
    for difference in cpus:
        one, other = _number(difference.before), _number(difference.after)
        if (
            one
            and other
            and moved.by("duration_s")
            and _is_close(moved.numbers["duration_s"], one / other, 1)
        ):
            change = moved.describe(("duration_s",))
            text = f"requirements: {difference.before} → {difference.after} CPUs; {change}"
            yield Cause(kind="fits", text=text, numbers=("duration_s",))


def _scaled(text: str, ratio: float, moved: _Moved, headlines: Sequence[str]) -> Iterator[Cause]:
    for power, words in ((1, "in proportion"), (2, "with about its square"), (3, "with about its cube")):
        keys = tuple(key for key in headlines if _is_close(moved.numbers[key], ratio, power))
        if keys:
            yield Cause(kind="fits", text=f"{text}; {words}: {moved.describe(keys)}", numbers=keys)
            return


def _is_close(number: NumberChange, ratio: float, power: int) -> bool:
    if not number.ratio or ratio <= 0 or abs(math.log(ratio)) < _LEAST_SCALE:
        return False
    expected, actual = power * math.log(ratio), math.log(number.ratio)
    return abs(actual - expected) <= _FITS * max(1.0, abs(expected)) * min(1.0, abs(math.log(ratio)))


def _input_bytes(record: Record) -> int | None:
    sizes = [stamp.size for stamp in record.inputs if stamp.size is not None]
    return sum(sizes) if sizes else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None


# ---- other differences -------------------------------------------------------------------------------------


def _possible(
    differences: Sequence[Difference], moved: _Moved, headlines: Sequence[str], fitted: set[str]
) -> Iterator[Cause]:
    for group, can_move in _CAN_MOVE.items():
        here = [one for one in differences if one.group == group]
        keys = tuple(key for key in headlines if key in can_move)
        if not here or not keys or group in fitted:
            continue
        if group == "environment":  # numbers of threads and devices first
            here.sort(key=lambda one: one.name not in _THREADS)
        names = listed(here, _NAMED, lambda one: one.name)
        text = f"{_GROUP_TEXTS[group]} ({names}): may explain {moved.describe(keys)}"
        yield Cause(kind="possible", text=text, numbers=keys)


def compare_jobs(before: JobView, after: JobView, noises: Mapping[str, Noise]) -> JobDiff:
    """Compares two jobs. `noises`: the usual differences between runs of this job, if known."""
    found = differences(before, after)
    numbers = number_changes(before, after, noises)
    return JobDiff(
        before=label_of(before.record),
        after=label_of(after.record),
        names=(before.record.job.name, after.record.job.name),
        status=(before.record.status.value, after.record.status.value),
        differences=found.differences,
        numbers=numbers,
        causes=causes(before, after, found.differences, numbers),
        same=found.same,
        unknown=found.unknown,
    )


def label_of(record: Record) -> str:
    return f"job {record.number}" if record.number is not None else f"job {record.job.uuid[:8]}"
