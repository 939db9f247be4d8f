"""Result table of a run: each job's last attempt in numbers, and their totals."""

import itertools
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from joblens.analysis.formats.history import WhereItRan, returncode_of, where_it_ran
from joblens.analysis.numbers.rates import (
    cpu_percent,
    mean_cpu_percent,
    peak_cpu_percent,
    unreclaimable_bytes,
)
from joblens.analysis.runs.status import run_label
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import JobState, Run, Workflow
from joblens.model.values.units import format_instant, in_gb

FAILED_STATES = (JobState.FAILED, JobState.TERMINATED, JobState.CANCELED, JobState.PENDING_FAILED)


class ResultRow(Struct, frozen=True, kw_only=True):
    index: int
    name: str
    state: JobState
    why: str = ""  # for jobs without success: how they ended, or what they wait for
    attempts: int = 0
    label: str = ""  # of the workers that may run it
    job_id: int | None = None  # number of the record; None: it has not run
    job_uuid: str | None = None
    return_code: int | None = None
    duration_s: float | None = None
    peak_cpu_percent: float | None = None
    avg_cpu_percent: float | None = None
    peak_memory_bytes: int | None = None
    peak_memory_is_least: bool = False
    avg_memory_bytes: int | None = None
    ended_at_us: int | None = None
    kept_from: str | None = None  # the earlier run that its outcome comes from
    memory_limit_bytes: int | None = None  # requested by the last attempt
    runtime_limit_s: float | None = None
    raised: str = ""  # limits raised by recovery, and after which attempt
    added_by: str | None = None  # the job that added it during the run; None: the file has it
    where: WhereItRan = WhereItRan()

    @property
    def has_failed(self) -> bool:
        return self.state in FAILED_STATES


def numbers_of(record: Record) -> dict[str, Any]:
    """Returns the fields of a ResultRow that come from a record."""
    outcome = record.outcome
    fields: dict[str, Any] = {
        "job_id": record.number,
        "job_uuid": record.job.uuid,
        "memory_limit_bytes": record.job.requirements.memory_bytes,
        "runtime_limit_s": record.job.requirements.timeout_s,
        "where": where_it_ran(record),
    }
    if outcome is None:
        return fields
    usage = outcome.usage
    return {
        **fields,
        "return_code": returncode_of(outcome),
        "duration_s": outcome.duration_s,
        "peak_cpu_percent": peak_cpu_percent(outcome),
        "avg_cpu_percent": mean_cpu_percent(outcome),
        "peak_memory_bytes": usage.memory_peak_bytes,
        "peak_memory_is_least": "memory_peak_bytes" in usage.lower_bounds,
        "avg_memory_bytes": usage.memory_mean_bytes,
        "ended_at_us": outcome.ended_at_us,
    }


def use_so_far(samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns the same for a running job from its samples: peaks up to the last sample."""
    if not samples:
        return {}
    rates = [cpu_percent(earlier, later) for earlier, later in itertools.pairwise(samples)]
    memory = [unreclaimable_bytes(sample) for sample in samples]
    known = [size for size in memory if size is not None]
    running = [size for size in memory[1:] if size is not None]  # the first is before its program is loaded
    last = samples[-1]
    mean = None
    if last.cpu_total_usec is not None and last.elapsed_us:
        mean = 100 * last.cpu_total_usec / last.elapsed_us
    peak = max((rate for rate in [*rates, mean] if rate is not None), default=None)
    return {
        "peak_cpu_percent": peak,
        "avg_cpu_percent": mean,
        "peak_memory_bytes": max(known, default=None),
        "peak_memory_is_least": True,
        "avg_memory_bytes": round(sum(running) / len(running)) if running else None,
    }


def row_form(row: ResultRow) -> dict[str, Any]:
    """Returns the row for --json."""
    return {
        "job_id": row.job_id,
        "job_name": row.name,
        "status": row.state.label,
        "return_code": row.return_code,
        "duration_seconds": row.duration_s,
        "peak_cpu_percent": row.peak_cpu_percent,
        "avg_cpu_percent": row.avg_cpu_percent,
        "peak_mem_gb": in_gb(row.peak_memory_bytes),
        "avg_mem_gb": in_gb(row.avg_memory_bytes),
        "attempts": row.attempts,
        "label": row.label or None,
        "reason": row.why or None,
        "completion_time": None if row.ended_at_us is None else format_instant(row.ended_at_us),
        "peak_memory_bytes": row.peak_memory_bytes,
        "peak_memory_is_lower_bound": row.peak_memory_is_least,
        "avg_memory_bytes": row.avg_memory_bytes,
        "index": row.index,
        "job_uuid": row.job_uuid,
        "kept_from_run": row.kept_from,
        "memory_limit_bytes": row.memory_limit_bytes,
        "runtime_limit_s": row.runtime_limit_s,
        "raised": row.raised or None,
        "added_by": row.added_by,
        **to_builtins(row.where),
    }


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
    """Returns the summary for --json."""
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
