"""Units: sizes, durations, instants and CPU lists as people write them, to and from base units; counts of
things, and long lists.

Inside joblens only bytes, seconds and microseconds exist; text is read and written here.
"""

import functools
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from joblens.model.errors import InputError

T = TypeVar("T")

KIB = 1024
MIB = 1024**2
GIB = 1024**3
# Names from other tools say MB and GB: memory_peak_mb, Peak Mem (GB). In joblens these are powers of 1024, as
# in the sizes that it reads; its own names say MiB and GiB.
UNITS_NOTE = "MB and GB are MiB and GiB: 1024² and 1024³ bytes"
MOST_BYTES = 2**63  # range of kernel counters
FOREVER_S = 1e11  # some thousand years: excludes infinity and values beyond any clock
LEAST_MEMORY = 64 * KIB  # of a job, or of all jobs of a run
_ALMOST = 1023.95 / 1024  # values that would round to 1024.0 use the next unit

_SIZE = r"(?i)^\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?\s*$"
_LONGEST = 100  # characters of a time: more are a mistake, and reading them would take long
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION_PART = r"(?i)(\d+(?:\.\d+)?)\s*(ms|us|d|h|m|s)"
_ISO_DURATION = (
    r"(?i)^P(?:(\d+(?:\.\d+)?)D)?(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?$"
)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(text: str) -> int:
    """Parses '512m', '2g', '1.5GiB', '4096' to bytes. Units are powers of 1024."""
    match = re.match(_SIZE, text)
    if match is None:
        raise InputError(
            f"'{_brief(text)}' is not a size", hint="write a number and a unit: 512m, 2g, 1.5GiB"
        )
    size = float(match[1]) * 1024 ** _POWERS[match[2].lower()]
    if size >= MOST_BYTES:
        raise InputError(
            f"'{_brief(text)}' is larger than any memory", hint="write a size such as 512m or 2g"
        )
    return int(size)


def small_memory(size: int, typed: object) -> str:
    """Returns why an amount of memory is a mistake, or ''. `typed`: as written. No program starts in so
    little; usually a unit is missing."""
    if size >= LEAST_MEMORY:
        return ""
    match = re.match(_SIZE, str(typed))
    unit = "byte" if size == 1 else "bytes"
    return f"{size} {unit} is too small; did you mean {match[1] if match else size}m?"


def in_mb(size: float | None) -> float | None:
    """Returns MiB, for names that say MB."""
    return None if size is None else size / MIB


def in_gb(size: float | None) -> float | None:
    """Returns GiB, for names that say GB."""
    return None if size is None else size / GIB


def parse_duration(text: str) -> float:
    """Parses '90', '90s', '1h30m', '500ms', 'PT2H' to seconds."""
    seconds = _seconds(text) if len(text) <= _LONGEST else None
    if seconds is None:
        hint = "write seconds or units: 90, 30s, 1h30m, PT2H"
        raise InputError(f"'{_brief(text)}' is not a duration", hint=hint)
    if not seconds < FOREVER_S:
        raise InputError(
            f"'{_brief(text)}' is too long a time", hint="write a time such as 90, 30s, 1h30m or 7d"
        )
    return seconds


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:40]}…"


def _seconds(text: str) -> float | None:
    stripped = text.strip()
    iso = re.match(_ISO_DURATION, stripped)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    try:
        number = float(stripped)
    except ValueError:
        number = -1.0
    if number >= 0 and number != float("inf"):
        return number
    total, position = 0.0, 0
    for match in re.finditer(_DURATION_PART, stripped):
        if stripped[position : match.start()].strip():
            break
        total += float(match[1]) * _SECONDS[match[2].lower()]
        position = match.end()
    if position == 0 or stripped[position:].strip():
        return None
    return total


def parse_instant(text: str, now_us: int) -> int:
    """Parses an ISO 8601 time (naive means UTC) or an age such as '2h' or '7d' before now to µs UTC."""
    import datetime as dt  # plain jobs do without

    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return now_us - int(parse_duration(text) * 1_000_000)
        except InputError:
            raise InputError(
                f"'{_brief(text)}' is not a time, or too long ago",
                hint="write 2026-11-15, 2026-11-15T10:30:00+01:00, or an age such as 2h or 7d",
            ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return round(moment.timestamp() * 1_000_000)


def format_instant(at_us: int) -> str:
    """Formats µs UTC as ISO 8601 with offset and microseconds."""
    seconds, micro = divmod(at_us, 1_000_000)
    return f"{_to_the_second(seconds)}.{micro:06d}+00:00"


@functools.lru_cache(maxsize=256)
def _to_the_second(seconds: int) -> str:
    """Formats whole seconds; cached, because records written together mostly share their second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def format_bytes(count: float | None) -> str:
    if count is None:
        return "-"
    for unit, size in (("PiB", 1024**5), ("TiB", 1024**4), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= size * _ALMOST:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}h{minutes:02d}m{whole % 60:02d}s" if hours else f"{minutes}m{whole % 60:02d}s"


_MOST = 1 << 16  # above the CPU numbers of any kernel


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parses '0-3,8' to (0, 1, 2, 3, 8). Raises InputError."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if not (_is_number(first) and _is_number(last)) or max(int(first), int(last)) >= _MOST:
            raise InputError(f"CPU list '{text}': '{part.strip()}' is not a CPU", hint="write it as 0-3,8")
        if int(first) > int(last):
            raise InputError(f"CPU list '{text}': '{part.strip()}' runs backwards", hint=f"{last}-{first}")
        cpus.update(range(int(first), int(last) + 1))
    return tuple(sorted(cpus))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Formats {0, 1, 2, 8} as '0-2,8'."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 7


def listed(items: Sequence[T], most: int, show: Callable[[T], str] = str) -> str:
    """Returns 'a, b and 4 more'. Calls `show` only for items that are shown."""
    more = len(items) - most
    return ", ".join(map(show, items[:most])) + (f" and {more:,} more" if more > 0 else "")


def more(count: int, noun: str = "") -> str:
    """Returns '… and 4 more', '… and 4 more jobs', below the first items of a list."""
    return f"… and {counted(count, f'more {noun}')}" if noun else f"… and {count:,} more"


def counted(number: float, noun: str) -> str:
    """Returns '1 job', '2,000 jobs', '3 processes', '0.5 CPUs'."""
    text = f"{number:,.0f}" if number == int(number) else f"{number:g}"
    plural = f"{noun}es" if noun.endswith("ss") else f"{noun}s"
    return f"{text} {noun if number == 1 else plural}"
