"""What jobs used against what they had asked for, as a table with bars."""

from collections.abc import Sequence

from joblens.analysis.sizing.utilization import (
    LikelyCause,
    LimitHit,
    Resource,
    Utilization,
    UtilizationReport,
    gpu_memory_peak,
)
from joblens.analysis.sizing.utilization_form import amount_text, over_text, specified_text
from joblens.model.jobs.job import Record
from joblens.model.values.units import UNITS_NOTE
from joblens.views.jobs.labels import name_with_attempt
from joblens.views.text.numbers import UNKNOWN, counted, mark_bound
from joblens.views.text.style import PLAIN, Palette, pad, visible_width

_ORDER = tuple(Resource)
_TITLES = ("Job ID", "Job Name", "Resource", "Specified", "Peak Used", "Over-Utilization")


def render_utilization(
    report: UtilizationReport, *, show_all: bool, run: str = "", paint: Palette = PLAIN
) -> list[str]:
    """`run`: as the next command would name it; '' where none is to be told."""
    count = len(report.violations)
    lines: list[str] = []
    if show_all:
        everything = sorted([*report.violations, *report.within], key=_place)
        lines = _table(everything, paint) if everything else [_nothing(report)]
    elif count:
        noun = "violation" if count == 1 else "violations"
        lines = [
            paint.paint(f"⚠ Found {count} resource over-utilization {noun}:", "yellow"),
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
        "GPU memory at most (nothing is asked for, so nothing is compared):",
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
    asked = f"{counted(count, 'job')} asked for more than twice what {'it' if count == 1 else 'they'} used. "
    return ["", f"{asked if count else ''}What to write instead: joblens rightsize {run}"]


def _place(item: Utilization) -> tuple[int, int]:
    return item.record.number or 0, _ORDER.index(item.resource)


def _nothing(report: UtilizationReport) -> str:
    if not report.total_results:
        return "No job of this run has ended yet: there is nothing to check."
    if not report.within:
        return f"Nothing to check: none of {counted(report.total_results, 'result')} has requirements."
    return (
        f"✓ All jobs stayed within what they asked for ({counted(report.total_results, 'result')} checked)."
    )


def _table(items: Sequence[Utilization], paint: Palette) -> list[str]:
    rows = [_row(item) for item in items]
    widths = [
        max(visible_width(title), *(visible_width(row[place]) for row in rows))
        for place, title in enumerate(_TITLES)
    ]
    # The first column has a blank on its right only.
    rule = "|".join("-" * (width + (2 if place else 1)) for place, width in enumerate(widths))
    lines = [paint.paint(_line(_TITLES, widths), "bold"), rule]
    for item, row in zip(items, rows, strict=True):
        is_over = bool(item.hit) or (item.over_percent or 0) > 0
        lines.append(paint.paint(_line(row, widths), "red") if is_over else _line(row, widths))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " | ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _row(item: Utilization) -> tuple[str, ...]:
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
