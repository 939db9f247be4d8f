"""What a run may use of the machine, and what a job takes of it.

A job without written requirements packs as one CPU and a little memory. CPUs are counted in thousandths:
sums of whole numbers come out even, sums of floats do not."""

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
    nameless_gpus: int = 0  # beside them: which of these a job gets is for others to say
    time_s: float | None = None  # from the begin on; None: no end
    most_jobs: int | None = None


class Ahead(Struct, frozen=True, kw_only=True):
    """How many jobs are handed over before there is room for them, so that no lane waits for the next one."""

    work_s: float = 0.030  # of work, in each lane
    longest_s: float = 0.100  # jobs that take longer gain nothing
    most_each_lane: int = 16
    limited_too: bool = False  # also those for which something has to be set up


# A worker hears of its next job by way of the store: that takes a while.
AHEAD_OF_WORKERS = Ahead(work_s=1.0, longest_s=30.0, most_each_lane=64, limited_too=True)


class Choices(Struct, frozen=True, kw_only=True):
    """How this run differs from the plan. Jobs that are not `enabled` count as done for those behind them."""

    enabled: Collection[int] | None = None  # None: all
    enforce: bool = True
    expected_s: Mapping[int, float] = field(default_factory=dict)  # durations known from history, by index
    may_go_ahead: bool = True  # StartAttempt(behind=True) is understood by whoever carries it out
    ahead: Ahead = Ahead()
    is_worker: bool = True  # the process that drives the run carries out its jobs itself
    may_grow: bool = False  # jobs may add jobs: the driver answers AskForJobs
    # Labels of the workers of the offer; jobs with another one take none of it. None: they run all jobs.
    served_labels: Collection[str] | None = None
    lost_is_final: bool = False  # workers take lost jobs up again themselves, where they may run twice


class Shape(NamedTuple):
    """What a job takes while it runs."""

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
        """Of the resource it takes most of."""
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

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs of it
    what: str  # cpus, memory, gpus, time
    need: float
    have: float


def unfit(plan: Plan, offer: RunCapacity) -> list[Unfit]:
    """Every resource of every job that is more than is offered altogether; for the caller to refuse."""
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
