"""What benchmarks are made of, as plain documents: one run, the numbers of several, two of them compared."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any

from joblens.analysis.comparing.ab_statistics import (
    CONFIDENCE,
    Ratio,
    heap_ratio,
    median_interval,
    outliers,
    ratio_of,
)
from joblens.analysis.formats.history import returncode_of, usage_form
from joblens.model.jobs.job import Record, Status, Usage
from joblens.model.values.units import format_instant, in_mb

FORMAT = 1
COMMANDS, TOOL = "commands", "tool"  # kinds of documents
# Numbers that are compared -> what people call them.
NUMBERS = {
    "duration_seconds": "wall time",
    "cpu_seconds": "CPU time",
    "memory_peak_mb": "peak memory",
    "io_read_mb": "read",
    "io_write_mb": "written",
}
_LEAST_COMPARED = {"io_read_mb": 1.0, "io_write_mb": 1.0}  # MiB; below, a ratio tells nothing

Document = dict[str, Any]


def run_form(record: Record, run_number: int) -> Document:
    """One measured run. `round` and `detailed_profile` are added by who knows them."""
    outcome, attempt = record.outcome, record.attempt
    usage = outcome.usage if outcome else Usage()
    return {
        "run_number": run_number,
        "status": record.status.value,
        "success": record.status is Status.SUCCESS,
        "returncode": returncode_of(outcome) if outcome else None,
        "error": outcome.error if outcome else None,
        "start_time": format_instant(attempt.started_at_us if attempt else record.job.created_at_us),
        "duration_seconds": outcome.duration_s if outcome else None,
        "cpu_seconds": None if usage.cpu_total_usec is None else usage.cpu_total_usec / 1e6,
        "memory_peak_mb": in_mb(usage.memory_peak_bytes),
        "io_read_mb": in_mb(usage.io_read_bytes),
        "io_write_mb": in_mb(usage.io_write_bytes),
        "resource_usage": usage_form(usage),
        "job_uuid": record.job.uuid,
        "job_number": record.number,
    }


def metrics_form(runs: Sequence[Mapping[str, Any]], confidence: float = CONFIDENCE) -> Document:
    """Always the same keys; null where no run that succeeded has the number. Durations in seconds, memory in
    MiB, `avg_cpu` in percent of one CPU."""
    good = [run for run in runs if run["success"]]
    times = _known(good, "duration_seconds")
    cpu, memory = _known(good, "cpu_seconds"), _known(good, "memory_peak_mb")
    uses = [
        100 * run["cpu_seconds"] / run["duration_seconds"]
        for run in good
        if run["cpu_seconds"] is not None and run["duration_seconds"]
    ]
    interval = median_interval(times, confidence) if times else None
    return {
        "runs": len(runs),
        "successful_runs": len(good),
        "success_rate": round(100 * len(good) / len(runs), 2) if runs else 0.0,
        "avg_duration": _mean(times),
        "median_duration": median(times) if times else None,
        "min_duration": min(times, default=None),
        "max_duration": max(times, default=None),
        "std_duration": stdev(times) if len(times) > 1 else (0.0 if times else None),
        "median_duration_low": interval.low if interval else None,
        "median_duration_high": interval.high if interval else None,
        "confidence": interval.confidence if interval else None,
        "avg_cpu": _mean(uses),
        "avg_cpu_seconds": _mean(cpu),
        "avg_memory": _mean(memory),
        "max_memory": max(memory, default=None),
        "avg_io_read_mb": _mean(_known(good, "io_read_mb")),
        "avg_io_write_mb": _mean(_known(good, "io_write_mb")),
        "outliers": [good[place]["run_number"] for place in outliers(times)],
    }


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    good = [run for run in runs if run["success"]]
    return {name: median(known) if (known := _known(good, name)) else None for name in NUMBERS}


def comparison_form(
    variant: Mapping[str, Any],
    baseline: Mapping[str, Any],
    *,
    are_rounds: bool,
    confidence: float = CONFIDENCE,
) -> Document:
    """Two variants (`name`, `runs`). `are_rounds`: runs with the same `round` were made side by side."""
    numbers: Document = {}
    for name in NUMBERS:
        ratio = _ratio(variant["runs"], baseline["runs"], name, are_rounds=are_rounds, confidence=confidence)
        numbers[name] = None if ratio is None else ratio_form(ratio)
    return {"variant": variant["name"], "baseline": baseline["name"], "numbers": numbers}


def ratio_form(ratio: Ratio) -> Document:
    interval = ratio.interval
    return {
        "ratio": ratio.value,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "confidence": interval.confidence if interval else None,
        "differs": ratio.differs,
        "detectable": ratio.detectable,
        "pairs": ratio.pairs,
        "method": ratio.method,
    }


def half_width_of(number: Mapping[str, Any] | None) -> float | None:
    """Of the interval of a ratio form, relative; None where there is none."""
    if number is None or number["low"] is None:
        return None
    return math.sqrt(number["high"] / number["low"]) - 1


def variants_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a stored document of either kind holds: things with `name`, `command` and `runs`."""
    if document["kind"] == COMMANDS:
        return list(document["variants"])
    return [
        {
            "name": f"{document['tool']} on {document['device']}",
            "command": document["command"],
            "runs": document["runs"],
            "metrics": document["metrics"],
        }
    ]


def parameters_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What two results of the same tool may differ in besides time: script, container and parameters."""
    if document["kind"] == COMMANDS:
        return {}
    about = {name: document.get(name) for name in ("script", "container")}
    return {**{name: value for name, value in about.items() if value}, **(document.get("params") or {})}


def parameter_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """name -> [before, after], None where there is none. Only of results of the same tool: those of
    different ones are told apart by their names."""
    if before["kind"] == COMMANDS or after["kind"] == COMMANDS or before["tool"] != after["tool"]:
        return {}
    one, two = parameters_of(before), parameters_of(after)
    return {name: [one.get(name), two.get(name)] for name in {**one, **two} if one.get(name) != two.get(name)}


def are_of_one_machine(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return bool(before["system_info"].get("hostname") == after["system_info"].get("hostname"))


def compared_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """The last variant of each: of a comparison of commands, what was tried against the baseline."""
    one, two = variants_of(before)[-1], variants_of(after)[-1]
    names = (one["name"], two["name"])
    if names[0] == names[1]:
        names = (f"{names[0]} (before)", f"{names[1]} (after)")
    return comparison_form(
        {"name": names[1], "runs": two["runs"]}, {"name": names[0], "runs": one["runs"]}, are_rounds=False
    )


def _ratio(
    runs: Sequence[Mapping[str, Any]],
    baseline: Sequence[Mapping[str, Any]],
    name: str,
    *,
    are_rounds: bool,
    confidence: float,
) -> Ratio | None:
    least = _LEAST_COMPARED.get(name, 0.0)
    if are_rounds:
        before = {run["round"]: run[name] for run in baseline if run["success"]}
        pairs = [
            (run[name], before[run["round"]]) for run in runs if run["success"] and run["round"] in before
        ]
        ours, theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
    else:
        ours = [run[name] for run in runs if run["success"]]
        theirs = [run[name] for run in baseline if run["success"]]
    if not ours or not theirs or not all(value is not None and value > least for value in (*ours, *theirs)):
        return None
    compare = ratio_of if are_rounds else heap_ratio
    return compare(ours, theirs, confidence)


def _known(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [run[name] for run in runs if run[name] is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
