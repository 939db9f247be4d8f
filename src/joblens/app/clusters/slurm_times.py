"""Times as people write them for sacct: by the clock on the wall, and in its own words."""

import datetime as dt
import re

from joblens.model.errors import InputError
from joblens.model.values.units import parse_instant

_FROM_NOW = re.compile(r"now\s*([+-])\s*(\d{1,6})\s*([a-z]*)")
_UNITS = ("seconds", "minutes", "hours", "days", "weeks")
_AGO_DAYS = {"today": 0, "midnight": 0, "yesterday": 1}


def slurm_instant(text: str, now_us: int) -> int:
    """'today', 'yesterday', 'now-7days' (in the local time zone), or what is a time anywhere else -> µs UTC.
    Raises InputError."""
    word = text.strip().lower()
    now = dt.datetime.fromtimestamp(now_us / 1e6).astimezone()
    if word == "now":
        return now_us
    if word in _AGO_DAYS:
        day = now.date() - dt.timedelta(days=_AGO_DAYS[word])
        return round(dt.datetime(day.year, day.month, day.day).astimezone().timestamp()) * 1_000_000
    if (match := _FROM_NOW.fullmatch(word)) is not None:
        return now_us + int(match[1] + "1") * int(match[2]) * _seconds_in(match[3], text) * 1_000_000
    return parse_instant(text, now_us)


def _seconds_in(unit: str, text: str) -> int:
    """Slurm takes any beginning of a unit's name, seconds where there is none."""
    for name in _UNITS:
        if name.startswith(unit):
            return int(dt.timedelta(**{name: 1}).total_seconds())
    raise InputError(
        f"'{text}' is not a time: there is no unit '{unit}'", hint="write now-7days, now-12hours, yesterday"
    )
