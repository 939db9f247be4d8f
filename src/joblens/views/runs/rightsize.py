"""Requests against use: right-sizing tables and the utilization check."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from joblens.analysis.sizing.amounts import memory_text
from joblens.analysis.sizing.observations import Allocation, Strategy
from joblens.analysis.sizing.rightsizing import Advice, GroupAdvice
from joblens.analysis.sizing.utilization import (
    LikelyCause,
    LimitHit,
    Resource,
    Utilization,
    UtilizationReport,
    amount_text,
    gpu_memory_peak,
    over_text,
    specified_text,
)
from joblens.model.jobs.job import Record
from joblens.model.values.units import UNITS_NOTE, counted, format_bytes, format_duration
from joblens.views.jobs.labels import name_with_attempt
from joblens.views.text.numbers import UNKNOWN, mark_bound
from joblens.views.text.style import PLAIN, Palette, clean, pad, visible_width
from joblens.views.text.table import Column, columns_that_fit, render_table

_ADVICE_COLUMNS = (
    Column("RESOURCE"),
    Column("CURRENT", is_right=True),
    Column("RECOMMENDED", is_right=True),
    Column("MEDIAN", is_right=True, goes=2),
    Column("P95", is_right=True, goes=1),
    Column("WHY", gives_way=True, least=20),
)
_QUANTILES = ("p50", "p95")
_STRATEGY_COLUMNS = (
    Column("STRATEGY"),
    Column("MEMORY", is_right=True),
    Column("RETRIED", is_right=True),
    Column("UNUSED", is_right=True),
    Column("THROUGHPUT", is_right=True),
)
_NAMES = {
    Strategy.MAX_SEEN: "max seen",
    Strategy.MIN_WASTE: "min waste",
    Strategy.MAX_THROUGHPUT: "max throughput",
}
_SHARES = {"memory": format_bytes, "runtime": format_duration}


def render_group(found: GroupAdvice, *, width: int, paint: Palette) -> list[str]:
    group = found.group
    kind = (
        "" if group.is_named else ", in the job itself" if group.has_requirements else ", not set in the file"
    )
    basis = f"{counted(found.jobs, 'job')}, {counted(found.runs, 'run')}, confidence {found.confidence}"
    head = f"{paint.paint(clean(group.name), 'bold')}  {paint.paint(basis + kind, 'dim')}"
    lines = [head, *_advice(found.advice, width, paint)]
    is_certain = not any(item.memory_is_least for item in found.group.observations)
    if is_certain and len({option.first_bytes for option in found.strategies}) > 1:
        lines += ["", *_strategies(found.strategies, width, paint)]
    return lines


def _advice(advice: Sequence[Advice], width: int, paint: Palette) -> list[str]:
    """Formats advice. Omits the distribution columns if reasons would be truncated."""
    rows = [_row(part, paint) for part in advice]
    if not rows:
        return ["  no job completed: no advice"]
    indexes = columns_that_fit(_ADVICE_COLUMNS, range(len(_ADVICE_COLUMNS)), rows, width, whole_names=True)
    return render_table(_ADVICE_COLUMNS, rows, width, paint, indexes=indexes)


def _row(part: Advice, paint: Palette) -> list[str]:
    colour = "yellow" if part.grows else "green" if part.is_change and part.current is not None else ""
    recommended = part.recommended_text if part.is_change else "keep"
    return [
        part.resource,
        part.current_text or UNKNOWN,
        paint.paint(recommended, colour) if colour else recommended,
        *(_amount(part, name) for name in _QUANTILES),
        part.reason,
    ]


def _amount(part: Advice, quantile: str) -> str:
    value = part.quantiles.get(quantile)
    if value is None:
        return UNKNOWN
    text = f"{100 * value:.0f}%" if part.resource == "cpus" else _SHARES[part.resource](value)
    return f"≥{text}" if quantile in part.at_least else text


def _strategies(options: Sequence[Allocation], width: int, paint: Palette) -> list[str]:
    rows = [
        [
            _NAMES[option.strategy],
            memory_text(option.first_bytes),
            f"{100 * option.retries:.0f}%",
            f"{option.waste_percent:.0f}%",
            f"{option.throughput:.2f}x",
        ]
        for option in options
    ]
    return render_table(_STRATEGY_COLUMNS, rows, width, paint)


def group_form(found: GroupAdvice) -> dict[str, Any]:
    """Returns the same for programs."""
    group = found.group
    return {
        "group": group.name,
        "kind": "named" if group.is_named else "inline" if group.has_requirements else "none",
        "jobs": found.jobs,
        "runs": found.runs,
        "confidence": found.confidence,
        "advice": [
            {
                "resource": part.resource,
                "current": part.current_text or None,
                "recommended": part.recommended_text,
                "change": part.is_change,
                "reason": part.reason,
                "current_value": part.current,
                "recommended_value": part.recommended,
                "quantiles": part.quantiles,
                "quantiles_at_least": list(part.at_least),
                "retry_value": part.retry_at,
            }
            for part in found.advice
        ],
        "strategies": [to_builtins(option) for option in found.strategies],
    }


_ORDER = tuple(Resource)
_TITLES = ("Job ID", "Job Name", "Resource", "Specified", "Peak Used", "Over-Utilization")


def render_utilization(
    report: UtilizationReport, *, show_all: bool, run: str = "", paint: Palette = PLAIN
) -> list[str]:
    """Formats the report. `run`: name for the next command; '' for none."""
    count = len(report.violations)
    lines: list[str] = []
    if show_all:
        everything = sorted([*report.violations, *report.within], key=_order)
        lines = _table(everything, paint) if everything else [_nothing(report)]
    elif count:
        lines = [
            paint.paint(f"⚠ Found {counted(count, 'resource over-utilization violation')}:", "yellow"),
            "",
            *_table(report.violations, paint),
            "",
            "Note: Use --all to see all jobs that ran, including those that stayed within limits",
        ]
    else:
        lines = [paint.paint(_nothing(report), "green") if report.within else _nothing(report)]
    gpu = _gpu_memory(report.gpu_memory or ()) if show_all else []
    shown = [*report.violations, *(report.within if show_all else ())]
    has_memory = bool(gpu) or any(item.resource is Resource.MEMORY for item in shown)
    note = [*([""] if show_all else []), f"Note: {UNITS_NOTE}"] if has_memory else []
    return [*lines, *gpu, *note, *_likely_causes(report.failures), *_next_step(report, run)]


def _gpu_memory(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    return [
        "",
        "GPU memory peaks (not requested, so not compared):",
        *(
            f"  job {record.number} {name_with_attempt(record)}: "
            + amount_text(Resource.MEMORY, gpu_memory_peak(record))
            for record in records
        ),
    ]


def _next_step(report: UtilizationReport, run: str) -> list[str]:
    count = report.over_asking
    if not run or not (count or report.violations):
        return []
    asked = f"{counted(count, 'job')} requested more than twice what {'it' if count == 1 else 'they'} used. "
    return ["", f"{asked if count else ''}For better values: joblens rightsize {run}"]


def _order(item: Utilization) -> tuple[int, int]:
    return item.record.number or 0, _ORDER.index(item.resource)


def _nothing(report: UtilizationReport) -> str:
    if not report.total_results:
        return "Nothing to check: no job of this run has ended."
    if not report.within:
        return f"Nothing to check: none of {counted(report.total_results, 'result')} has requirements."
    return f"✓ All jobs stayed within their requests ({counted(report.total_results, 'result')} checked)."


def _table(items: Sequence[Utilization], paint: Palette) -> list[str]:
    rows = [_utilization_row(item) for item in items]
    widths = [
        max(visible_width(title), *(visible_width(row[index]) for row in rows))
        for index, title in enumerate(_TITLES)
    ]
    # The first column has a blank only on its right.
    rule = "|".join("-" * (width + (2 if index else 1)) for index, width in enumerate(widths))
    lines = [paint.paint(_line(_TITLES, widths), "bold"), rule]
    for item, row in zip(items, rows, strict=True):
        is_over = bool(item.hit) or (item.over_percent or 0) > 0
        lines.append(paint.paint(_line(row, widths), "red") if is_over else _line(row, widths))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " | ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _utilization_row(item: Utilization) -> tuple[str, ...]:
    over = over_text(item) if item.hit is LimitHit.NONE else f"{over_text(item)} ({item.hit})"
    return (
        UNKNOWN if item.record.number is None else str(item.record.number),
        name_with_attempt(item.record),
        item.resource.value,
        specified_text(item),
        mark_bound(amount_text(item.resource, item.peak), is_lower_bound=item.is_least),
        over,
    )


def _likely_causes(failures: Sequence[LikelyCause]) -> list[str]:
    if not failures:
        return []
    return ["", "Failed jobs and their likely cause:", *(f"  {_cause(failure)}" for failure in failures)]


def _cause(failure: LikelyCause) -> str:
    causes: list[str] = []
    if failure.likely_oom:
        share = _share(failure.memory_share, "its memory")
        causes.append(f"out of memory{share}")
    if failure.likely_timeout:
        causes.append(f"out of time{_share(failure.runtime_share, 'its time')}")
    code = UNKNOWN if failure.return_code is None else str(failure.return_code)
    name = name_with_attempt(failure.record)
    return f"job {failure.record.number} {name}, return code {code}: likely {' or '.join(causes)}"


def _share(share: float | None, of_what: str) -> str:
    return "" if share is None else f" (used {share * 100:.0f}% of {of_what})"
