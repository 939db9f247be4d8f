"""Task results as plain dictionaries: state, allocation and usage of a job on a queue."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct, to_builtins

from joblens.analysis.formats.history import finding_form, returncode_of, usage_form
from joblens.analysis.numbers.profile import detailed_profile
from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.engine.progress.allocations import JobAllocation, RunAllocations
from joblens.model.jobs.job import Job, Outcome, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.values.labels import queue_and_label
from joblens.model.values.units import format_instant, in_mb
from joblens.ports.store import Store


def allocation_of_waiting(store: Store, record: Record) -> JobAllocation | None:
    """None: it does not wait, or no cluster received a request."""
    if record.status is not Status.QUEUED or record.job.run is None:
        return None
    events = store.run_events(record.job.run.run_uuid)
    return RunAllocations(event for _, event in events).of(record.job.uuid, record.job.queue)


_TAIL = 1000  # characters of each stream in a result
_ALMOST = 99.0  # an unfinished task never shows 100%

# States of Celery. A failed job is a FAILURE, whatever ran it.
_STATES = {
    Status.QUEUED: "PENDING",
    Status.RUNNING: "STARTED",
    Status.SUCCESS: "SUCCESS",
    Status.MEASURED: "SUCCESS",
    Status.CANCELLED: "REVOKED",
}


class Expected(Struct, frozen=True):
    """Expected duration of a job, and its source."""

    seconds: float
    jobs: int  # number of earlier jobs


def state_of(record: Record, lost_worker: str = "") -> str:
    """`lost_worker`: the former worker of a job that waits for another."""
    if record.status is Status.QUEUED and lost_worker:
        return "RETRY"
    return _STATES.get(record.status, "FAILURE")


def result_form(record: Record) -> dict[str, Any] | None:
    """For an ended job; None before."""
    outcome, attempt = record.outcome, record.attempt
    if outcome is None:
        return None
    return {
        "task_id": record.job.uuid,
        "tool": record.job.tool,
        "script": record.job.script,
        "params": record.job.params,
        "status": record.status.value,
        "returncode": returncode_of(outcome),
        "stdout": outcome.stdout_tail[-_TAIL:],
        "stderr": outcome.stderr_tail[-_TAIL:],
        "artifacts": [
            {"path": each.path, "bytes": each.bytes, "sha256": each.sha256 or None}
            for each in outcome.artifacts
        ],
        "resource_usage": usage_form(outcome.usage),
        "duration_seconds": None if attempt is None else outcome.duration_s,
        "detailed_profile": _profile(record, outcome),
        "validation": None,  # joblens measures; it does not judge the results
        "error": outcome.error,
        "reason": outcome.reason,
        "start_time": None if attempt is None else format_instant(attempt.started_at_us),
        "end_time": format_instant(outcome.ended_at_us),
        "attempt": 0 if attempt is None else attempt.number,
        "worker": outcome.worker or None,
        "host": None if attempt is None else attempt.owner.host,
        "work_dir": outcome.work_dir or None,
        "findings": [finding_form(finding) for finding in outcome.findings],
        "number": record.number,
    }


def _profile(record: Record, outcome: Outcome) -> dict[str, Any]:
    """A job that ended before its first sample has only totals."""
    if outcome.profile is not None or record.attempt is None:
        return outcome.profile or {}
    return detailed_profile((), outcome.usage, outcome.duration_s)


def status_form(
    record: Record,
    *,
    now_us: int,
    expected: Expected | None = None,
    newest: Sample | None = None,
    lost_worker: str = "",
    worker: str = "",
    waits_at: JobAllocation | None = None,
) -> dict[str, Any]:
    """`worker`: present worker of a running job; `waits_at`: at a cluster."""
    state = state_of(record, lost_worker)
    form: dict[str, Any] = {
        "task_id": record.job.uuid,
        "state": state,
        "ready": record.status.is_final,
        "successful": state == "SUCCESS",
        "failed": state == "FAILURE",
        "status": record.status.value,
        "progress": progress_of(record, now_us, expected),
        "tool": record.job.tool,
        "script": record.job.script,
        "params": record.job.params,
        "queue": queue_and_label(record.job.queue)[0],
        "label": record.job.label or None,
        "worker": worker or (record.outcome and record.outcome.worker) or None,
        "host": None if record.attempt is None else record.attempt.owner.host,
        **_at_cluster(record, waits_at),
        "number": record.number,
        "elapsed_seconds": elapsed_s(record, now_us),
        "expected_seconds": None if expected is None else expected.seconds,
        "result": result_form(record),
    }
    if newest is not None and not record.status.is_final:
        form["usage_so_far"] = _usage_so_far(newest)
    return form


def _at_cluster(record: Record, waits_at: JobAllocation | None) -> dict[str, Any]:
    """For jobs with an allocation, or a request for one."""
    if waits_at is not None:
        return {"placement": {"engine": waits_at.engine, "job_id": waits_at.job_id, "waits": waits_at.why}}
    placement = record.attempt.placement if record.attempt is not None else None
    return {} if placement is None else {"placement": to_builtins(placement)}


def elapsed_s(record: Record, now_us: int) -> float | None:
    """Returns the time since its start; None: it has not started, or waits to be retried."""
    if record.attempt is None:
        return None
    if record.outcome is not None:
        return record.outcome.duration_s
    if record.status is not Status.RUNNING:
        return None
    return max(0.0, (now_us - record.attempt.started_at_us) / 1e6)


def progress_of(record: Record, now_us: int, expected: Expected | None) -> float | None:
    """Returns percent of the expected duration; None if earlier jobs give none, if it has taken longer
    than they did, and if it ended before it started."""
    if record.status.is_final:
        return None if record.attempt is None else 100.0
    elapsed = elapsed_s(record, now_us)
    if elapsed is None:
        return 0.0
    if expected is None or elapsed >= expected.seconds:
        return None
    return min(_ALMOST, round(100.0 * elapsed / expected.seconds, 1))


def expected_of(record: Record, earlier: Sequence[Record]) -> Expected | None:
    """Uses earlier jobs that did the same and succeeded. With other parameters it may take any time."""
    durations = [
        each.outcome.duration_s
        for each in earlier
        if each.status is Status.SUCCESS and each.outcome is not None and _do_the_same(each.job, record.job)
    ]
    return Expected(median(durations), len(durations)) if durations else None


def _do_the_same(one: Job, other: Job) -> bool:
    if (one.tool, one.script, one.params) != (other.tool, other.script, other.params):
        return False
    return bool(one.script) or one.argv == other.argv  # a plain command is identified by its arguments


def _usage_so_far(sample: Sample) -> dict[str, Any]:
    memory = unreclaimable_bytes(sample)
    cpu = sample.cpu_total_usec
    return {
        "cpu_total_seconds": None if cpu is None else cpu / 1e6,
        "memory_mb": in_mb(memory),
    }


# ---- several jobs -----------------------------------------------------------------------------------------

_COUNTED = {
    "SUCCESS": "completed",
    "FAILURE": "failed",
    "REVOKED": "cancelled",
    "STARTED": "running",
    "PENDING": "pending",
    "RETRY": "pending",
}


def task_counts(records: Sequence[Record]) -> dict[str, int]:
    return _counts([state_of(record) for record in records])


def _counts(states: Sequence[str]) -> dict[str, int]:
    counts = dict.fromkeys(("total", "completed", "failed", "cancelled", "running", "pending"), 0)
    for state in states:
        counts[_COUNTED[state]] += 1
    return {**counts, "total": len(states)}


def workflow_form(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`completed` counts successes: a failed task is over, but not complete."""
    return {
        **_counts([status["state"] for status in statuses]),
        "all_complete": all(status["ready"] for status in statuses),
        "all_successful": all(status["successful"] for status in statuses),
        "tasks": list(statuses),
    }


def parallel_form(records: Sequence[Record]) -> dict[str, Any]:
    """Efficiency of parallel jobs. `speedup`: the sum of their durations over the elapsed time;
    `efficiency`: speedup over the largest number at once."""
    ran = [each for each in records if each.outcome is not None and each.attempt is not None]
    durations = [each.outcome.duration_s for each in ran if each.outcome is not None]
    spans = [
        (each.attempt.started_at_us / 1e6, each.attempt.started_at_us / 1e6 + each.outcome.duration_s)
        for each in ran
        if each.attempt is not None and each.outcome is not None
    ]
    cpu = [each.outcome.usage.cpu_total_usec for each in ran if each.outcome is not None]
    known_cpu_s = sum(usec for usec in cpu if usec is not None) / 1e6
    one_by_one = sum(durations)
    wall = max(end for _, end in spans) - min(start for start, _ in spans) if spans else 0.0
    at_once = most_at_once(spans)
    speedup = one_by_one / wall if wall > 0 else None
    counts = task_counts(records)
    return {
        "total_tasks": counts.pop("total"),
        **counts,
        "total_duration": one_by_one,
        "avg_duration": one_by_one / len(durations) if durations else None,
        "min_duration": min(durations, default=None),
        "max_duration": max(durations, default=None),
        "wall_time": wall if spans else None,
        "max_concurrency": at_once,
        "speedup": speedup,
        "efficiency": None if speedup is None else speedup / at_once,
        "speedup_limit": one_by_one / max(durations) if durations and max(durations) > 0 else None,
        "cpu_seconds": known_cpu_s if None not in cpu else None,
        "average_cpus_busy": known_cpu_s / wall if wall > 0 and None not in cpu else None,
    }


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """Returns the largest number of overlapping spans. One that ends when another begins does not overlap
    it."""
    turns = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    now = most = 0
    for _, step in turns:
        now += step
        most = max(most, now)
    return most
