"""Job table: the state of every job and dataset and what each still waits for, as arrays.

    pending ──► finalizing ──► finalized
                     └───────► failed

A dataset is finalized when all its producers have succeeded or were left out of the run. One that a producer
has spoilt stays pending.
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
    FAILED = 3  # it could not be read


class Progress(enum.Enum):
    """What the end of a producer means for a dataset."""

    NOTHING = 0
    COMPLETE = 1  # it can be finalized
    SPOILT = 2  # all producers have ended, and not all of them well


class DatasetTable:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        count = len(plan.datasets)
        self.states = bytearray(count)
        self.errors: dict[int, str] = {}
        self._unended = [len(each.producers) for each in plan.datasets]
        self._spoilt = bytearray(count)
        self._unused = bytearray(count)  # nobody makes or reads it in this run
        self._waiting: dict[int, list[int]] = {}

    @property
    def is_busy(self) -> bool:
        return DatasetState.FINALIZING in self.states

    def failed(self) -> list[int]:
        return [place for place, state in enumerate(self.states) if state == DatasetState.FAILED]

    def recall(self, place: int) -> None:
        """It was finalized before."""
        if place < len(self.states):
            self.states[place] = DatasetState.FINALIZED

    def open(self, jobs: Sequence[int]) -> list[int]:
        """`jobs`: their states; those without one will run. Returns the jobs that have to wait for datasets:
        each once for each dataset."""
        if not self.states:
            return []
        readers: dict[int, list[int]] = {}
        for index, job in enumerate(self._plan.jobs):
            if job.input_datasets and jobs[index] == JobState.UNINITIALIZED:
                for place in job.input_datasets:
                    readers.setdefault(place, []).append(index)
        for place, dataset in enumerate(self._plan.datasets):
            is_made = any(jobs[index] != JobState.DISABLED for index in dataset.producers)
            self._unused[place] = not is_made and place not in readers
            if self.states[place] != DatasetState.FINALIZED and place in readers:
                self._waiting[place] = readers[place]
        return [index for waiting in self._waiting.values() for index in waiting]

    def add_reader(self, index: int) -> tuple[int, list[int]]:
        """For a job that is added while the run goes on. Returns for how many datasets it has to wait, and
        which of them can be finalized now: no job has read them so far."""
        waits, complete = 0, []
        runs_anyway = self._plan.jobs[index].when_blocked_fails is WhenBlockedFails.RUN
        for place in self._plan.jobs[index].input_datasets:
            if self.states[place] == DatasetState.FINALIZED or (runs_anyway and self._is_hopeless(place)):
                continue
            waits += 1
            self._waiting.setdefault(place, []).append(index)
            self._unused[place] = False
            if not self._unended[place] and not self._spoilt[place] and self._begin(place):
                complete.append(place)
        return waits, complete

    def _is_hopeless(self, place: int) -> bool:
        """Whether it will not be finalized in this run."""
        if self.states[place] == DatasetState.FAILED:
            return True
        return bool(self._spoilt[place]) and not self._unended[place]

    def without_producers(self) -> list[int]:
        """Datasets that can be finalized at once."""
        return [place for place, count in enumerate(self._unended) if not count and self._begin(place)]

    def producer_ended(self, place: int, *, is_met: bool) -> Progress:
        self._unended[place] -= 1
        if not is_met:
            self._spoilt[place] = True
        if self._unended[place]:
            return Progress.NOTHING
        if self._spoilt[place]:
            return Progress.SPOILT
        return Progress.COMPLETE if self._begin(place) else Progress.NOTHING

    def _begin(self, place: int) -> bool:
        """Whether it has to be finalized now."""
        if self.states[place] != DatasetState.PENDING or self._unused[place]:
            return False
        self.states[place] = DatasetState.FINALIZING
        return True

    def end(self, place: int, error: str) -> list[int]:
        """Returns the jobs that have waited for it."""
        if error:
            self.states[place] = DatasetState.FAILED
            self.errors[place] = error
            return list(self._waiting.get(place, ()))
        self.states[place] = DatasetState.FINALIZED
        return self._waiting.pop(place, [])

    def readers(self, place: int) -> list[int]:
        """Jobs that wait for it."""
        return self._waiting.get(place, [])

    def awaited_by(self, index: int) -> list[int]:
        """Datasets that a job waits for."""
        return [place for place in self._plan.jobs[index].input_datasets if place in self._waiting]

    def failed_for(self, index: int) -> int | None:
        """Returns a dataset that a job waits for and that could not be finalized."""
        return next((place for place in self.awaited_by(index) if place in self.errors), None)


BLOCKED = int(JobState.BLOCKED)


class Consequences(Struct):
    """Of the end of a job: jobs that are ready now, jobs that can never run with the job that prevents them,
    and datasets to finalize."""

    ready: list[int] = field(default_factory=list)
    canceled: list[tuple[int, int]] = field(default_factory=list)
    datasets: list[int] = field(default_factory=list)


class JobTable:
    """Dependencies are met by success, and by jobs that are left out of the run. User data that a job of the
    run makes comes with that job's end; other user data must have a value, in the spec or set since. Datasets
    have to be finalized."""

    def __init__(self, plan: Plan) -> None:
        count = len(plan.jobs)
        self.plan = plan
        self.dependents = Dependents(plan)
        self.states = bytearray(count)
        self.attempts = array("H", bytes(2 * count))  # the number of the last one handed over
        self._unmet = array("i", (len(job.depends_on) for job in plan.jobs))
        self.counts = [count] + [0] * (len(JobState) - 1)
        self.has_value = bytearray(data.data is not None for data in plan.user_data)
        self._waits_for_data: dict[int, list[int]] = {}
        self.datasets = DatasetTable(plan)
        self._is_open = False

    def add(self, jobs: Sequence[PlannedJob], first: int) -> Consequences:
        """The plan has got these jobs; `first`: the index of the first one. `open` opens earlier ones."""
        count = len(jobs)
        self.states.extend(bytes(count))
        self.attempts.extend(array("H", bytes(2 * count)))
        self._unmet.extend(len(job.depends_on) for job in jobs)
        self.counts[JobState.UNINITIALIZED] += count
        for index, job in enumerate(jobs, first):
            self.dependents.add(index, job.depends_on)
        found = Consequences()
        if self._is_open:
            places = set(self._places_without_value())
            for index in range(first, first + count):
                self._wait_for_data(index, places)
                waits, complete = self.datasets.add_reader(index)
                self._unmet[index] += waits
                found.datasets += complete
                self.set_state(index, JobState.BLOCKED)
            for needed in sorted({one for job in jobs for one in job.depends_on if one < first}):
                if self.states[needed] >= JobState.COMPLETED:
                    self._tell_dependents(needed, found, first)
        return found

    def set_state(self, index: int, state: JobState) -> None:
        self.counts[self.states[index]] -= 1
        self.counts[state] += 1
        self.states[index] = state

    def state(self, index: int) -> JobState:
        return JobState(self.states[index])

    def open(self) -> Consequences:
        """Everything that has no state yet is blocked, unless nothing stands before it."""
        self._is_open = True
        places = set(self._places_without_value())
        if places:
            for index in range(len(self.plan.jobs)):
                self._wait_for_data(index, places)
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
            self._tell_dependents(index, found)
        return found

    def _wait_for_data(self, index: int, places: set[int]) -> None:
        job = self.plan.jobs[index]
        for place in places.intersection(job.input_user_data):
            if job.spawned_by >= 0 and any(
                place in self.plan.jobs[one].output_user_data for one in job.depends_on
            ):
                continue  # it comes with the end of that job
            self._waits_for_data.setdefault(place, []).append(index)
            self._unmet[index] += 1

    def _places_without_value(self) -> list[int]:
        return [
            place
            for place, data in enumerate(self.plan.user_data)
            if not self.has_value[place]
            and (data.producer < 0 or self.states[data.producer] == JobState.DISABLED)
        ]

    def settle(self, index: int, state: JobState) -> Consequences:
        """Puts a job into a final state, and those behind it into theirs."""
        self.set_state(index, state)
        found = Consequences()
        self._tell_dependents(index, found)
        return found

    def set_value(self, place: int) -> list[int]:
        """Jobs that are ready now that this user data has a value."""
        self.has_value[place] = True
        return [index for index in self._waits_for_data.pop(place, ()) if self._met(index)]

    def _tell_dependents(self, index: int, found: Consequences, first: int = 0) -> None:
        """`first`: jobs before this index know of it already, and so do its datasets."""
        ended = [index]
        while ended:
            index = ended.pop()
            state = self.states[index]
            if state == JobState.PENDING_FAILED:
                continue  # someone has to decide first
            is_met = state in (JobState.COMPLETED, JobState.DISABLED)
            if index >= first:
                for place in self.plan.jobs[index].output_datasets:
                    self._producer_ended(place, found, is_met=is_met)
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

    def _producer_ended(self, place: int, found: Consequences, *, is_met: bool) -> None:
        progress = self.datasets.producer_ended(place, is_met=is_met)
        if progress is Progress.COMPLETE:
            found.datasets.append(place)
        elif progress is Progress.SPOILT:  # who runs all the same does not wait for what will not come
            found.ready += self._undeterred(self.datasets.readers(place))

    def end_dataset(self, place: int, error: str) -> Consequences:
        """Its finalization has ended. With an error, `canceled` has the jobs that are to be canceled for it,
        in the state they had."""
        waiting = self.datasets.end(place, error)
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
        """Of jobs that wait for a dataset that will not be there, those that are ready without it."""
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
