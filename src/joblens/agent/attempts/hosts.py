"""Hosts of attempts: slots for jobs without limits, sessions in groups of their own for the others, and
what they report to a driver.

Starting a Python and having the kernel move a process into control groups takes tens of milliseconds, most
of it waiting. Both need to know nothing of the job, so they are done while other jobs run.

The slots have a thread of their own. What it tells is brought to the loop in bundles; jobs are fed in bundles
too, so that a short job costs neither thread a wake-up of its own.
"""

import shutil
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.containers.protocol import client_variables
from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan
from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.measuring.outcome import not_started
from joblens.agent.session.context import AgentContext, PreparedLauncher
from joblens.agent.session.session import JobSession
from joblens.agent.slots.loop import SlotLoop, SlotPlan
from joblens.agent.slots.records import early_outcome
from joblens.agent.slots.slot import Finished, SlotJob
from joblens.agent.terminal.streams import OutputFiles
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Accounting, Attempt, Job, Outcome, Record, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, JobQueued


class RunReports(Protocol):
    """All by the uuid of the attempt's job."""

    def began(self, uuid: str, at_us: int) -> None: ...

    def ended(self, uuid: str, outcome: Outcome) -> None:
        """At once: `outcome` may lack what it used. `recorded` follows."""
        ...

    def withdrawn(self, uuid: str) -> None:
        """It never began, and never will."""
        ...

    def recorded(self, record: Record) -> None:
        """How it went is in the store for good."""
        ...


class QueueReports(RunReports, Protocol):
    """Where workers carry attempts out."""

    def began(self, uuid: str, at_us: int, lost: int = 0) -> None:
        """`lost`: earlier attempts of the job that were lost with their workers."""
        ...

    def offered(self, cpus: float, memory_bytes: int) -> None:
        """What they have altogether now."""
        ...

    def waits(self, uuid: str, why: str) -> None:
        """It has been handed over and has not begun."""
        ...


class Standby:
    """Prepared launchers. Everything happens on the loop and nothing waits: where none is ready, the job
    starts the slow way."""

    def __init__(self, context: AgentContext, accounting: Accounting) -> None:
        self._context = context
        self._accounting = accounting
        self._ready: deque[PreparedLauncher] = deque()
        self._coming: dict[int, LauncherProcess] = {}  # by their sockets
        self._groups: dict[int, JobGroups | None] = {}
        self._is_off = False

    def want(self, count: int) -> None:
        """From now on as many are to be ready; more come, none is sent away."""
        if self._is_off:
            return
        for _ in range(count - len(self._ready) - len(self._coming)):
            try:
                launcher = LauncherProcess(None)
            except LaunchError:
                self._is_off = True  # jobs start the slow way, and say what is wrong
                return
            self._coming[launcher.socket] = launcher
            self._context.loop.watch(launcher.socket, self._step(launcher, self._has_greeted))

    def take(self) -> PreparedLauncher | None:
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        self._is_off = True
        for launcher in list(self._coming.values()):
            self._give_up(launcher)
        while self._ready:
            prepared = self._ready.popleft()
            _send_away(prepared.launcher, prepared.groups)

    def _step(self, launcher: LauncherProcess, then: Callable[[LauncherProcess], None]) -> Callable[[], None]:
        return partial(self._try, launcher, then)

    def _try(self, launcher: LauncherProcess, then: Callable[[LauncherProcess], None]) -> None:
        try:
            then(launcher)
        except (JoblensError, OSError):
            self._is_off = True
            self._give_up(launcher)

    def _has_greeted(self, launcher: LauncherProcess) -> None:
        launcher.greeted()
        groups = self._context.accountant.groups_for_process(new_uuid(), self._accounting, launcher.pid)
        self._groups[launcher.socket] = groups
        self._context.loop.unwatch(launcher.socket)
        self._context.loop.watch(launcher.socket, self._step(launcher, self._has_joined))
        launcher.join(groups.attach_files() if groups else ())

    def _has_joined(self, launcher: LauncherProcess) -> None:
        launcher.joined()
        self._context.loop.unwatch(launcher.socket)
        del self._coming[launcher.socket]
        self._ready.append(PreparedLauncher(launcher, self._groups.pop(launcher.socket)))

    def _give_up(self, launcher: LauncherProcess) -> None:
        self._context.loop.unwatch(launcher.socket)
        del self._coming[launcher.socket]
        _send_away(launcher, self._groups.pop(launcher.socket, None))


def _send_away(launcher: LauncherProcess, groups: JobGroups | None) -> None:
    """Its child ends with it."""
    launcher.abandon()
    if groups is not None:
        groups.kill()
        groups.remove()


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
        self._events: deque[Callable[[], None]] = deque()  # from the slots' thread, for the loop
        self._finished: set[str] = set()  # jobs whose end is among the events
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
        self._take_events()

    def take_samples(self) -> None:
        """On the sampler's thread."""
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
        if uuid not in self._finished:  # its end says it all
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
        """Gives its capacity to a job that waits behind it, or back."""
        shape = self._shapes.pop(uuid)
        if self._behind[shape]:
            self._behind[shape] -= 1
        else:
            self._places[shape] -= 1

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


_MOST_STANDBY, _MORE_STANDBY = 12, 2


class RunSessions:
    def __init__(
        self,
        context: AgentContext,
        environ: Mapping[str, str],
        reports: RunReports,
        *,
        accounting: Accounting,
        output_max_bytes: int,
        end_signal: int,
    ) -> None:
        self._context = context
        self._environ = environ
        self._reports = reports
        self._output_max_bytes = output_max_bytes
        self._end_signal = end_signal
        self._sessions: dict[str, JobSession] = {}
        self._accounting = accounting
        self._standby = Standby(context, accounting)
        self._to_come = 0
        self._spare = 1  # launchers beyond one for each job that runs
        self._has_begun = False
        self._unrecorded = 0  # jobs that could not be started, and are not in the store yet

    def expect(self, count: int) -> None:
        """Tells how many more will start, as far as is known: launchers are prepared for the next few."""
        self._to_come = count

    def start(self, attempt: PreparedAttempt) -> None:
        job = attempt.job
        try:
            output = OutputFiles(attempt.folder, self._output_max_bytes, attempt.streams)
        except OSError as error:
            self._cannot_start(attempt, LaunchError(f"its output files cannot be made: {error}"))
            return
        launcher = self._take_launcher(job)
        session = JobSession(
            job,
            LaunchPlan(
                argv=attempt.argv,
                env={**self._environ, **_variables(attempt), JOB_ID_VARIABLE: job.uuid},
                cwd=job.cwd,
                stdio=("/dev/null", *_streams(attempt.streams, output)),
            ),
            self._context,
            output=output,
            on_outcome=self._has_outcome,
            on_end=partial(self._ended, attempt),
            prepared=launcher,
        )
        self._sessions[job.uuid] = session
        self._to_come -= 1
        session.start()
        if session.error is not None:
            return  # both callbacks say so
        assert session.record.attempt is not None
        self._reports.began(job.uuid, session.record.attempt.started_at_us)
        self._standby.want(min(_MOST_STANDBY, self._to_come, len(self._sessions) + self._spare))

    def refuse(self, attempt: PreparedAttempt) -> None:
        """Records a job that cannot be started, and why."""
        self._cannot_start(attempt, LaunchError(attempt.refusal))

    def _take_launcher(self, job: Job) -> PreparedLauncher | None:
        if job.container is not None or job.accounting is not self._accounting:
            return None  # launchers are prepared for other jobs
        launcher = self._standby.take()
        if launcher is None and self._has_begun:
            self._spare += _MORE_STANDBY  # jobs come faster than launchers
        self._has_begun = True
        return launcher

    def _cannot_start(self, attempt: PreparedAttempt, error: JoblensError) -> None:
        job = attempt.job
        outcome = not_started(job, error, self._context.clock.now_us())
        record = Record(status=outcome.status, job=job, outcome=outcome)
        recorder, loop = self._context.recorder, self._context.loop

        def recorded() -> None:
            self._unrecorded -= 1
            self._reports.recorded(record)

        self._unrecorded += 1
        recorder.put([JobQueued(job), JobEnded(job.uuid, outcome)], then=partial(loop.call, recorded))
        self._reports.ended(job.uuid, outcome)

    def holds(self, uuid: str) -> bool:
        return uuid in self._sessions

    def end(self, uuid: str, *, at_once: bool) -> None:
        session = self._sessions.get(uuid)
        if session is not None:
            session.ask_stop(EndCause.CANCELLED, signal.SIGKILL if at_once else self._end_signal)

    def _has_outcome(self, session: JobSession) -> None:
        assert session.record.outcome is not None
        self._reports.ended(session.job.uuid, session.record.outcome)

    def _ended(self, attempt: PreparedAttempt, session: JobSession) -> None:
        self._sessions.pop(session.job.uuid, None)
        if "d" in attempt.streams and session.record.status is Status.SUCCESS:
            shutil.rmtree(attempt.folder, ignore_errors=True)
        self._reports.recorded(session.record)

    @property
    def is_idle(self) -> bool:
        return not self._sessions and not self._unrecorded

    def close(self) -> None:
        """What still runs is ended; its launcher leaves the outcome for whoever comes next."""
        for session in list(self._sessions.values()):
            with suppress(Exception):
                session.kill_now()
        self._standby.close()


def _variables(attempt: PreparedAttempt) -> dict[str, str]:
    if attempt.job.container is None:
        return attempt.env
    return client_variables({**attempt.env, JOB_ID_VARIABLE: attempt.job.uuid})


def _streams(streams: str, output: OutputFiles) -> tuple[str, str]:
    out = "/dev/null" if "o" in streams else output.stdout.path
    if "c" in streams:
        return out, out
    return out, "/dev/null" if "e" in streams else output.stderr.path
