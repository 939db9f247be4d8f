"""Datasets of a run: which wait for their producers, which can be finalized, and which jobs wait for each.

    pending ──► finalizing ──► finalized
                     └───────► failed

A dataset is finalized when all its producers have succeeded or were left out of the run. One that a producer
has spoilt stays pending."""

import enum
from collections.abc import Sequence

from joblens.model.runs.plan import Plan
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
