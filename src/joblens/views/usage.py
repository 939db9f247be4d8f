"""What a job used, number by number: the value, whether it is a lower bound, and where it was read."""

from collections.abc import Callable, Mapping

from joblens.model.job import Usage
from joblens.model.units import format_bytes
from joblens.views.numbers import count, mark_bound, percent, seconds
from joblens.views.style import Palette, clean, fit, pad, pad_left

Show = Callable[[int | None], str]

# (label, field of Usage, how to write it, group that names its source); an indented label belongs to the one
# above it.
_ROWS: tuple[tuple[str, str, Show, str], ...] = (
    ("CPU time", "cpu_total_usec", seconds, "cpu"),
    ("  user", "cpu_user_usec", seconds, "cpu"),
    ("  system", "cpu_system_usec", seconds, "cpu"),
    ("  throttled", "cpu_throttled_usec", seconds, "throttling"),
    ("memory peak", "memory_peak_bytes", format_bytes, "memory_parts"),
    ("  with page cache", "memory_kernel_peak_bytes", format_bytes, "memory_kernel_peak"),
    ("  largest process", "memory_largest_process_bytes", format_bytes, "memory_largest_process"),
    ("  mean", "memory_mean_bytes", format_bytes, "memory_parts"),
    ("out-of-memory kills", "oom_kills", count, "oom_kills"),
    ("page faults minor", "faults_minor", count, "faults"),
    ("page faults major", "faults_major", count, "faults"),
    ("read from devices", "io_read_bytes", format_bytes, "io"),
    ("  operations", "io_read_ops", count, "io_ops"),
    ("written to devices", "io_write_bytes", format_bytes, "io"),
    ("  operations", "io_write_ops", count, "io_ops"),
    ("read by calls", "io_call_read_bytes", format_bytes, "io_calls"),
    ("  calls", "io_call_reads", count, "io_calls"),
    ("written by calls", "io_call_write_bytes", format_bytes, "io_calls"),
    ("  calls", "io_call_writes", count, "io_calls"),
    ("processes at most", "processes_peak", count, "processes"),
    ("threads at most", "threads_peak", count, "threads"),
    ("open files at most", "open_files_peak", count, "open_files"),
    ("process limit hit", "pids_limit_events", count, "pids_limit_events"),
    ("switches, voluntary", "context_switches_voluntary", count, "context_switches"),
    ("switches, forced", "context_switches_involuntary", count, "context_switches"),
    ("waited for CPU", "cpu_pressure_usec", seconds, "cpu_pressure"),
    ("waited for memory", "memory_pressure_usec", seconds, "memory_pressure"),
    ("waited for I/O", "io_pressure_usec", seconds, "io_pressure"),
)
USAGE_NUMBERS = tuple(name for _, name, _, _ in _ROWS)
_LABEL = max(len(label) for label, _, _, _ in _ROWS)
_VALUE = 14


def render_usage(usage: Usage, duration_s: float, width: int, paint: Palette) -> list[str]:
    lines = []
    for label, name, show, group in _ROWS:
        value: int | None = getattr(usage, name)
        text = mark_bound(show(value), is_lower_bound=name in usage.lower_bounds)
        if name == "cpu_total_usec" and value is not None and duration_s > 0:
            text += f" ({percent(value / 1e4 / duration_s)})"
        origin = usage.sources if value is not None else usage.unknown
        room = max(12, width - _LABEL - _VALUE - 5)
        where = paint.paint(fit(clean(_about(origin, name, group)), room), "dim")
        lines.append(f"  {pad(label, _LABEL)} {pad_left(text, _VALUE)}  {where}".rstrip())
    if usage.shared:
        lines.append("  measurements overlapped in one process: the numbers are shared between them")
    if usage.lower_bounds:
        lines.append(paint.paint("  ≥ at least this much; the exact number could not be had", "dim"))
    return lines


def _about(texts: Mapping[str, str], name: str, group: str) -> str:
    """What is said about a number: about itself, its group, or the widest group it belongs to."""
    for key in (name, group, name.partition("_")[0]):
        if key in texts:
            return texts[key]
    return ""
