"""View of a sweep (`joblens map`): passes on the output of its jobs."""

import os
from collections.abc import Callable, Sequence

from joblens.app.jobs.logs import read_log
from joblens.cli.ui.runs import failure_of
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobState, RunStatus
from joblens.views.runs.live import failure_text


class MapView:
    """Passes on the output of each job as one piece when it has ended."""

    def __init__(self, *, keeps_order: bool, count: int, say: Callable[[str], None] | None) -> None:
        self._keeps_order = keeps_order
        self._say = say
        self._ended: dict[int, Record | None] = {}
        self._next = 0
        self._count = count

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        if state.is_final and index not in self._ended:
            self._ended[index] = None  # it never ran: nothing to print or to wait for
            self._pass_on()

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        """Jobs that others added print only to their own files."""

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        pass

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        if not self._keeps_order:
            self._ended[index] = None
            self._print(record)
            return
        self._ended[index] = record
        self._pass_on()

    def _pass_on(self) -> None:
        while self._keeps_order and self._next in self._ended:
            record = self._ended[self._next]
            if record is not None:
                self._ended[self._next] = None
                self._print(record)
            self._next += 1

    def note(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def tick(self) -> None:
        pass

    def close(self, status: RunStatus) -> None:
        for index in range(self._next, self._count):
            record = self._ended.get(index)
            if record is not None:
                self._print(record)

    def _print(self, record: Record) -> None:
        for stream, descriptor in (("stdout", 1), ("stderr", 2)):
            _copy(record, stream, descriptor)
        if record.status is not Status.SUCCESS and self._say is not None:
            index = record.job.run.index if record.job.run else 0
            self._say(failure_text(failure_of(index, 1, record)))


def _copy(record: Record, stream: str, descriptor: int) -> None:
    try:
        for chunk in read_log(record, stream, None):
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view) :]
    except (JoblensError, OSError):
        pass  # it printed nothing, or the reader is gone: the jobs continue
