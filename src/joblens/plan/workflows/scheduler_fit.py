"""Jobs beside the Slurm allocations that `slurm_schedulers` describe: what fits into none of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.model.errors import InputError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import PlannedJob
from joblens.model.values.units import format_bytes, format_duration
from joblens.plan.slurm.amounts import gpus_in, parse_memory, parse_walltime
from joblens.plan.workflows.problems import Problems

_WALLTIME = "01:00:00"  # where a scheduler says nothing
Scheduler = Mapping[str, Any]


def check_nodes(asked: Sequence[Scheduler], jobs: Sequence[PlannedJob], problems: Problems) -> None:
    """A job of several nodes takes a whole allocation of the scheduler it names. `asked`: the schedulers that
    actions ask for nodes."""
    nodes = {str(each.get("name")): int(each.get("nodes", 1)) for each in asked}
    for job in jobs:
        there, wanted = nodes.get(job.scheduler, 1), job.requirements.nodes or 1
        if there > 1 and wanted not in (1, there):
            message = (
                f"job '{job.name}' asks for {wanted} nodes, but scheduler '{job.scheduler}' has "
                f"allocations of {there}; ask for {there}, or for 1"
            )
            problems.note(("jobs", job.spec_job, "scheduler"), message)


def warn_of_amounts(schedulers: Sequence[Scheduler], jobs: Sequence[PlannedJob], problems: Problems) -> None:
    """A job may name a scheduler; else one of all of them has to have enough."""
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
    """Yields what the job asks for, and what there is."""
    lasts_s, memory = _walltime_of(scheduler), _memory_of(scheduler)
    if asked.timeout_s is not None and lasts_s is not None and asked.timeout_s > lasts_s:
        yield f"may take {format_duration(asked.timeout_s)}", f"last {format_duration(lasts_s)}"
    if asked.memory_bytes is not None and memory is not None and asked.memory_bytes > memory:
        yield f"asks for {format_bytes(asked.memory_bytes)}", f"have {format_bytes(memory)}"
    if asked.gpus and scheduler.get("gres") and asked.gpus > gpus_in(str(scheduler["gres"])):
        yield f"asks for {asked.gpus} GPUs", f"have {gpus_in(str(scheduler['gres']))}"


def _walltime_of(scheduler: Scheduler) -> float | None:
    try:
        return parse_walltime(str(scheduler.get("walltime") or _WALLTIME))
    except InputError:
        return None


def _memory_of(scheduler: Scheduler) -> int | None:
    try:
        return parse_memory(str(scheduler["mem"])) if scheduler.get("mem") else None
    except InputError:
        return None
