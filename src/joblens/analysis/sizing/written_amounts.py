"""Amounts in the way the file has them: who writes 10m does not want to read PT20S."""

import math
import re
from typing import Any

from joblens.analysis.sizing.amounts import memory_text, runtime_text

_SIZE = re.compile(r"^\s*[\d.]+(\s*)([kmgtp])(i?b)?\s*$", re.IGNORECASE)
_UNITS = "kmgtp"
_TIMES = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def memory_like(written: Any, size: int) -> str:
    """With the unit it was written in, else the next smaller one that is enough; a bare number is bytes."""
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
    """Seconds, units (1h30m) or ISO 8601 (PT1H30M)."""
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
