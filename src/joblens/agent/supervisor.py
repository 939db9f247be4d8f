"""The background supervisor: one per user and store, started on demand, gone when idle.

It takes its work from the store (queued background jobs), so it can be killed at any moment: the next
one finds the same work there. A nudge is only a signal that says "look now"."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from joblens.agent.adopted import AdoptedJob
from joblens.agent.launch import LaunchPlan
from joblens.agent.output import OutputFiles
from joblens.agent.payload import Payload, read_payload, remove_payload
from joblens.agent.recovery import Recovery
from joblens.agent.session import JobSession, Kit
from joblens.engine.job_life import EndCause
from joblens.model.errors import JoblensError
from joblens.model.job import Job, Outcome, Record, Status
from joblens.model.writes import JobEnded

_LOOK_EVERY_S = 1.0
_PAYLOAD_PATIENCE_US = 30_000_000

Hosted = JobSession | AdoptedJob


class SupervisorLock:
    """Held by the supervisor while it lives; holds its pid."""

    def __init__(self, spool_dir: str) -> None:
        os.makedirs(spool_dir, mode=0o700, exist_ok=True)
        self._path = os.path.join(spool_dir, "supervisor.lock")
        self._descriptor: int | None = None

    def take(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> int | None:
        """The pid of the running supervisor, or None when there is none."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            digits = os.pread(descriptor, 32, 0)
            return int(digits) if digits.isdigit() else None
        finally:
            os.close(descriptor)
        return None


class Supervisor:
    def __init__(
        self,
        kit: Kit,
        recovery: Recovery,
        lock: SupervisorLock,
        *,
        logs_dir_of: Callable[[str], str],
        output_max_bytes: int,
        user: str,
        idle_s: float,
        log: Callable[[str], None],
        on_job_end: Callable[[Record], None],
    ) -> None:
        self._kit = kit
        self._recovery = recovery
        self._lock = lock
        self._logs_dir_of = logs_dir_of
        self._output_max_bytes = output_max_bytes
        self._user = user
        self._idle_s = idle_s
        self._log = log
        self._on_job_end = on_job_end
        self._hosted: dict[str, Hosted] = {}
        self._outputs: dict[str, OutputFiles] = {}
        self._next_look_s = 0.0
        self._idle_since_s = time.monotonic()
        self._is_asked_to_end = False

    def run(self) -> None:
        signal.signal(signal.SIGUSR1, self._nudged)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it outlives the terminal
        signal.set_wakeup_fd(self._kit.loop.wake_fd, warn_on_full_buffer=False)
        if not self._lock.take():
            return
        self._kit.loop.add_timed(self)
        while True:
            self._kit.loop.run_until(self._is_idle)
            # Whoever queued a job before the lock was free relies on this process looking once more.
            self._lock.release()
            if not self._waiting_jobs() or self._is_asked_to_end or not self._lock.take():
                return
            self._next_look_s = 0.0
            self._idle_since_s = time.monotonic()

    def hosted(self, uuid: str) -> Hosted | None:
        return self._hosted.get(uuid)

    def next_wake_s(self) -> float | None:
        return self._next_look_s

    def wake(self) -> None:
        self._next_look_s = time.monotonic() + _LOOK_EVERY_S
        self._adopt_and_settle()
        for record in self._waiting_jobs():
            self._start(record.job)
        self._cancel_as_asked()
        for output in list(self._outputs.values()):
            output.trim()

    def _waiting_jobs(self) -> list[Record]:
        return [
            record
            for record in self._kit.recorder.read(lambda store: store.running())
            if record.status is Status.QUEUED
            and record.job.background
            and record.job.user == self._user
            and record.job.uuid not in self._hosted
        ]

    def _start(self, job: Job) -> None:
        payload = read_payload(self._kit.spool_dir, job.uuid)
        if payload is None:
            self._give_up_without_payload(job)
            return
        output = OutputFiles(self._logs_dir_of(job.uuid), self._output_max_bytes)
        session = JobSession(
            job,
            _plan(payload, output),
            self._kit,
            output=output,
            on_end=self._ended,
        )
        self._hosted[job.uuid] = session
        self._outputs[job.uuid] = output
        try:
            session.start()
        except JoblensError as error:
            self._log(f"job {job.uuid} could not be started: {error}")
            self._ended(session)
        finally:
            remove_payload(self._kit.spool_dir, job.uuid)

    def _give_up_without_payload(self, job: Job) -> None:
        """The file is written before the job is queued; without it nobody can run the job any more."""
        now_us = self._kit.clock.now_us()
        if now_us - job.created_at_us < _PAYLOAD_PATIENCE_US:
            return
        lost = Outcome(
            status=Status.LOST,
            ended_at_us=now_us,
            duration_s=0.0,
            reason="lost",
            error="the file with its command and environment is gone, so it could not be started",
        )
        self._kit.recorder.write([JobEnded(job.uuid, lost)])

    def _ended(self, hosted: Hosted) -> None:
        self._hosted.pop(hosted.job.uuid, None)
        self._outputs.pop(hosted.job.uuid, None)
        self._idle_since_s = time.monotonic()
        with contextlib.suppress(JoblensError):
            self._on_job_end(hosted.record)

    def _adopt_and_settle(self) -> None:
        adoptable, dead = self._kit.recorder.read(self._recovery.orphans)
        for record in adoptable:
            if record.job.uuid not in self._hosted:
                self._log(f"job {record.job.uuid}: adopted from a dead owner")
                self._hosted[record.job.uuid] = AdoptedJob(record, self._kit, self._recovery, self._ended)
        for record in dead:
            if record.job.uuid not in self._hosted:
                uuid = record.job.uuid
                samples = self._kit.recorder.read(lambda store, uuid=uuid: store.samples(uuid))  # type: ignore[misc]
                self._kit.recorder.write(self._recovery.settle(record, samples))
                self._recovery.forget(uuid)

    def _cancel_as_asked(self) -> None:
        if not self._hosted and not self._waiting_jobs():
            return
        for uuid in self._kit.recorder.read(lambda store: store.cancel_requests()):
            hosted = self._hosted.get(uuid)
            if hosted is not None and not hosted.was_asked_to_stop:
                hosted.ask_stop(EndCause.CANCELLED)

    def _is_idle(self) -> bool:
        if self._hosted:
            return False
        return self._is_asked_to_end or time.monotonic() - self._idle_since_s > self._idle_s

    def _nudged(self, number: int, frame: FrameType | None) -> None:
        self._next_look_s = 0.0

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        """Ends its jobs first, then itself."""
        self._is_asked_to_end = True
        self._kit.loop.call(self._stop_all)

    def _stop_all(self) -> None:
        for hosted in list(self._hosted.values()):
            hosted.ask_stop(EndCause.CANCELLED)


def _plan(payload: Payload, output: OutputFiles) -> LaunchPlan:
    """The job writes straight to its files, so that no pump can die in between."""
    return LaunchPlan(
        argv=payload.argv,
        env=payload.env,
        cwd=payload.cwd,
        stdio=("/dev/null", output.stdout.path, output.stderr.path),
    )
