"""Processes that are killed at random moments: is every job recorded once, as it ended?"""

from collections.abc import Iterator
from pathlib import Path

from bench.commands import Workbench
from bench.goals import Figure
from tests.integration.driver_kills import fault_run

KILLS = 200
SEED = 15


def figures(bench: Workbench) -> Iterator[Figure]:
    counts = fault_run(Path(bench.folder), KILLS, SEED)
    note = f"of {counts.executions} jobs, {counts.kills} kills"
    for what, value in (
        ("jobs without a record", counts.unrecorded),
        ("jobs recorded as lost", counts.lost),
        ("jobs with another outcome than their own", counts.wrong),
        ("jobs that ran again after success", counts.repeated),
        ("records of jobs that never began", counts.invented),
        ("history lines missing or doubled", counts.lines_missing + counts.lines_twice),
        ("files and control groups left", len(counts.left)),
    ):
        yield Figure(f"drivers killed: {what}", value, "", 0, note=note)
