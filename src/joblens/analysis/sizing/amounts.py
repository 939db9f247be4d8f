"""Amounts as people write them: rounding of sizes and times, in the notation of the file."""

import math
import re
from typing import Any

from joblens.model.values.units import GIB, MIB

LEAST_MEMORY_BUFFER = 1.10
_MEMORY_BUFFER = (LEAST_MEMORY_BUFFER, 1.20)
_MEMORY_SPARE = (8 * MIB, 16 * MIB)  # at least; a percentage of a little is nothing
_RUNTIME_BUFFER = (1.15, 1.30)
_RUNTIME_SPARE_S = (10, 20)
_MEMORY_STEPS = tuple(MIB << power for power in range(18, -1, -1))  # 256 GiB … 1 MiB
_TIME_STEPS_S = (86400, 43200, 21600, 7200, 3600, 1800, 900, 600, 300, 120, 60, 30, 20, 10, 5, 1)
_CPU_SLACK = 0.1  # sampling shows one busy core as 1.0 to 1.1


def memory_range(peak_bytes: float) -> tuple[float, float]:
    """Returns 10 to 20% above the peak, at least a few MiB."""
    return (
        max(peak_bytes * _MEMORY_BUFFER[0], peak_bytes + _MEMORY_SPARE[0]),
        max(peak_bytes * _MEMORY_BUFFER[1], peak_bytes + _MEMORY_SPARE[1]),
    )


def runtime_range(longest_s: float) -> tuple[float, float]:
    """Returns 15 to 30% above the longest time, at least some seconds."""
    return (
        max(longest_s * _RUNTIME_BUFFER[0], longest_s + _RUNTIME_SPARE_S[0]),
        max(longest_s * _RUNTIME_BUFFER[1], longest_s + _RUNTIME_SPARE_S[1]),
    )


def is_least_memory_spare(peak_bytes: float) -> bool:
    """Returns whether the margin is the minimum, because a percentage would be negligible."""
    return peak_bytes * _MEMORY_BUFFER[1] < peak_bytes + _MEMORY_SPARE[1]


def is_least_spare(longest_s: float) -> bool:
    """Returns whether the margin is the minimum, because a percentage would be negligible."""
    return longest_s * _RUNTIME_BUFFER[1] < longest_s + _RUNTIME_SPARE_S[1]


def memory_for(peak_bytes: float) -> int:
    return roundest(*memory_range(peak_bytes), _MEMORY_STEPS)


def runtime_for(longest_s: float) -> int:
    return roundest(*runtime_range(longest_s), _TIME_STEPS_S)


def cpus_for(peak_cores: float) -> int:
    """Rounds up to whole cores."""
    return max(1, math.ceil(peak_cores - _CPU_SLACK))


def rounded_memory(needed_bytes: float) -> int:
    """Returns a round amount, less than 10% above the need."""
    return roundest(needed_bytes, max(needed_bytes * 1.1, needed_bytes + MIB), _MEMORY_STEPS)


def rounded_runtime(needed_s: float) -> int:
    return roundest(needed_s, max(needed_s * 1.1, needed_s + 1), _TIME_STEPS_S)


def roundest(least: float, most: float, steps: tuple[int, ...]) -> int:
    """Returns a multiple of the largest step in the range; above `least` if there is none."""
    for step in steps:
        multiple = math.ceil(least / step) * step
        if multiple and multiple <= most:
            return multiple
    return math.ceil(least / steps[-1]) * steps[-1]


def memory_text(size: int) -> str:
    """Returns '12g', '640m', '1536k', in the units of a spec."""
    for unit, factor in (("t", 1024 * GIB), ("g", GIB), ("m", MIB), ("k", 1024)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def runtime_text(seconds: float) -> str:
    """Returns 'PT3H', 'PT1H30M', 'P2D': ISO 8601, as in a spec."""
    whole = math.ceil(seconds)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    times = "".join(
        f"{count}{letter}" for count, letter in ((hours, "H"), (minutes, "M"), (rest, "S")) if count
    )
    date = f"{days}D" if days else ""
    return f"P{date}T{times}" if times else f"P{date}" if date else "PT0S"


def cpus_text(cpus: float) -> str:
    return f"{cpus:g}"


_SIZE = re.compile(r"^\s*[\d.]+(\s*)([kmgtp])(i?b)?\s*$", re.IGNORECASE)
_UNITS = "kmgtp"
_TIMES = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def memory_like(written: Any, size: int) -> str:
    """Returns the amount in the unit of the file, or in the next smaller one that is exact; a bare number is
    bytes."""
    text = str(written)
    if text.strip().isdigit():
        return str(size)
    match = _SIZE.match(text)
    if match is None:
        return memory_text(size)
    gap, unit, suffix = match[1], match[2], match[3] or ""
    for power in range(_UNITS.index(unit.lower()) + 1, 0, -1):
        if size >= 1024**power and size % 1024**power == 0:
            letter = _UNITS[power - 1]
            shown = letter.upper() if unit.isupper() else letter
            return f"{size // 1024**power}{gap}{shown}{suffix}"
    return str(size)


def runtime_like(written: Any, seconds: float) -> str:
    """Returns the time in the notation of the file: seconds, units (1h30m) or ISO 8601 (PT1H30M)."""
    text, whole = str(written).strip(), math.ceil(seconds)
    if text[:1] in ("P", "p"):
        return runtime_text(seconds)
    if not re.search("[a-zA-Z]", text):
        return str(whole)
    gap = " " if re.search(r"[a-zA-Z]\s+\d", text) else ""
    parts = []
    for unit, size in _TIMES:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
    return gap.join(parts) or "0s"
