"""The state of every job and what each still waits for. Arrays: a hundred thousand jobs wait here."""

from array import array
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from joblens.engine.schedule.dataset_table import DatasetTable, Progress
from joblens.engine.schedule.order import Dependents
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails

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
