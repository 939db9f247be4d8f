"""Job table: the state of every job and dataset and what each still waits for, as arrays.

    pending ──► finalizing ──► finalized
                     └───────► failed

A dataset is finalized when all its producers have succeeded or are not part of the run. It stays pending if a
producer failed.
"""

import enum
from array import array
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from joblens.engine.schedule.ready_queue import Dependents
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails


class DatasetState(enum.IntEnum):
    PENDING = 0
    FINALIZING = 1
    FINALIZED = 2
    FAILED = 3  # unreadable


class Progress(enum.Enum):
    """Effect of a producer's end on a dataset."""

    NOTHING = 0
    COMPLETE = 1  # it can be finalized
    SPOILT = 2  # all producers have ended, but not all succeeded


class DatasetTable:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        count = len(plan.datasets)
        self.states = bytearray(count)
        self.errors: dict[int, str] = {}
        self._unended = [len(each.producers) for each in plan.datasets]
        self._spoilt = bytearray(count)
        self._unused = bytearray(count)  # no job makes or reads it in this run
        self._waiting: dict[int, list[int]] = {}

    @property
    def is_busy(self) -> bool:
        return DatasetState.FINALIZING in self.states

    def failed(self) -> list[int]:
        return [number for number, state in enumerate(self.states) if state == DatasetState.FAILED]

    def recall(self, number: int) -> None:
        """Marks it as finalized before."""
        if number < len(self.states):
            self.states[number] = DatasetState.FINALIZED

    def open(self, jobs: Sequence[int]) -> list[int]:
        """`jobs`: their states; jobs without one will run. Returns the jobs that wait for datasets, once
        per dataset."""
        if not self.states:
            return []
        readers: dict[int, list[int]] = {}
        for index, job in enumerate(self._plan.jobs):
            if job.input_datasets and jobs[index] == JobState.UNINITIALIZED:
                for number in job.input_datasets:
                    readers.setdefault(number, []).append(index)
        for number, dataset in enumerate(self._plan.datasets):
            is_made = any(jobs[index] != JobState.DISABLED for index in dataset.producers)
            self._unused[number] = not is_made and number not in readers
            if self.states[number] != DatasetState.FINALIZED and number in readers:
                self._waiting[number] = readers[number]
        return [index for waiting in self._waiting.values() for index in waiting]

    def add_reader(self, index: int) -> tuple[int, list[int]]:
        """Adds a job while the run is going. Returns for how many datasets it waits, and which of them can
        be finalized now because no job has read them so far."""
        waits, complete = 0, []
        runs_anyway = self._plan.jobs[index].when_blocked_fails is WhenBlockedFails.RUN
        for number in self._plan.jobs[index].input_datasets:
            if self.states[number] == DatasetState.FINALIZED or (runs_anyway and self._is_hopeless(number)):
                continue
            waits += 1
            self._waiting.setdefault(number, []).append(index)
            self._unused[number] = False
            if not self._unended[number] and not self._spoilt[number] and self._begin(number):
                complete.append(number)
        return waits, complete

    def _is_hopeless(self, number: int) -> bool:
        """Returns whether it will not be finalized in this run."""
        if self.states[number] == DatasetState.FAILED:
            return True
        return bool(self._spoilt[number]) and not self._unended[number]

    def without_producers(self) -> list[int]:
        """Returns datasets that can be finalized at once."""
        return [number for number, count in enumerate(self._unended) if not count and self._begin(number)]

    def producer_ended(self, number: int, *, is_met: bool) -> Progress:
        self._unended[number] -= 1
        if not is_met:
            self._spoilt[number] = True
        if self._unended[number]:
            return Progress.NOTHING
        if self._spoilt[number]:
            return Progress.SPOILT
        return Progress.COMPLETE if self._begin(number) else Progress.NOTHING

    def _begin(self, number: int) -> bool:
        """Returns whether it has to be finalized now."""
        if self.states[number] != DatasetState.PENDING or self._unused[number]:
            return False
        self.states[number] = DatasetState.FINALIZING
        return True

    def end(self, number: int, error: str) -> list[int]:
        """Returns the jobs that waited for it."""
        if error:
            self.states[number] = DatasetState.FAILED
            self.errors[number] = error
            return list(self._waiting.get(number, ()))
        self.states[number] = DatasetState.FINALIZED
        return self._waiting.pop(number, [])

    def readers(self, number: int) -> list[int]:
        """Returns the jobs that wait for it."""
        return self._waiting.get(number, [])

    def awaited_by(self, index: int) -> list[int]:
        """Returns the datasets that a job waits for."""
        return [number for number in self._plan.jobs[index].input_datasets if number in self._waiting]

    def failed_for(self, index: int) -> int | None:
        """Returns a failed dataset that a job waits for."""
        return next((number for number in self.awaited_by(index) if number in self.errors), None)


BLOCKED = int(JobState.BLOCKED)


class Consequences(Struct):
    """Consequences of a job's end: jobs that are now ready, jobs that can never run with the job that
    prevents them, and datasets to finalize."""

    ready: list[int] = field(default_factory=list)
    canceled: list[tuple[int, int]] = field(default_factory=list)
    datasets: list[int] = field(default_factory=list)


class JobTable:
    """State and dependencies of all jobs. A dependency is met by success, and by jobs that are not part of
    the run. User data made by a job of the run is available after that job; other user data must have a
    value in the file or set since. Datasets must be finalized."""

    def __init__(self, plan: Plan) -> None:
        count = len(plan.jobs)
        self.plan = plan
        self.dependents = Dependents(plan)
        self.states = bytearray(count)
        self.attempts = array("H", bytes(2 * count))  # number of the last started attempt
        self._unmet = array("i", (len(job.depends_on) for job in plan.jobs))
        self.counts = [count] + [0] * (len(JobState) - 1)
        self.has_value = bytearray(data.data is not None for data in plan.user_data)
        self._waits_for_data: dict[int, list[int]] = {}
        self.datasets = DatasetTable(plan)
        self._is_open = False

    def add(self, jobs: Sequence[PlannedJob], first: int) -> Consequences:
        """Adds jobs of the plan; `first`: index of the first one. `open` opens earlier ones."""
        count = len(jobs)
        self.states.extend(bytes(count))
        self.attempts.extend(array("H", bytes(2 * count)))
        self._unmet.extend(len(job.depends_on) for job in jobs)
        self.counts[JobState.UNINITIALIZED] += count
        for index, job in enumerate(jobs, first):
            self.dependents.add(index, job.depends_on)
        found = Consequences()
        if self._is_open:
            numbers = set(self._indices_without_value())
            for index in range(first, first + count):
                self._wait_for_data(index, numbers)
                waits, complete = self.datasets.add_reader(index)
                self._unmet[index] += waits
                found.datasets += complete
                self.set_state(index, JobState.BLOCKED)
            for needed in sorted({one for job in jobs for one in job.depends_on if one < first}):
                if self.states[needed] >= JobState.COMPLETED:
                    self._update_dependents(needed, found, first)
        return found

    def set_state(self, index: int, state: JobState) -> None:
        self.counts[self.states[index]] -= 1
        self.counts[state] += 1
        self.states[index] = state

    def state(self, index: int) -> JobState:
        return JobState(self.states[index])

    def open(self) -> Consequences:
        """Sets jobs without a state to blocked, or ready if nothing blocks them."""
        self._is_open = True
        numbers = set(self._indices_without_value())
        if numbers:
            for index in range(len(self.plan.jobs)):
                self._wait_for_data(index, numbers)
        for index in self.datasets.open(self.states):
            self._unmet[index] += 1
        ended = [index for index, state in enumerate(self.states) if state >= JobState.COMPLETED]
        found = Consequences(datasets=self.datasets.without_producers())
        for index, state in enumerate(self.states):
            if state == JobState.UNINITIALIZED:
                ready = self._unmet[index] == 0
                self.set_state(index, JobState.READY if ready else JobState.BLOCKED)
                if ready:
                    found.ready.append(index)
        for index in ended:
            self._update_dependents(index, found)
        return found

    def _wait_for_data(self, index: int, numbers: set[int]) -> None:
        job = self.plan.jobs[index]
        for number in numbers.intersection(job.input_user_data):
            if job.spawned_by >= 0 and any(
                number in self.plan.jobs[one].output_user_data for one in job.depends_on
            ):
                continue  # set by the end of that job
            self._waits_for_data.setdefault(number, []).append(index)
            self._unmet[index] += 1

    def _indices_without_value(self) -> list[int]:
        return [
            number
            for number, data in enumerate(self.plan.user_data)
            if not self.has_value[number]
            and (data.producer < 0 or self.states[data.producer] == JobState.DISABLED)
        ]

    def end(self, index: int, state: JobState) -> Consequences:
        """Sets the final state of a job and the resulting states of its dependents."""
        self.set_state(index, state)
        found = Consequences()
        self._update_dependents(index, found)
        return found

    def set_value(self, number: int) -> list[int]:
        """Returns jobs that are ready now that this user data has a value."""
        self.has_value[number] = True
        return [index for index in self._waits_for_data.pop(number, ()) if self._met(index)]

    def _update_dependents(self, index: int, found: Consequences, first: int = 0) -> None:
        """`first`: jobs before this index are already updated, and so are its datasets."""
        ended = [index]
        while ended:
            index = ended.pop()
            state = self.states[index]
            if state == JobState.PENDING_FAILED:
                continue  # someone has to decide first
            is_met = state in (JobState.COMPLETED, JobState.DISABLED)
            if index >= first:
                for number in self.plan.jobs[index].output_datasets:
                    self._producer_ended(number, found, is_met=is_met)
            for waiting in self.dependents.of(index):
                if self.states[waiting] != BLOCKED or waiting < first:
                    continue
                job = self.plan.jobs[waiting]
                policy = job.when_blocked_fails
                # Jobs of an orchestrator that failed never run: it may not have finished adding them.
                if is_met or (policy is WhenBlockedFails.RUN and index != job.spawned_by):
                    if self._met(waiting):
                        found.ready.append(waiting)
                elif policy is WhenBlockedFails.CANCEL:
                    self.set_state(waiting, JobState.CANCELED)
                    found.canceled.append((waiting, index))
                    ended.append(waiting)

    def _producer_ended(self, number: int, found: Consequences, *, is_met: bool) -> None:
        progress = self.datasets.producer_ended(number, is_met=is_met)
        if progress is Progress.COMPLETE:
            found.datasets.append(number)
        elif progress is Progress.SPOILT:  # a job that runs anyway does not wait for a failed dataset
            found.ready += self._undeterred(self.datasets.readers(number))

    def end_dataset(self, number: int, error: str) -> Consequences:
        """Ends the finalization of a dataset. With an error, `canceled` has the jobs to cancel for it, in
        their former state."""
        waiting = self.datasets.end(number, error)
        if not error:
            return Consequences(ready=[index for index in waiting if self._met(index)])
        policies = self.plan.jobs
        return Consequences(
            ready=self._undeterred(waiting),
            canceled=[
                (index, -1)
                for index in waiting
                if policies[index].when_blocked_fails is WhenBlockedFails.CANCEL
                and self.states[index] == BLOCKED
            ],
        )

    def _undeterred(self, waiting: list[int]) -> list[int]:
        """Returns jobs that are ready without a dataset that failed."""
        return [
            index
            for index in waiting
            if self.plan.jobs[index].when_blocked_fails is WhenBlockedFails.RUN and self._met(index)
        ]

    def _met(self, index: int) -> bool:
        self._unmet[index] -= 1
        if self._unmet[index] or self.states[index] != BLOCKED:
            return False
        self.set_state(index, JobState.READY)
        return True

    def unfinished(self) -> Iterator[int]:
        return (index for index, state in enumerate(self.states) if state < JobState.COMPLETED)
