"""Slurm efficiency: how well a job used its allocation, and advice as sbatch options."""

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from joblens.analysis.sizing.observations import Observation, observation_of
from joblens.analysis.sizing.rightsizing import Advice, Group, GroupAdvice, advise
from joblens.analysis.slurm.records import exit_numbers, slurm_record, slurm_use
from joblens.model.clusters.placement import CLUSTER_MARK
from joblens.model.clusters.slurm import SlurmJob
from joblens.model.clusters.slurm_notation import slurm_clock
from joblens.model.jobs.job import Finding, Record, Requirements, Severity, Status, Usage
from joblens.model.values.units import MIB


def changes_for_sbatch(found: GroupAdvice) -> list[Advice]:
    """Returns changed requests, without CPUs of multi-node jobs: these depend on the tasks."""
    is_wide = (found.group.current.nodes or 1) > 1
    return [part for part in found.advice if part.is_change and not (is_wide and part.resource == "cpus")]


def sbatch_options(found: GroupAdvice) -> str:
    """Returns options to change; '' if all fits."""
    return " ".join(map(sbatch_option, changes_for_sbatch(found)))


def sbatch_option(part: Advice) -> str:
    if part.resource == "memory":
        return f"--mem={memory_amount(part.recommended)}"
    if part.resource == "runtime":
        return f"--time={slurm_clock(-(-part.recommended // 60) * 60)}"
    return f"--cpus-per-task={part.recommended:g}"


def sbatch_reason(part: Advice) -> str:
    more = ", rounded up to Slurm's whole minutes" if _is_rounded(part) else ""
    return f"{part.resource}: {part.reason}{more}"


def is_rounded_for_sbatch(found: GroupAdvice) -> bool:
    return any(map(_is_rounded, changes_for_sbatch(found)))


def _is_rounded(part: Advice) -> bool:
    return part.resource == "runtime" and part.recommended % 60 != 0


def memory_amount(size: float) -> str:
    """Returns '12G', '640M', as sbatch reads it."""
    mib = max(1, -(-int(size) // MIB))
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


COMMENT = "joblens run="  # prefix of comments of allocations that joblens requested
MEASURED = "joblens"
SACCT = "sacct"
# Slurm's ends that our records name differently.
_STATES = {Status.SUCCESS: "COMPLETED", Status.ERROR: "FAILED", Status.QUEUED: "PENDING"}
_KEYS = {"memory": "memory", "cpus": "num_cpus", "runtime": "runtime"}


class Efficiency(Struct, frozen=True, kw_only=True):
    """Use of an allocation; None: unknown. `slurm_…`: Slurm's figure beside a number of joblens."""

    job_id: str
    raw_id: str = ""
    cluster: str = ""
    name: str = ""
    user: str = ""
    group: str = ""
    state: str = ""
    slurm_state: str = ""  # if different: of the worker, which may succeed although its job failed
    exit_code: int | None = None
    signal: int = 0
    is_running: bool = False
    nodes: int = 1
    cpus: int | None = None  # on all nodes
    gpus: int | None = None
    elapsed_s: float | None = None
    time_limit_s: float | None = None
    cpu_usec: int | None = None
    cpu_source: str = SACCT
    is_cpu_least: bool = False
    slurm_cpu_usec: int | None = None
    memory_bytes: int | None = None  # on the node that used most
    memory_source: str = SACCT
    is_memory_least: bool = False
    is_memory_estimated: bool = False
    slurm_memory_bytes: int | None = None
    asked_memory_bytes: int | None = None  # on each node
    jobs_inside: int = 0  # jobs of joblens that ran in it, where it was an allocation for several
    is_shared: bool = False  # one of those jobs, because they share the id
    job_uuid: str = ""  # of the record that our numbers are from
    seen: Observation | None = None  # numbers for the next request
    asked: Requirements = Requirements()  # in the workflow's file, for a workflow job
    is_of_workflow: bool = False
    is_sized_by_joblens: bool = False  # an allocation for several jobs, sized by joblens
    findings: tuple[Finding, ...] = ()

    @property
    def core_walltime_s(self) -> float | None:
        return None if not self.cpus or self.elapsed_s is None else self.cpus * self.elapsed_s

    @property
    def cpu_percent(self) -> float | None:
        whole = self.core_walltime_s
        return None if self.cpu_usec is None or not whole else self.cpu_usec / 1e4 / whole

    @property
    def memory_percent(self) -> float | None:
        if self.memory_bytes is None or not self.asked_memory_bytes:
            return None
        return 100 * self.memory_bytes / self.asked_memory_bytes

    @property
    def time_percent(self) -> float | None:
        if self.elapsed_s is None or not self.time_limit_s:
            return None
        return 100 * self.elapsed_s / self.time_limit_s


def efficiency_of_slurm(
    job: SlurmJob, records: Sequence[Record] = (), usage_so_far: Usage | None = None
) -> Efficiency:
    """Returns the efficiency. `records`: joblens jobs that ran in it.

    For a single one, numbers are ours; for several, the allocation's are Slurm's. `usage_so_far`: of a single
    running one.
    """
    row, use = job.row, slurm_use(job)
    record = records[0] if len(records) == 1 and not _is_in_allocation(records[0]) else None
    ours = usage_so_far or _usage_of(record)
    code, signal = exit_numbers(row.exit_code)
    state, is_over = row.state, job.is_over
    if record is not None and record.outcome is not None and _is_all_of_it(record):
        state, is_over = _state_of(record), True
        code, signal = record.outcome.exit_code, record.outcome.signal or 0
    own_cpu = None if ours is None else ours.cpu_total_usec
    own_memory = None if ours is None else ours.memory_peak_bytes
    asked = slurm_record(job)
    is_of_workflow = record is not None and record.job.run is not None
    given = Given(
        name=row.name,
        cpus=use.cpus,
        memory_bytes=use.asked_memory_bytes,
        elapsed_s=use.elapsed_s,
        time_limit_s=row.time_limit_s,
    )
    if record is not None and _is_all_of_it(record):
        given = _own_limits(record, given, use.nodes)
    return Efficiency(
        job_id=row.job_id,
        raw_id=row.raw_id,
        cluster=row.cluster,
        name=given.name,
        user=row.user,
        group=row.group,
        state=state,
        slurm_state="" if state == row.state else row.state,
        exit_code=code,
        signal=signal,
        is_running=not is_over,
        nodes=use.nodes,
        cpus=given.cpus,
        gpus=use.gpus,
        elapsed_s=given.elapsed_s,
        time_limit_s=given.time_limit_s,
        cpu_usec=use.cpu_usec if own_cpu is None else own_cpu,
        cpu_source=SACCT if own_cpu is None else MEASURED,
        is_cpu_least=use.is_cpu_least if own_cpu is None else _is_least(ours, "cpu_total_usec"),
        slurm_cpu_usec=None if own_cpu is None else use.cpu_usec,
        memory_bytes=use.memory_peak_bytes if own_memory is None else own_memory,
        memory_source=SACCT if own_memory is None else MEASURED,
        is_memory_least=True if own_memory is None else _is_least(ours, "memory_peak_bytes"),
        is_memory_estimated=use.is_memory_estimated and own_memory is None,
        slurm_memory_bytes=None if own_memory is None else use.memory_peak_bytes,
        asked_memory_bytes=given.memory_bytes,
        jobs_inside=0 if record is not None else len(records),
        job_uuid="" if record is None else record.job.uuid,
        seen=_seen(record if record is not None and record.outcome else asked),
        asked=record.job.requirements if is_of_workflow and record else asked.job.requirements,
        is_of_workflow=is_of_workflow,
        is_sized_by_joblens=record is None and row.comment.startswith(COMMENT),
        findings=_findings(record),
    )


class Given(Struct, frozen=True, kw_only=True):
    """Resources of a job, and its duration."""

    name: str
    cpus: int | None
    memory_bytes: int | None
    elapsed_s: float | None
    time_limit_s: float | None


def _own_limits(record: Record, given: Given, nodes: int) -> Given:
    """Returns the limits of the job itself, if recorded: Slurm's include its worker."""
    needs, outcome = record.job.requirements, record.outcome
    return Given(
        name=record.job.name or given.name,
        cpus=math.ceil(needs.cpus) * nodes if needs.cpus else given.cpus,
        memory_bytes=needs.memory_bytes or given.memory_bytes,
        elapsed_s=given.elapsed_s if outcome is None else outcome.duration_s,
        time_limit_s=needs.timeout_s or given.time_limit_s,
    )


def efficiency_of_record(record: Record, usage: Usage | None = None) -> Efficiency:
    """Returns the efficiency of a job without Slurm data: measured anywhere, or imported."""
    needs, outcome = record.job.requirements, record.outcome
    used = usage or _usage_of(record) or Usage()
    placement = None if record.attempt is None else record.attempt.placement
    nodes = needs.nodes or 1
    is_imported = record.attempt is not None and record.attempt.accounting == SACCT
    own_cpus = None if record.attempt is None else record.attempt.cpu_count
    return Efficiency(
        job_id=placement.job_id if placement is not None and placement.job_id else record.job.uuid,
        cluster="" if placement is None else placement.cluster,
        name=record.job.name,
        user=record.job.user,
        state=_state_of(record),
        exit_code=None if outcome is None else outcome.exit_code,
        signal=0 if outcome is None else outcome.signal or 0,
        is_running=outcome is None,
        nodes=nodes,
        cpus=max(1, round(needs.cpus * nodes)) if needs.cpus else own_cpus,
        gpus=needs.gpus,
        elapsed_s=None if outcome is None else outcome.duration_s,
        time_limit_s=needs.timeout_s,
        cpu_usec=used.cpu_total_usec,
        cpu_source=SACCT if is_imported else MEASURED,
        is_cpu_least="cpu_total_usec" in used.lower_bounds,
        memory_bytes=used.memory_peak_bytes,
        memory_source=SACCT if is_imported else MEASURED,
        is_memory_least="memory_peak_bytes" in used.lower_bounds,
        asked_memory_bytes=needs.memory_bytes,
        is_shared=_is_in_allocation(record),
        job_uuid=record.job.uuid,
        seen=_seen(record),
        asked=needs,
        is_of_workflow=record.job.run is not None,
        findings=_findings(record),
    )


def _is_in_allocation(record: Record) -> bool:
    placement = None if record.attempt is None else record.attempt.placement
    return placement is not None and placement.is_allocation


def _is_all_of_it(record: Record) -> bool:
    """Returns whether Slurm started it for this job alone, not as a command in a user's script."""
    return record.job.queue.startswith(CLUSTER_MARK)


def _state_of(record: Record) -> str:
    if record.outcome is not None and record.outcome.reason == "out-of-memory":
        return "OUT_OF_MEMORY"
    return _STATES.get(record.status, record.status.value.upper())


def _usage_of(record: Record | None) -> Usage | None:
    return None if record is None or record.outcome is None else record.outcome.usage


def _is_least(usage: Usage | None, number: str) -> bool:
    return usage is not None and number in usage.lower_bounds


def _findings(record: Record | None) -> tuple[Finding, ...]:
    """Returns findings to act on; sizes are given as advice."""
    if record is None or record.outcome is None:
        return ()
    return tuple(one for one in record.outcome.findings if one.severity is not Severity.INFO)


def _seen(record: Record) -> Observation | None:
    """Returns None if it runs or was stopped from outside, which says nothing about next time."""
    seen = observation_of(record, 1)
    return None if seen is None or seen.status in (Status.CANCELLED, Status.MEASURED) else seen


class NextTime(Struct, frozen=True):
    """Requests for next time, if different, and why.

    Options of sbatch, or keys of a workflow file, to which joblens adds its agent's need.
    """

    sbatch: str = ""
    keys: str = ""
    reasons: tuple[str, ...] = ()


def next_time(jobs: Sequence[Efficiency]) -> NextTime:
    """Returns advice that fits all: one job, or the elements of an array.

    Only for amounts that people wrote, not for allocations that joblens sized.
    """
    if any(one.is_sized_by_joblens for one in jobs):
        return NextTime()
    seen = [replace(one.seen, run=number) for number, one in enumerate(jobs, start=1) if one.seen is not None]
    found = advise([Group(name="", current=jobs[0].asked, observations=tuple(seen))]) if jobs else []
    if not found:
        return NextTime()
    changes = changes_for_sbatch(found[0])
    if not jobs[0].is_of_workflow:
        return NextTime(sbatch_options(found[0]), "", tuple(map(sbatch_reason, changes)))
    changes = [part for part in changes if part.current is not None]
    reasons = tuple(f"{part.resource}: {part.reason}" for part in changes)
    keys = ", ".join(f"{_KEYS[part.resource]}: {part.recommended_text}" for part in changes)
    return NextTime("", keys, reasons)


def efficiency_form(found: Efficiency) -> dict[str, Any]:
    """Returns the efficiency for programs."""
    advice = next_time([found])
    return {
        "job_id": found.job_id,
        "raw_job_id": found.raw_id or None,
        "cluster": found.cluster or None,
        "name": found.name,
        "user": found.user,
        "group": found.group or None,
        "state": found.state,
        "slurm_state": found.slurm_state or None,
        "exit_code": found.exit_code,
        "signal": found.signal or None,
        "running": found.is_running,
        "nodes": found.nodes,
        "cpus": found.cpus,
        "gpus": found.gpus,
        "elapsed_seconds": found.elapsed_s,
        "time_limit_seconds": found.time_limit_s,
        "time_percent": found.time_percent,
        "cpu_seconds": None if found.cpu_usec is None else found.cpu_usec / 1e6,
        "cpu_source": found.cpu_source,
        "cpu_is_lower_bound": found.is_cpu_least,
        "cpu_percent": found.cpu_percent,
        "slurm_cpu_seconds": None if found.slurm_cpu_usec is None else found.slurm_cpu_usec / 1e6,
        "memory_bytes": found.memory_bytes,
        "memory_source": found.memory_source,
        "memory_is_lower_bound": found.is_memory_least,
        "memory_is_estimated": found.is_memory_estimated,
        "memory_percent": found.memory_percent,
        "slurm_memory_bytes": found.slurm_memory_bytes,
        "asked_memory_bytes_per_node": found.asked_memory_bytes,
        "jobs_inside": found.jobs_inside,
        "is_shared_allocation": found.is_shared,
        "job_uuid": found.job_uuid or None,
        "sbatch": advice.sbatch,
        "workflow_keys": advice.keys,
        "reasons": list(advice.reasons),
        "findings": to_builtins(found.findings),
    }
