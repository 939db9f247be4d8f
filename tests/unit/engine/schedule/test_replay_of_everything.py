"""A run with datasets, added jobs, retries, resets and user data at once: whoever takes it over at any moment
finds the state that its driver had."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.engine.schedule.capacity import Choices, RunCapacity
from joblens.engine.schedule.events import (
    AttemptBegan,
    AttemptEnded,
    CancelWanted,
    Command,
    DataChanged,
    FinalizationEnded,
    FinalizeDataset,
    JobsAdded,
    JobsAsked,
    RunRecovery,
    StartAttempt,
)
from joblens.engine.schedule.job_table import DatasetState
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan, PlannedData, PlannedDataset, PlannedJob, grow, growing
from joblens.model.runs.run import (
    DatasetFinalized,
    JobCancelled,
    JobResult,
    JobsReset,
    JobState,
    RaisedRequest,
    RequirementsRaised,
    RunEvent,
    RunFact,
    UserDataSet,
)
from joblens.model.runs.workflow_spec import HashMode, WhenBlockedFails
from joblens.plan.workflows.plan_document import raised_to
from tests.unit.engine.plans import GIB, handler, job, plan_of

OFFER = RunCapacity(cpus=64, memory_bytes=512 * GIB)
POLICIES = list(WhenBlockedFails)


def file_plan(chance: random.Random) -> Plan:
    """0 adds jobs; 1 to 3 fill a dataset; 4 reads it; 5 reads user data; 6 is behind 4 and 5."""
    again = handler(exit_codes=(3,), max_retries=2, memory_factor=2.0)
    return growing(
        plan_of(
            job("orchestrator", failure_handler=again),
            *(job(f"part_{number}", 0 if number == 1 else 1, output_datasets=(0,)) for number in (1, 2, 3)),
            job("join", 1, 2, 3, input_datasets=(0,), when_blocked_fails=chance.choice(POLICIES)),
            job("told", input_user_data=(0,), memory_bytes=GIB, failure_handler=again),
            job("last", 4, 5, when_blocked_fails=chance.choice(POLICIES)),
            datasets=(
                PlannedDataset("parts", "parts", producers=(1, 2, 3)),
                PlannedDataset("raw", "raw"),
            ),
            user_data=(PlannedData("word"),),
        )
    )


def batch(chance: random.Random, count: int, by: int) -> list[PlannedJob]:
    made = []
    for number in range(chance.randint(1, 3)):
        reads = chance.sample((0, 1), chance.randint(0, 2))
        needs = {by, *((1, 2, 3) if 0 in reads else ())}
        if number and chance.random() < 0.5:
            needs.add(count + number - 1)
        made.append(
            job(
                f"added_{count + number}",
                *sorted(needs),
                spawned_by=by,
                memory_bytes=GIB,
                input_datasets=tuple(reads),
                when_blocked_fails=chance.choice(POLICIES),
                failure_handler=handler(exit_codes=(3,), max_retries=1, memory_factor=2.0),
            )
        )
    return made


class Life:
    """One driver after the other, and the facts that they leave behind."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plan = file_plan(self.chance)
        self.results: dict[tuple[int, int], JobResult] = {}
        self.events: list[RunEvent] = []
        self.schedule = Schedule(self.plan, OFFER, Choices(may_grow=True))
        self.under_way: list[Any] = []
        self.raised: list[int] = []  # jobs that recover gave more memory
        self.take(self.schedule.begin(0.0))

    def note(self, fact: RunFact) -> None:
        self.events.append(RunEvent(f"e{len(self.events)}", "run", len(self.events), fact))

    def put(self, index: int, attempt: int, status: Status, exit_code: int | None = None) -> None:
        number = len(self.results) + 1
        self.results[index, attempt] = JobResult(
            index, attempt, number, f"{index}.{attempt}", status, exit_code, "exited"
        )

    def take(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, StartAttempt):
                self.put(command.index, command.attempt, Status.RUNNING)
                self.under_way.append(command)
                self.schedule.handle(AttemptBegan(command.index), 1.0)
            elif isinstance(command, FinalizeDataset):
                self.under_way.append(command)
            assert not isinstance(command, RunRecovery)

    def say(self, event: Any) -> None:
        self.take(self.schedule.handle(event, 1.0))

    def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.15 and len(self.plan.jobs) < 25:
            begun = [index for index in range(len(self.plan.jobs)) if self.schedule.attempt_of(index)]
            first = len(self.plan.jobs)
            if begun:
                grow(self.plan, batch(self.chance, first, self.chance.choice([0, *begun])))
                self.say(JobsAdded(first))
        elif kind < 0.2:
            self.note(UserDataSet("word", 1))
            self.say(DataChanged(0))
        elif kind < 0.25:
            index = self.chance.randrange(len(self.plan.jobs))
            if not self.schedule.state_of(index).is_final and index not in self.schedule.running():
                self.note(JobCancelled(index))
                self.say(CancelWanted(index))
        elif self.under_way:
            one = self.under_way.pop(self.chance.randrange(len(self.under_way)))
            if isinstance(one, StartAttempt):
                exit_code = self.chance.choice([0, 0, 0, 0, 1, 3])
                status = Status.FAILED if exit_code else Status.SUCCESS
                self.put(one.index, one.attempt, status, exit_code)
                self.say(AttemptEnded(one.index, one.attempt, status, exit_code, "exited", 1.0))
            else:
                error = self.chance.choice(["", "", "", "gone"])
                name = self.plan.datasets[one.index].name
                self.note(DatasetFinalized(one.index, name, name, HashMode.MANIFEST, error=error))
                self.say(FinalizationEnded(one.index, error))

    def replayed(self) -> tuple[Schedule, list[Command]]:
        schedule = Schedule(growing(self.plan), OFFER, Choices(may_grow=True))
        restore(schedule, list(self.results.values()), self.events)
        return schedule, schedule.begin(1.0)

    def reset(self) -> bool:
        """As `joblens recover`: failed jobs and all behind them, with more memory. Between two drivers."""
        if self.under_way:
            return False
        states = self.states(self.schedule)
        failed = {
            index
            for index, state in enumerate(states)
            if state in (JobState.FAILED, JobState.TERMINATED) and self.schedule.attempt_of(index)
        }
        if self.chance.random() < 0.3:
            failed |= {one for one in (1, 2, 3) if states[one] is JobState.COMPLETED}
        for index, each in enumerate(self.plan.jobs):
            if failed & set(each.depends_on):
                failed.add(index)
        reset = [(index, self.schedule.attempt_of(index)) for index in sorted(failed)]
        if not reset:
            return False
        raised = tuple(
            RaisedRequest(index=index, attempt=attempt, memory_bytes=8 * GIB)
            for index, attempt in reset
            if self.plan.jobs[index].requirements.memory_bytes
        )
        self.raised = [one.index for one in raised]
        self.note(RequirementsRaised(raised))
        self.note(JobsReset(tuple(reset)))
        for one in raised:
            asked = raised_to(self.plan.jobs[one.index].requirements, one)
            assert isinstance(self.plan.jobs, list)
            self.plan.jobs[one.index] = replace(self.plan.jobs[one.index], requirements=asked)
        return True

    @staticmethod
    def states(schedule: Schedule) -> list[JobState]:
        return [schedule.state_of(index) for index in range(len(schedule.plan.jobs))]


def under_way_like(states: list[JobState]) -> list[JobState]:
    """A job that is handed over is as one that runs."""
    return [JobState.RUNNING if one is JobState.PENDING else one for one in states]


def hopeful(life: Life) -> bool:
    """A dataset that failed is finalized again by whoever takes over: until then nothing can be compared."""
    return DatasetState.FAILED not in life.schedule.table.datasets.states


@pytest.mark.parametrize("seed", range(60))
def test_a_replay_of_any_prefix_is_as_the_live_run(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.step()
        copy, commands = life.replayed()
        if hopeful(life):
            assert not [one for one in commands if isinstance(one, StartAttempt)]
            assert under_way_like(life.states(copy)) == under_way_like(life.states(life.schedule))
            busy = {one.index for one in life.under_way if isinstance(one, FinalizeDataset)}
            asked = {one.index for one in commands if isinstance(one, FinalizeDataset)}
            assert asked <= busy
            for place in busy - asked:  # nobody makes it, and its readers have ended
                assert not life.plan.datasets[place].producers
                assert not any(
                    place in each.input_datasets and not life.schedule.state_of(index).is_final
                    for index, each in enumerate(life.plan.jobs)
                )
            for index in copy.running():
                assert copy.requirements_of(index) == life.schedule.requirements_of(index)
        if not life.under_way:
            life.say(JobsAsked())
        if life.schedule.is_over:
            if not life.reset():
                break
            life.schedule, commands = life.replayed()
            for index in life.raised:
                assert (life.schedule.requirements_of(index).memory_bytes or 0) >= 8 * GIB
            life.plan = life.schedule.plan
            life.take(commands)
