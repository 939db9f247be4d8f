"""The background supervisor: one per user and store, started on demand, gone when idle.

It takes its work from the store (queued background jobs), so it can be killed at any moment: the next
one finds the same work there. A nudge is only a signal that says "look now"."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType

from msgspec import Struct

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.measuring.outcome import not_started
from joblens.agent.recovery.adoption import AdoptedJob
from joblens.agent.recovery.orphans import Recovery, sweep
from joblens.agent.recovery.settlement import Circumstances, Seen
from joblens.agent.runtime.ownership import SupervisorLock, alone, waits_here
from joblens.agent.runtime.payload import Payload, read_payload, remove_payload
from joblens.agent.session.context import AgentContext
from joblens.agent.session.session import JobSession
from joblens.agent.terminal.streams import OutputFiles
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError, SupervisorError
from joblens.model.jobs.job import Outcome, Record, Status
from joblens.model.redaction.secrets import SecretValues
from joblens.model.writes import CancelAsked, JobEnded

_LOOK_EVERY_S = 1.0
_LOOKS_APART_S = 0.05  # however many nudges come
_STARTS_A_LOOK = 8  # starting takes a while; messages of running jobs come in between
_PAYLOAD_PATIENCE_US = 30_000_000
_NO_PAYLOAD = "the file with its command and environment is gone, so it could not be started"

Hosted = JobSession | AdoptedJob


class SupervisorPlan(Struct, frozen=True, kw_only=True):
    user: str  # whose jobs
    most_jobs: int  # at once; the others wait
    idle_s: float | None  # None: it stays
    output_max_bytes: int  # kept of each stream of jobs it adopts


class Supervisor:
    """The lock has been taken already."""

    def __init__(
        self,
        context: AgentContext,
        recovery: Recovery,
        lock: SupervisorLock,
        plan: SupervisorPlan,
        *,
        log: Callable[[str], None],
        on_job_end: Callable[[Record, Payload | None], None],
        is_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_outdated`: whether the code of this process was replaced by another version."""
        self._context = context
        self._recovery = recovery
        self._lock = lock
        self._plan = plan
        self._log = log
        self._on_job_end = on_job_end
        self._hosted: dict[str, Hosted] = {}
        self._outputs: dict[str, OutputFiles] = {}
        self._to_notify: dict[str, Payload] = {}  # of jobs at whose end somebody wants to know
        self._looked_at_s = self._next_look_s = 0.0
        self._idle_since_s = time.monotonic()
        self._is_asked_to_end = False
        self._is_outdated = is_outdated
        self._must_restart = False
        self._has_disowned = False  # jobs from before a restart in place
        self._is_asking = False  # the store, what there is to do
        self._is_recovering = False  # on a thread
        self._trouble = ""

    def run(self) -> bool:
        """Until it has been idle for long enough, or was asked to end and its jobs have ended. True: this
        process is to be restarted in place, with the lock held and jobs running."""
        signal.signal(signal.SIGUSR1, self._nudged)
        signal.signal(signal.SIGUSR2, self._asked_to_restart)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it outlives the terminal
        signal.set_wakeup_fd(self._context.loop.wake_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))  # blocked by a restart
        self._sweep()
        self._context.loop.add_timed(self)
        while True:
            self._context.loop.run_until(self._is_done)
            if self._can_restart():
                return True
            # Whoever queued a job while the lock was held relies on this process looking once more.
            self._lock.release()
            if self._is_asked_to_end or not self._has_work() or not self._lock.take():
                self._sweep()
                return False
            self._next_look_s = 0.0
            self._idle_since_s = time.monotonic()

    @property
    def is_asked_to_end(self) -> bool:
        return self._is_asked_to_end

    def next_wake_s(self) -> float | None:
        return self._next_look_s

    def wake(self) -> None:
        now_s = self._looked_at_s = time.monotonic()
        self._next_look_s = now_s + _LOOK_EVERY_S
        if self._is_asking:
            self._next_look_s = now_s + _LOOKS_APART_S
        else:
            self._is_asking = True
            call = self._context.loop.call
            self._context.recorder.ask(
                lambda store: (store.running(), store.cancel_requests()),
                lambda found: call(lambda: self._take_look(*found)),
                lambda error: call(lambda: self._cannot_look(error)),
            )
        for output in list(self._outputs.values()):
            with contextlib.suppress(OSError):
                output.trim()

    def _take_look(self, unfinished: list[Record], asked_to_end: Mapping[str, CancelAsked]) -> None:
        self._is_asking = False
        try:
            self._look(unfinished, asked_to_end)
            self._trouble = ""
        except JoblensError as error:
            self._cannot_look(error)

    def _cannot_look(self, error: JoblensError) -> None:
        """The store cannot be asked. Running jobs go on, and the next look may find it well again."""
        self._is_asking = False
        self._report_trouble(error)

    def _report_trouble(self, error: JoblensError) -> None:
        if str(error) != self._trouble:
            self._log(str(error))
        self._trouble = str(error)

    def _look(self, unfinished: list[Record], asked_to_end: Mapping[str, CancelAsked]) -> None:
        if not self._has_disowned:  # before it starts the first one
            self._recovery.disown(unfinished, self._context.owner)
            self._has_disowned = True
        others = [record for record in unfinished if record.job.uuid not in self._hosted]
        self._recover_later(others)
        for uuid in asked_to_end:
            hosted = self._hosted.get(uuid)
            if hosted is not None and not hosted.was_asked_to_stop:
                hosted.ask_stop(EndCause.CANCELLED)
        self._must_restart |= self._is_outdated()
        if self._is_asked_to_end or self._must_restart:
            return
        waiting = [record for record in others if self._is_waiting(record)]
        room = min(_STARTS_A_LOOK, self._plan.most_jobs - len(self._hosted))
        for record in waiting[: max(0, room)]:
            if record.job.uuid in asked_to_end:
                self._cancel_unstarted(record)
            elif self._is_outdated():
                break  # the launcher would be another version's
            else:
                self._start(record)
        if len(waiting) > room > 0:
            self._next_look_s = 0.0

    def _is_waiting(self, record: Record) -> bool:
        is_mine = record.job.user == self._plan.user and waits_here(record.job, self._context.host)
        return record.status is Status.QUEUED and is_mine

    def _has_work(self) -> bool:
        with contextlib.suppress(JoblensError):
            return any(map(self._is_waiting, self._context.recorder.read(lambda store: store.running())))
        return False

    # ---- starting ----------------------------------------------------------------------------------

    def _start(self, record: Record) -> None:
        job = record.job
        payload = read_payload(self._context.spool_dir, job.uuid)
        if payload is None:
            # It is written before the job is queued; without it nobody can run the job any more.
            if self._context.clock.now_us() - job.created_at_us > _PAYLOAD_PATIENCE_US:
                self._context.recorder.put(self._recovery.give_up(record, _NO_PAYLOAD))
            return
        try:
            output = OutputFiles(payload.logs_dir, payload.output_max_bytes)
        except OSError as error:
            self._cannot_start(record, LaunchError(f"its output files cannot be made: {error}"))
            return
        self._context.add_secrets(SecretValues(payload.secrets), job.uuid)
        session = JobSession(
            job, _launch_plan(payload, output), self._context, output=output, on_end=self._ended
        )
        self._hosted[job.uuid] = session
        if payload.notify:
            self._to_notify[job.uuid] = payload
        self._outputs[job.uuid] = output
        try:
            session.start()
        finally:
            if job.uuid not in self._to_notify:
                remove_payload(self._context.spool_dir, job.uuid)

    def _cannot_start(self, record: Record, error: JoblensError) -> None:
        self._log(f"job {record.job.uuid} could not be started: {error}")
        self._end_unstarted(record, not_started(record.job, error, self._context.clock.now_us()))

    def _cancel_unstarted(self, record: Record) -> None:
        cancelled = Outcome(
            status=Status.CANCELLED,
            ended_at_us=self._context.clock.now_us(),
            duration_s=0.0,
            reason="cancelled",
            error="cancelled before it was started",
        )
        self._end_unstarted(record, cancelled)

    def _end_unstarted(self, record: Record, outcome: Outcome) -> None:
        uuid, spool_dir = record.job.uuid, self._context.spool_dir
        self._context.recorder.put([JobEnded(uuid, outcome)], then=partial(remove_payload, spool_dir, uuid))
        self._idle_since_s = time.monotonic()

    def _ended(self, hosted: Hosted) -> None:
        if isinstance(hosted, JobSession) and hosted.error is not None:
            self._log(f"job {hosted.job.uuid} could not be started: {hosted.error}")
        self._hosted.pop(hosted.job.uuid, None)
        self._outputs.pop(hosted.job.uuid, None)
        self._idle_since_s = time.monotonic()
        self._on_job_end(hosted.record, self._to_notify.pop(hosted.job.uuid, None))
        remove_payload(self._context.spool_dir, hosted.job.uuid)

    # ---- what earlier owners left --------------------------------------------------------------------

    def _recover_later(self, unfinished: list[Record]) -> None:
        """On a thread of its own: it reads the store, and may wait for launchers."""
        if self._is_recovering:
            return
        if not self._recovery.orphans(unfinished) and not self._recovery.has_unrecorded():
            return
        with contextlib.suppress(RuntimeError):  # no more threads: the next look tries again
            threading.Thread(target=self._recover, name="joblens-recovery", daemon=True).start()
            self._is_recovering = True

    def _recover(self) -> None:
        call = self._context.loop.call
        try:
            with alone(self._context.spool_dir, "recovery", patience_s=0.0) as is_alone:
                if is_alone:  # else a command is at it; the next look sees what is left
                    self._adopt_and_settle()
        except JoblensError as error:
            call(partial(self._report_trouble, error))
        except Exception as error:  # noqa: BLE001 - the jobs that it looks after go on
            call(partial(self._report_trouble, SupervisorError(f"recovery failed: {error!r}")))
        finally:
            call(self._has_recovered)

    def _has_recovered(self) -> None:
        self._is_recovering = False

    def _adopt_and_settle(self) -> None:
        recorder, are_adopted = self._context.recorder, threading.Event()
        recorder.write(self._recovery.unrecorded(recorder.read))
        found = self._recovery.orphans(recorder.read(lambda store: store.running()))
        adoptable = [(record, self._read_seen(record.job.uuid)) for record in found.adoptable]
        self._context.loop.call(partial(self._adopt_all, adoptable, are_adopted))
        for record in found.dead:
            self._settle(record, owns_groups=record.job.uuid not in found.superseded)
        for record in found.never_started:
            recorder.write(self._recovery.give_up(record))
        are_adopted.wait()
        recorder.wait_until_applied()  # from here on others see whose they are

    def _read_seen(self, uuid: str) -> Seen:
        return self._context.recorder.read(lambda store: Seen(store.samples(uuid), store.details(uuid)))

    def _adopt_all(self, adoptable: list[tuple[Record, Seen]], are_adopted: threading.Event) -> None:
        try:
            for record, seen in adoptable:
                if record.job.uuid not in self._hosted:
                    self._adopt(record, seen)
        except JoblensError as error:
            self._report_trouble(error)  # the next look tries again
        finally:
            are_adopted.set()
        if self._is_asked_to_end:
            self._stop_all()

    def _adopt(self, record: Record, seen: Seen) -> None:
        self._log(f"job {record.job.uuid}: adopted, as the process that ran it is gone")
        adopted = AdoptedJob(record, seen, self._context, self._recovery, self._ended)
        payload = read_payload(self._context.spool_dir, record.job.uuid) if record.job.notify else None
        if payload is not None:
            self._to_notify[record.job.uuid] = payload
        self._hosted[record.job.uuid] = adopted
        self._recovery.has_adopted(record.job.uuid)
        output = adopted.output(self._plan.output_max_bytes)
        if output is not None:
            self._outputs[record.job.uuid] = output
        adopted.start()

    def _settle(self, record: Record, *, owns_groups: bool) -> None:
        uuid, recorder = record.job.uuid, self._context.recorder
        seen, asked = self._read_seen(uuid), recorder.read(lambda store: store.cancel_requests().get(uuid))
        how = Circumstances(cancel_asked_at_us=asked.asked_at_us if asked else None, owns_groups=owns_groups)
        recorder.write(self._recovery.settle(record, seen, how))
        self._recovery.forget(uuid)
        self._log(f"job {uuid}: its owner and its launcher were gone")
        payload = read_payload(self._context.spool_dir, uuid) if record.job.notify else None
        with contextlib.suppress(JoblensError):  # it waits in the journal
            self._on_job_end(recorder.read(lambda store: store.find(uuid)), payload)
        remove_payload(self._context.spool_dir, uuid)

    def _sweep(self) -> None:
        context = self._context
        with contextlib.suppress(JoblensError):
            context.recorder.read(
                lambda store: sweep(
                    context.spool_dir, store, context.clock.now_us(), context.host, context.accountant.parent
                )
            )

    # ---- the end -----------------------------------------------------------------------------------

    def _can_restart(self) -> bool:
        """Jobs that run steadily go on without it; for all others it is still needed."""
        if not self._must_restart or self._is_asked_to_end or self._is_recovering or self._is_asking:
            return False
        return all(hosted.is_steady for hosted in self._hosted.values())

    def _is_done(self) -> bool:
        if self._can_restart():
            return True
        if self._hosted or self._is_recovering:
            return False
        if self._is_asked_to_end:
            # Jobs from before a restart have to be adopted before they can be ended.
            return self._has_disowned or not self._lock.is_inherited or bool(self._trouble)
        if not self._next_look_s:
            return False  # it has not looked yet
        if self._is_asking:
            return False
        idle_s = self._plan.idle_s
        return idle_s is not None and time.monotonic() - self._idle_since_s > idle_s

    def _nudged(self, number: int, frame: FrameType | None) -> None:
        self._next_look_s = min(self._next_look_s, self._looked_at_s + _LOOKS_APART_S)

    def _asked_to_restart(self, number: int, frame: FrameType | None) -> None:
        self._must_restart = True

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        """Ends its jobs first, then itself."""
        self._is_asked_to_end = True
        self._context.loop.call(self._stop_all)

    def _stop_all(self) -> None:
        for hosted in list(self._hosted.values()):
            hosted.ask_stop(EndCause.OWNER_STOPPED)


def _launch_plan(payload: Payload, output: OutputFiles) -> LaunchPlan:
    """The job writes straight to its files, so that no pump can die in between."""
    return LaunchPlan(
        argv=payload.argv,
        env=payload.env,
        cwd=payload.cwd,
        stdio=("/dev/null", output.stdout.path, output.stderr.path),
    )
