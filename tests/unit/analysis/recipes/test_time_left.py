"""How long a job still takes, asked again and again over the recorded events of real jobs.

The jobs had 12 partitions, two workers on two busy cores and six light operators. Behind these there was one
heavy operator; or a deduplicator, a heavy operator and a Parquet export; or a Parquet export only. Times are
from 1000 on."""

import json
from pathlib import Path
from statistics import median

import msgspec
import pytest

from joblens.analysis.recipes.columns import SeenEvent
from joblens.analysis.recipes.progress import PlannedOperator, PlannedWork
from joblens.analysis.recipes.snapshot import JobFacts, SnapshotFold
from joblens.analysis.recipes.time_left import makespan

RECORDED = Path(__file__).parents[3] / "fixtures" / "recipes" / "time_left"
LOOKS = 50


def _errors(name: str) -> list[float]:
    """Of each look at the job: how wrong the estimate is, as a share of the time that was really left."""
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    about = recorded["planned"]
    operators = [
        PlannedOperator(index, name, is_global) for index, (name, is_global) in enumerate(about["operators"])
    ]
    planned = PlannedWork(
        operators=tuple(operators),
        partition_ids=tuple(range(about["partitions"])),
        is_parquet=about["export"] == "parquet",
    )
    events = msgspec.convert(recorded["events"], list[SeenEvent])
    first, last = events[0].timestamp, events[-1].timestamp
    fold, found = SnapshotFold(planned), []
    for look in range(1, LOOKS):
        now = first + (last - first) * look / LOOKS
        while events and events[0].timestamp <= now:
            fold.add(events.pop(0))
        left = fold.snapshot(JobFacts(job_id="job", is_alive=True), now).eta_seconds
        if left is not None:
            found.append((left - (last - now)) / (last - now))
    return found


@pytest.mark.parametrize("name", ["heavy_last", "global", "parquet"])
def test_the_time_left_is_about_right_and_hardly_ever_half_of_it(name: str) -> None:
    errors = _errors(name)
    assert len(errors) > 40
    assert median(map(abs, errors)) < 0.3
    assert sum(error < -0.5 for error in errors) <= 0.1 * len(errors)


@pytest.mark.parametrize(
    ("rests", "waiting", "workers", "seconds"),
    [
        ([], 0, 2, 0.0),
        ([3.0], 0, 2, 3.0),
        ([3.0, 1.0], 1, 2, 11.0),  # the next one begins when the first is through
        ([], 3, 2, 20.0),  # two waves, the second with one partition
        ([], 4000, 4, 10_000.0),
    ],
)
def test_partitions_are_worked_on_some_at_a_time(
    rests: list[float], waiting: int, workers: int, seconds: float
) -> None:
    assert makespan(rests, waiting, 10.0, workers) == pytest.approx(seconds)
