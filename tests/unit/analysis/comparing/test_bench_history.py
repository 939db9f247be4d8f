"""Results of benchmarks over time."""

from typing import Any

from joblens.analysis.comparing.bench import metrics_form
from joblens.analysis.comparing.bench_history import history_of, name_of, summaries_of

MIB = 1 << 20


def result(day: int, *times: float, title: str = "sort", **fields: Any) -> dict[str, Any]:
    runs = [
        {
            "run_number": number,
            "success": True,
            "duration_seconds": seconds,
            "cpu_seconds": seconds / 2,
            "memory_peak_mb": 8.0,
            "io_read_mb": 0.0,
            "io_write_mb": 0.0,
            "round": number,
            "job_number": number,
        }
        for number, seconds in enumerate(times, 1)
    ]
    return {
        "id": f"{title}-{day}",
        "kind": "commands",
        "title": title,
        "created_time": f"2026-01-{day:02d}T12:00:00+00:00",
        "system_info": {"hostname": "node1"},
        "variants": [{"name": "A", "command": ["sort"], "runs": runs, "metrics": metrics_form(runs)}],
        "comparisons": [],
        "baseline": "A",
        **fields,
    }


FAST = (1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99)
SLOW = tuple(2 * each for each in FAST)


def test_each_result_is_compared_with_the_one_before_it() -> None:
    found = history_of("sort", [result(1, *FAST), result(2, *FAST), result(3, *SLOW)])
    first, second, third = found.results
    assert first.before is None
    assert second.before is not None
    assert third.before is not None
    assert [each.differs for each in second.before.ratios if each.number == "duration_seconds"] == [False]
    (time,) = [each for each in third.before.ratios if each.number == "duration_seconds"]
    assert (time.differs, round(time.ratio, 2)) == (True, 2.0)
    assert third.variants[0].durations_s == SLOW
    assert third.variants[0].memory_bytes == 8 * MIB


def test_benchmarks_are_listed_by_their_newest_result_with_its_noise() -> None:
    old, new = result(1, *FAST, title="old"), result(2, *SLOW, title="new")
    newest, oldest = summaries_of([old, new])
    assert (newest.name, newest.results, newest.median_s) == ("new", 1, 2.0)
    assert (oldest.name, oldest.change) == ("old", None)
    assert newest.noise_percent is not None
    assert 0 < newest.noise_percent < 5
    assert newest.medians_s == (2.0,)


def test_too_few_runs_have_no_noise_and_no_verdict() -> None:
    (row,) = summaries_of([result(1, 1.0), result(2, 2.0)])
    assert (row.noise_percent, row.results) == (None, 2)
    assert row.change is not None
    assert row.change.differs is None


def test_changes_of_the_set_up_are_named() -> None:
    other = result(2, *FAST, system_info={"hostname": "node2"}, disturbances=["the machine was busy"])
    found = history_of("sort", [result(1, *FAST), other]).results[1]
    assert found.changes == ("another machine",)
    assert found.disturbances == ("the machine was busy",)


def test_a_result_of_a_tool_is_named_after_it() -> None:
    tool = {"kind": "tool", "tool": "blast", "device": "cpu", "command": [], "runs": [], "metrics": {}}
    assert name_of(tool) == "blast on cpu"
