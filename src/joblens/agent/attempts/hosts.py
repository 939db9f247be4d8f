"""Hosts of attempts: slots for jobs without limits, sessions in groups of their own for the others, and their
reports to a driver.

The slots have a thread of their own. It passes events to the loop and receives jobs in bundles, so that a
short job costs neither thread a wake-up of its own."""

import shutil
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.containers.protocol import client_variables
from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionHost, SessionOrder
from joblens.agent.slots.loop import SlotListener, SlotLoop, SlotPlan
from joblens.agent.slots.records import early_outcome
from joblens.agent.slots.slot import Finished, SlotJob
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Attempt, Outcome, Record, Status


class RunReports(Protocol):
    """Receives the progress of attempts, by the UUID of the attempt's job."""

    def began(self, uuid: str, at_us: int) -> None: ...

    def ended(self, uuid: str, outcome: Outcome) -> None:
        """Called at once: `outcome` may lack the usage. `recorded` follows."""
        ...

    def withdrawn(self, uuid: str) -> None:
        """The job did not start and never will."""
        ...

    def recorded(self, record: Record) -> None:
        """The record is safe in the store."""
        ...


class QueueReports(RunReports, Protocol):
    """Receives the progress of attempts that workers run."""

    def began(self, uuid: str, at_us: int, lost: int = 0) -> None:
        """`lost`: earlier attempts of the job that were lost with their workers."""
        ...

    def offered(self, cpus: float, memory_bytes: int) -> None:
        """Reports the capacity of all workers."""
        ...

    def waits(self, uuid: str, why: str) -> None:
        """The job was submitted and has not started."""
        ...


class RunSlots(SlotListener):
    def __init__(self, context: AgentContext, plan: SlotPlan, reports: RunReports, end_signal: int) -> None:
        self._context = context
        self._plan = plan
        self._reports = reports
        self._end_signal = end_signal
        self._capacity: Counter[Any] = Counter()  # jobs of a shape that may run at once
        self._behind: Counter[Any] = Counter()  # by shape: jobs that start after a running one
        self._shapes: dict[str, Any] = {}  # of jobs that were submitted and have not ended
        self._bundle: list[SlotJob] = []
        self._events: deque[Callable[[], None]] = deque()  # from the slots' thread, for the loop
        self._finished: set[str] = set()  # jobs whose end is among the events
        self._is_called = False
        self._loop: SlotLoop | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # ---- on the loop ---------------------------------------------------------------------------------

    def start(self, attempt: PreparedAttempt, shape: Any, *, behind: bool) -> None:
        """Adds it to the next `flush`."""
        slot_job = SlotJob(
            attempt.job, attempt.argv, attempt.env, attempt.folder, attempt.streams, shape, self._end_signal
        )
        self._shapes[attempt.job.uuid] = shape
        self._bundle.append(slot_job)
        if behind:
            self._behind[shape] += 1
        else:
            self._capacity[shape] += 1

    def flush(self) -> None:
        if not self._bundle:
            return
        bundle, self._bundle = self._bundle, []
        if self._loop is None:
            self._loop = self._started()
        self._loop.feed_all(bundle)

    def _started(self) -> SlotLoop:
        loop = SlotLoop(self._context, self._plan, self, capacity=self._capacity)
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
        """Stops running jobs and returns when all records are safe."""
        if self._loop is None or self._thread is None:
            return
        if self._shapes:
            self._loop.stop(at_once=at_once)
        else:
            self._loop.end_feed()
        self._thread.join()
        self._loop.close()
        self._loop = None
        self._take_events()

    def take_samples(self) -> None:
        """Called on the sampler's thread."""
        loop = self._loop
        if loop is not None:
            loop.take_samples()

    def _take_events(self) -> None:
        self._is_called = False
        while self._events:
            self._events.popleft()()
        self.flush()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _began(self, uuid: str, at_us: int) -> None:
        if uuid not in self._finished:  # otherwise its end reports everything
            self._reports.began(uuid, at_us)

    def _ended(self, slot_job: SlotJob, finished: Finished) -> None:
        uuid = slot_job.job.uuid
        self._finished.discard(uuid)
        self._release(uuid)
        self._reports.ended(uuid, early_outcome(slot_job, finished))

    def _withdrawn(self, uuid: str) -> None:
        self._release(uuid)
        self._reports.withdrawn(uuid)

    def _recorded(self, records: list[Record]) -> None:
        for record in records:
            self._reports.recorded(record)

    def _release(self, uuid: str) -> None:
        """Releases its capacity, or passes it to a job that waits behind it."""
        shape = self._shapes.pop(uuid)
        if self._behind[shape]:
            self._behind[shape] -= 1
        else:
            self._capacity[shape] -= 1

    # ---- on the slots' thread --------------------------------------------------------------------------

    def begun(self, slot_job: SlotJob, attempt: Attempt) -> None:
        self._events.append(partial(self._began, slot_job.job.uuid, attempt.started_at_us))

    def finished(self, slot_job: SlotJob, finished: Finished) -> None:
        self._finished.add(slot_job.job.uuid)
        self._events.append(partial(self._ended, slot_job, finished))

    def withdrawn(self, slot_job: SlotJob) -> None:
        self._events.append(partial(self._withdrawn, slot_job.job.uuid))

    def recorded(self, records: list[Record]) -> None:
        self._events.append(partial(self._recorded, records))

    def notify(self) -> None:
        if self._events and not self._is_called:
            self._is_called = True
            self._context.loop.call(self._take_events)

    def failed(self, error: BaseException) -> None:
        self._error = error
        self._context.loop.call(self._take_events)


class AttemptHosts:
    """Runs attempts on this machine: jobs without limits in slots, the others in sessions."""

    def __init__(
        self,
        context: AgentContext,
        plan: SlotPlan,
        reports: RunReports,
        *,
        environ: Mapping[str, str],
        end_signal: int,
    ) -> None:
        self.slots = RunSlots(context, plan, reports, end_signal)
        self.sessions = SessionHost(
            context, on_outcome=self._on_outcome, on_end=self._on_end, accounting=plan.accounting
        )
        self._plan = plan
        self._reports = reports
        self._environ = environ
        self._end_signal = end_signal
        self._discardable: dict[str, str] = {}  # folders of output that is removed after success

    def start_session(self, attempt: PreparedAttempt) -> None:
        job = attempt.job
        plan = LaunchPlan(
            argv=attempt.argv,
            env={**self._environ, **_variables(attempt), JOB_ID_VARIABLE: job.uuid},
            cwd=job.cwd,
        )
        order = SessionOrder(
            job=job,
            plan=plan,
            folder=attempt.folder,
            output_max_bytes=self._plan.output_max_bytes,
            streams=attempt.streams,
        )
        if "d" in attempt.streams:
            self._discardable[job.uuid] = attempt.folder
        try:
            session = self.sessions.start(order)
        except LaunchError as error:
            self.sessions.refuse(job, error)
            return
        if session.error is None and session.record.attempt is not None:
            self._reports.began(job.uuid, session.record.attempt.started_at_us)

    def end(self, uuid: str, *, at_once: bool) -> None:
        if self.slots.holds(uuid):
            self.slots.end(uuid, at_once=at_once)
        self.sessions.stop(uuid, signal.SIGKILL if at_once else self._end_signal)

    def close(self) -> None:
        self.sessions.close()
        self.slots.close(at_once=True)

    def _on_outcome(self, record: Record) -> None:
        assert record.outcome is not None
        self._reports.ended(record.job.uuid, record.outcome)

    def _on_end(self, record: Record, _error: JoblensError | None) -> None:
        folder = self._discardable.pop(record.job.uuid, "")
        if folder and record.status is Status.SUCCESS:
            shutil.rmtree(folder, ignore_errors=True)
        self._reports.recorded(record)


def _variables(attempt: PreparedAttempt) -> dict[str, str]:
    if attempt.job.container is None:
        return attempt.env
    return client_variables({**attempt.env, JOB_ID_VARIABLE: attempt.job.uuid})
