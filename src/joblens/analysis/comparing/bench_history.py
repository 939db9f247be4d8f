"""History of a benchmark: its results over time, each compared with the previous one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from joblens.analysis.comparing.bench import (
    NUMBERS,
    Document,
    are_of_one_machine,
    compared_documents,
    half_width_of,
    parameter_changes,
    variants_of,
)
from joblens.model.values.units import MIB


class BenchRatio(Struct, frozen=True, kw_only=True):
    """A number as a multiple of another. `differs` None: too few runs."""

    number: str
    title: str
    ratio: float
    low: float | None
    high: float | None
    differs: bool | None
    detectable: float | None


class BenchComparison(Struct, frozen=True, kw_only=True):
    variant: str
    baseline: str
    ratios: tuple[BenchRatio, ...]


class BenchVariant(Struct, frozen=True, kw_only=True):
    """Medians of successful runs; `low_s` and `high_s` are the interval of the median."""

    name: str
    command: str
    runs: int
    successful: int
    median_s: float | None
    low_s: float | None
    high_s: float | None
    cpu_s: float | None
    memory_bytes: float | None
    durations_s: tuple[float, ...]
    jobs: tuple[int | None, ...]  # numbers of the jobs, as `durations_s`
    outliers: tuple[int, ...]  # numbers of runs


class BenchResult(Struct, frozen=True, kw_only=True):
    """One result. `before`: comparison with the previous result, between the last variants."""

    id: str
    created_at_us: int
    host: str
    version: str
    variants: tuple[BenchVariant, ...]
    comparisons: tuple[BenchComparison, ...]
    before: BenchComparison | None
    changes: tuple[str, ...]  # in the set-up, which may explain a difference
    disturbances: tuple[str, ...]
    failure: str


class BenchHistory(Struct, frozen=True, kw_only=True):
    """Results of the same name, oldest first."""

    name: str
    kind: str
    results: tuple[BenchResult, ...]


class BenchSummary(Struct, frozen=True, kw_only=True):
    """Summary of a benchmark. `noise_percent`: half the interval of the newest median; `medians_s`: of its
    newest results, oldest first."""

    name: str
    kind: str
    results: int
    newest_at_us: int
    median_s: float | None
    low_s: float | None
    high_s: float | None
    noise_percent: float | None
    change: BenchRatio | None
    medians_s: tuple[float | None, ...]


_MEDIANS = 40


def name_of(document: Mapping[str, Any]) -> str:
    return str(document.get("title") or variants_of(document)[-1]["name"])


def history_of(name: str, documents: Sequence[Document]) -> BenchHistory:
    """Returns the history. `documents`: of that name, oldest first."""
    results = []
    for index, document in enumerate(documents):
        results.append(_result(document, documents[index - 1] if index else None))
    return BenchHistory(name=name, kind=str(documents[-1]["kind"]), results=tuple(results))


def summaries_of(documents: Iterable[Document]) -> list[BenchSummary]:
    """Returns one row per name, the newest first. `documents`: oldest first."""
    by_name: dict[str, list[Document]] = {}
    for document in documents:
        by_name.setdefault(name_of(document), []).append(document)
    rows = [_summary(name, found) for name, found in by_name.items()]
    return sorted(rows, key=lambda row: -row.newest_at_us)


def _summary(name: str, documents: Sequence[Document]) -> BenchSummary:
    newest = _result(documents[-1], documents[-2] if len(documents) > 1 else None)
    last = newest.variants[-1]
    change = None if newest.before is None else _of_time(newest.before)
    width = half_width_of({"low": last.low_s, "high": last.high_s}) if last.low_s else None
    return BenchSummary(
        name=name,
        kind=str(documents[-1]["kind"]),
        results=len(documents),
        newest_at_us=newest.created_at_us,
        median_s=last.median_s,
        low_s=last.low_s,
        high_s=last.high_s,
        noise_percent=None if width is None else 100 * width,
        change=change,
        medians_s=tuple(
            variants_of(each)[-1]["metrics"]["median_duration"] for each in documents[-_MEDIANS:]
        ),
    )


def _of_time(comparison: BenchComparison) -> BenchRatio | None:
    return next((each for each in comparison.ratios if each.number == "duration_seconds"), None)


def _result(document: Document, before: Document | None) -> BenchResult:
    compared = None if before is None else _comparison(compared_documents(before, document))
    changes: list[str] = []
    if before is not None:
        found = parameter_changes(before, document)
        changes += [f"{name}: {one} → {two}" for name, (one, two) in found.items()]
        if not are_of_one_machine(before, document):
            changes.append("another machine")
    return BenchResult(
        id=str(document["id"]),
        created_at_us=round(datetime.fromisoformat(document["created_time"]).timestamp() * 1e6),
        host=str(document["system_info"].get("hostname") or ""),
        version=str(document.get("joblens_version") or ""),
        variants=tuple(_variant(each) for each in variants_of(document)),
        comparisons=tuple(_comparison(each) for each in document.get("comparisons") or ()),
        before=compared,
        changes=tuple(changes),
        disturbances=tuple(map(str, document.get("disturbances") or ())),
        failure=str(document.get("failure") or document.get("error") or ""),
    )


def _variant(variant: Mapping[str, Any]) -> BenchVariant:
    metrics = variant["metrics"]
    good = [run for run in variant["runs"] if run["success"] and run["duration_seconds"] is not None]
    memory = metrics["max_memory"]
    return BenchVariant(
        name=str(variant["name"]),
        command=" ".join(map(str, variant["command"])),
        runs=metrics["runs"],
        successful=metrics["successful_runs"],
        median_s=metrics["median_duration"],
        low_s=metrics["median_duration_low"],
        high_s=metrics["median_duration_high"],
        cpu_s=metrics["avg_cpu_seconds"],
        memory_bytes=None if memory is None else memory * MIB,
        durations_s=tuple(run["duration_seconds"] for run in good),
        jobs=tuple(run.get("job_number") for run in good),
        outliers=tuple(metrics["outliers"]),
    )


def _comparison(form: Mapping[str, Any]) -> BenchComparison:
    return BenchComparison(
        variant=str(form["variant"]),
        baseline=str(form["baseline"]),
        ratios=tuple(
            BenchRatio(
                number=name,
                title=title,
                ratio=found["ratio"],
                low=found["low"],
                high=found["high"],
                differs=found["differs"],
                detectable=found["detectable"],
            )
            for name, title in NUMBERS.items()
            if (found := form["numbers"].get(name)) is not None
        ),
    )
