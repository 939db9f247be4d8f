"""Numbers as text: '-' for unknown, '≥' for a lower bound, '≈' for an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joblens.model.jobs.job import Requirements, Usage
from joblens.model.values.units import counted, format_bytes, format_duration, format_instant

if TYPE_CHECKING:
    from joblens.model.clusters.placement import Capacity, PlannedRequest

UNKNOWN = "-"
AT_LEAST = "≥"
ABOUT = "≈"
INSIGNIFICANT = "≈"  # two numbers with an insignificant difference


def mark_bound(text: str, *, is_lower_bound: bool) -> str:
    return f"{AT_LEAST}{text}" if is_lower_bound and text != UNKNOWN else text


def mark_number(text: str, usage: Usage, number: str) -> str:
    """Adds marks to a number: lower bound, estimate."""
    if number in usage.estimates and text != UNKNOWN:
        return f"{ABOUT}{text}"
    return mark_bound(text, is_lower_bound=number in usage.lower_bounds)


def seconds(usec: int | None) -> str:
    return format_duration(None if usec is None else usec / 1e6)


def percent(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.0f}%" if value >= 10 or value == 0 else f"{value:.1f}%"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def compact_bytes(value: float | None) -> str:
    """Formats at most six columns: 1023B, 12.3M, 1.0G."""
    if value is None:
        return UNKNOWN
    for unit, size in (("P", 1024**5), ("T", 1024**4), ("G", 1024**3), ("M", 1024**2), ("K", 1024)):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}B"


def amounts(of: Requirements | Capacity | PlannedRequest, *, memory: str = "") -> list[str]:
    """Returns the known ones of '2 CPUs', '4.0 GiB' and '1 GPU'. `memory`: text after the size."""
    parts = [counted(of.cpus, "CPU")] if of.cpus is not None else []
    parts += [f"{format_bytes(of.memory_bytes)}{memory}"] if of.memory_bytes else []
    return [*parts, counted(of.gpus, "GPU")] if of.gpus else parts


def requirements_text(needs: Requirements) -> str:
    """Returns '2 CPUs, 4.0 GiB memory, 100 processes, 1h00m00s time'."""
    parts = amounts(needs, memory=" memory")
    parts += [f"{needs.pids} processes"] if needs.pids is not None else []
    parts += [f"{format_duration(needs.timeout_s)} time"] if needs.timeout_s is not None else []
    return ", ".join(parts)


def rate(bytes_per_second: float | None) -> str:
    return UNKNOWN if bytes_per_second is None else f"{format_bytes(bytes_per_second)}/s"


def compact_rate(bytes_per_second: float | None) -> str:
    return UNKNOWN if bytes_per_second is None else f"{compact_bytes(bytes_per_second)}/s"


def instant(at_us: int) -> str:
    """Returns '2026-11-15 10:00:00 UTC', for titles."""
    return f"{format_instant(at_us)[:19].replace('T', ' ')} UTC"


def iso_instant(at_us: int) -> str:
    """Returns '2026-11-15T10:00:00Z', which options such as --since take. JSON has microseconds."""
    return f"{format_instant(at_us)[:19]}Z"


def clock(elapsed_seconds: float) -> str:
    """Formats a running time with a constant width: 00:07, 12:34, 1:02:03."""
    whole = max(0, int(elapsed_seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes:02d}:{whole % 60:02d}"


def joules(microjoules: float | None) -> str:
    """Returns '12.3 J', '4.5 kJ', '1.2 kWh'."""
    if microjoules is None:
        return UNKNOWN
    joule = microjoules / 1e6
    if joule >= 3.6e6:
        return f"{joule / 3.6e6:.2f} kWh"
    return f"{joule / 1000:.1f} kJ" if joule >= 999.95 else f"{joule:.1f} J"


def watts(microjoules_per_second: float | None) -> str:
    return UNKNOWN if microjoules_per_second is None else f"{microjoules_per_second / 1e6:.1f}W"


def grams(milligrams: float | None) -> str:
    if milligrams is None:
        return UNKNOWN
    gram = milligrams / 1000
    if gram >= 999.95:
        return f"{gram / 1000:.2f} kg"
    return f"{gram:.1f} g" if gram >= 0.95 else f"{milligrams:.0f} mg"


def share(part: float) -> str:
    """Formats a share; only exact values are 0% and 100%."""
    if part in (0, 1):
        return f"{100 * part:.0f}%"
    return f"{min(99.9, max(0.1, 100 * part)):.1f}%"
