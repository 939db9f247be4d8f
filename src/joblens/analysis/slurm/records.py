"""Slurm accounting records: a job's requests, use and end, derived from sacct.

CPU time and I/O add up over the steps. Memory does not: sacct has the largest *task* of each step, requests
are per node, and steps may overlap. So it is combined by node and time.
"""

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.slurm.text import gpus_of
from joblens.model.clusters.slurm import QueuedJob, SlurmJob, SlurmRow
from joblens.model.clusters.slurm_notation import slurm_bytes, slurm_seconds
from joblens.model.jobs.details import ClusterAccount
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
from joblens.model.values.sums import sum_of_known

SOURCE = "sacct"
# Killed processes take the CPU time of children they had not reaped with them.
_KILLED_STATES = ("TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "PREEMPTED", "DEADLINE")
_EXTERN = "extern"  # reserves the allocation; nothing of the job runs in it


class SlurmUse(Struct, frozen=True, kw_only=True):
    """None: not in sacct."""

    nodes: int
    cpus: int | None = None  # it had, on all nodes
    gpus: int | None = None  # requested, on all nodes
    elapsed_s: float | None = None
    cpu_usec: int | None = None
    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    is_cpu_least: bool = False
    memory_peak_bytes: int | None = None  # of the node that used most
    is_memory_estimated: bool = False  # several tasks on a node, or steps side by side: peaks were added up
    asked_memory_bytes: int | None = None  # a node
    read_bytes: int | None = None
    written_bytes: int | None = None
    gpu_memory_peak_bytes: int | None = None

    @property
    def cpu_percent(self) -> float | None:
        """Returns the share of the allocated CPU time that was used."""
        if self.cpu_usec is None or not self.cpus or not self.elapsed_s:
            return None
        return self.cpu_usec / (self.cpus * self.elapsed_s) / 1e4

    @property
    def memory_percent(self) -> float | None:
        if self.memory_peak_bytes is None or not self.asked_memory_bytes:
            return None
        return 100 * self.memory_peak_bytes / self.asked_memory_bytes


def is_final(job: SlurmJob) -> bool:
    """Returns whether a job's row is complete: for some seconds after its end it is not."""
    row = job.row
    return job.is_over and not row.asked_memory.endswith("?") and row.submitted_at_us is not None


def slurm_use(job: SlurmJob) -> SlurmUse:
    row, steps = job.row, [step for step in job.steps if step.step != _EXTERN]
    peak, is_estimated = memory_peak(steps)
    return SlurmUse(
        nodes=node_count(row),
        cpus=row.allocated_cpus or row.asked_cpus,
        gpus=gpus_of(row.asked_tres) if row.asked_tres else gpus_of(row.allocated_tres),
        elapsed_s=row.elapsed_s,
        cpu_usec=_whole(row.total_cpu_usec, [_step_cpu_usec(step) for step in job.steps]),
        cpu_user_usec=_whole(row.user_cpu_usec, [step.user_cpu_usec for step in job.steps]),
        cpu_system_usec=_whole(row.system_cpu_usec, [step.system_cpu_usec for step in job.steps]),
        is_cpu_least=row.state in _KILLED_STATES or not job.is_over,
        memory_peak_bytes=peak,
        is_memory_estimated=is_estimated,
        asked_memory_bytes=asked_memory_bytes(row),
        read_bytes=sum_of_known(_disk(step.used_in_total, step.max_disk_read_bytes, step) for step in steps),
        written_bytes=sum_of_known(
            _disk(step.used_out_total, step.max_disk_write_bytes, step) for step in steps
        ),
        gpu_memory_peak_bytes=max(
            (size for step in steps if (size := slurm_bytes(step.used_in_max.get("gres/gpumem", "")))),
            default=None,
        ),
    )


def node_count(row: SlurmRow) -> int:
    return max(1, row.node_count or 0, len(row.nodes))


def asked_memory_bytes(row: SlurmRow) -> int | None:
    """Returns the request per node.

    ReqMem has three forms: 4Gc per CPU, 4Gn per node (both before 21.08), 4G per job.

    0 requests all memory of a node.
    """
    nodes = node_count(row)
    text = row.asked_memory
    size = slurm_bytes(text[:-1] if text.endswith(("c", "n")) else text, "M")
    if size and text.endswith("c"):
        return size * math.ceil((row.asked_cpus or row.allocated_cpus or nodes) / nodes)
    if size and text.endswith("n"):
        return size
    if not size:
        size = slurm_bytes(row.asked_tres.get("mem", ""), "M") or slurm_bytes(
            row.allocated_tres.get("mem", ""), "M"
        )
    return None if not size else math.ceil(size / nodes)


def memory_peak(steps: Sequence[SlurmRow]) -> tuple[int | None, bool]:
    """Returns (peak of the node that used most, whether it is combined from several peaks).

    Steps that overlapped on a node add up; of others the largest counts.
    """
    known = [(step, size) for step in steps if (size := _step_on_a_node(step)) is not None]
    if not known:
        return None, False
    best, best_parts = 0, 0
    for now, _ in known:
        beside = [(step, size) for step, size in known if step is now or _are_together(step, now)]
        for node in now.nodes or ("",):
            there = [size for step, size in beside if step is now or not node or node in step.nodes]
            if sum(there) > best:
                best, best_parts = sum(there), len(there)
    several = any(_tasks_a_node(step) > 1 for step, _ in known)
    return best, best_parts > 1 or several


def _are_together(step: SlurmRow, other: SlurmRow) -> bool:
    """Returns whether `step` was running when `other` started. Slurm's times are whole seconds: a step that
    ended in the second in which another started was before it."""
    begin, end, at = step.started_at_us, step.ended_at_us, other.started_at_us
    if begin is None or at is None:
        return step.step == "batch"
    if begin == at and step.ended_at_us == at:
        return False
    return begin <= at and (end is None or at < end)


def _step_on_a_node(step: SlurmRow) -> int | None:
    """Its largest task as often as there are tasks on a node, but never more than all its tasks had."""
    largest = step.max_rss_bytes
    if largest is None:
        return slurm_bytes(step.used_in_max.get("mem", ""))
    total = slurm_bytes(step.used_in_total.get("mem", ""))
    estimate = largest * _tasks_a_node(step)
    return estimate if total is None else max(largest, min(estimate, total))


def _tasks_a_node(step: SlurmRow) -> int:
    return max(1, math.ceil((step.task_count or 1) / node_count(step)))


def _step_cpu_usec(step: SlurmRow) -> int | None:
    """Returns CPU time of a step; for a running one, of its last sample."""
    if step.total_cpu_usec:
        return step.total_cpu_usec
    sampled_s = slurm_seconds(step.used_in_total.get("cpu", ""))
    return step.total_cpu_usec if sampled_s is None else round(sampled_s * 1e6)


def with_seen(job: SlurmJob, sampled_s: Sequence[SlurmRow]) -> SlurmJob:
    """Adds sstat's figures of running steps to sacct's names, nodes and times."""
    steps = {step.job_id: step for step in job.steps}
    for row in sampled_s:
        known = steps.get(row.job_id, replace(row, nodes=job.row.nodes, node_count=job.row.node_count))
        steps[row.job_id] = replace(
            known,
            task_count=row.task_count or known.task_count,
            max_rss_bytes=row.max_rss_bytes,
            used_in_max=row.used_in_max,
            used_in_total=row.used_in_total,
            used_out_total=row.used_out_total,
        )
    return SlurmJob(row=job.row, steps=tuple(steps.values()))


def queued_job(job: QueuedJob) -> SlurmJob:
    """Builds a job that is only in the queue, not in accounting yet."""
    elapsed = None
    if job.time_limit_s is not None and job.time_left_s is not None:
        elapsed = max(0.0, job.time_limit_s - job.time_left_s)
    row = SlurmRow(
        job_id=job.job_id,
        raw_id=job.raw_id,
        name=job.name,
        comment=job.comment,
        user=job.user,
        account=job.account,
        partition=job.partition,
        qos=job.qos,
        state=job.state,
        reason=job.reason,
        submitted_at_us=job.submitted_at_us,
        started_at_us=job.starts_at_us if job.nodes else None,
        elapsed_s=elapsed,
        time_limit_s=job.time_limit_s,
        allocated_cpus=job.cpus,
        node_count=job.node_count,
        nodes=job.nodes,
    )
    return SlurmJob(row=row)


def _disk(total: dict[str, str], largest: int | None, step: SlurmRow) -> int | None:
    """Returns I/O of all tasks. If only the largest task is known, that of a step with one task."""
    whole = slurm_bytes(total.get("fs/disk", ""))
    return whole if whole is not None or (step.task_count or 1) > 1 else largest


def _whole(of_job: int | None, of_steps: Sequence[int | None]) -> int | None:
    """Returns the row with values of its steps: a running job has none of its own."""
    return of_job or sum_of_known(of_steps) or of_job


def cluster_account(job: SlurmJob, *, is_shared: bool = False) -> ClusterAccount:
    """Returns the cluster's accounting of a job. `is_shared`: other jobs ran in the same allocation."""
    row, use = job.row, slurm_use(job)
    fields_found = {
        "partition": row.partition,
        "account": row.account,
        "qos": row.qos,
        "reason": row.reason,
        "cancelled_by": row.cancelled_by,
        "steps": str(len(job.steps)),
    }
    return ClusterAccount(
        source=SOURCE,
        job_id=row.job_id,
        state=row.state,
        exit_code=row.exit_code,
        elapsed_s=use.elapsed_s,
        time_limit_s=row.time_limit_s,
        cpu_usec=use.cpu_usec,
        max_rss_bytes=use.memory_peak_bytes,
        asked_memory_bytes=use.asked_memory_bytes,
        allocated_cpus=row.allocated_cpus,
        nodes=row.nodes,
        read_bytes=use.read_bytes,
        written_bytes=use.written_bytes,
        submitted_at_us=row.submitted_at_us,
        started_at_us=row.started_at_us,
        ended_at_us=row.ended_at_us,
        is_shared=is_shared,
        fields={name: value for name, value in fields_found.items() if value},
    )


SAMPLED = "sacct (sampled)"
ACCOUNTING = "sacct"
_ADDED_UP = "sacct (sampled; peaks of tasks or steps on one node added up)"

# Ends and the reasons in our records.
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
    "OUT_OF_MEMORY": "out of memory: killed by Slurm",
    "TIMEOUT": "timed out: killed by Slurm",
    "DEADLINE": "timed out: killed by Slurm at its deadline",
    "PREEMPTED": "preempted by a job of higher priority",
    "REVOKED": "it ran on another cluster of the federation",
    "NODE_FAIL": "a node that it ran on failed",
    "REQUEUED": "requeued by Slurm",
    "BOOT_FAIL": "its node could not be started",
    "LAUNCH_FAILED": "Slurm could not start it",
    "RECONFIG_FAIL": "its nodes could not be set up for it",
    "SPECIAL_EXIT": "it ended with an exit code that keeps it in the queue",
}


def external_id_of(job_id: str) -> str:
    """Adds a prefix: a plain number would be read as a job number of the store."""
    return f"slurm-{job_id}"


def slurm_record(job: SlurmJob, default_cluster: str = "") -> Record:
    """Builds a record, without an outcome if it has not ended.

    A job of the same cluster and submit time always gets the same UUID: ids are reused when a cluster's
    counter restarts.
    """
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
    fields_found = {"cluster": cluster, "partition": row.partition, "account": row.account}
    return ("slurm", *(f"{name}={value}" for name, value in fields_found.items() if value))


def requirements_of(row: SlurmRow, use: SlurmUse) -> Requirements:
    """Returns requirements per node."""
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
    """Returns None if it was removed from the queue before it started."""
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
        error = f"killed by signal {signal}" if signal else f"exit code {code}"
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
    """Parses '3:0' (exit code 3, no signal) and '0:9' (signal 9)."""
    code, _, signal = text.partition(":")
    return (int(code) if code.isdigit() else None), (int(signal) if signal.isdigit() else 0)


def _exit_code(status: Status, state: str, code: int | None, signal: int) -> int | None:
    """Returns the code as in records of joblens: 124 for a timeout, 137 for memory, 128+N for signal N."""
    if status is Status.TIMEOUT:
        return 124
    if state == "OUT_OF_MEMORY":
        return 137
    if signal:
        return 128 + signal
    return code if status in (Status.SUCCESS, Status.FAILED) else None


def slurm_usage(use: SlurmUse) -> Usage:
    """Returns usage with lower bounds only: Slurm samples, every 30 s by default."""
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
        unknown["memory_peak_bytes"] = "Slurm has no MaxRSS: too short to be sampled, or not collected"
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
