"""Small plans, schedules one can talk to, and random workloads."""

import random
from typing import Any, NamedTuple

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import (
    AttemptBegan,
    AttemptEnded,
    Command,
    Event,
    RunIsOver,
    StartAttempt,
)
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import FailureHandler, RetryRule

GIB = 1 << 30
OFFER = RunCapacity(cpus=4, memory_bytes=8 * GIB, gpus=("gpu0", "gpu1"))


def job(name: str, *depends_on: int, **settings: Any) -> PlannedJob:
    asked = {
        key: settings.pop(key) for key in ("cpus", "memory_bytes", "gpus", "timeout_s") if key in settings
    }
    return PlannedJob(
        name=name, command="true", depends_on=depends_on, requirements=Requirements(**asked), **settings
    )


def plan_of(*jobs: PlannedJob, **settings: Any) -> Plan:
    return Plan(name="test", jobs=jobs, **settings)


def handler(**rule: Any) -> FailureHandler:
    return FailureHandler(name="handler", rules=(RetryRule(**rule),))


class Talk:
    """A schedule whose clock goes on by one second with each thing said to it."""

    def __init__(self, plan: Plan, offer: RunCapacity = OFFER, *, begin: bool = True, **choices: Any) -> None:
        self.schedule = Schedule(plan, offer, Choices(**choices))
        self.now_s = 100.0
        self.commands: list[Command] = self.schedule.begin(self.now_s) if begin else []

    def say(self, event: Event, after_s: float = 1.0) -> list[Command]:
        self.now_s += after_s
        result = self.schedule.handle(event, self.now_s)
        self.commands += result
        return result

    def began(self, index: int) -> list[Command]:
        return self.say(AttemptBegan(index), 0.0)

    def ended(self, index: int, exit_code: int = 0, **how: Any) -> list[Command]:
        status = how.pop("status", Status.FAILED if exit_code else Status.SUCCESS)
        after_s = how.pop("after_s", 1.0)
        attempt = self.schedule.attempt_of(index)
        return self.say(AttemptEnded(index, attempt, status, exit_code, **how), after_s)

    def state(self, index: int) -> JobState:
        return self.schedule.state_of(index)

    @property
    def states(self) -> list[JobState]:
        return [self.state(index) for index in range(len(self.schedule.plan.jobs))]

    @property
    def is_over(self) -> bool:
        return sum(isinstance(command, RunIsOver) for command in self.commands) == 1


def starts(commands: list[Command]) -> list[int]:
    return [command.index for command in commands if isinstance(command, StartAttempt)]


class Workload(NamedTuple):
    plan: Plan
    offer: RunCapacity
    durations_s: list[float]

    @property
    def lower_bound_s(self) -> float:
        """No schedule is shorter: the work has to fit the machine, and chains take their time."""
        chains: list[float] = []
        cpu_s = memory_s = 0.0
        for job, duration_s in zip(self.plan.jobs, self.durations_s, strict=True):
            chains.append(duration_s + max((chains[needed] for needed in job.depends_on), default=0.0))
            cpu_s += duration_s * (job.requirements.cpus or 1)
            memory_s += duration_s * (job.requirements.memory_bytes or 0)
        return max(*chains, cpu_s / self.offer.cpus, memory_s / self.offer.memory_bytes)


def mixed_workload(seed: int, jobs: int = 200, *, with_runtimes: bool = True) -> Workload:
    """Jobs of many sizes and durations, a third of them behind others. Written runtimes are up to 60 % too
    long, as people write them."""
    chance = random.Random(seed)
    cpus = chance.choice([8, 16, 32])
    memory = cpus * chance.choice([2, 4]) * GIB
    planned, durations = [], []
    for index in range(jobs):
        wanted = chance.choice([1, 1, 1, 2, 2, 4, cpus // 4, cpus // 2])
        duration_s = chance.choice([chance.uniform(1, 10), min(60.0, chance.lognormvariate(1, 1))])
        needed: set[int] = set()
        if index and chance.random() < 1 / 3:
            needed = {chance.randrange(max(0, index - 60), index) for _ in range(chance.randint(1, 3))}
        settings: dict[str, Any] = {"timeout_s": duration_s * chance.uniform(1, 1.6)} if with_runtimes else {}
        asked = int(min(memory, chance.uniform(0.1, 4) * GIB * chance.choice([1, 1, wanted / 2])))
        planned.append(
            job(f"job{index}", *sorted(needed), cpus=float(wanted), memory_bytes=asked, **settings)
        )
        durations.append(duration_s)
    return Workload(plan_of(*planned), RunCapacity(cpus=cpus, memory_bytes=memory), durations)
