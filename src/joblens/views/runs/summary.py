"""One run in a few lines."""

from joblens.analysis.runs.summary import RunSummary
from joblens.analysis.runs.workflow_rows import run_label
from joblens.model.values.units import format_bytes, format_duration, format_instant
from joblens.views.text.style import clean, pad

_LABEL = 12
_FAILED_SHOWN = 10


def render_summary(found: RunSummary) -> list[str]:
    run = found.run
    counts = ", ".join(f"{count:,} {state.label}" for state, count in found.counts.items())
    pairs = [
        ("workflow", f"{run.workflow_number}  {clean(found.workflow.name)}"),
        ("run", f"{run_label(run)}  {run.status.value}"),
        ("started", "" if run.started_at_us is None else format_instant(run.started_at_us)),
        ("ended", "" if run.ended_at_us is None else format_instant(run.ended_at_us)),
        ("took", "" if found.wall_s is None else format_duration(found.wall_s)),
        ("jobs", f"{sum(found.counts.values()):,}: {counts}"),
        ("attempts", f"{found.attempts:,}, {format_duration(found.jobs_s)} together"),
        ("CPU time", "" if found.cpu_s is None else format_duration(found.cpu_s)),
    ]
    if found.longest is not None:
        pairs.append(("longest", f"{clean(found.longest.name)}, {format_duration(found.longest.duration_s)}"))
    if found.largest is not None:
        peak = format_bytes(found.largest.peak_memory_bytes)
        pairs.append(("largest", f"{clean(found.largest.name)}, {peak} of memory"))
    pairs += [
        (row.state.label, f"{clean(row.name)}{f': {clean(row.why)}' if row.why else ''}")
        for row in found.failed[:_FAILED_SHOWN]
    ]
    lines = [f"{pad(name, _LABEL)} {value}" for name, value in pairs if value]
    if len(found.failed) > _FAILED_SHOWN:
        lines.append(
            f"… and {len(found.failed) - _FAILED_SHOWN:,} more: joblens results {run_label(run)} --failed"
        )
    return lines
