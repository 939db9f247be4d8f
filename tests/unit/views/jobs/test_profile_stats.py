"""The spread of profiles as a table: for programs, and on terminals of any width."""

from typing import Any

import pytest

from joblens.analysis.numbers.profile_statistics import aggregate_profiles
from joblens.views.jobs.stats import render_profile_statistics
from joblens.views.text.style import PLAIN

LONG = {
    "max_read_mb_per_second": 1234.5,
    "max_write_mb_per_second": 2345.6,
    "max_call_read_mb_per_second": 3456.7,
}


def statistics(**more: Any) -> dict[str, Any]:
    profiles = [{"duration_seconds": seconds, "io_stats": LONG} for seconds in (1.5, 2.25)]
    return {**aggregate_profiles(profiles), **more}


def test_in_a_pipe_every_name_is_whole() -> None:
    lines = render_profile_statistics(statistics(), width=None, paint=PLAIN)
    assert [line.split()[0] for line in lines[3:]] == [
        "duration_seconds",
        *(f"io_stats.{name}" for name in LONG),
    ]
    assert all(len(line.split()) == 7 for line in lines[2:])


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_on_a_terminal_sections_are_headings_and_columns_go_before_names_are_cut(width: int) -> None:
    lines = render_profile_statistics(statistics(), width=width, paint=PLAIN)
    assert [line.split()[0] for line in lines[3:]] == ["duration_seconds", "io_stats", *LONG]
    assert lines[4] == "io_stats"
    assert {"MEAN", "MAX"} <= set(lines[2].split())
    assert ("STDEV" in lines[2]) == (width >= 80)
    assert width < 60 or max(map(len, lines)) <= width


def test_why_jobs_have_no_profile_is_said() -> None:
    without = {"never_ran": 2, "too_short": 7}
    lines = render_profile_statistics(statistics(without_profile=without), width=80, paint=PLAIN)
    assert lines[:2] == [
        "2 profiles of 11 jobs",
        "Without a profile: 7 too short for a sample; 2 not started.",
    ]
