"""Summary of an ended job: outcome, resource use, suggestions."""

from joblens.model.clusters.slurm import CANCELLED_REASON, WALLTIME_REASON
from joblens.model.jobs.job import Finding, Outcome, Record, Status, Usage
from joblens.model.values.ids import short
from joblens.model.values.units import MIB, format_bytes, format_duration
from joblens.views.text.numbers import UNKNOWN, count, grams, joules, mark_number, percent, seconds
from joblens.views.text.style import (
    SEVERITY_MARKS,
    Palette,
    clean,
    clean_lines,
    fit,
    visible_width,
    wrap,
    wrap_beside,
)

_SEPARATOR = "  "
_LAST_OUTPUT = 200  # columns
_LEAST_NETWORK = MIB  # less is a DNS lookup or a status request
_LEAST_ENERGY = 1_000_000  # µJ


def render_summary(record: Record, *, color: bool, width: int) -> str:
    """Returns two lines and the findings, ending in a newline."""
    paint = Palette(is_on=color)
    outcome = record.outcome
    if outcome is None:
        return f"{short(record.job.uuid)} {record.status.value}\n"
    lines = [_headline(record, outcome, paint, width)]
    lines += _usage_lines(outcome.usage, outcome.duration_s, paint, width)
    for finding in outcome.findings:
        lines += finding_lines(finding, paint, width)
    return "\n".join(lines) + "\n"


def _headline(record: Record, outcome: Outcome, paint: Palette, width: int) -> str:
    how = ending(outcome)
    state = f"{outcome.status.value} ({how})" if how else outcome.status.value
    took = f"in {format_duration(outcome.duration_s)}"
    name_width = width - len("joblens:   ") - len(short(record.job.uuid)) - len(state) - len(took) - 4
    name = fit(clean(record.job.name), max(8, name_width))
    mark = "✗" if outcome.status.is_failure else "•" if outcome.status is Status.MEASURED else "✓"
    return (
        f"{paint.status(outcome.status, mark)} {paint.paint(name, 'bold')} "
        f"{paint.status(outcome.status, state)} {took}{_SEPARATOR}"
        f"{paint.paint(short(record.job.uuid), 'dim')}"
    )


_SLURM_ENDINGS = {CANCELLED_REASON: "in Slurm", WALLTIME_REASON: "walltime of its allocation"}


def ending(outcome: Outcome) -> str:
    """Describes the end in two or three words; '' for an ordinary success."""
    if outcome.reason == "out-of-memory":
        return "out of memory"
    if outcome.reason in _SLURM_ENDINGS:
        return _SLURM_ENDINGS[outcome.reason]
    if outcome.signal is not None:
        return f"{'killed by ' if outcome.status is Status.FAILED else ''}signal {outcome.signal}"
    if outcome.reason == "not-started":
        return "not started"
    if outcome.exit_code:
        return f"exit code {outcome.exit_code}"
    return "" if outcome.reason in ("exited", "", outcome.status.value) else outcome.reason


def last_output(outcome: Outcome) -> str:
    """Returns why it could not be started, or the last line of its standard error if it failed."""
    if outcome.reason == "not-started":
        return clean(outcome.error or "")
    if outcome.status is not Status.FAILED or outcome.reason not in ("exited", "signal"):
        return ""
    written = [line.strip() for line in clean_lines(outcome.stderr_tail) if line.strip()]
    return fit(written[-1], _LAST_OUTPUT) if written else ""


def with_last_output(why: str, record: Record | None) -> str:
    """Returns 'exit code 1: ModuleNotFoundError: No module named …'."""
    outcome = None if record is None else record.outcome
    output = "" if outcome is None else last_output(outcome)
    return f"{why}: {output}" if why and output and output not in why else why or output


def _usage_lines(usage: Usage, duration_s: float, paint: Palette, width: int) -> list[str]:
    pieces = [
        f"{paint.paint('cpu', 'dim')} {_cpu(usage, duration_s)}",
        f"{paint.paint('memory peak', 'dim')} "
        + mark_number(format_bytes(usage.memory_peak_bytes), usage, "memory_peak_bytes"),
        f"{paint.paint('read', 'dim')} {_bytes(usage, 'io_read_bytes', 'io_call_read_bytes')}",
        f"{paint.paint('written', 'dim')} {_bytes(usage, 'io_write_bytes', 'io_call_write_bytes')}",
    ]
    pieces += _device_pieces(usage, duration_s, paint)
    if usage.processes_peak is not None and usage.processes_peak > 1:
        pieces.append(f"{mark_number(count(usage.processes_peak), usage, 'processes_peak')} processes")
    if not any(piece.rpartition(" ")[2] != UNKNOWN for piece in pieces):
        return []
    lines, line = [], " "
    for piece in pieces:
        if visible_width(line) + visible_width(piece) + 2 > width and line.strip():
            lines.append(line)
            line = " "
        line += (_SEPARATOR if line.strip() else " ") + piece
    return [*lines, line]


def _device_pieces(usage: Usage, duration_s: float, paint: Palette) -> list[str]:
    """Returns network, GPU and energy if significant."""
    pieces = []
    received, sent = usage.network_rx_bytes or 0, usage.network_tx_bytes or 0
    if max(received, sent) >= _LEAST_NETWORK:
        pieces.append(f"{paint.paint('net', 'dim')} {format_bytes(received)} in, {format_bytes(sent)} out")
    gpu = []
    if usage.gpu_busy_usec and duration_s > 0:
        gpu.append(percent(usage.gpu_busy_usec / 1e4 / duration_s))
    if usage.gpu_memory_peak_bytes:
        gpu.append(f"memory {format_bytes(usage.gpu_memory_peak_bytes)}")
    if gpu:
        pieces.append(f"{paint.paint('gpu', 'dim')} {', '.join(gpu)}")
    drawn = (usage.energy_package_uj or 0) + (usage.energy_dram_uj or 0) + (usage.gpu_energy_uj or 0)
    if drawn >= _LEAST_ENERGY:
        co2 = f" ({grams(usage.co2_mg)} CO2)" if usage.co2_mg else ""
        pieces.append(f"{paint.paint('energy', 'dim')} {joules(drawn)}{co2}")
    return pieces


def _cpu(usage: Usage, duration_s: float) -> str:
    if usage.cpu_total_usec is None:
        return UNKNOWN
    text = mark_number(seconds(usage.cpu_total_usec), usage, "cpu_total_usec")
    if duration_s <= 0:
        return text
    return f"{text} ({percent(usage.cpu_total_usec / 1e4 / duration_s)})"


def _bytes(usage: Usage, device_field: str, call_field: str) -> str:
    """Returns device I/O, or I/O by system calls where that is unknown."""
    field = device_field if getattr(usage, device_field) is not None else call_field
    return mark_number(format_bytes(getattr(usage, field)), usage, field)


def finding_lines(finding: Finding, paint: Palette, width: int, indent: str = "  ") -> list[str]:
    mark = SEVERITY_MARKS[finding.severity]
    head = f"{indent}{paint.severity(finding.severity, mark)} "
    lines = wrap_beside(head, clean(finding.text), width)
    advice = f"→ {clean(finding.advice)}" if finding.advice else ""
    return lines + [paint.paint(line, "dim") for line in wrap(advice, width, f"{indent}  ")]
