"""Jobs that Slurm remembers, as records: what they asked for, what they used as far as Slurm saw it, how they
ended."""

from joblens.analysis.slurm.accounts import SlurmUse, node_count, slurm_use
from joblens.model.clusters.slurm import SlurmJob, SlurmRow
from joblens.model.jobs.job import (
    Attempt,
    Job,
    Outcome,
    Owner,
    Placement,
    Record,
    Requirements,
    Status,
    Usage,
)
from joblens.model.values.ids import uuid_from

SAMPLED = "sacct (sampled)"
ACCOUNTING = "sacct"
_ADDED_UP = "sacct (sampled; peaks of tasks or steps on one node added up)"

# How it ended, and what our records call the reason.
_ENDINGS: dict[str, tuple[Status, str]] = {
    "COMPLETED": (Status.SUCCESS, "exited"),
    "FAILED": (Status.FAILED, "exited"),
    "SPECIAL_EXIT": (Status.FAILED, "exited"),
    "OUT_OF_MEMORY": (Status.FAILED, "out-of-memory"),
    "TIMEOUT": (Status.TIMEOUT, "timeout"),
    "DEADLINE": (Status.TIMEOUT, "timeout"),
    "CANCELLED": (Status.CANCELLED, "cancelled"),
    "PREEMPTED": (Status.CANCELLED, "cancelled"),
    "REVOKED": (Status.CANCELLED, "cancelled"),
    "NODE_FAIL": (Status.LOST, "lost"),
    "REQUEUED": (Status.LOST, "lost"),
    "BOOT_FAIL": (Status.ERROR, "not-started"),
    "LAUNCH_FAILED": (Status.ERROR, "not-started"),
    "RECONFIG_FAIL": (Status.ERROR, "not-started"),
}
_WORDS = {
    "OUT_OF_MEMORY": "Slurm ended it for lack of memory",
    "TIMEOUT": "Slurm ended it when its time was up",
    "DEADLINE": "Slurm ended it at its deadline",
    "PREEMPTED": "another job of higher priority took its place",
    "REVOKED": "it ran on another cluster of the federation",
    "NODE_FAIL": "a node that it ran on failed",
    "REQUEUED": "it was put back into the queue and began again",
    "BOOT_FAIL": "its node could not be started",
    "LAUNCH_FAILED": "Slurm could not start it",
    "RECONFIG_FAIL": "its nodes could not be set up for it",
    "SPECIAL_EXIT": "it ended with an exit code that keeps it in the queue",
}


def external_id_of(job_id: str) -> str:
    """Behind a word: a plain number would be taken for a number of the store's own."""
    return f"slurm-{job_id}"


def slurm_record(job: SlurmJob, default_cluster: str = "") -> Record:
    """Without an outcome where it has not ended yet. The same job of the same cluster, submitted at the same
    moment, has the same UUID: ids are used again when a cluster's counter starts anew."""
    row, use = job.row, slurm_use(job)
    cluster = row.cluster or default_cluster
    submitted = row.submitted_at_us or row.started_at_us or row.ended_at_us or 0
    ending = _ENDINGS.get(row.state)
    outcome = None if ending is None else _outcome(job, use, *ending)
    placement = Placement(
        engine="slurm",
        job_id=row.job_id,
        cluster=cluster,
        partition=row.partition,
        account=row.account,
        qos=row.qos,
        nodes=row.nodes,
    )
    return Record(
        status=outcome.status if outcome else Status.RUNNING if row.started_at_us else Status.QUEUED,
        job=Job(
            uuid=uuid_from("slurm", cluster, row.job_id, str(submitted)),
            argv=(),
            created_at_us=submitted,
            external_id=external_id_of(row.job_id),
            name=row.name,
            params={"submit_line": row.submit_line} if row.submit_line else {},
            tags=_tags(row, cluster),
            cwd=row.work_dir,
            requirements=requirements_of(row, use),
            user=row.user,
            monitor=False,
        ),
        attempt=_attempt(row, placement),
        outcome=outcome,
    )


def _tags(row: SlurmRow, cluster: str) -> tuple[str, ...]:
    said = {"cluster": cluster, "partition": row.partition, "account": row.account}
    return ("slurm", *(f"{name}={value}" for name, value in said.items() if value))


def requirements_of(row: SlurmRow, use: SlurmUse) -> Requirements:
    """For each node, as ours are."""
    nodes = node_count(row)
    cpus = row.asked_cpus or row.allocated_cpus
    return Requirements(
        cpus=cpus / nodes if cpus else None,
        memory_bytes=use.asked_memory_bytes,
        gpus=-(-use.gpus // nodes) if use.gpus else None,
        timeout_s=row.time_limit_s,
        nodes=nodes if nodes > 1 else None,
    )


def _attempt(row: SlurmRow, placement: Placement) -> Attempt | None:
    """None: it was taken out of the queue before it began."""
    if row.started_at_us is None or (not row.nodes and not row.elapsed_s):
        return None
    return Attempt(
        number=(row.restarts or 0) + 1,
        started_at_us=row.started_at_us,
        owner=Owner(host=row.nodes[0] if row.nodes else "", pid=0, start_ticks=0, boot_id=""),
        accounting=ACCOUNTING,
        placement=placement,
    )


def _outcome(job: SlurmJob, use: SlurmUse, status: Status, reason: str) -> Outcome:
    row = job.row
    code, signal = exit_numbers(row.exit_code)
    if row.state == "OUT_OF_MEMORY":
        signal = 0  # Slurm writes 0:125, which is no signal
    if status is Status.FAILED and signal and reason == "exited":
        reason = "signal"
    error = _WORDS.get(row.state, "")
    if status is Status.CANCELLED and not error:
        error = f"cancelled by {row.cancelled_by}" if row.cancelled_by else "cancelled"
    if row.state == "FAILED":
        error = f"ended by signal {signal}" if signal else f"exit code {code}"
    ended = row.ended_at_us or (row.started_at_us or 0) + round((row.elapsed_s or 0.0) * 1e6)
    return Outcome(
        status=status,
        ended_at_us=ended,
        duration_s=row.elapsed_s or 0.0,
        exit_code=_exit_code(status, row.state, code, signal),
        signal=signal or None,
        reason=reason,
        error=error or None,
        usage=slurm_usage(use),
    )


def exit_numbers(text: str) -> tuple[int | None, int]:
    """'3:0' -> exit code 3, no signal; '0:9' -> signal 9."""
    code, _, signal = text.partition(":")
    return (int(code) if code.isdigit() else None), (int(signal) if signal.isdigit() else 0)


def _exit_code(status: Status, state: str, code: int | None, signal: int) -> int | None:
    """As our own records have it: 124 for a time-out, 137 for memory, 128 and the signal's number."""
    if status is Status.TIMEOUT:
        return 124
    if state == "OUT_OF_MEMORY":
        return 137
    if signal:
        return 128 + signal
    return code if status in (Status.SUCCESS, Status.FAILED) else None


def slurm_usage(use: SlurmUse) -> Usage:
    """All of it is at most seen, never less: Slurm looks now and then, at every 30 s as a rule."""
    memory = _ADDED_UP if use.is_memory_estimated else SAMPLED
    lower_bounds = [
        *(["memory_peak_bytes"] if use.memory_peak_bytes is not None else []),
        *(["cpu_total_usec"] if use.is_cpu_least and use.cpu_usec is not None else []),
        *(["io_call_read_bytes"] if use.read_bytes is not None else []),
        *(["io_call_write_bytes"] if use.written_bytes is not None else []),
        *(["gpu_memory_peak_bytes"] if use.gpu_memory_peak_bytes is not None else []),
    ]
    sources = {"cpu": "sacct", "memory_peak": memory, "io_calls": SAMPLED, "gpu": SAMPLED}
    unknown = {}
    if use.memory_peak_bytes is None:
        unknown["memory_peak_bytes"] = (
            "Slurm has no MaxRSS of it: too short to be looked at, or not collected"
        )
    return Usage(
        cpu_total_usec=use.cpu_usec,
        cpu_user_usec=use.cpu_user_usec,
        cpu_system_usec=use.cpu_system_usec,
        memory_peak_bytes=use.memory_peak_bytes,
        io_call_read_bytes=use.read_bytes,
        io_call_write_bytes=use.written_bytes,
        gpu_memory_peak_bytes=use.gpu_memory_peak_bytes,
        sources=sources,
        unknown=unknown,
        lower_bounds=tuple(lower_bounds),
    )
