"""How many of a workflow's jobs could run at once."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from joblens.model.runs.plan import Plan
from joblens.plan.slurm.packing import Demand, Packing, demand_of


def demand_of_plan(
    plan: Plan,
    packing: Packing,
    scheduler: str,
    places: Collection[int] | None = None,
    expected_s: Mapping[int, float] | None = None,
) -> Demand:
    """Of jobs that share allocations of this scheduler; CPUs of those that may run at once. `places`: of
    the jobs that are to run; None: all. `expected_s`: how long they took before."""
    known_s = expected_s or {}
    plan = replace(plan, jobs=tuple(plan.jobs))  # it may grow meanwhile
    depths = _depths(plan)
    shared = [
        index
        for index, job in enumerate(plan.jobs)
        if (places is None or index in places)
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
    """How many jobs come before each, one after the other."""
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
