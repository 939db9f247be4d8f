"""Keeps what a view is told in order, though the record of an attempt comes a little later than its end."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from joblens.agent.runs.view import NoView, RunView
from joblens.model.jobs.job import Record
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobState


class ViewFeed:
    def __init__(self, view: RunView) -> None:
        self.view = view
        self._is_shown = not isinstance(view, NoView)
        self._waiting: deque[str | Callable[[], None]] = deque()  # a uuid: its record has to come first
        self._ends: dict[str, tuple[int, int]] = {}
        self._records: dict[str, Record] = {}

    def state(self, index: int, state: JobState, why: str = "") -> None:
        if self._is_shown:
            self._then(partial(self.view.state_changed, index, state, why))

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        if self._is_shown:
            self._then(partial(self.view.jobs_added, jobs))

    def began(self, index: int, attempt: int, uuid: str, at_us: int) -> None:
        if self._is_shown:
            self._then(partial(self.view.attempt_began, index, attempt, uuid, at_us))

    def ended(self, index: int, attempt: int, uuid: str) -> None:
        if self._is_shown:
            self._ends[uuid] = (index, attempt)
            self._waiting.append(uuid)

    def recorded(self, record: Record) -> None:
        if record.job.uuid in self._ends:
            self._records[record.job.uuid] = record
            self._tell()

    def flush(self) -> None:
        """Nothing more will come."""
        self._waiting = deque(
            one for one in self._waiting if not isinstance(one, str) or one in self._records
        )
        self._tell()

    def _then(self, call: Callable[[], None]) -> None:
        if self._waiting:
            self._waiting.append(call)
        else:
            call()

    def _tell(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, str):
                first()
            elif first in self._records:
                index, attempt = self._ends.pop(first)
                self.view.attempt_ended(index, attempt, self._records.pop(first))
            else:
                return
            self._waiting.popleft()
