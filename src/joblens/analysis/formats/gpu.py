"""GPU part of the Joblet sample format, written and read, with tolerant reading of JSON numbers.

Constant facts (name, total memory, …) are not in a sample: they come from the job's GpuFacts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from joblens.model.errors import FormatError
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.sample import GpuReading, Sample


def object_in(fields: dict[str, Any], key: str) -> dict[str, Any]:
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"'{key}' is not an object")
    return value


def integer_in(fields: dict[str, Any], key: str) -> int | None:
    value = number_in(fields, key)
    return None if value is None else int(value)


def number_in(fields: dict[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"'{key}' is not a number")
    if not 0 <= value < 2**63:  # false for NaN too
        raise FormatError(f"'{key}' is {value}, which is not a valid amount")
    return value


def text_in(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FormatError(f"'{key}' is not a string")
    return value


# (key, field of GpuReading, factor of the field's unit). Keys of Joblet, then additional ones.
_NUMBERS: tuple[tuple[str, str, int], ...] = (
    ("utilization", "utilization", 100),
    ("memory_used", "memory_used_bytes", 1),
    ("memory_free", "memory_free_bytes", 1),
    ("encoder_util", "encoder_utilization", 100),
    ("decoder_util", "decoder_utilization", 100),
    ("sm_clock", "sm_clock_mhz", 1),
    ("memory_clock", "memory_clock_mhz", 1),
    ("pcie_throughput_rx", "pcie_rx_bytes_per_s", 1_000_000),
    ("pcie_throughput_tx", "pcie_tx_bytes_per_s", 1_000_000),
    ("temperature", "temperature_c", 1),
    ("power_draw", "power_mw", 1000),
    ("fan_speed", "fan_speed", 100),
    ("ecc_errors_single", "ecc_corrected", 1),
    ("ecc_errors_double", "ecc_uncorrected", 1),
    ("throttle_reasons", "throttle_reasons", 1),
    ("processes_count", "processes", 1),
    ("processes_memory", "processes_memory_bytes", 1),
    ("memory_util", "memory_utilization", 100),
    ("energy_mj", "energy_mj", 1),
    ("pcie_generation", "pcie_generation", 1),
    ("pcie_width", "pcie_width", 1),
    ("job_processes", "job_processes", 1),
    ("job_memory", "job_memory_bytes", 1),
    ("job_utilization", "job_utilization", 100),
    ("job_busy_usec", "job_busy_usec", 1),
    ("job_encoder_util", "job_encoder_utilization", 100),
    ("job_decoder_util", "job_decoder_utilization", 100),
)
# In Joblet, these two are numbers of sessions.
_JOBLETS_OWN_MEANING = ("encoder_util", "decoder_util")
_FACT_TEXTS = (
    "vendor",
    "name",
    "uuid",
    "pci",
    "driver",
    "driver_version",
    "compute_capability",
    "compute_mode",
    "parent",
)


def gpus_form(
    sample: Sample, previous: Sample | None, facts: Sequence[GpuFacts]
) -> list[dict[str, Any]] | None:
    """Returns entries per GPU; None: GPUs could not be sampled; []: the job uses none."""
    if sample.gpus is None:
        return None
    known = {each.id: each for each in facts}
    before = (previous.gpus if previous is not None else None) or {}
    usec = 0 if previous is None else sample.elapsed_us - previous.elapsed_us
    return [
        _gpu_form(name, reading, known.get(name), _busy_percent(before.get(name), reading, usec))
        for name, reading in sample.gpus.items()
    ]


def _gpu_form(
    name: str, reading: GpuReading, facts: GpuFacts | None, busy_percent: float | None
) -> dict[str, Any]:
    total = None if facts is None else facts.memory_total_bytes
    limit = None if facts is None else facts.power_limit_mw
    used = reading.memory_used_bytes
    return {
        "index": None if facts is None else facts.index,
        "uuid": _text(facts, "uuid"),
        "name": _text(facts, "name"),
        "compute_capability": _text(facts, "compute_capability"),
        "driver_version": _text(facts, "driver_version"),
        **{key: _scaled(getattr(reading, field), units) for key, field, units in _NUMBERS},
        "memory_total": total,
        "memory_percent": None if used is None or not total else 100.0 * used / total,
        "power_limit": _scaled(limit, 1000),
        "compute_mode": _text(facts, "compute_mode"),
        "job_busy_percent": busy_percent,
        "id": name,
        "vendor": _text(facts, "vendor"),
        "pci": _text(facts, "pci"),
        "driver": _text(facts, "driver"),
        "parent": _text(facts, "parent"),
        "ecc_enabled": None if facts is None else facts.ecc_enabled,
    }


def _text(facts: GpuFacts | None, name: str) -> str | None:
    return None if facts is None else getattr(facts, name) or None


def _scaled(value: int | None, units: int) -> float | None:
    return value if value is None or units == 1 else value / units


def _busy_percent(before: GpuReading | None, now: GpuReading, usec: int) -> float | None:
    """Returns the share of time since the previous sample in which the job kept the device busy."""
    if before is None or before.job_busy_usec is None or now.job_busy_usec is None or usec <= 0:
        return None
    grown = now.job_busy_usec - before.job_busy_usec
    return 100.0 * grown / usec if grown >= 0 else None


def read_gpus(entries: Any, *, is_ours: bool) -> dict[str, GpuReading]:
    return {name: _reading(entry, is_ours=is_ours) for name, entry in _named(entries)}


def read_gpu_facts(fields: Any) -> tuple[GpuFacts, ...]:
    """Reads facts about GPUs from a sample object. In Joblet, all are NVIDIA GPUs."""
    if not isinstance(fields, dict) or fields.get("gpu") is None:
        return ()
    return tuple(
        _facts(name, entry)
        for name, entry in _named(fields["gpu"])
        if entry.get("index") is not None  # None: facts were unknown when it was written
    )


def _facts(name: str, entry: dict[str, Any]) -> GpuFacts:
    texts = {key: text_in(entry, key) for key in _FACT_TEXTS}
    limit = number_in(entry, "power_limit")
    ecc = entry.get("ecc_enabled")
    return GpuFacts(
        id=name,
        index=integer_in(entry, "index") or 0,
        memory_total_bytes=integer_in(entry, "memory_total"),
        power_limit_mw=None if limit is None else round(limit * 1000),
        ecc_enabled=ecc if isinstance(ecc, bool) else None,
        **{**texts, "vendor": texts["vendor"] or "nvidia"},  # type: ignore[arg-type]
    )


def _named(entries: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise FormatError("'gpu' is not a list of objects")
    return [(_name(entry, index), entry) for index, entry in enumerate(entries)]


def _name(entry: Mapping[str, Any], index: int) -> str:
    for key in ("id", "uuid"):
        if isinstance(entry.get(key), str) and entry[key]:
            return str(entry[key])
    return str(entry.get("index", index))


def _reading(entry: dict[str, Any], *, is_ours: bool) -> GpuReading:
    numbers: dict[str, int] = {}
    for key, field, units in _NUMBERS:
        value = number_in(entry, key)
        if value is not None and (is_ours or key not in _JOBLETS_OWN_MEANING):
            numbers[field] = int(value) if units == 1 else round(value * units)
    return GpuReading(**numbers)
