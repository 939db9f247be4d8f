"""What a workflow's jobs should ask for: a table a group, the reasons, and what other strategies cost."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from joblens.analysis.sizing.allocation import Allocation, Strategy
from joblens.analysis.sizing.amounts import memory_text
from joblens.analysis.sizing.rightsizing import Advice, GroupAdvice
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.numbers import UNKNOWN, counted
from joblens.views.text.style import Palette, clean, visible_width
from joblens.views.text.table import Column, render_table

_ADVICE_COLUMNS = (
    Column("RESOURCE"),
    Column("CURRENT", is_right=True),
    Column("RECOMMENDED", is_right=True),
    Column("MEDIAN", is_right=True),
    Column("P95", is_right=True),
    Column("WHY", gives_way=True, least=20),
)
_QUANTILES = ("p50", "p95")
_STRATEGY_COLUMNS = (
    Column("FIRST TRY"),
    Column("MEMORY", is_right=True),
    Column("TRIED TWICE", is_right=True),
    Column("NOT USED", is_right=True),
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
    kind = "" if group.is_named else ", in the job itself" if group.has_requirements else ", nothing written"
    seen = f"{counted(found.jobs, 'job')}, {counted(found.runs, 'run')}, confidence {found.confidence}"
    head = f"{paint.paint(clean(group.name), 'bold')}  {paint.paint(seen + kind, 'dim')}"
    lines = [head, *_advice(found.advice, width, paint)]
    is_certain = not any(item.memory_is_least for item in found.group.observations)
    if is_certain and len({option.first_bytes for option in found.strategies}) > 1:
        lines += ["", *_strategies(found.strategies, width, paint)]
    return lines


def _advice(advice: Sequence[Advice], width: int, paint: Palette) -> list[str]:
    """The reason says more than how the use was spread: those columns go when it would be cut."""
    columns, rows = list(_ADVICE_COLUMNS), [_row(part, paint) for part in advice]
    if not rows:
        return ["  no job came to its end: nothing can be said"]
    while len(columns) > 4 and _width(columns, rows) > width:
        del columns[-2]
        for row in rows:
            del row[-2]
    return render_table(columns, rows, width, paint)


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    widths = [
        max(len(column.title), *(visible_width(row[place]) for row in rows))
        for place, column in enumerate(columns)
    ]
    return sum(widths) + 2 * (len(widths) - 1)


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
    """The same for programs."""
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
