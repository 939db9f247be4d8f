"""Labels and section helpers shared by the views of a job: name, duration, I/O, age."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.analysis.numbers.rates import NOT_MEASURED
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job, Record, Usage
from joblens.model.jobs.probe_choice import DEFAULT_PROBES
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_duration, format_instant, more
from joblens.views.text.numbers import UNKNOWN, compact_bytes, mark_bound, mark_number
from joblens.views.text.style import Palette, clean, pad, wrap
from joblens.views.text.table import Column, columns_with_values, render_table

_DAY_S = 86400


def command_line(job: Job) -> str:
    """Returns the command as typed in a shell."""
    if job.is_shell:
        return clean(" ".join(job.argv))
    return clean(" ".join(_quoted(argument) for argument in job.argv))


def _quoted(argument: str) -> str:
    if argument and not set(argument) & set(" \t\n'\"\\$&|;<>()*?[]#~!`{}"):
        return argument
    return "'" + argument.replace("'", "'\\''") + "'"


def display_name(job: Job) -> str:
    """Returns the job's name, or its command if it has none."""
    named = clean(job.name).strip() or clean(" ".join(part for part in (job.tool, job.script) if part))
    return named or command_line(job) or UNKNOWN


def attempt_of(record: Record) -> int:
    """Returns the attempt number: that within its run, plus one for each worker that did not finish it."""
    before = 0 if record.job.run is None else record.job.run.attempt - 1
    return before + (1 if record.attempt is None else record.attempt.number)


def name_with_attempt(record: Record) -> str:
    """Returns 'train (attempt 2)'."""
    number = attempt_of(record)
    return display_name(record.job) + (f" (attempt {number})" if number > 1 else "")


def started_at_us(record: Record) -> int:
    return record.attempt.started_at_us if record.attempt is not None else record.job.created_at_us


def duration_s(record: Record, now_us: int) -> float | None:
    """Returns the duration, for a running job so far; None for a queued job."""
    if record.outcome is not None:
        return record.outcome.duration_s
    if record.attempt is None:
        return None
    return max(0, now_us - record.attempt.started_at_us) / 1e6


def ago(at_us: int, now_us: int) -> str:
    """Returns '3m ago' for the last two weeks, otherwise the date."""
    seconds = (now_us - at_us) / 1e6
    if seconds < 0:
        return format_instant(at_us)[:10]
    if seconds < 1:
        return "now"
    for unit, size, limit in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, _DAY_S), ("d", _DAY_S, 14 * _DAY_S)):
        if seconds < limit:
            return f"{seconds // size:.0f}{unit} ago"
    return format_instant(at_us)[:10]


def compact_cpu(usage: Usage) -> str:
    if usage.cpu_total_usec is None:
        return UNKNOWN
    text = format_duration(usage.cpu_total_usec / 1e6)
    return mark_number(text, usage, "cpu_total_usec")


def compact_memory(usage: Usage) -> str:
    if usage.memory_peak_bytes is None and usage.memory_rss_sum_peak_bytes is not None:
        return f"{compact_bytes(usage.memory_rss_sum_peak_bytes)} RSS sum"
    return mark_number(compact_bytes(usage.memory_peak_bytes), usage, "memory_peak_bytes")


def compact_io(usage: Usage) -> str:
    """Returns the sum of bytes read and written."""
    parts = [
        usage.io_read_bytes if usage.io_read_bytes is not None else usage.io_call_read_bytes,
        usage.io_write_bytes if usage.io_write_bytes is not None else usage.io_call_write_bytes,
    ]
    known = [part for part in parts if part is not None]
    is_lower_bound = len(known) < len(parts) or any(name.startswith("io_") for name in usage.lower_bounds)
    return mark_bound(compact_bytes(sum(known)), is_lower_bound=is_lower_bound) if known else UNKNOWN


MOST_ROWS = 20
LABEL_WIDTH = 16


class SectionContext(Struct, frozen=True, kw_only=True):
    """Data of a job for the sections of its page."""

    record: Record
    samples: Sequence[Sample]
    details: Details
    width: int
    paint: Palette


def heading(text: str, context: SectionContext) -> str:
    return context.paint.paint(text, "bold")


def why_empty(part: str, context: SectionContext, *names: str, number: str = "") -> list[str]:
    """Explains why a section is empty. `names`: details that may have a reason; `number`: a number of the
    usage with the same source."""
    reasons = [context.details.unknown[name] for name in names if name in context.details.unknown]
    if context.record.outcome is not None and number in context.record.outcome.usage.unknown:
        reasons.append(context.record.outcome.usage.unknown[number])
    known_reasons = [reason for reason in reasons if reason != NOT_MEASURED]
    why = known_reasons[0] if known_reasons else _why_unknown(part, context.record)
    return wrap(f"unknown: {clean(why)}", context.width, "  ")


def _why_unknown(part: str, record: Record) -> str:
    job = record.job
    chosen = DEFAULT_PROBES if job.probes is None else job.probes
    if part in chosen and job.monitor:
        return "not sampled yet" if record.outcome is None else "not in its record"
    if not job.monitor:
        return "measuring was off"
    if job.attached:
        return f"not measured; use joblens attach … --probes +{part}"
    if not job.argv and job.container is None:
        return "not measured: measured from inside the program, or imported"
    return f"not measured; use joblens run --probes +{part}"


def pairs(known: Sequence[tuple[str, str]], paint: Palette) -> list[str]:
    """Returns a line per known value, beside its label."""
    return [
        f"  {paint.paint(pad(name, LABEL_WIDTH), 'dim')} {value}"
        for name, value in known
        if value not in ("", UNKNOWN)
    ]


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], context: SectionContext) -> list[str]:
    indexes = columns_with_values(columns, rows)
    lines = render_table(columns, rows[:MOST_ROWS], context.width - 2, context.paint, indexes=indexes)
    return [f"  {line}" for line in lines]


def rest(total: int, shown: int, noun: str, context: SectionContext) -> list[str]:
    hidden = total - shown
    return [context.paint.paint(f"  {more(hidden, noun)}", "dim")] if hidden > 0 else []
