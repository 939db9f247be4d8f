"""One run in numbers: jobs by state, times, and what all of its jobs used together."""

from typing import Any

from msgspec import Struct

from joblens.analysis.runs.table import ResultRow
from joblens.analysis.runs.workflow_rows import run_label
from joblens.model.runs.run import JobState, Run, Workflow
from joblens.model.values.units import format_instant


class RunSummary(Struct, frozen=True, kw_only=True):
    run: Run
    workflow: Workflow
    counts: dict[JobState, int]
    attempts: int
    wall_s: float | None  # it was driven, in all its turns together
    jobs_s: float  # of all attempts together
    cpu_s: float | None  # None: nothing was measured
    longest: ResultRow | None
    largest: ResultRow | None  # by peak memory
    failed: tuple[ResultRow, ...]


def summary_form(found: RunSummary) -> dict[str, Any]:
    """For --json."""
    run = found.run
    return {
        "workflow_id": run.workflow_number,
        "workflow_name": found.workflow.name,
        "workflow_user": found.workflow.user,
        "run": run_label(run),
        "run_id": run.number,
        "run_uuid": run.uuid,
        "run_status": run.status.value,
        "started": _instant(run.started_at_us),
        "ended": _instant(run.ended_at_us),
        "duration_s": found.wall_s,
        "total_jobs": sum(found.counts.values()),
        "counts": {state.label: count for state, count in found.counts.items()},
        "attempts": found.attempts,
        "jobs_duration_s": found.jobs_s,
        "cpu_s": found.cpu_s,
        "longest_job": _row(found.longest),
        "largest_job": _row(found.largest),
        "failed_jobs": [{**(_row(row) or {}), "reason": row.why or None} for row in found.failed],
    }


def _instant(at_us: int | None) -> str | None:
    return None if at_us is None else format_instant(at_us)


def _row(row: ResultRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "job_name": row.name,
        "job_id": row.job_id,
        "duration_s": row.duration_s,
        "peak_memory_bytes": row.peak_memory_bytes,
    }
