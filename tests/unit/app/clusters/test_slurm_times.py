import datetime as dt

import pytest

from joblens.app.reports.slurm_import import slurm_instant
from joblens.model.errors import InputError

NOW = dt.datetime(2026, 11, 15, 10, 30).astimezone()
NOW_US = round(NOW.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOW),
        ("today", NOW.replace(hour=0, minute=0)),
        ("Yesterday", NOW.replace(day=14, hour=0, minute=0)),
        ("now-7days", NOW - dt.timedelta(days=7)),
        ("now - 2h", NOW - dt.timedelta(hours=2)),
        ("now+90", NOW + dt.timedelta(seconds=90)),
        ("3d", NOW - dt.timedelta(days=3)),
        ("2026-11-01T00:00:00+00:00", dt.datetime(2026, 11, 1, tzinfo=dt.UTC)),
    ],
)
def test_words_of_sacct_are_understood(text: str, meant: dt.datetime) -> None:
    assert slurm_instant(text, NOW_US) == round(meant.timestamp() * 1_000_000)


@pytest.mark.parametrize("text", ["now-7moons", "tomorrowish", "now-"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a time"):
        slurm_instant(text, NOW_US)
