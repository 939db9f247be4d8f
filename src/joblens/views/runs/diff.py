"""Comparison of two runs or two jobs side by side, with the options that differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from joblens.analysis.comparing.job_differences import (
    GROUPS,
    Cause,
    Difference,
    JobDiff,
    NumberChange,
    is_too_small,
)
from joblens.analysis.comparing.run_diff import Change, JobChange, RunDiff
from joblens.model.values.units import counted, format_bytes, format_duration, listed, more
from joblens.views.text.numbers import INSIGNIFICANT, UNKNOWN
from joblens.views.text.style import Palette, clean, fit, pad, visible_width, wrap, wrap_beside
from joblens.views.text.table import Column, columns_that_fit, render_table

_NAMES = {
    "most_jobs": "jobs",
    "memory_bytes": "memory",
    "time_s": "time",
    "slurm time_s": "walltime",
    "slurm options": "sbatch",
}
_PREFIXES = {"slurm": "", "parameters": "parameter "}  # of options with several values


def changed_options(options: Mapping[str, tuple[object, object]]) -> Iterator[tuple[str, str, str]]:
    """Yields (name, before, after)."""
    for name, (before, after) in options.items():
        if name not in _PREFIXES:
            yield _NAMES.get(name, name), _option_text(name, before), _option_text(name, after)
            continue
        sides = [side if isinstance(side, Mapping) else {} for side in (before, after)]
        for part in dict.fromkeys([*sides[0], *sides[1]]):
            values = [side.get(part) for side in sides]
            if values[0] != values[1]:
                known = _NAMES.get(f"{name} {part}", part)
                words = (_option_text(part, value) for value in values)
                yield f"{_PREFIXES[name]}{clean(str(known))}", next(words), next(words)


def _option_text(name: str, value: object) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value))) or UNKNOWN
    if isinstance(value, int | float) and name.endswith("_s"):
        return format_duration(value)
    if isinstance(value, int) and name.endswith("_bytes"):
        return format_bytes(value)
    return clean(f"{value:g}" if isinstance(value, float) else str(value))


_SPEC_LINES_SHOWN = 20
_NAMES_SHOWN = 10
_ENVIRONMENT_SHOWN = 15
_ENDLESS = 1_000_000
_TOTALS = (
    ("wall_s", "wall time", format_duration, "s"),
    ("duration_s", "time of all jobs", format_duration, "s"),
    ("cpu_s", "CPU time", format_duration, "s"),
    ("memory_bytes", "largest job", format_bytes, "bytes"),
    ("completed", "jobs completed", lambda count: f"{count:g}", ""),
    ("jobs", "jobs", lambda count: f"{count:g}", ""),
)
_JOB_COLUMNS = (
    Column("JOB", gives_way=True, keeps_end=True, least=12),
    Column("STATE"),
    Column("TIME", is_right=True),
    Column("CPU", is_right=True, goes=1),
    Column("MEMORY", is_right=True),
    Column("CHANGED", gives_way=True, goes=2),
)


def render_run_diff(found: RunDiff, *, width: int | None, paint: Palette, shows_all: bool) -> list[str]:
    """Formats a diff. `width`: of the terminal; None in a pipe, which gets all columns in full."""
    width = _ENDLESS if width is None else width
    head = f"{found.before} → {found.after}"
    lines = [paint.paint(head, "bold"), "", *_totals(found, width, paint)]
    significant = [job for job in found.jobs if job.is_significant]
    shown = found.jobs if shows_all else significant
    if shown:
        lines += ["", *_jobs(shown, width, paint)]
    omitted = len(found.jobs) - len(shown)
    if omitted:
        lines += ["", f"{omitted:,} of {len(found.jobs):,} jobs unchanged; --all shows them"]
    lines += _names("Added", found.added, width) + _names("Removed", found.removed, width)
    if found.options:
        lines += ["", paint.paint("Options", "bold")]
        for name, before, after in changed_options(found.options):
            lines += _option(name, before, after, width)
    lines += _environment(found, width, paint)
    if found.spec_lines:
        lines += ["", paint.paint("Spec", "bold"), *_spec(found.spec_lines, width, paint)]
    return lines


def _jobs(shown: Sequence[JobChange], width: int, paint: Palette) -> list[str]:
    """Omits CPU time first if there is no space for all columns: it mostly follows the time."""
    rows = [_job_row(job, paint) for job in shown]
    indexes = columns_that_fit(_JOB_COLUMNS, range(len(_JOB_COLUMNS)), rows, width)
    lines = render_table(_JOB_COLUMNS, rows, width, paint, indexes=indexes)
    omitted = [column.title for index, column in enumerate(_JOB_COLUMNS) if index not in indexes]
    if omitted:
        lines += ["", f"Omitted: {' and '.join(omitted)}; a wider terminal or a pipe shows all"]
    return lines


def _option(name: str, before: str, after: str, width: int, indent: str = "") -> list[str]:
    line = f"  {name}: {before} → {after}"
    if visible_width(line) <= width:
        return [line]
    return [fit(f"  {name}:", width), fit(f"    {indent}{before}", width), fit(f"  {indent}→ {after}", width)]


def _environment(found: RunDiff, width: int, paint: Palette) -> list[str]:
    if not found.surroundings:
        return []
    lines = ["", paint.paint("Inputs and environment", "bold")]
    for shared in found.surroundings[:_ENVIRONMENT_SHOWN]:
        one = shared.difference
        jobs = "all jobs" if shared.jobs == found.surroundings_of else counted(shared.jobs, "job")
        name = f"{one.group} {clean(one.name)} ({jobs})"
        lines += _option(name, _plain(one.before), _plain(one.after), width)
    hidden = len(found.surroundings) - _ENVIRONMENT_SHOWN
    if hidden > 0:
        lines.append(paint.paint(f"  {more(hidden)}; --json has them", "dim"))
    return lines


def _totals(found: RunDiff, width: int, paint: Palette) -> list[str]:
    columns = (
        Column(""),
        Column(found.before, is_right=True),
        Column(found.after, is_right=True),
        Column("CHANGE", is_right=True),
    )
    rows = []
    for key, name, form, unit in _TOTALS:
        change = found.totals[key]
        if change.before == change.after == 1:  # two jobs, not two runs
            continue
        by = INSIGNIFICANT if _is_insignificant(change, unit) else _by(change)
        rows.append([name, *(_number(value, form) for value in (change.before, change.after)), by])
    lines = render_table(columns, rows, width, paint)
    if any(row[-1] == INSIGNIFICANT for row in rows):
        lines.append(paint.paint(f"{INSIGNIFICANT} less than 0.1s or 8 MiB apart", "dim"))
    return lines


def _is_insignificant(change: Change, unit: str) -> bool:
    if not unit or change.before is None or change.after is None or change.before == change.after:
        return False
    return not change.is_beyond_noise(unit) and is_too_small(change.percent, None)


def _number(value: float | None, form: Any) -> str:
    return UNKNOWN if value is None else str(form(value))


def _by(change: Change) -> str:
    percent = change.percent
    if percent is None:
        return ""
    return "=" if round(percent) == 0 else f"{percent:+.0f}%"


def _job_row(job: JobChange, paint: Palette) -> list[str]:
    return [
        clean(job.name),
        _state(job, paint),
        _both(job.duration_s, format_duration, "s"),
        _both(job.cpu_s, format_duration, "s"),
        _both(job.memory_bytes, format_bytes, "bytes"),
        ", ".join(job.changed),
    ]


def _state(job: JobChange, paint: Palette) -> str:
    before, after = job.state
    if before != after:
        return paint.paint(f"{before} → {after}", "green" if after == "completed" else "red")
    codes = ("-" if code is None else str(code) for code in job.exit_code)
    exit_ = f", exit {' → '.join(codes)}" if job.exit_code[0] != job.exit_code[1] else ""
    tries = f", {job.attempts[0]} → {job.attempts[1]} attempts" if job.attempts[0] != job.attempts[1] else ""
    return f"{after}{exit_}{tries}"


def _both(change: Change, form: Any, unit: str) -> str:
    """Returns both numbers if they differ, otherwise the later one."""
    if change.after is None:
        return UNKNOWN
    after = _number(change.after, form)
    if change.before is None or not change.is_beyond_noise(unit):
        return after
    return f"{_number(change.before, form)} → {after} {_by(change)}".rstrip()


def _names(title: str, names: Sequence[str], width: int) -> list[str]:
    if not names:
        return []
    return ["", fit(f"{title}: {listed(names, _NAMES_SHOWN, clean)}", width)]


def _plain(value: object) -> str:
    return UNKNOWN if value is None else clean(str(value))


def _spec(lines: Sequence[str], width: int, paint: Palette) -> list[str]:
    colours = {"-": "red", "+": "green", "@": "cyan"}
    shown = [line for line in lines if not line.startswith(("---", "+++"))]
    body = []
    for line in shown[:_SPEC_LINES_SHOWN]:
        text = fit(clean(line), width - 2)
        body.append("  " + (paint.paint(text, colours[line[0]]) if line[:1] in colours else text))
    if len(shown) > _SPEC_LINES_SHOWN:
        body.append(paint.paint(f"  {more(len(shown) - _SPEC_LINES_SHOWN, 'line')}; --json has them", "dim"))
    return body


def run_diff_form(found: RunDiff) -> dict[str, Any]:
    form: dict[str, Any] = to_builtins(found)
    form["totals"] = {name: _change_form(change) for name, change in found.totals.items()}
    form["jobs"] = [
        {
            **to_builtins(job),
            "significant": job.is_significant,
            **{field: _change_form(getattr(job, field)) for field in ("duration_s", "cpu_s", "memory_bytes")},
        }
        for job in found.jobs
    ]
    return form


def _change_form(change: Change) -> dict[str, float | None]:
    return {"before": change.before, "after": change.after, "percent": change.percent}


_ALWAYS = ("duration_s", "cpu_s", "memory_peak_bytes")
_MOST_OF_A_GROUP = 12
_GROUP = 14  # columns of its name
_COLOURS = {"measured": "green", "fits": "cyan", "possible": "dim"}
_MARKS = {"up": "▲", "down": "▼"}


def render_job_diff(found: JobDiff, *, width: int | None, paint: Palette, shows_all: bool) -> list[str]:
    """Formats a diff. `width`: of the terminal; None in a pipe. `shows_all`: also unchanged values."""
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
    omitted = len(found.numbers) - len(shown)
    if omitted:
        lines.append(paint.paint(f"{counted(omitted, 'number')} unchanged; --all shows them", "dim"))
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
    if _is_number_insignificant(number):
        text = INSIGNIFICANT
    elif percent is None:
        text = "" if number.before == number.after else "new"
    elif percent >= 100:
        text = f"x{1 + percent / 100:.2g}"
    else:
        text = "=" if round(percent) == 0 else f"{percent:+.0f}%"
    if not number.has_moved:
        return paint.paint(f"{text}  ", "dim")
    return paint.paint(f"{text} {_MARKS[number.verdict]}", "bold")


def _is_number_insignificant(number: NumberChange) -> bool:
    """Returns whether the difference is too small for a percentage."""
    is_same = number.verdict == "same" and number.before != number.after
    return is_same and is_too_small(number.percent, number.usual_percent)


def _usual(number: NumberChange) -> str:
    """Returns the usual difference between two runs."""
    usual = number.usual_percent
    return "" if usual is None else f"±{usual:.1f}%" if usual < 1 else f"±{usual:.0f}%"


def _differences(found: JobDiff, width: int, paint: Palette, *, shows_all: bool) -> list[str]:
    if not found.differences:
        return ["", "No recorded differences."]
    lines = ["", paint.paint("Differences", "bold")]
    for group in GROUPS:
        here = [one for one in found.differences if one.group == group]
        shown = here if shows_all else here[:_MOST_OF_A_GROUP]
        for index, one in enumerate(shown):
            title = paint.paint(pad(group if index == 0 else "", _GROUP), "cyan")
            lines += _difference(title, one, width)
        if len(shown) < len(here):
            lines.append(paint.paint(f"{'':16}{more(len(here) - len(shown))}; --all shows them", "dim"))
    return lines


def _difference(title: str, one: Difference, width: int) -> list[str]:
    before, after = (UNKNOWN if value is None else clean(value) or "''" for value in (one.before, one.after))
    return _option(f"{title}{clean(one.name)}", before, after, width, " " * _GROUP)


def _causes(causes: Sequence[Cause], width: int, paint: Palette) -> list[str]:
    if not causes:
        return []
    lines = ["", paint.paint("Possible causes", "bold")]
    for cause in causes:
        head = f"  {paint.paint(pad(cause.kind, 10), _COLOURS[cause.kind])}"
        lines += wrap_beside(head, clean(cause.text), max(42, min(width, 110)))
    return lines


def _rest(found: JobDiff, width: int, paint: Palette) -> list[str]:
    judged = max((one.earlier_runs for one in found.numbers), default=0)
    notes = []
    if not any(one.has_moved for one in found.numbers):
        limit = "more than usual" if judged else "10% or more"
        notes.append(f"No number changed by {limit}.")
    if found.same:
        notes.append(f"Unchanged: {', '.join(found.same)}.")
    if found.unknown:
        notes.append(f"Unknown for at least one: {', '.join(found.unknown)}.")
    notes.append(
        f"▲▼ more than the usual difference of {counted(judged, 'earlier run')} (USUAL; otherwise 10%)."
        if judged
        else "▲▼ 10% or more: too few earlier runs to know the usual difference."
    )
    if any(_is_number_insignificant(one) for one in found.numbers):
        where_known = " (0.02s or 1 MiB with a USUAL)" if judged else ""
        notes.append(f"{INSIGNIFICANT} less than 0.1s or 8 MiB apart{where_known}: insignificant.")
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
