"""History format (docs/format.md): a record as one JSON object, with its engine and host.

The first keys are those of Keystone's jobs_history.jsonl, in its order; additional keys follow, so that its
readers can read these files.
"""

import operator
from typing import Any

from msgspec import Struct, structs

from joblens.model.jobs.job import USAGE_NUMBERS, Attempt, Finding, Outcome, Record, Status, Usage
from joblens.model.values.units import format_instant, in_mb

TIMEOUT_EXIT_CODE = 124
_NO_USAGE = Usage()

# Numbers in seconds and MiB in resource_usage; others keep their names and units.
_CONVERTED = ("cpu_total_usec", "cpu_user_usec", "cpu_system_usec", "memory_peak_bytes")
_COUNTS = tuple(name for name in USAGE_NUMBERS if name not in _CONVERTED)
_counts_of = operator.attrgetter(*_COUNTS)


def returncode_of(outcome: Outcome) -> int | None:
    """Returns the code that a shell would show: the exit code, 124 for a time-out, 128+N for signal N."""
    if outcome.status is Status.TIMEOUT:
        return TIMEOUT_EXIT_CODE if not outcome.exit_code else outcome.exit_code
    if outcome.exit_code is not None:
        return outcome.exit_code
    return None if outcome.signal is None else 128 + outcome.signal


def to_history_record(record: Record) -> dict[str, Any]:
    job, attempt, outcome = record.job, record.attempt, record.outcome
    form: dict[str, Any] = {
        "task_id": job.external_id or job.uuid,
        "tool": job.tool,
        "script": job.script,
        "params": job.params,
        "start_time": _start_time(record),
        "end_time": None if outcome is None else format_instant(outcome.ended_at_us),
        "duration_seconds": None if outcome is None else outcome.duration_s,
        "status": record.status.value,
        "returncode": None if outcome is None else returncode_of(outcome),
        "resource_usage": usage_form(_NO_USAGE if outcome is None else outcome.usage),
        "error": None if outcome is None else outcome.error,
        "has_result": outcome is not None and _has_result(outcome),
    }
    if outcome is not None and outcome.profile is not None:
        form["detailed_profile"] = outcome.profile
    _add_job(form, record)
    _add_attempt(form, attempt)
    _add_where(form, record)
    if outcome is not None:
        _add_outcome(form, outcome)
    form["accounting"] = _accounting_form(attempt, _NO_USAGE if outcome is None else outcome.usage)
    return form


def from_history_record(fields: Any) -> Record:
    """Reads one record of this form, ours or Keystone's. Raises FormatError."""
    # Imported on demand: reading is rare.
    from joblens.analysis.formats.history_import import read_history_record

    return read_history_record(fields)


def usage_form(usage: Usage) -> dict[str, Any]:
    """Returns `resource_usage`, with fixed keys; null: unknown."""
    form: dict[str, Any] = {
        "cpu_user_seconds": _seconds(usage.cpu_user_usec),
        "cpu_system_seconds": _seconds(usage.cpu_system_usec),
        "cpu_total_seconds": _seconds(usage.cpu_total_usec),
        "memory_peak_mb": in_mb(usage.memory_peak_bytes),
    }
    form.update(zip(_COUNTS, _counts_of(usage), strict=True))
    return form


def finding_form(finding: Finding) -> dict[str, str]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "text": finding.text,
        "advice": finding.advice,
    }


def _has_result(outcome: Outcome) -> bool:
    """Returns whether it has a return value or output files."""
    has_outputs = any(stamp.mtime_ns is not None for stamp in outcome.outputs)
    return outcome.has_result or bool(outcome.artifacts) or has_outputs


def _start_time(record: Record) -> str | None:
    if record.attempt is not None:
        return format_instant(record.attempt.started_at_us)
    # For a job that ended without a start, its creation: readers sort by this key.
    return None if record.outcome is None else format_instant(record.job.created_at_us)


def _add_job(form: dict[str, Any], record: Record) -> None:
    job = record.job
    form["job_uuid"] = job.uuid
    form["number"] = record.number
    form["name"] = job.name
    form["command"] = list(job.argv)
    form["is_shell"] = job.is_shell
    form["tags"] = list(job.tags)
    if job.label:
        form["label"] = job.label
    form["cwd"] = job.cwd
    form["env"] = job.env
    form["user"] = job.user
    form["created_time"] = format_instant(job.created_at_us)
    form["requirements"] = structs.asdict(job.requirements)


def _add_attempt(form: dict[str, Any], attempt: Attempt | None) -> None:
    if attempt is None:
        return
    form["attempt"] = attempt.number
    form["host"] = attempt.owner.host
    form["machine"] = {
        "kernel": attempt.kernel,
        "cpu_count": attempt.cpu_count,
        "memory_total_bytes": attempt.memory_total_bytes,
    }
    form["logs_dir"] = attempt.logs_dir


def _add_where(form: dict[str, Any], record: Record) -> None:
    """Adds the engine for jobs that did not run locally."""
    if not record.job.queue:
        return

    where = where_it_ran(record)
    form["engine"] = where.engine
    form["nodes"] = list(where.nodes)
    form["cluster_job_id"] = where.cluster_job_id
    form["node_id"] = where.node_id
    if where.worker:
        form["worker"] = where.worker


def _add_outcome(form: dict[str, Any], outcome: Outcome) -> None:
    form["reason"] = outcome.reason
    form["exit_code"] = outcome.exit_code
    form["signal"] = outcome.signal
    form["findings"] = [finding_form(finding) for finding in outcome.findings]
    form["samples"] = outcome.samples
    form["sampling_interval_seconds"] = outcome.sampling_interval_s
    form["leftovers"] = outcome.leftovers
    form["stdout_bytes"] = outcome.stdout_bytes
    form["stderr_bytes"] = outcome.stderr_bytes
    form["stderr_tail"] = outcome.stderr_tail


def _accounting_form(attempt: Attempt | None, usage: Usage) -> dict[str, Any]:
    return {
        "mode": "" if attempt is None else attempt.accounting,
        "reason": "" if attempt is None else attempt.accounting_reason,
        "sources": usage.sources,
        "unknown": usage.unknown,
        "lower_bounds": list(usage.lower_bounds),
        "estimates": list(usage.estimates),
        "memory_peak_basis": usage.memory_peak_basis,
        "enforced_by": {} if attempt is None else attempt.enforced_by,
        "shared": usage.shared,
    }


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1_000_000


LOCAL, CELERY = "local", "celery"
_ID_LETTERS = 8  # of a Ray node's id, in text


class WhereItRan(Struct, frozen=True, kw_only=True):
    engine: str = LOCAL
    host: str | None = None  # None: not started
    nodes: tuple[str, ...] = ()  # the cluster's names
    cluster_job_id: str | None = None  # of Slurm: 123, 123_4; of Ray: its task
    node_id: str | None = None  # of Ray
    worker: str | None = None

    def describe(self) -> str:
        """Returns one line for a table; '' for a local job."""
        location = ",".join(self.nodes) or self.host or ""
        if self.engine == LOCAL or not location:
            return ""
        if self.engine == "slurm":
            return f"{location} (slurm {self.cluster_job_id})" if self.cluster_job_id else location
        if self.engine == "ray":
            return f"{location} (ray {self.node_id[:_ID_LETTERS]})" if self.node_id else location
        return f"{location} ({self.worker})" if self.worker else location


def where_it_ran(record: Record) -> WhereItRan:
    attempt, outcome = record.attempt, record.outcome
    placement = None if attempt is None else attempt.placement
    return WhereItRan(
        engine=_engine(record.job.queue) if placement is None else placement.engine,
        host=None if attempt is None else attempt.owner.host,
        nodes=() if placement is None else placement.nodes,
        cluster_job_id=None if placement is None else placement.job_id or None,
        node_id=None if placement is None else placement.node_id or None,
        worker=None if outcome is None else outcome.worker or None,
    )


def _engine(queue: str) -> str:
    if not queue:
        return LOCAL
    from joblens.model.clusters.placement import CLUSTER_MARK, is_of_cluster

    return queue.removeprefix(CLUSTER_MARK).partition(".")[0] if is_of_cluster(queue) else CELERY
