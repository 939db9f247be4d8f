"""Adoption of a job that an earlier owner started: measures and controls it until its launcher ends."""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from joblens.agent.instruments.table import DetailTaker, OtherProbes, Watched
from joblens.agent.measuring.accounting import BY_WATCHING
from joblens.agent.measuring.meter import COUNTERS, JobMeter, LimitWatch
from joblens.agent.recovery.finalization import Circumstances, History, standing_groups
from joblens.agent.recovery.orphans import Recovery
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext, container_handle, limits_key
from joblens.agent.slots.after_kill import without_peak
from joblens.agent.terminal.streams import NOTHING_NEW, OutputFiles
from joblens.engine.life.job_life import (
    Command,
    EndCause,
    Event,
    Exited,
    JobLife,
    KillAll,
    Phase,
    Send,
    Started,
    StopAsked,
    Tick,
    next_wake_s,
    on_event,
)
from joblens.files.processes import is_running
from joblens.model.errors import JoblensError, ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import NOTHING_REAPED, EarlySignal, ExitUsage, Record
from joblens.model.jobs.sample import Sample
from joblens.model.writes import JobEnded, JobStarted, SamplesTaken, Write
from joblens.probes.proc.kernel_files import USEC_PER_TICK, parse_stat

_LEFTOVER_DELAY_S = 0.1  # processes that end with the main process are not leftovers
_WATCHED = (BY_WATCHING, "joblens sampler")  # the second: in records of earlier versions
_FAR_ENOUGH_BACK = 1000  # samples


class AdoptedJob:
    """A running job of an earlier owner, driven by the loop like a session: time-out, cancellation and
    leftovers work the same."""

    def __init__(
        self,
        record: Record,
        history: History,
        context: AgentContext,
        recovery: Recovery,
        on_end: Callable[["AdoptedJob"], None],
    ) -> None:
        """`history`: samples in the store."""
        assert record.attempt is not None
        self._attempt = replace(record.attempt, owner=context.owner)
        self.record = replace(record, attempt=self._attempt)
        self.job = record.job
        self._context = context
        self._recovery = recovery
        self._on_end = on_end
        self._groups = standing_groups(self._attempt)
        self._container = container_handle(record.job, context.spool_dir, context.clock)
        if self._container is not None:
            self._container.processes.groups = self._groups
            self._container.processes.signal_client = self._signal_main
        stored, earlier = history.samples, history.details
        self._slot_job = recovery.slot_job(record.job.uuid)
        # Before the instruments: without groups, the meter knows the live processes.
        self._meter = self._open_meter()
        self._details = self._open_instruments(stored, earlier)
        last = _last_values(stored)
        self._next_index = stored[-1][0] + 1 if stored else 0
        self._meter.resume(self._attempt.base, self._attempt.started_mono_ns or 0, last)
        early = self._early_signal_to_come(last)
        self._life = JobLife(
            timeout_s=self._remaining_s(),
            early_signal=early.signal if early else None,
            early_lead_s=early.lead_s if early else 0.0,
            lead_is_grace=self._lead_is_grace(),
            grace_s=self.job.grace_s,
        )
        self._watch = self._limit_watch()
        self._launcher_fd = self._main_fd = -1
        self._leftovers_due_s: float | None = None
        self.is_over = False
        self.error: JoblensError | None = None

    def _open_meter(self) -> JobMeter:
        accountant = self._context.accountant
        if self._container is not None:
            return accountant.meter_of(self._container.probe(), self._pids)
        return accountant.meter(self._groups, self._attempt.launcher_pid or 0)

    def _open_instruments(self, stored: Sequence[tuple[int, Sample]], earlier: Details) -> DetailTaker:
        opened = self._context.instruments.open(self._watched(stored, earlier))
        probes, details = opened.probes, opened.details
        if self._container is not None:
            probes, details = self._container.bound(probes), (*details, self._container.facts())
        self._meter.others = OtherProbes(probes)
        return DetailTaker(self.job.uuid, details, self._context.recorder.put, earlier)

    def _watched(self, stored: Sequence[tuple[int, Sample]], earlier: Details) -> Watched:
        groups = self._groups
        gpus = next((sample.gpus for _, sample in reversed(stored) if sample.gpus is not None), {})
        return Watched(
            job=self.job,
            main_pid=None,
            kind=groups.kind if groups else "",
            groups=groups.paths if groups else {},
            pids=self._pids,
            is_resumed=True,
            last_gpus=gpus,
            earlier=earlier,
        )

    def start(self) -> None:
        """Takes the job over: this process is its owner from now on."""
        context, attempt = self._context, self._attempt
        context.recorder.put([JobStarted(self.job.uuid, attempt)])
        self._feed(Started())
        context.loop.add_timed(self)
        self._launcher_fd = _open_pidfd(attempt.launcher_pid, attempt.launcher_start_ticks)
        if self._launcher_fd < 0:
            context.loop.call(self._launcher_ended)
            return
        context.loop.watch(self._launcher_fd, self._launcher_ended)
        if attempt.pid is not None:
            self._main_fd = _open_pidfd(attempt.pid, attempt.pid_start_ticks)
            if self._main_fd >= 0:
                context.loop.watch(self._main_fd, self._main_ended)
            else:
                self._main_ended()
        if self.job.monitor:
            context.sampler.add(self.job.uuid, self.job.interval_s, self.take_sample)
        if self._watch:
            context.sampler.add(limits_key(self.job.uuid), self._watch.interval_s, self.watch_limits)

    @property
    def is_stopping(self) -> bool:
        return self._life.cause is not EndCause.NONE

    @property
    def is_steady(self) -> bool:
        """Returns whether it runs, and nothing is pending that only this process can finish."""
        return self._main_fd >= 0 and not self.is_over and not self.is_stopping

    def output(self, max_bytes: int) -> OutputFiles | None:
        """Its output files, if it writes to files."""
        folder = self._attempt.logs_dir
        if not folder or not os.path.isdir(folder):
            return None
        with contextlib.suppress(OSError):
            return OutputFiles(folder, max_bytes, NOTHING_NEW)
        return None

    def request_stop(self, cause: EndCause, number: int = signal.SIGTERM) -> None:
        self._feed(StopAsked(cause, number))

    def kill(self) -> None:
        self._signal_all(signal.SIGKILL)

    # ---- on the sampler's thread -------------------------------------------------------------------

    def take_sample(self) -> None:
        sample = self._read(self._meter.sample)
        if sample is not None:
            self._context.recorder.put([SamplesTaken(self.job.uuid, self._next_index, (sample,))])
            self._next_index += 1
            self._details.tick()

    def watch_limits(self) -> None:
        sample = self._read(self._meter.peek)
        cause = self._watch.judge(sample) if sample is not None else None
        if cause is not None:
            self._context.loop.call(lambda: self.request_stop(cause, signal.SIGKILL))

    def _limit_watch(self) -> LimitWatch:
        """Returns a watch for limits that the kernel does not enforce."""
        needs, by = self.job.requirements, self._attempt.enforced_by
        return LimitWatch(
            needs.memory_bytes if by.get("memory", "").startswith(_WATCHED) else None,
            needs.pids if by.get("pids", "").startswith(_WATCHED) else None,
        )

    def _read(self, read: Callable[[ExitUsage], Sample]) -> Sample | None:
        if self.is_over:
            return None
        in_container = self._container is not None
        try:
            sample = read(NOTHING_REAPED if in_container else self._reaped_so_far())
        except (ProbeError, OSError):
            return None
        return sample if self._slot_job is None else without_peak(sample)

    def _reaped_so_far(self) -> ExitUsage:
        """Returns the CPU time of ended processes of the job; in a slot, without earlier jobs."""
        reaped = _reaped_by(self._attempt.launcher_pid or 0)
        if self._slot_job is None:
            return reaped
        user_s, system_s = self._slot_job.begin.reaped_s
        return ExitUsage(
            user_usec=max(0, reaped.user_usec - round(user_s * 1e6)),
            system_usec=max(0, reaped.system_usec - round(system_s * 1e6)),
        )

    # ---- on the loop -------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        due = [at for at in (next_wake_s(self._life), self._leftovers_due_s) if at is not None]
        return min(due, default=None)

    def wake(self) -> None:
        if self._leftovers_due_s is not None and mono_s(self._context.clock) >= self._leftovers_due_s:
            self._leftovers_due_s = None
            pids = self._pids()
            if pids:
                self._feed(Exited(len(pids)))
            return  # the launcher is about to end
        self._feed(Tick())

    def _main_ended(self) -> None:
        self._main_fd = self._close_descriptor(self._main_fd)
        self._leftovers_due_s = mono_s(self._context.clock) + _LEFTOVER_DELAY_S

    def _launcher_ended(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        context, uuid = self._context, self.job.uuid
        self._main_fd = self._close_descriptor(self._main_fd)
        self._launcher_fd = self._close_descriptor(self._launcher_fd)
        with contextlib.suppress(OSError):  # a child, if this process was restarted in place
            os.waitpid(self._attempt.launcher_pid or 0, os.WNOHANG)
        context.loop.remove_timed(self)
        context.sampler.remove(uuid)
        context.sampler.remove(limits_key(uuid))
        self._details.tick(final=True)
        context.recorder.ask(
            lambda store: store.samples(uuid),
            lambda samples: context.loop.call(partial(self._finalize, samples)),
            lambda _error: context.loop.call(partial(self._finalize, [])),  # its totals are in the groups
        )

    def _finalize(self, samples: list[tuple[int, Sample]]) -> None:
        context, uuid = self._context, self.job.uuid
        how = Circumstances(cause=self._life.cause, leftovers=self._life.leftovers)
        history = History(samples, self._details.latest, self._meter, self._next_index)
        context.recorder.put(
            [self._complete(write) for write in self._recovery.finalize(self.record, history, how)]
        )
        self._details.close()
        self._recovery.forget(uuid)
        context.recorder.ask(
            lambda store: store.find(uuid),
            lambda record: context.loop.call(partial(self._on_finalized, record)),
            lambda _error: context.loop.call(partial(self._on_finalized, self.record)),
        )

    def _complete(self, write: Write) -> Write:
        complete = self._context.complete
        if complete is None or not isinstance(write, JobEnded):
            return write
        record = complete(replace(self.record, status=write.outcome.status, outcome=write.outcome))
        return write if record.outcome is None else replace(write, outcome=record.outcome)

    def _on_finalized(self, record: Record) -> None:
        self.record = record
        self._on_end(self)

    def _close_descriptor(self, descriptor: int) -> int:
        if descriptor >= 0:
            self._context.loop.unwatch(descriptor)
            os.close(descriptor)
        return -1

    def _feed(self, event: Event) -> None:
        self._life, commands = on_event(self._life, event, mono_s(self._context.clock))
        for command in commands:
            self._execute(command)

    def _execute(self, command: Command) -> None:
        """Executes a command. `Finish` is not among them: the launcher's end is the job's."""
        if isinstance(command, KillAll):
            self._signal_all(signal.SIGKILL)
        elif isinstance(command, Send) and self._is_early_signal():
            self._signal_main(command.signal)
        elif isinstance(command, Send):
            self._signal_all(command.signal)

    def _is_early_signal(self) -> bool:
        """Returns whether the signal is the early one: no other is sent to a running job that was not
        cancelled."""
        return self._life.phase is Phase.RUNNING and self._life.cause is EndCause.NONE

    def _signal_main(self, number: int) -> None:
        if self._main_fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._main_fd, number)

    def _signal_all(self, number: int) -> None:
        """Signals every process of the job except its launcher, which has yet to report the outcome."""
        if self._container is not None:
            if number == signal.SIGKILL:
                self._container.processes.kill()
            else:
                self._signal_main(number)  # the client forwards it
            return
        launcher_pid = self._attempt.launcher_pid or 0
        if self._groups is not None:
            if number == signal.SIGKILL:
                spare = (launcher_pid,) if launcher_pid in self._groups.pids() else ()
                self._groups.kill(spare=spare)
            else:
                self._groups.signal(number, spare=(launcher_pid,))
            return
        for pid in self._pids():
            with contextlib.suppress(OSError):
                held = os.pidfd_open(pid)
                try:
                    if pid in self._pids():  # still the same process
                        signal.pidfd_send_signal(held, number)
                finally:
                    os.close(held)

    def _pids(self) -> list[int]:
        launcher_pid = self._attempt.launcher_pid
        if self._container is not None:
            return self._container.processes.pids()
        if self._groups is not None:
            return [pid for pid in self._groups.pids() if pid != launcher_pid]
        return self._meter.live_pids()

    def _early_signal_to_come(self, last: Sample | None) -> EarlySignal | None:
        """Returns None also if the previous owner was still active when it was due, and so has sent it."""
        early, timeout_s = self.job.early_signal, self.job.requirements.timeout_s
        if early is None or timeout_s is None:
            return None
        seen_s = last.elapsed_us / 1e6 if last is not None else 0.0
        return early if seen_s < timeout_s - early.lead_s else None

    def _lead_is_grace(self) -> bool:
        """Returns False if its time ran out without an owner: it may never have got the signal."""
        early = self.job.early_signal
        return early is not None and early.is_grace and bool(self._remaining_s())

    def _remaining_s(self) -> float | None:
        timeout_s, started_ns = self.job.requirements.timeout_s, self._attempt.started_mono_ns
        if timeout_s is None or started_ns is None or not self.job.enforce:
            return None
        return max(0.0, timeout_s - (self._context.clock.mono_ns() - started_ns) / 1e9)


def _last_values(stored: Sequence[tuple[int, Sample]]) -> Sample | None:
    """Returns the last sample. Counters that are missing in it have their last known value."""
    if not stored:
        return None
    last = stored[-1][1]
    counters: dict[str, int] = {}
    for name in COUNTERS:
        if getattr(last, name) is None:
            known = (getattr(sample, name) for _, sample in reversed(stored[-_FAR_ENOUGH_BACK:]))
            value = next((value for value in known if value is not None), None)
            counters |= {} if value is None else {name: value}
    return replace(last, **counters)


def _open_pidfd(pid: int | None, start_ticks: int | None) -> int:
    """Returns a pidfd of this process, readable once it has ended; -1 if it has already ended."""
    if pid is None:
        return -1
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return -1
    if is_running(pid, start_ticks):
        return descriptor
    os.close(descriptor)
    return -1


def _reaped_by(launcher_pid: int) -> ExitUsage:
    """Returns the usage of its ended children, as the kernel sums it up in its stat file."""
    try:
        with open(f"/proc/{launcher_pid}/stat", "rb", buffering=0) as file:
            stat = parse_stat(file.read())
    except (OSError, ValueError):
        return ExitUsage()
    return ExitUsage(
        user_usec=stat.user_ticks_reaped * USEC_PER_TICK,
        system_usec=stat.system_ticks_reaped * USEC_PER_TICK,
        faults_minor=stat.faults_minor_reaped,
        faults_major=stat.faults_major_reaped,
    )
