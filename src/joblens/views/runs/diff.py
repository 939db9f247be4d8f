"""Two runs, or two jobs, side by side."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from joblens.analysis.comparing.job_noise import is_too_small
from joblens.analysis.comparing.run_diff import Change, JobChange, RunDiff
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.runs.options import changed_options
from joblens.views.text.numbers import NOT_TOLD_APART, UNKNOWN, counted
from joblens.views.text.style import Palette, clean, fit, visible_width
from joblens.views.text.table import Column, render_table

_SPEC_LINES_SHOWN = 20
_NAMES_SHOWN = 10
_SURROUNDINGS_SHOWN = 15
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
    """`width`: of the terminal; None in a pipe, whose readers count on every column, whole."""
    width = _ENDLESS if width is None else width
    head = f"{found.before} → {found.after}"
    lines = [paint.paint(head, "bold"), "", *_totals(found, width, paint)]
    significant = [job for job in found.jobs if job.is_significant]
    shown = found.jobs if shows_all else significant
    if shown:
        lines += ["", *_jobs(shown, width, paint)]
    left_out = len(found.jobs) - len(shown)
    if left_out:
        lines += ["", f"{left_out:,} of {len(found.jobs):,} jobs as before; --all shows them"]
    lines += _names("Added", found.added, width) + _names("Removed", found.removed, width)
    if found.options:
        lines += ["", paint.paint("Options", "bold")]
        for name, before, after in changed_options(found.options):
            lines += _option(name, before, after, width)
    lines += _surroundings(found, width, paint)
    if found.spec_lines:
        lines += ["", paint.paint("Spec", "bold"), *_spec(found.spec_lines, width, paint)]
    return lines


def _jobs(shown: Sequence[JobChange], width: int, paint: Palette) -> list[str]:
    """CPU time goes first where there is no room for all: it mostly follows the time."""
    rows = [_job_row(job, paint) for job in shown]
    lines: list[str] = []
    left_out: tuple[str, ...] = ()
    for left_out in ((), ("CPU",), ("CPU", "CHANGED")):
        places = [place for place, column in enumerate(_JOB_COLUMNS) if column.title not in left_out]
        columns = [_JOB_COLUMNS[place] for place in places]
        lines = render_table(columns, [[row[place] for place in places] for row in rows], width, paint)
        if max(map(visible_width, lines)) <= width:
            break
    return [*lines, *_not_shown(left_out)]


def _not_shown(left_out: Sequence[str]) -> list[str]:
    if not left_out:
        return []
    return ["", f"No room for {' and '.join(left_out)}: a wider terminal or a pipe shows all"]


def _option(name: str, before: str, after: str, width: int) -> list[str]:
    line = f"  {name}: {before} → {after}"
    if visible_width(line) <= width:
        return [line]
    return [f"  {name}:", fit(f"    {before}", width), fit(f"  → {after}", width)]


def _surroundings(found: RunDiff, width: int, paint: Palette) -> list[str]:
    if not found.surroundings:
        return []
    lines = ["", paint.paint("Read and ran in", "bold")]
    for shared in found.surroundings[:_SURROUNDINGS_SHOWN]:
        one = shared.difference
        jobs = "all jobs" if shared.jobs == found.surroundings_of else counted(shared.jobs, "job")
        name = f"{one.group} {clean(one.name)} ({jobs})"
        lines += _option(name, _plain(one.before), _plain(one.after), width)
    more = len(found.surroundings) - _SURROUNDINGS_SHOWN
    if more > 0:
        lines.append(paint.paint(f"  … {more:,} more; --json has them", "dim"))
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
        by = NOT_TOLD_APART if _is_not_told_apart(change, unit) else _by(change)
        rows.append([name, *(_number(value, form) for value in (change.before, change.after)), by])
    lines = render_table(columns, rows, width, paint)
    if any(row[-1] == NOT_TOLD_APART for row in rows):
        lines.append(paint.paint(f"{NOT_TOLD_APART} less than 0.1 s or 8 MiB apart", "dim"))
    return lines


def _is_not_told_apart(change: Change, unit: str) -> bool:
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
    """Both where the number has changed, else the later one."""
    if change.after is None:
        return UNKNOWN
    after = _number(change.after, form)
    if change.before is None or not change.is_beyond_noise(unit):
        return after
    return f"{_number(change.before, form)} → {after} {_by(change)}".rstrip()


def _names(title: str, names: Sequence[str], width: int) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return ["", fit(f"{title}: {', '.join(map(clean, names[:_NAMES_SHOWN]))}{more}", width)]


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
        body.append(paint.paint(f"  … {len(shown) - _SPEC_LINES_SHOWN:,} more lines; --json has them", "dim"))
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
