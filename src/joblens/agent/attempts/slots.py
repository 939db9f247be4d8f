"""The attempts of a run that have no limits of their own, in slots.

The slots have a thread of their own. What it tells is brought to the loop in bundles; jobs are fed in bundles
too, so that a short job costs neither thread a wake-up of its own."""

import threading
from collections import Counter, deque
from typing import Any

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.attempts.reports import RunReports
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotLoop, SlotPlan
from joblens.agent.slots.records import early_outcome
from joblens.agent.slots.slot import Finished, SlotJob
from joblens.model.errors import LaunchError
from joblens.model.jobs.job import Attempt, Record


class RunSlots:
    def __init__(self, context: AgentContext, plan: SlotPlan, reports: RunReports, end_signal: int) -> None:
        self._context = context
        self._plan = plan
        self._reports = reports
        self._end_signal = end_signal
        self._places: Counter[Any] = Counter()  # jobs of a shape that may run at once
        self._behind: Counter[Any] = Counter()  # jobs of a shape that take the place of one that runs
        self._shapes: dict[str, Any] = {}  # of jobs that were handed over and have not ended
        self._bundle: list[SlotJob] = []
        self._told: deque[tuple[str, Any, Any]] = deque()  # by the slots' thread
        self._is_called = False
        self._loop: SlotLoop | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # ---- on the loop ---------------------------------------------------------------------------------

    def start(self, attempt: PreparedAttempt, shape: Any, *, behind: bool) -> None:
        """It goes with the next `flush`."""
        slot_job = SlotJob(
            attempt.job, attempt.argv, attempt.env, attempt.folder, attempt.streams, shape, self._end_signal
        )
        self._shapes[attempt.job.uuid] = shape
        self._bundle.append(slot_job)
        if behind:
            self._behind[shape] += 1
        else:
            self._places[shape] += 1

    def flush(self) -> None:
        if not self._bundle:
            return
        bundle, self._bundle = self._bundle, []
        if self._loop is None:
            self._loop = self._started()
        self._loop.feed_all(bundle)

    def _started(self) -> SlotLoop:
        loop = SlotLoop(self._context, self._plan, listener=self, places=self._places)
        thread = threading.Thread(target=loop.drive, name="joblens-slots", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads can be started
            loop.close()
            raise LaunchError(f"no job can be started: {error}") from error
        self._thread = thread
        return loop

    def holds(self, uuid: str) -> bool:
        return uuid in self._shapes

    def end(self, uuid: str, *, at_once: bool) -> None:
        self.flush()
        if self._loop is not None:
            self._loop.end(uuid, at_once=at_once)

    def close(self, *, at_once: bool = False) -> None:
        """All records are safe when this returns; what still runs is ended."""
        if self._loop is None or self._thread is None:
            return
        if self._shapes:
            self._loop.stop(at_once=at_once)
        else:
            self._loop.feed_no_more()
        self._thread.join()
        self._loop.close()
        self._loop = None
        self._take()

    def take_samples(self) -> None:
        """On the sampler's thread."""
        loop = self._loop
        if loop is not None:
            loop.take_samples()

    def _take(self) -> None:
        """What the slots' thread has told since."""
        self._is_called = False
        told = self._told
        finished = {one[1].job.uuid for one in list(told) if one[0] == "finished"}
        while told:
            what, subject, more = told.popleft()
            if what == "recorded":
                for record in subject:
                    self._reports.recorded(record)
            elif what == "begun":
                if subject.job.uuid not in finished:
                    self._reports.began(subject.job.uuid, more.started_at_us)
            else:
                self._has_left(subject.job.uuid)
                if what == "finished":
                    self._reports.ended(subject.job.uuid, early_outcome(subject, more))
                else:
                    self._reports.withdrawn(subject.job.uuid)
        self.flush()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _has_left(self, uuid: str) -> None:
        """Its place goes to one that waits behind it, or is there no more."""
        shape = self._shapes.pop(uuid)
        if self._behind[shape]:
            self._behind[shape] -= 1
        else:
            self._places[shape] -= 1

    # ---- on the slots' thread --------------------------------------------------------------------------

    def begun(self, slot_job: SlotJob, attempt: Attempt) -> None:
        self._tell("begun", slot_job, attempt)

    def finished(self, slot_job: SlotJob, finished: Finished) -> None:
        self._tell("finished", slot_job, finished)

    def withdrawn(self, slot_job: SlotJob) -> None:
        self._tell("withdrawn", slot_job, None)

    def recorded(self, records: list[Record]) -> None:
        self._tell("recorded", records, None)

    def told_all(self) -> None:
        if self._told and not self._is_called:
            self._is_called = True
            self._context.loop.call(self._take)

    def failed(self, error: BaseException) -> None:
        self._error = error
        self._context.loop.call(self._take)

    def _tell(self, what: str, subject: Any, more: Any) -> None:
        self._told.append((what, subject, more))
