"""What a job used, number by number: the value, whether it is a lower bound, and where it was read."""

from collections.abc import Callable

from joblens.analysis.usage import source_of
from joblens.model.job import Usage
from joblens.model.units import format_bytes
from joblens.views.numbers import count, mark_bound, percent, seconds
from joblens.views.style import Palette, clean, fit, pad, pad_left

Show = Callable[[int | None], str]

# (label, field of Usage, how to write it); an indented label belongs to the one above it.
_ROWS: tuple[tuple[str, str, Show], ...] = (
    ("CPU time", "cpu_total_usec", seconds),
    ("  user", "cpu_user_usec", seconds),
    ("  system", "cpu_system_usec", seconds),
    ("  throttled", "cpu_throttled_usec", seconds),
    ("memory peak", "memory_peak_bytes", format_bytes),
    ("  with page cache", "memory_kernel_peak_bytes", format_bytes),
    ("  largest process", "memory_largest_process_bytes", format_bytes),
    ("  mean", "memory_mean_bytes", format_bytes),
    ("out-of-memory kills", "oom_kills", count),
    ("page faults minor", "faults_minor", count),
    ("page faults major", "faults_major", count),
    ("read from devices", "io_read_bytes", format_bytes),
    ("  operations", "io_read_ops", count),
    ("written to devices", "io_write_bytes", format_bytes),
    ("  operations", "io_write_ops", count),
    ("read by calls", "io_call_read_bytes", format_bytes),
    ("  calls", "io_call_reads", count),
    ("written by calls", "io_call_write_bytes", format_bytes),
    ("  calls", "io_call_writes", count),
    ("processes at most", "processes_peak", count),
    ("threads at most", "threads_peak", count),
    ("open files at most", "open_files_peak", count),
    ("process limit hit", "pids_limit_events", count),
    ("switches, voluntary", "context_switches_voluntary", count),
    ("switches, forced", "context_switches_involuntary", count),
    ("waited for CPU", "cpu_pressure_usec", seconds),
    ("waited for memory", "memory_pressure_usec", seconds),
    ("waited for I/O", "io_pressure_usec", seconds),
)
USAGE_NUMBERS = tuple(name for _, name, _ in _ROWS)
_LABEL = max(len(label) for label, _, _ in _ROWS)
_VALUE = 14


def render_usage(usage: Usage, duration_s: float, width: int, paint: Palette) -> list[str]:
    lines = []
    for label, name, show in _ROWS:
        value: int | None = getattr(usage, name)
        text = mark_bound(show(value), is_lower_bound=name in usage.lower_bounds)
        if name == "cpu_total_usec" and value is not None and duration_s > 0:
            text += f" ({percent(value / 1e4 / duration_s)})"
        room = max(12, width - _LABEL - _VALUE - 5)
        where = paint.paint(fit(clean(_about(usage, name)), room), "dim")
        lines.append(f"  {pad(label, _LABEL)} {pad_left(text, _VALUE)}  {where}".rstrip())
    if usage.shared:
        lines.append("  measurements overlapped in one process: the numbers are shared between them")
    if usage.lower_bounds:
        lines.append(paint.paint("  ≥ at least this much; the exact number could not be had", "dim"))
    return lines


def _about(usage: Usage, name: str) -> str:
    """Where the number was read, or why it is not known."""
    if getattr(usage, name) is None:
        return usage.unknown.get(name, "")
    return source_of(usage, name) or usage.sources.get(name, "")
