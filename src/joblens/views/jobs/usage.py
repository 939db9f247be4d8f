"""What a job used, number by number: the value, whether it is a lower bound, and where it was read."""

from collections.abc import Callable

from joblens.analysis.numbers.reasons import NO_GRID_FACTOR, NOT_MEASURED, ONLY_IMPORTED
from joblens.analysis.numbers.usage import source_of
from joblens.model.jobs.job import Usage
from joblens.model.values.units import format_bytes
from joblens.views.text.numbers import count, grams, joules, mark_number, percent, seconds
from joblens.views.text.style import Palette, clean, pad, pad_left, wrap

Show = Callable[[int | None], str]

# (label, field of Usage, how to write it); an indented label belongs to the one above it.
_ROWS: tuple[tuple[str, str, Show], ...] = (
    ("CPU time", "cpu_total_usec", seconds),
    ("  user CPU", "cpu_user_usec", seconds),
    ("  system CPU", "cpu_system_usec", seconds),
    ("  throttled time", "cpu_throttled_usec", seconds),
    ("memory peak", "memory_peak_bytes", format_bytes),
    ("  with page cache", "memory_kernel_peak_bytes", format_bytes),
    ("  most page cache", "memory_file_peak_bytes", format_bytes),
    ("  largest process", "memory_largest_process_bytes", format_bytes),
    ("  mean memory", "memory_mean_bytes", format_bytes),
    ("peak of summed RSS", "memory_rss_sum_peak_bytes", format_bytes),
    ("out-of-memory kills", "oom_kills", count),
    ("page faults minor", "faults_minor", count),
    ("page faults major", "faults_major", count),
    ("read from devices", "io_read_bytes", format_bytes),
    ("  read operations", "io_read_ops", count),
    ("written to devices", "io_write_bytes", format_bytes),
    ("  write operations", "io_write_ops", count),
    ("read by calls", "io_call_read_bytes", format_bytes),
    ("  read calls", "io_call_reads", count),
    ("written by calls", "io_call_write_bytes", format_bytes),
    ("  write calls", "io_call_writes", count),
    ("processes at most", "processes_peak", count),
    ("threads at most", "threads_peak", count),
    ("open files at most", "open_files_peak", count),
    ("process limit hit", "pids_limit_events", count),
    ("voluntary switches", "context_switches_voluntary", count),
    ("forced switches", "context_switches_involuntary", count),
    ("waited for CPU", "cpu_pressure_usec", seconds),
    ("waited for memory", "memory_pressure_usec", seconds),
    ("waited for I/O", "io_pressure_usec", seconds),
    ("received", "network_rx_bytes", format_bytes),
    ("  packets received", "network_rx_packets", count),
    ("sent", "network_tx_bytes", format_bytes),
    ("  packets sent", "network_tx_packets", count),
    ("GPU memory peak", "gpu_memory_peak_bytes", format_bytes),
    ("GPU busy", "gpu_busy_usec", seconds),
    ("GPU energy", "gpu_energy_uj", joules),
    ("processor energy", "energy_package_uj", joules),
    ("memory energy", "energy_dram_uj", joules),
    ("CO2", "co2_mg", grams),
    ("instructions", "instructions", count),
    ("  cycles", "cycles", count),
    ("moves between CPUs", "cpu_migrations", count),
)
_NOTHING_WHEN_ZERO = ("gpu_memory_peak_bytes", "gpu_busy_usec", "gpu_energy_uj")  # most jobs use no GPU
USAGE_NUMBERS = tuple(name for _, name, _ in _ROWS)
_LABEL = max(len(label) for label, _, _ in _ROWS)
_VALUE = 14
_DITTO = "″"  # the same source as the line above


def render_usage(usage: Usage, duration_s: float, width: int, paint: Palette) -> list[str]:
    """What is known with its source; then what is not, by reason."""
    lines: list[str] = []
    above = ""
    for label, name, show in _ROWS:
        if _is_shown(usage, name):
            source = _source(usage, name)
            shown = _DITTO if source and source == above else source
            lines += _lines(label, _value(usage, name, show, duration_s), shown, width, paint)
            above = source
    if usage.shared:
        lines.append("  measurements overlapped in one process: the numbers are shared between them")
    if usage.lower_bounds:
        lines.append(paint.paint("  ≥ at least this much; the exact number could not be had", "dim"))
    if usage.estimates:
        lines.append(paint.paint("  ≈ files were read or written at the same time: an estimate", "dim"))
    for reason, labels in _unknown(usage).items():
        lines += wrap(f"not known: {', '.join(labels)} ({reason})", width, "  ")
    return lines


def _is_shown(usage: Usage, name: str) -> bool:
    value: int | None = getattr(usage, name)
    return value is not None and (value > 0 or name not in _NOTHING_WHEN_ZERO)


def _value(usage: Usage, name: str, show: Show, duration_s: float) -> str:
    value: int | None = getattr(usage, name)
    text = mark_number(show(value), usage, name)
    if name in ("cpu_total_usec", "gpu_busy_usec") and value is not None and duration_s > 0:
        text += f" ({percent(value / 1e4 / duration_s)})"
    return text


def _lines(label: str, value: str, source: str, width: int, paint: Palette) -> list[str]:
    margin = " " * (_LABEL + _VALUE + 5)
    first, *rest = wrap(clean(source), max(width, len(margin) + 24), margin) or [margin]
    head = f"  {pad(label, _LABEL)} {pad_left(value, _VALUE)}  {paint.paint(first[len(margin) :], 'dim')}"
    return [head.rstrip(), *(paint.paint(line, "dim") for line in rest)]


def _source(usage: Usage, name: str) -> str:
    source = source_of(usage, name) or usage.sources.get(name, "")
    if name == "memory_largest_process_bytes" and _exceeds_peak(usage):
        return f"{source}; with libraries it shares with others".removeprefix("; ")
    return source


def _exceeds_peak(usage: Usage) -> bool:
    return (usage.memory_largest_process_bytes or 0) > (usage.memory_peak_bytes or float("inf"))


def _has_energy(usage: Usage) -> bool:
    return usage.energy_package_uj is not None or usage.gpu_energy_uj is not None


def _unknown(usage: Usage) -> dict[str, list[str]]:
    """Reason -> labels of the numbers it keeps from us."""
    reasons: dict[str, list[str]] = {}
    for label, name, _ in _ROWS:
        reason = clean(usage.unknown.get(name, ""))
        if name == "co2_mg" and reason == NO_GRID_FACTOR and not _has_energy(usage):
            continue  # nobody asked for CO2, and there is nothing that could be told in it
        if getattr(usage, name) is None and reason and reason not in (NOT_MEASURED, ONLY_IMPORTED):
            reasons.setdefault(reason, []).append(label.strip())
    return reasons
