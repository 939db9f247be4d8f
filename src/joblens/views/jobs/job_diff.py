"""Two jobs side by side."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from joblens.analysis.comparing.job_diff_values import GROUPS, Cause, Difference, JobDiff, NumberChange
from joblens.analysis.comparing.job_noise import is_too_small
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.numbers import NOT_TOLD_APART, UNKNOWN, counted
from joblens.views.text.style import Palette, clean, fit, pad, visible_width, wrap
from joblens.views.text.table import Column, render_table

_ENDLESS = 1_000_000
_ALWAYS = ("duration_s", "cpu_s", "memory_peak_bytes")
_MOST_OF_A_GROUP = 12
_COLOURS = {"measured": "green", "fits": "cyan", "possible": "dim"}
_MARKS = {"up": "▲", "down": "▼"}


def render_job_diff(found: JobDiff, *, width: int | None, paint: Palette, shows_all: bool) -> list[str]:
    """`width`: of the terminal; None in a pipe. `shows_all`: also what is as before."""
    width = _ENDLESS if width is None else width
    names = dict.fromkeys(clean(name) for name in found.names if name)
    head = f"{found.before} → {found.after}"
    lines = [fit(f"{paint.paint(head, 'bold')}  {' → '.join(names)}".rstrip(), width)]
    if found.status[0] != found.status[1]:
        colour = "green" if found.status[1] == "success" else "red"
        lines.append(paint.paint(f"{found.status[0]} → {found.status[1]}", colour))
    lines += ["", *_numbers(found, width, paint, shows_all=shows_all)]
    lines += _differences(found, width, paint, shows_all=shows_all)
    lines += _causes(found.causes, width, paint)
    return [*lines, *_rest(found, width, paint)]


def _numbers(found: JobDiff, width: int, paint: Palette, *, shows_all: bool) -> list[str]:
    shown = [one for one in found.numbers if shows_all or one.has_moved or one.key in _ALWAYS]
    columns = (
        Column("", gives_way=True, least=14),
        Column(found.before, is_right=True),
        Column(found.after, is_right=True),
        Column("CHANGE", is_right=True),
        Column("USUAL", is_right=True, goes=1),
    )
    rows = [
        [
            one.title,
            amount(one.before, one.unit),
            amount(one.after, one.unit),
            _change(one, paint),
            _usual(one),
        ]
        for one in shown
    ]
    lines = render_table(columns, rows, width, paint)
    left_out = len(found.numbers) - len(shown)
    if left_out:
        lines.append(paint.paint(f"{counted(left_out, 'number')} as before; --all shows them", "dim"))
    return lines


def amount(value: float | None, unit: str) -> str:
    if value is None:
        return UNKNOWN
    if unit == "s":
        return format_duration(value)
    if unit == "bytes":
        return format_bytes(value)
    return f"{value:,.0f}" if unit == "count" else f"{value:,.0f} {unit}"


def _change(number: NumberChange, paint: Palette) -> str:
    percent = number.percent
    if number.before is None or number.after is None:
        return ""
    if _is_not_told_apart(number):
        text = NOT_TOLD_APART
    elif percent is None:
        text = "" if number.before == number.after else "new"
    elif percent >= 100:
        text = f"x{1 + percent / 100:.2g}"
    else:
        text = "=" if round(percent) == 0 else f"{percent:+.0f}%"
    if not number.has_moved:
        return paint.paint(f"{text}  ", "dim")
    return paint.paint(f"{text} {_MARKS[number.verdict]}", "bold")


def _is_not_told_apart(number: NumberChange) -> bool:
    """A percentage would look like a change."""
    is_same = number.verdict == "same" and number.before != number.after
    return is_same and is_too_small(number.percent, number.usual_percent)


def _usual(number: NumberChange) -> str:
    """What two runs differ by anyway."""
    usual = number.usual_percent
    return "" if usual is None else f"±{usual:.1f}%" if usual < 1 else f"±{usual:.0f}%"


def _differences(found: JobDiff, width: int, paint: Palette, *, shows_all: bool) -> list[str]:
    if not found.differences:
        return ["", "Nothing that is recorded of the two differs."]
    lines = ["", paint.paint("What differs", "bold")]
    for group in GROUPS:
        here = [one for one in found.differences if one.group == group]
        shown = here if shows_all else here[:_MOST_OF_A_GROUP]
        for place, one in enumerate(shown):
            title = paint.paint(pad(group if place == 0 else "", 14), "cyan")
            lines += _difference(title, one, width)
        if len(shown) < len(here):
            lines.append(paint.paint(f"{'':16}… {len(here) - len(shown):,} more; --all shows them", "dim"))
    return lines


def _difference(title: str, one: Difference, width: int) -> list[str]:
    before, after = (UNKNOWN if value is None else clean(value) or "''" for value in (one.before, one.after))
    name = clean(one.name)
    line = f"  {title}{name}: {before} → {after}"
    if visible_width(line) <= width:
        return [line]
    return [fit(f"  {title}{name}:", width), fit(f"{'':18}{before}", width), fit(f"{'':16}→ {after}", width)]


def _causes(causes: Sequence[Cause], width: int, paint: Palette) -> list[str]:
    if not causes:
        return []
    lines = ["", paint.paint("Where it may come from", "bold")]
    for cause in causes:
        first, *more = wrap(clean(cause.text), max(30, min(width, 110) - 12)) or [""]
        lines.append(f"  {paint.paint(pad(cause.kind, 10), _COLOURS[cause.kind])}{first}")
        lines += [f"{'':12}{line}" for line in more]
    return lines


def _rest(found: JobDiff, width: int, paint: Palette) -> list[str]:
    judged = max((one.earlier_runs for one in found.numbers), default=0)
    notes = []
    if not any(one.has_moved for one in found.numbers):
        limit = "more than is usual" if judged else "10 % or more"
        notes.append(f"No number changed by {limit}.")
    if found.same:
        notes.append(f"The same: {', '.join(found.same)}.")
    if found.unknown:
        notes.append(f"Not known of both: {', '.join(found.unknown)}.")
    notes.append(
        f"▲▼ more than {counted(judged, 'earlier run')} of this job differ by (USUAL; else 10 % and more)."
        if judged
        else "▲▼ 10 % and more: there are too few earlier runs to know what is usual."
    )
    if any(_is_not_told_apart(one) for one in found.numbers):
        where_known = " (0.02 s or 1 MiB beside a USUAL)" if judged else ""
        notes.append(f"{NOT_TOLD_APART} less than 0.1 s or 8 MiB apart{where_known}: too little to tell.")
    lines = [line for note in notes for line in wrap(note, min(width, 110))]
    return ["", *(paint.paint(line, "dim") for line in lines)]


def job_diff_form(found: JobDiff) -> dict[str, Any]:
    form: dict[str, Any] = to_builtins(found)
    form["numbers"] = {
        one.key: {
            **{name: value for name, value in to_builtins(one).items() if name != "key"},
            "ratio": one.ratio,
            "percent": one.percent,
            "beyond_usual": one.has_moved if one.verdict != "unknown" else None,
        }
        for one in found.numbers
    }
    return form
