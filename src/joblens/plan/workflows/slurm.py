"""Slurm in workflows: signals of srun, and warnings for jobs that fit no scheduler."""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.model.clusters.slurm_notation import gpus_in, parse_memory, parse_walltime
from joblens.model.errors import InputError, PlanError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.workflow_spec import ExecutionSpec
from joblens.model.values.units import format_bytes, format_duration
from joblens.plan.workflows.problems import Problems

_USUAL_LEAD_S = 60.0  # default of srun
_WRITTEN = re.compile(r"^(?:[BR]+:)?(?:SIG)?([A-Z][A-Z0-9]*)(?:@([0-9]+))?$")


def srun_signal(execution: ExecutionSpec) -> tuple[int, float] | None:
    """Parses 'TERM@120' to (number of the signal, seconds before the end). Raises PlanError."""
    text = execution.srun_termination_signal
    if not text:
        return None
    match = _WRITTEN.match(text.strip())
    known = signal.Signals.__members__.get(f"SIG{match[1]}") if match is not None else None
    if match is None or known is None:
        raise PlanError(
            f"execution_config: srun_termination_signal: invalid value '{text}'", hint="write it as TERM@120"
        )
    return int(known), float(match[2] or _USUAL_LEAD_S)


_SCHEDULER_FIT_WALLTIME = "01:00:00"  # default of schedulers
Scheduler = Mapping[str, Any]


def check_nodes(asked: Sequence[Scheduler], jobs: Sequence[PlannedJob], problems: Problems) -> None:
    """Checks that multi-node jobs use a whole allocation of their scheduler. `asked`: schedulers of actions
    that request nodes."""
    nodes = {str(each.get("name")): int(each.get("nodes", 1)) for each in asked}
    for job in jobs:
        there, requested = nodes.get(job.scheduler, 1), job.requirements.nodes or 1
        if there > 1 and requested not in (1, there):
            message = (
                f"job '{job.name}' requests {requested} nodes, but scheduler '{job.scheduler}' has "
                f"allocations of {there}; request {there}, or 1"
            )
            problems.note(("jobs", job.spec_job, "scheduler"), message)


def warn_of_amounts(schedulers: Sequence[Scheduler], jobs: Sequence[PlannedJob], problems: Problems) -> None:
    """Warns of jobs that fit neither their scheduler nor, without one, any scheduler."""
    named = {str(each["name"]): each for each in schedulers if each.get("name")}
    if not named:
        return
    known: dict[tuple[str, Requirements], str] = {}
    for job in jobs:
        key = (job.scheduler, job.requirements)
        if key not in known:
            known[key] = _lacking(named, job.scheduler, job.requirements)
        if known[key]:
            problems.warn(("jobs", job.spec_job, "name"), f"job '{job.name}' {known[key]}")


def _lacking(named: Mapping[str, Scheduler], scheduler: str, asked: Requirements) -> str:
    if scheduler:
        found = next(_too_much(named[scheduler], asked), None) if scheduler in named else None
        return "" if found is None else f"{found[0]}, but allocations of scheduler '{scheduler}' {found[1]}"
    reasons = []
    for name, each in named.items():
        found = next(_too_much(each, asked), None)
        if found is None:
            return ""
        reasons.append(f"{found[0]}, but those of scheduler '{name}' {found[1]}")
    return f"fits into no allocation: it {'; '.join(reasons)}"


def _too_much(scheduler: Scheduler, asked: Requirements) -> Iterator[tuple[str, str]]:
    """Yields the job's request, and the available amount."""
    lasts_s, memory = _walltime_of(scheduler), _memory_of(scheduler)
    if asked.timeout_s is not None and lasts_s is not None and asked.timeout_s > lasts_s:
        yield f"may take {format_duration(asked.timeout_s)}", f"last {format_duration(lasts_s)}"
    if asked.memory_bytes is not None and memory is not None and asked.memory_bytes > memory:
        yield f"requests {format_bytes(asked.memory_bytes)}", f"have {format_bytes(memory)}"
    if asked.gpus and scheduler.get("gres") and asked.gpus > gpus_in(str(scheduler["gres"])):
        yield f"requests {asked.gpus} GPUs", f"have {gpus_in(str(scheduler['gres']))}"


def _walltime_of(scheduler: Scheduler) -> float | None:
    try:
        return parse_walltime(str(scheduler.get("walltime") or _SCHEDULER_FIT_WALLTIME))
    except InputError:
        return None


def _memory_of(scheduler: Scheduler) -> int | None:
    try:
        return parse_memory(str(scheduler["mem"])) if scheduler.get("mem") else None
    except InputError:
        return None
