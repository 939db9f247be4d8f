"""Run view: interface of the display of a driven run, and the feed that keeps its updates in order."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from joblens.model.jobs.job import Record
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobState, RunStatus


class RunView(Protocol):
    """A driver calls it through a ThreadedView: its methods may wait, but not indefinitely."""

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        """Called for every change of a job of the plan; jobs that ended earlier come first."""
        ...

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None: ...

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        """Called with its outcome, before `state_changed` reports the job's new state."""
        ...

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        """The next jobs of the plan, which a job of the run has added. Called before any change of their
        states."""
        ...

    def note(self, text: str) -> None:
        """Shows a message, such as 'starting nothing more, waiting for 3 jobs'."""
        ...

    def tick(self) -> None:
        """Called several times per second during the run, to draw."""
        ...

    def close(self, status: RunStatus) -> None:
        """The run is over, or this process leaves it. The last drawing stays."""
        ...


class NoView:
    """View of runs that are not shown."""

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        pass

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        pass

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        pass

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def tick(self) -> None:
        pass

    def close(self, status: RunStatus) -> None:
        pass


class ThreadedView:
    """Calls another view on its own thread, where it may read the store and wait for a terminal or a reader.
    Calls are passed on in their order, with each tick."""

    def __init__(self, view: RunView, warn: Callable[[str], None]) -> None:
        """`warn` gets the error of a view that fails. After that the view is only closed."""
        self._view = view
        self._warn = warn
        self._calls: deque[Callable[[], None]] = deque()
        self._ticked = threading.Event()
        self._is_closing = self._has_failed = False
        self._status = RunStatus.FAILED  # of the run, when it closes
        self._thread = threading.Thread(target=self._run, name="joblens-view", daemon=True)
        self._thread.start()

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        self._calls.append(partial(self._view.state_changed, index, state, why))

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self._calls.append(partial(self._view.attempt_began, index, attempt, job_uuid, at_us))

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        self._calls.append(partial(self._view.attempt_ended, index, attempt, record))

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        self._calls.append(partial(self._view.jobs_added, jobs))

    def note(self, text: str) -> None:
        self._calls.append(partial(self._view.note, text))
        self._ticked.set()

    def tick(self) -> None:
        self._ticked.set()

    def close(self, status: RunStatus) -> None:
        """Returns when everything has been shown. A second call does nothing."""
        if not self._is_closing:
            self._status = status
            self._is_closing = True
            self._ticked.set()
            self._thread.join()

    def _run(self) -> None:
        self._safely(self._show)
        self._calls = deque(maxlen=0)
        while not self._is_closing:  # the view has failed
            self._await_tick()
        self._safely(lambda: self._view.close(self._status))

    def _safely(self, work: Callable[[], None]) -> None:
        """Reports the first failure: a view that fails never disturbs a run."""
        try:
            work()
        except Exception as error:  # noqa: BLE001
            if not self._has_failed:
                self._has_failed = True
                self._warn(f"the run continues, but cannot be shown: {error}")

    def _show(self) -> None:
        while not self._is_closing:
            self._await_tick()
            self._pass_on()
            if not self._is_closing:
                self._view.tick()
        self._pass_on()

    def _await_tick(self) -> None:
        self._ticked.wait()
        self._ticked.clear()

    def _pass_on(self) -> None:
        while self._calls:
            self._calls.popleft()()


class ViewFeed:
    def __init__(self, view: RunView) -> None:
        self.view = view
        self._is_shown = not isinstance(view, NoView)
        self._waiting: deque[str | Callable[[], None]] = deque()  # a uuid: waits for its record
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
            self._pass_on()

    def flush(self) -> None:
        """Passes on everything that waits; nothing more follows."""
        self._waiting = deque(
            one for one in self._waiting if not isinstance(one, str) or one in self._records
        )
        self._pass_on()

    def _then(self, call: Callable[[], None]) -> None:
        if self._waiting:
            self._waiting.append(call)
        else:
            call()

    def _pass_on(self) -> None:
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
