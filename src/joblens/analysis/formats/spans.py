"""Spans of runs and jobs by OpenTelemetry's semantic conventions for CI/CD (1.44), as plain values.

A run is a span of kind SERVER, an attempt of one of its jobs an INTERNAL one below it; a single command is a
run of its own. `joblens.*` attributes are additions to the conventions.
"""

from typing import Any

from msgspec import Struct

from joblens.model.jobs.details import CodeVersion
from joblens.model.jobs.job import Record, Status, is_of_workflow
from joblens.model.jobs.trace import SpanContext, TraceParent, trace_of_job, trace_of_run
from joblens.model.runs.run import Run, RunStatus, Workflow

RESULTS = {
    Status.SUCCESS: "success",
    Status.FAILED: "failure",
    Status.TIMEOUT: "timeout",
    Status.ERROR: "error",
    Status.CANCELLED: "cancellation",
    Status.LOST: "error",
    Status.MEASURED: "success",
}
RUN_RESULTS = {
    RunStatus.COMPLETED: "success",
    RunStatus.FAILED: "failure",
    RunStatus.STOPPED: "cancellation",
}
_USEC = 1e6
# number of usage -> attribute, divisor
_USAGE = {
    "cpu_total_usec": ("joblens.cpu.time", _USEC),
    "cpu_user_usec": ("joblens.cpu.time.user", _USEC),
    "cpu_system_usec": ("joblens.cpu.time.system", _USEC),
    "cpu_throttled_usec": ("joblens.cpu.throttled_time", _USEC),
    "memory_peak_bytes": ("joblens.memory.peak", 1),
    "memory_mean_bytes": ("joblens.memory.mean", 1),
    "io_read_bytes": ("joblens.disk.read", 1),
    "io_write_bytes": ("joblens.disk.written", 1),
    "network_rx_bytes": ("joblens.network.received", 1),
    "network_tx_bytes": ("joblens.network.sent", 1),
    "gpu_busy_usec": ("joblens.gpu.busy_time", _USEC),
    "gpu_memory_peak_bytes": ("joblens.gpu.memory.peak", 1),
    "energy_package_uj": ("joblens.energy.package", 1e6),
    "energy_dram_uj": ("joblens.energy.dram", 1e6),
    "gpu_energy_uj": ("joblens.energy.gpu", 1e6),
    "processes_peak": ("joblens.processes.peak", 1),
    "oom_kills": ("joblens.oom_kills", 1),
}


class SpanValue(Struct, frozen=True, kw_only=True):
    """One span; `error`: description if its status is an error."""

    name: str
    is_run: bool  # SERVER; otherwise INTERNAL
    context: SpanContext
    start_us: int
    end_us: int
    attributes: dict[str, Any]
    error: str | None = None
    events: tuple[tuple[str, dict[str, Any]], ...] = ()


def span_of_job(record: Record, code: CodeVersion | None, dashboard_url: str = "") -> SpanValue:
    """Returns the span of an ended job."""
    job, outcome, attempt = record.job, record.outcome, record.attempt
    assert outcome is not None
    context = trace_of_job(job)
    is_task = is_of_workflow(job)
    result = RESULTS.get(record.status, "error")
    attributes: dict[str, Any] = (
        {
            "cicd.pipeline.task.name": job.name,
            "cicd.pipeline.task.run.id": job.uuid,
            "cicd.pipeline.task.run.result": result,
            "cicd.pipeline.task.run.url.full": job_url(job.uuid, dashboard_url),
        }
        if is_task
        else {
            "cicd.pipeline.name": job.name,
            "cicd.pipeline.action.name": "RUN",
            "cicd.pipeline.run.id": job.uuid,
            "cicd.pipeline.run.url.full": job_url(job.uuid, dashboard_url),
            "cicd.pipeline.result": result,
        }
    )
    attributes |= _job_attributes(record) | _code_attributes(code)
    error = None
    if record.status.is_failure:
        attributes["error.type"] = outcome.reason or str(record.status)
        error = next((finding.text for finding in outcome.findings if finding.severity == "problem"), "")
        error = error or outcome.error or outcome.reason or str(record.status)
    started_us = attempt.started_at_us if attempt is not None else job.created_at_us
    return SpanValue(
        name=job.name if is_task else f"RUN {job.name}",
        is_run=not is_task,
        context=context,
        start_us=started_us,
        end_us=max(started_us, outcome.ended_at_us),
        attributes=attributes,
        error=error,
        events=tuple(
            (f"joblens.finding.{finding.code}", {"message": finding.text, "severity": str(finding.severity)})
            for finding in outcome.findings
        ),
    )


def _job_attributes(record: Record) -> dict[str, Any]:
    job, outcome, attempt = record.job, record.outcome, record.attempt
    assert outcome is not None
    found: dict[str, Any] = {"joblens.job.status": str(record.status), "joblens.job.tool": job.tool}
    if job.user:
        found["user.name"] = job.user
    if job.tags:
        found["joblens.job.tags"] = list(job.tags)
    if job.run is not None:
        found["joblens.job.attempt"] = job.run.attempt
    if attempt is not None:
        found["host.name"] = attempt.owner.host
        if group := next(iter(attempt.groups.values()), ""):
            found["linux.process.cgroup"] = group
    if outcome.exit_code is not None:
        found["process.exit.code"] = outcome.exit_code
    requests = {
        "joblens.request.cpus": job.requirements.cpus,
        "joblens.request.memory": job.requirements.memory_bytes,
        "joblens.request.gpus": job.requirements.gpus,
    }
    found |= {name: value for name, value in requests.items() if value is not None}
    for number, (name, divisor) in _USAGE.items():
        value = getattr(outcome.usage, number)
        if value is not None:
            found[name] = value / divisor if divisor != 1 else value
    return found


def _code_attributes(code: CodeVersion | None) -> dict[str, Any]:
    if code is None:
        return {}
    found = {"vcs.ref.head.revision": code.commit}
    if code.branch:
        found |= {"vcs.ref.head.name": code.branch, "vcs.ref.head.type": "branch"}
    if code.remote:
        found["vcs.repository.url.full"] = code.remote
    return found


def span_of_run(
    workflow: Workflow, run: Run, caller: TraceParent | None, now_us: int, dashboard_url: str = ""
) -> SpanValue:
    """Returns the span of an ended run."""
    result = RUN_RESULTS.get(run.status, "error")
    started_us = run.started_at_us or run.created_at_us
    attributes: dict[str, Any] = {
        "cicd.pipeline.name": workflow.name,
        "cicd.pipeline.action.name": "RUN",
        "cicd.pipeline.run.id": run.uuid,
        "cicd.pipeline.run.url.full": run_url(run.uuid, dashboard_url),
        "cicd.pipeline.result": result,
        "joblens.run.jobs": run.jobs,
        "joblens.run.engine": run.options.engine,
    }
    if result in ("failure", "error"):
        attributes["error.type"] = str(run.status)
    return SpanValue(
        name=f"RUN {workflow.name}",
        is_run=True,
        context=trace_of_run(run.uuid, caller),
        start_us=started_us,
        end_us=max(started_us, run.ended_at_us or now_us),
        attributes=attributes,
        error=f"run {run.status}" if result in ("failure", "error") else None,
    )


def job_url(uuid: str, dashboard_url: str) -> str:
    """Returns the URL of the job on a joblens server, or a URN without a server."""
    return f"{dashboard_url.rstrip('/')}/jobs/{uuid}" if dashboard_url else f"urn:uuid:{uuid}"


def run_url(uuid: str, dashboard_url: str) -> str:
    return f"{dashboard_url.rstrip('/')}/runs/{uuid}" if dashboard_url else f"urn:uuid:{uuid}"
