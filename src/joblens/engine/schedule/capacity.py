"""Capacity of a run, and the shape of a job in it.

A job without requirements counts as one CPU and a little memory. CPUs are counted in thousandths: sums of
integers are exact, sums of floats are not.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan

UNWRITTEN_CPUS = 1.0
UNWRITTEN_MEMORY_BYTES = 1 << 20


class RunCapacity(Struct, frozen=True, kw_only=True):
    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...] = ()  # devices by name
    nameless_gpus: int = 0  # further GPUs without a name: others assign them
    time_s: float | None = None  # from the start; None: unlimited
    most_jobs: int | None = None


class Ahead(Struct, frozen=True, kw_only=True):
    """How many jobs are started before they fit, so that no lane waits for the next one."""

    work_s: float = 0.030  # of work per lane
    longest_s: float = 0.100  # longer jobs gain nothing
    most_each_lane: int = 16
    limited_too: bool = False  # also jobs that need some set-up


# A worker learns of its next job through the store, which takes a while.
AHEAD_OF_WORKERS = Ahead(work_s=1.0, longest_s=30.0, most_each_lane=64, limited_too=True)


class Choices(Struct, frozen=True, kw_only=True):
    """Options of this run. Jobs that are not `enabled` count as done for their dependents."""

    enabled: Collection[int] | None = None  # None: all
    enforce: bool = True
    expected_s: Mapping[int, float] = field(default_factory=dict)  # durations from history, by index
    may_go_ahead: bool = True  # the caller understands StartAttempt(behind=True)
    ahead: Ahead = Ahead()
    is_worker: bool = True  # the driver runs the jobs itself
    may_grow: bool = False  # jobs may add jobs: the driver answers AskForJobs
    # Labels of the workers; jobs with other labels take no capacity. None: they run all jobs.
    served_labels: Collection[str] | None = None
    lost_is_final: bool = False  # workers retry lost jobs themselves if they may run twice


class Shape(NamedTuple):
    """Capacity that a job takes while it runs."""

    cpu_thousandths: int
    memory_bytes: int
    gpus: int

    def within(self, other: "Shape") -> bool:
        return (
            self.cpu_thousandths <= other.cpu_thousandths
            and self.memory_bytes <= other.memory_bytes
            and self.gpus <= other.gpus
        )

    def plus(self, other: "Shape") -> "Shape":
        return Shape(
            self.cpu_thousandths + other.cpu_thousandths,
            self.memory_bytes + other.memory_bytes,
            self.gpus + other.gpus,
        )

    def share_of(self, whole: "Shape") -> float:
        """Returns the share of the resource of which it takes most."""
        return max(need / have if have else 0.0 for need, have in zip(self, whole, strict=True))


NOTHING = Shape(0, 0, 0)


def shape_of(requirements: Requirements) -> Shape:
    cpus = UNWRITTEN_CPUS if requirements.cpus is None else requirements.cpus
    memory = requirements.memory_bytes
    return Shape(
        round(cpus * 1000), UNWRITTEN_MEMORY_BYTES if memory is None else memory, requirements.gpus or 0
    )


def whole_of(offer: RunCapacity) -> Shape:
    return Shape(round(offer.cpus * 1000), offer.memory_bytes, len(offer.gpus) + offer.nameless_gpus)


class Unfit(NamedTuple):
    """A job that could never start."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    what: str  # cpus, memory, gpus, time
    need: float
    have: float


def unfit(plan: Plan, offer: RunCapacity) -> list[Unfit]:
    """Returns every requirement that exceeds the whole capacity; the caller refuses such a run."""
    known: dict[Requirements, list[tuple[str, float, float]]] = {}
    found = []
    for index, job in enumerate(plan.jobs):
        lacking = known.get(job.requirements)
        if lacking is None:
            lacking = known[job.requirements] = _lacking(job.requirements, offer)
        found += [Unfit(index, what, need, have) for what, need, have in lacking]
    return found


def _lacking(requirements: Requirements, offer: RunCapacity) -> list[tuple[str, float, float]]:
    need, have = shape_of(requirements), whole_of(offer)
    pairs = [
        ("cpus", need.cpu_thousandths / 1000, have.cpu_thousandths / 1000),
        ("memory", need.memory_bytes, have.memory_bytes),
        ("gpus", need.gpus, have.gpus),
    ]
    if requirements.timeout_s is not None and offer.time_s is not None:
        pairs.append(("time", requirements.timeout_s, offer.time_s))
    return [(what, needed, given) for what, needed, given in pairs if needed > given]
