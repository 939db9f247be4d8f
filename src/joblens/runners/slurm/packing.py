"""Slurm packing of a run's jobs into allocations: which share one, how large, how many.

A request to Slurm costs as much as a short job takes, and sites limit the number of jobs per user: many small
jobs are better off in a few allocations. A large job waits least if only its own needs are requested."""

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.clusters.slurm_notation import gpus_in
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import SlurmChoice
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, ExecutionSpec, TriggerType
from joblens.model.settings import SlurmSettings
from joblens.plan.workflows.graph import schedules_nodes
from joblens.runners.slurm.terms import (
    AGENT_TIME_S,
    AllocationSize,
    Headroom,
    Terms,
    memory_asked,
    seconds_asked,
)

JOBS, ALLOCATIONS = "jobs", "allocations"

MANY = 24  # small jobs: this many are worth an allocation
SMALL_SHARE = 0.5  # of a node, at most
SHORT_S = 3600.0  # maximum duration, if it is known or written

_GUESSED_S = 60.0  # of a job without a duration
_WORK_S = 3600.0  # of work per allocation
_MOST_ALLOCATIONS = 8  # unless the options set another number
_SHORTEST_S, _LONGEST_S = 15 * 60.0, 24 * 3600.0
_ROUNDED_TO_S = 300.0
_TOO_SHORT_S = 120.0
_COMES_UP_S = 10.0  # before a worker takes its first job


class LargestNode(Struct, frozen=True, kw_only=True):
    """The largest node of a partition."""

    partition: str
    cpus: int
    memory_bytes: int
    gpus: int = 0
    nodes: int = 1  # of the partition
    time_limit_s: float | None = None
    default_time_s: float | None = None  # of jobs that request none
    is_default: bool = False


def largest_node_of(partition: str, largest_nodes: Sequence[LargestNode]) -> LargestNode | None:
    """Returns the largest node. `partition` may name several, of which Slurm uses the first free one; '' is
    the default one."""
    names = {name for name in partition.split(",") if name}
    chosen = [
        largest
        for largest in largest_nodes
        if largest.partition in names or (not names and largest.is_default)
    ]
    if not chosen:
        return None
    limits = [largest.time_limit_s for largest in chosen]
    return LargestNode(
        partition=partition,
        cpus=max(largest.cpus for largest in chosen),
        memory_bytes=max(largest.memory_bytes for largest in chosen),
        gpus=max(largest.gpus for largest in chosen),
        nodes=max(largest.nodes for largest in chosen),
        time_limit_s=None if None in limits else max(limit for limit in limits if limit is not None),
        default_time_s=min(
            (largest.default_time_s for largest in chosen if largest.default_time_s is not None), default=None
        ),
        is_default=any(largest.is_default for largest in chosen),
    )


def usual_time_s(options: Mapping[str, str], largest: LargestNode | None) -> float | None:
    """Returns the duration of an allocation: as requested, otherwise the partition's default."""
    asked_s = seconds_asked(options)
    if asked_s is not None or largest is None:
        return asked_s
    return largest.default_time_s if largest.default_time_s is not None else largest.time_limit_s


def lead_within(lead_s: float, time_s: float | None) -> float:
    """Returns how long before its end an allocation is signalled. Slurm may signal a minute early: 0 if that
    would be at once."""
    if time_s is None:
        return lead_s
    return min(lead_s, time_s / 6) if time_s > _TOO_SHORT_S else 0.0


class Packing(Struct, frozen=True, kw_only=True):
    entries: frozenset[int] = frozenset()  # of the workflow file, whose jobs share allocations
    has_actions: bool = False  # actions of the workflow request allocations
    added_from: int | None = None  # jobs added during the run share too: entries from this number on

    def shares(self, entry: int, needs: Requirements) -> bool:
        is_added = self.added_from is not None and entry >= self.added_from
        return (is_added or entry in self.entries) and (needs.nodes or 1) == 1


def choose_packing(
    plan: Plan,
    choice: SlurmChoice,
    largest_nodes: Mapping[str, LargestNode | None],
    indexes: Collection[int] | None = None,
    expected_s: Mapping[int, float] | None = None,
) -> Packing:
    """Decides which jobs share allocations. `largest_nodes`: by scheduler. `indexes`: of the jobs to run;
    None: all. `expected_s`: earlier durations."""
    known_s = expected_s or {}
    jobs = [(index, job) for index, job in enumerate(plan.jobs) if indexes is None or index in indexes]
    some = [(index, job) for index, job in jobs if (job.requirements.nodes or 1) == 1]
    single = [job for _, job in some]
    named = {
        action.spec.scheduler or ""
        for action in plan.actions
        if action.spec.action_type is ActionType.SCHEDULE_NODES
    }
    if choice.packing == JOBS:
        return Packing()
    wants_allocations = choice.packing == ALLOCATIONS or choice.allocations is not None
    if wants_allocations or choice.nodes is not None:
        shared = single
    elif named:
        shared = [job for job in single if not job.scheduler or job.scheduler in named]
    else:
        small = [
            job
            for index, job in some
            if is_small(job.requirements, largest_nodes.get(job.scheduler), known_s.get(index))
        ]
        shared = small if len(small) >= MANY else []
    entries = max((1 + job.spec_job for job in plan.jobs if job.spawned_by < 0), default=0)
    shares_added = wants_allocations or choice.nodes is not None or bool(shared)
    return Packing(
        entries=frozenset(job.spec_job for job in shared if job.spawned_by < 0),
        has_actions=bool(named),
        added_from=max(entries, plan.declared.entries) if shares_added else None,
    )


def is_small(needs: Requirements, largest: LargestNode | None, took_s: float | None) -> bool:
    """Returns whether a job may share an allocation. Measured durations take precedence over requested
    ones."""
    time_s = took_s if took_s is not None else needs.timeout_s
    if time_s is not None and time_s > SHORT_S:
        return False
    if largest is None:
        return (needs.cpus or 1) <= 1 and not needs.gpus
    return (
        math.ceil(needs.cpus or 1) <= max(1, largest.cpus * SMALL_SHARE)
        and (needs.memory_bytes or 0) <= largest.memory_bytes * SMALL_SHARE
        and (needs.gpus or 0) <= largest.gpus * SMALL_SHARE
    )


# ---- how large ------------------------------------------------------------------------------------------


class Demand(Struct, frozen=True, kw_only=True):
    """Demand of all jobs that share allocations."""

    jobs: int
    cpus: int  # all at once
    most_cpus: int  # of one of them
    memory_bytes: int  # per CPU, of those that need most
    most_memory_bytes: int
    knows_memory: bool  # all of them request some
    gpus: int
    longest_s: float | None  # None: not set
    work_s: float  # of one CPU


def demand_of(jobs: Sequence[Requirements], expected_s: Sequence[float | None] = ()) -> Demand:
    """`expected_s`: of each job, if known from earlier runs."""
    cpus = [max(1, math.ceil(one.cpus or 1)) for one in jobs]
    memory = [one.memory_bytes or 0 for one in jobs]
    times = [one.timeout_s for one in jobs if one.timeout_s is not None]
    guesses = list(expected_s) or [None] * len(jobs)
    work_s = sum(
        count * (guess if guess is not None else one.timeout_s or _GUESSED_S)
        for count, one, guess in zip(cpus, jobs, guesses, strict=True)
    )
    return Demand(
        jobs=len(jobs),
        cpus=sum(cpus),
        most_cpus=max(cpus, default=1),
        memory_bytes=max((each // count for each, count in zip(memory, cpus, strict=True)), default=0),
        most_memory_bytes=max(memory, default=0),
        knows_memory=all(one.memory_bytes is not None for one in jobs),
        gpus=sum(one.gpus or 0 for one in jobs),
        longest_s=max(times) if times else None,
        work_s=work_s,
    )


def size_allocation(
    terms: Terms,
    demand: Demand,
    largest: LargestNode | None,
    headroom: Headroom,
    most_cpus: int | None = None,
) -> AllocationSize:
    """Returns an allocation that the jobs fill, at most as large as a node. `most_cpus`: --cpus of the
    run."""
    node_cpus = largest.cpus if largest is not None else max(demand.most_cpus, demand.cpus)
    wanted = demand.cpus if most_cpus is None else min(demand.cpus, max(1, most_cpus))
    cpus = min(node_cpus, max(demand.most_cpus, math.ceil(wanted / terms.nodes)))
    gpus = min(demand.gpus, largest.gpus) if largest is not None else demand.gpus
    walltime_s = terms.walltime_within(largest.time_limit_s if largest is not None else None)
    return AllocationSize(
        nodes=terms.nodes,
        cpus=cpus,
        memory_bytes=_memory(demand, largest, cpus, headroom),
        gpus=0 if gpus_in(terms.gres) else gpus,
        time_s=_time(demand, largest, cpus, headroom) if walltime_s is None else walltime_s,
    )


def _memory(demand: Demand, largest: LargestNode | None, cpus: int, headroom: Headroom) -> int | None:
    if not demand.most_memory_bytes:
        return None  # not set: the site's default
    wanted = max(demand.memory_bytes * cpus, demand.most_memory_bytes)
    if not demand.knows_memory and largest is not None:
        # A fair share for jobs without a request.
        wanted = max(wanted, largest.memory_bytes * cpus // largest.cpus)
    wanted += headroom.memory_bytes
    return wanted if largest is None else min(wanted, largest.memory_bytes)


def _time(demand: Demand, largest: LargestNode | None, cpus: int, headroom: Headroom) -> float:
    count = how_many(demand, cpus)
    longest_s = (demand.longest_s or 0) + headroom.lead_s + AGENT_TIME_S
    spread_s = 1.5 * demand.work_s / (count * cpus) + headroom.lead_s + AGENT_TIME_S
    wanted_s = max(longest_s, min(max(spread_s, _SHORTEST_S), _LONGEST_S))
    rounded_s = math.ceil(wanted_s / _ROUNDED_TO_S) * _ROUNDED_TO_S
    limit_s = largest.time_limit_s if largest is not None else None
    return rounded_s if limit_s is None else min(rounded_s, limit_s)


def how_many(demand: Demand, cpus: int) -> int:
    """Returns the number of allocations with this many CPUs: an hour of work each, and no more than are
    filled at once."""
    by_work = math.ceil(demand.work_s / (cpus * _WORK_S))
    return max(1, min(by_work, math.ceil(demand.cpus / cpus), _MOST_ALLOCATIONS))


def fits_allocation(needs: Requirements, options: Mapping[str, str], headroom: Headroom) -> bool:
    """Returns whether a job can ever begin in an allocation with these options. An attempt may need more than
    the previous one."""
    if (needs.nodes or 1) > 1:
        return False
    memory = memory_asked(options)
    if memory is not None and (needs.memory_bytes or 0) + headroom.memory_bytes > memory:
        return False
    cpus = options.get("cpus-per-task", "")
    if cpus.isdecimal() and math.ceil(needs.cpus or 1) > int(cpus):
        return False
    time_s = seconds_asked(options)
    if time_s is not None and needs.timeout_s is not None:
        lead_s = lead_within(headroom.lead_s, time_s)
        if needs.timeout_s + lead_s + _COMES_UP_S > time_s:
            return False
    has_gpus = gpus_in(options.get("gres", "")) or any(name.startswith("gpus") for name in options)
    return not needs.gpus or bool(has_gpus)


def demand_of_plan(
    plan: Plan,
    packing: Packing,
    scheduler: str,
    indexes: Collection[int] | None = None,
    expected_s: Mapping[int, float] | None = None,
) -> Demand:
    """Returns the demand of jobs that share allocations of this scheduler; CPUs of those that may run at
    once. `indexes`: of the jobs to run; None: all. `expected_s`: earlier durations."""
    known_s = expected_s or {}
    plan = replace(plan, jobs=tuple(plan.jobs))  # it may grow meanwhile
    depths = _depths(plan)
    shared = [
        index
        for index, job in enumerate(plan.jobs)
        if (indexes is None or index in indexes)
        and (job.scheduler == scheduler or not job.scheduler)
        and packing.shares(job.spec_job, job.requirements)
    ]
    levels: dict[int, list[int]] = {}
    for index in shared:
        levels.setdefault(depths[index], []).append(index)
    whole = demand_of(
        [plan.jobs[index].requirements for index in shared], [known_s.get(index) for index in shared]
    )
    widest = [demand_of([plan.jobs[index].requirements for index in level]) for level in levels.values()]
    return replace(
        whole,
        cpus=max((one.cpus for one in widest), default=1),
        gpus=max((one.gpus for one in widest), default=0),
    )


def _depths(plan: Plan) -> list[int]:
    """Returns the length of the longest chain of jobs before each."""
    depths = [0] * len(plan.jobs)
    waiting = [len(job.depends_on) for job in plan.jobs]
    behind: dict[int, list[int]] = {}
    for index, job in enumerate(plan.jobs):
        for before in job.depends_on:
            behind.setdefault(before, []).append(index)
    due = [index for index, count in enumerate(waiting) if count == 0]
    while due:
        index = due.pop()
        for after in behind.get(index, ()):
            depths[after] = max(depths[after], depths[index] + 1)
            waiting[after] -= 1
            if waiting[after] == 0:
                due.append(after)
    return depths


_LEAST_LEAD_S = 30.0  # Slurm may send a signal a minute early, and never exactly in time


def slurm_headroom(plan: Plan, settings: SlurmSettings) -> Headroom:
    return Headroom(
        memory_bytes=settings.agent_memory, lead_s=max(_LEAST_LEAD_S, plan.execution.sigkill_headroom_s)
    )


def worker_env(execution: ExecutionSpec) -> dict[str, str]:
    """Returns the variables that srun reads in a job."""
    env = {}
    if execution.srun_mpi:
        env["SLURM_MPI_TYPE"] = execution.srun_mpi
    if execution.enable_cpu_bind is not None:
        env["SLURM_CPU_BIND"] = "cores" if execution.enable_cpu_bind else "none"
    return env


def asked_by_actions(plan: Plan, choice: SlurmChoice) -> frozenset[str]:
    """Returns the schedulers for which actions request nodes from Slurm."""
    if choice.packing == JOBS:
        return frozenset()
    return frozenset(
        action.spec.scheduler or ""
        for action in plan.actions
        if schedules_nodes(action.spec) and action.spec.scheduler_type != "local"
    )


def unused_keys(plan: Plan, choice: SlurmChoice) -> list[str]:
    """Returns one message per key without effect."""
    lines = []
    asks = any(action.spec.action_type is ActionType.SCHEDULE_NODES for action in plan.actions)
    if asks and choice.packing == JOBS:
        lines.append(
            "actions that schedule nodes are not used: every job gets its own allocation (--packing jobs)"
        )
    if asks and choice.packing != JOBS and any((job.requirements.nodes or 1) > 1 for job in plan.jobs):
        lines.append("jobs of several nodes get their own allocations, not in nodes that actions schedule")
    late = [index + 1 for index, action in enumerate(plan.actions) if _is_too_late(action.spec)]
    lines += [
        f"action {number} is not used: when the workflow is complete nodes have nothing to do"
        for number in late
    ]
    return lines


def _is_too_late(spec: ActionSpec) -> bool:
    return (
        spec.action_type is ActionType.SCHEDULE_NODES
        and spec.trigger_type is TriggerType.ON_WORKFLOW_COMPLETE
    )
