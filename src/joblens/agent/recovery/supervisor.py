"""Background supervisor: one per user and store, started on demand, exits when idle.

It takes its work from the store (queued background jobs), so it can be killed at any moment: the next one
finds the same work there. A wakeup signal only makes it poll at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType

from msgspec import Struct

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.recovery.adoption import AdoptedJob
from joblens.agent.recovery.finalization import History
from joblens.agent.recovery.orphans import Recovery, read_history, sweep
from joblens.agent.runtime.loop import mono_s
from joblens.agent.runtime.ownership import SupervisorLock, exclusive_lock, starts_here
from joblens.agent.runtime.payload import Payload, read_payload, remove_payload
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionHost, SessionOrder
from joblens.agent.terminal.streams import OutputFiles
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError, SupervisorError
from joblens.model.jobs.job import Outcome, Record, Status
from joblens.model.redaction.secrets import SecretValues
from joblens.model.writes import CancelAsked, JobEnded

_POLL_EVERY_S = 1.0
_POLL_INTERVAL_S = 0.05  # minimum interval of polls, however many signals come
_STARTS_PER_POLL = 8  # starting takes a while; running jobs are served in between
_PAYLOAD_TIMEOUT_US = 30_000_000
_NO_PAYLOAD = "the file with its command and environment is gone, so it could not be started"


class SupervisorPlan(Struct, frozen=True, kw_only=True):
    user: str  # owner of the jobs
    most_jobs: int  # jobs at once; others wait
    idle_s: float | None  # None: it does not exit
    output_max_bytes: int  # limit per stream of adopted jobs


class Supervisor:
    """Runs with the lock held."""

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
        """`is_outdated`: returns whether the code of this process was replaced by another version."""
        self._context = context
        self._recovery = recovery
        self._lock = lock
        self._plan = plan
        self._log = log
        self._on_job_end = on_job_end
        self._host = SessionHost(context, on_end=self._ended)
        self._outputs: dict[str, OutputFiles] = {}
        self._to_notify: dict[str, Payload] = {}  # jobs with a notification at their end
        self._polled_at_s = self._next_poll_s = 0.0
        self._idle_since_s = mono_s(self._context.clock)
        self._is_stopping = False
        self._is_outdated = is_outdated
        self._must_restart = False
        self._has_disowned = False  # adopted jobs from before a restart in place
        self._is_polling = False  # a query for work is in progress
        self._is_recovering = False  # on a thread
        self._last_error = ""

    def run(self) -> bool:
        """Runs until it has been idle for long enough, or was asked to stop and its jobs have ended. Returns
        True if this process is to be restarted in place, with the lock held and jobs running."""
        signal.signal(signal.SIGUSR1, self._on_wakeup)
        signal.signal(signal.SIGUSR2, self._on_restart_signal)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it outlives the terminal
        signal.set_wakeup_fd(self._context.loop.wake_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))  # blocked by a restart
        self._sweep()
        self._context.loop.add_timed(self)
        while True:
            self._context.loop.run_until(self._is_done)
            if self._can_restart():
                return True
            # Jobs that were queued while the lock was held rely on one more poll.
            self._lock.release()
            if self._is_stopping or not self._has_work() or not self._lock.take():
                self._sweep()
                return False
            self._next_poll_s = 0.0
            self._idle_since_s = mono_s(self._context.clock)

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def next_wake_s(self) -> float | None:
        return self._next_poll_s

    def wake(self) -> None:
        now_s = self._polled_at_s = mono_s(self._context.clock)
        self._next_poll_s = now_s + _POLL_EVERY_S
        if self._is_polling:
            self._next_poll_s = now_s + _POLL_INTERVAL_S
        else:
            self._is_polling = True
            call = self._context.loop.call
            self._context.recorder.ask(
                lambda store: (store.running(), store.cancel_requests()),
                lambda found: call(lambda: self._poll_store(*found)),
                lambda error: call(lambda: self._poll_failed(error)),
            )
        for output in list(self._outputs.values()):
            with contextlib.suppress(OSError):
                output.trim()

    def _poll_store(self, unfinished: list[Record], to_cancel: Mapping[str, CancelAsked]) -> None:
        self._is_polling = False
        try:
            self._check(unfinished, to_cancel)
            self._last_error = ""
        except JoblensError as error:
            self._poll_failed(error)

    def _poll_failed(self, error: JoblensError) -> None:
        """Reports that the store does not answer. Running jobs continue, and the next poll may succeed."""
        self._is_polling = False
        self._report_error(error)

    def _report_error(self, error: JoblensError) -> None:
        if str(error) != self._last_error:
            self._log(str(error))
        self._last_error = str(error)

    def _check(self, unfinished: list[Record], to_cancel: Mapping[str, CancelAsked]) -> None:
        if not self._has_disowned:  # before the first start
            self._recovery.disown(unfinished, self._context.owner)
            self._has_disowned = True
        others = [record for record in unfinished if not self._host.holds(record.job.uuid)]
        self._recover_later(others)
        self._host.cancel(to_cancel)
        self._must_restart |= self._is_outdated()
        if self._is_stopping or self._must_restart:
            return
        waiting = [record for record in others if self._is_waiting(record)]
        free = min(_STARTS_PER_POLL, self._plan.most_jobs - len(self._host))
        for record in waiting[: max(0, free)]:
            if record.job.uuid in to_cancel:
                self._cancel_unstarted(record)
            elif self._is_outdated():
                break  # the launcher would belong to another version
            else:
                self._start(record)
        if len(waiting) > free > 0:
            self._next_poll_s = 0.0

    def _is_waiting(self, record: Record) -> bool:
        is_mine = record.job.user == self._plan.user and starts_here(record.job, self._context.host)
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
            # It is written before the job is queued; without it the job cannot run.
            if self._context.clock.now_us() - job.created_at_us > _PAYLOAD_TIMEOUT_US:
                self._context.recorder.put(self._recovery.give_up(record, _NO_PAYLOAD))
            return
        self._context.add_secrets(SecretValues(payload.secrets), job.uuid)
        if payload.notify:
            self._to_notify[job.uuid] = payload
        order = SessionOrder(
            job=job,
            plan=LaunchPlan(argv=payload.argv, env=payload.env, cwd=payload.cwd),
            folder=payload.logs_dir,
            output_max_bytes=payload.output_max_bytes,
        )
        try:
            session = self._host.start(order)
            if session.output is not None:
                self._outputs[job.uuid] = session.output
        except LaunchError as error:
            self._host.refuse(job, error)
        finally:
            if job.uuid not in self._to_notify:
                remove_payload(self._context.spool_dir, job.uuid)

    def _cancel_unstarted(self, record: Record) -> None:
        uuid, spool_dir = record.job.uuid, self._context.spool_dir
        cancelled = Outcome(
            status=Status.CANCELLED,
            ended_at_us=self._context.clock.now_us(),
            duration_s=0.0,
            reason="cancelled",
            error="cancelled before it started",
        )
        self._context.recorder.put([JobEnded(uuid, cancelled)], then=partial(remove_payload, spool_dir, uuid))
        self._idle_since_s = mono_s(self._context.clock)

    def _ended(self, record: Record, error: JoblensError | None) -> None:
        uuid = record.job.uuid
        if error is not None:
            self._log(f"job {uuid} could not be started: {error}")
        self._outputs.pop(uuid, None)
        self._idle_since_s = mono_s(self._context.clock)
        self._on_job_end(record, self._to_notify.pop(uuid, None))
        remove_payload(self._context.spool_dir, uuid)

    # ---- jobs of earlier owners ----------------------------------------------------------------------

    def _recover_later(self, unfinished: list[Record]) -> None:
        """Recovers orphans on a thread: it reads the store, and may wait for launchers."""
        if self._is_recovering:
            return
        if not self._recovery.orphans(unfinished) and not self._recovery.has_unrecorded():
            return
        with contextlib.suppress(RuntimeError):  # no more threads: the next poll retries
            threading.Thread(target=self._recover, name="joblens-recovery", daemon=True).start()
            self._is_recovering = True

    def _recover(self) -> None:
        call = self._context.loop.call
        try:
            with exclusive_lock(self._context.spool_dir, "recovery", timeout_s=0.0) as is_alone:
                if is_alone:  # otherwise a command is doing it; the next poll handles the rest
                    self._adopt_and_finalize()
        except JoblensError as error:
            call(partial(self._report_error, error))
        except Exception as error:  # noqa: BLE001 - its jobs keep running
            call(partial(self._report_error, SupervisorError(f"recovery failed: {error!r}")))
        finally:
            call(self._has_recovered)

    def _has_recovered(self) -> None:
        self._is_recovering = False

    def _adopt_and_finalize(self) -> None:
        recorder, are_adopted = self._context.recorder, threading.Event()
        recorder.write(self._recovery.unrecorded(recorder.read))
        found = self._recovery.orphans(recorder.read(lambda store: store.running()))
        adoptable = [(record, read_history(recorder, record.job.uuid)) for record in found.adoptable]
        self._context.loop.call(partial(self._adopt_all, adoptable, are_adopted))
        for record in found.dead:
            self._finalize(record, owns_groups=record.job.uuid not in found.superseded)
        for record in found.never_started:
            recorder.write(self._recovery.give_up(record))
        are_adopted.wait()
        recorder.wait_until_applied()  # other processes can read the owner from now on

    def _adopt_all(self, adoptable: list[tuple[Record, History]], are_adopted: threading.Event) -> None:
        try:
            for record, history in adoptable:
                if not self._host.holds(record.job.uuid):
                    self._adopt(record, history)
        except JoblensError as error:
            self._report_error(error)  # the next poll retries
        finally:
            are_adopted.set()
        if self._is_stopping:
            self._stop_all()

    def _adopt(self, record: Record, history: History) -> None:
        self._log(f"job {record.job.uuid}: adopted, as the process that ran it is gone")
        adopted = AdoptedJob(record, history, self._context, self._recovery, self._host.handle_end)
        payload = read_payload(self._context.spool_dir, record.job.uuid) if record.job.notify else None
        if payload is not None:
            self._to_notify[record.job.uuid] = payload
        self._recovery.mark_adopted(record.job.uuid)
        output = adopted.output(self._plan.output_max_bytes)
        if output is not None:
            self._outputs[record.job.uuid] = output
        self._host.add(adopted)

    def _finalize(self, record: Record, *, owns_groups: bool) -> None:
        uuid, recorder = record.job.uuid, self._context.recorder
        self._recovery.finalize_stored(record, recorder, owns_groups=owns_groups)
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
        """Returns whether every job runs steadily and so continues without this process."""
        if not self._must_restart or self._is_stopping or self._is_recovering or self._is_polling:
            return False
        return self._host.is_steady

    def _is_done(self) -> bool:
        if self._can_restart():
            return True
        if self._host or self._is_recovering:
            return False
        if self._is_stopping:
            # Jobs from before a restart have to be adopted before they can be stopped.
            return self._has_disowned or not self._lock.is_inherited or bool(self._last_error)
        if not self._next_poll_s:
            return False  # it has not polled yet
        if self._is_polling:
            return False
        idle_s = self._plan.idle_s
        return idle_s is not None and mono_s(self._context.clock) - self._idle_since_s > idle_s

    def _on_wakeup(self, number: int, frame: FrameType | None) -> None:
        self._next_poll_s = min(self._next_poll_s, self._polled_at_s + _POLL_INTERVAL_S)

    def _on_restart_signal(self, number: int, frame: FrameType | None) -> None:
        self._must_restart = True

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        """Stops its jobs first, then itself."""
        self._is_stopping = True
        self._context.loop.call(self._stop_all)

    def _stop_all(self) -> None:
        self._host.stop_all(EndCause.OWNER_STOPPED)
