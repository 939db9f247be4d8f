"""In which order ready jobs are looked at: a fixed place for each job, worked out once."""

from array import array
from collections.abc import Callable, Mapping, Sequence

from joblens.model.plan import Plan

# Amounts by which each jobs_sort_method puts jobs in order, the largest first.
_SORTED_BY = {
    "none": (),
    "gpus_runtime_memory": ("gpus", "timeout_s", "memory_bytes"),
    "gpus_memory_runtime": ("gpus", "memory_bytes", "timeout_s"),
}


class Dependents:
    """Who waits for whom, as two arrays: those behind job i are `targets[starts[i]:starts[i + 1]]`."""

    __slots__ = ("starts", "targets")

    def __init__(self, plan: Plan) -> None:
        jobs = plan.jobs
        counts = array("i", bytes(4 * (len(jobs) + 1)))
        for job in jobs:
            for needed in job.depends_on:
                counts[needed + 1] += 1
        for place in range(1, len(counts)):
            counts[place] += counts[place - 1]
        self.starts = counts
        self.targets = array("i", bytes(4 * counts[-1]))
        filled = array("i", counts)
        for index, job in enumerate(jobs):
            for needed in job.depends_on:
                self.targets[filled[needed]] = index
                filled[needed] += 1

    def of(self, index: int) -> "array[int]":
        return self.targets[self.starts[index] : self.starts[index + 1]]


def weights(plan: Plan, expected_s: Mapping[int, float]) -> list[float]:
    """How long each job is taken to run: what history or its written runtime says, else as the others do."""
    known = [
        expected_s.get(index, job.requirements.timeout_s) if expected_s else job.requirements.timeout_s
        for index, job in enumerate(plan.jobs)
    ]
    told = [weight for weight in known if weight is not None]
    usual = sum(told) / len(told) if told else 1.0
    return [usual if weight is None else weight for weight in known]


def upward_ranks(plan: Plan, dependents: Dependents, own: list[float]) -> list[float]:
    """The length of the longest chain that begins with the job."""
    if not dependents.targets:
        return own
    ranks = list(own)
    unseen = array("i", (len(dependents.of(index)) for index in range(len(own))))
    ends = [index for index, count in enumerate(unseen) if count == 0]
    while ends:
        index = ends.pop()
        rank = ranks[index]
        for needed in plan.jobs[index].depends_on:
            ranks[needed] = max(ranks[needed], own[needed] + rank)
            unseen[needed] -= 1
            if unseen[needed] == 0:
                ends.append(needed)
    return ranks


def order_of(plan: Plan, ranks: Sequence[float], size_of: Callable[[int], float]) -> "array[int]":
    """Indexes in order: priority, then the longest chain (it decides how long the run takes), then the
    largest (small ones fill the gaps), then as written. `jobs_sort_method` replaces what stands between
    priority and as written."""
    jobs = plan.jobs
    amounts = _SORTED_BY.get(str(plan.other.get("jobs_sort_method")))
    if amounts is None:
        keys: list[tuple[float, ...]] = [
            (-jobs[i].priority, -ranks[i], -size_of(i)) for i in range(len(jobs))
        ]
    else:
        keys = [
            (-job.priority, *(-(getattr(job.requirements, name) or 0) for name in amounts)) for job in jobs
        ]
    return array("i", sorted(range(len(jobs)), key=keys.__getitem__))
