"""Which bucket each job belongs to: one for each kind of requirements."""

from array import array
from collections.abc import Sequence

from joblens.engine.schedule.capacity import Choices, RunCapacity, Shape, whole_of
from joblens.engine.schedule.waiting import Bucket
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob


class Buckets:
    def __init__(self, plan: Plan, offer: RunCapacity, choices: Choices) -> None:
        self._whole = whole_of(offer)
        self._enforce = choices.enforce
        self._limit_resources = plan.execution.limit_resources
        self._buckets: list[Bucket] = []
        self._numbers: dict[tuple[Requirements, bool, bool], int] = {}
        self._served = choices.served_labels
        self.least = self._whole  # of each resource, what the job that takes least of it takes
        self._plan = plan
        self._of_job = array("i", (self._number_of(job, job.requirements) for job in plan.jobs))

    def add(self, jobs: Sequence[PlannedJob]) -> None:
        """The next jobs of the plan."""
        self._of_job.extend(self._number_of(job, job.requirements) for job in jobs)

    def all(self) -> Sequence[Bucket]:
        return self._buckets

    def of(self, index: int) -> Bucket:
        return self._buckets[self._of_job[index]]

    def change(self, index: int, requirements: Requirements) -> None:
        """The next attempt asks for something else."""
        self._of_job[index] = self._number_of(self._plan.jobs[index], requirements)

    def grow(self, whole: Shape) -> None:
        """What is offered: attempts that ask for more than any before may fit now."""
        self._whole = whole

    def size_of(self, index: int) -> float:
        return self.of(index).shape.share_of(self._whole)

    def _number_of(self, job: PlannedJob, requirements: Requirements) -> int:
        is_elsewhere = bool(job.label) and self._served is not None and job.label not in self._served
        kind = (requirements, is_elsewhere, job.container is not None)
        number = self._numbers.get(kind)
        if number is not None:
            return number
        number = self._numbers[kind] = len(self._buckets)
        bucket = Bucket(
            number,
            requirements,
            is_limited=self._is_limited(requirements),
            is_elsewhere=is_elsewhere,
            has_container=job.container is not None,
        )
        bucket.can_fit = bucket.shape.within(self._whole)
        self._buckets.append(bucket)
        self.least = Shape(*map(min, self.least, bucket.shape))
        return number

    def _is_limited(self, asked: Requirements) -> bool:
        """Whether something has to be set up for each job by itself."""
        if not self._enforce:
            return False
        limits = (asked.cpus, asked.memory_bytes, asked.pids) if self._limit_resources else (asked.pids,)
        return asked.timeout_s is not None or any(limit is not None for limit in limits)
