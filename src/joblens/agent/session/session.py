"""Job session: one attempt of a job, from making its groups to recording its outcome."""

import os
import signal
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.instruments.table import Watched
from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan, exit_usage_of
from joblens.agent.measuring.accounting import (
    PROCESS_TREE,
    STEP_END_S,
    JobProcesses,
    Limits,
    are_step_launchers,
    kill_marked,
    limit,
)
from joblens.agent.measuring.meter import CALM_S, CLOSE_S, JobMeter, LimitWatch, Measurement
from joblens.agent.measuring.outcome import Ending, not_started, outcome_of
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext, PreparedLauncher, container_handle, limits_key
from joblens.agent.terminal.streams import OutputFiles
from joblens.engine.life.job_life import (
    Command,
    Emptied,
    EndCause,
    Event,
    Exited,
    Finish,
    Forgiven,
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
from joblens.files.processes import process_start_ticks
from joblens.model.errors import JoblensError, LauncherLost, LaunchError
from joblens.model.jobs.job import NOTHING_REAPED, Attempt, Job, Outcome, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, Write
from joblens.probes.proc.kernel_files import count_gpus

_LEFTOVERS_S = 0.1  # processes that outlive the main one by less are not leftovers


class JobSession:
    """Driven by the loop. Calls `on_end(session)` once the outcome is recorded."""

    def __init__(  # noqa: PLR0913 - each owner has its own of these
        self,
        job: Job,
        plan: LaunchPlan,
        context: AgentContext,
        *,
        output: OutputFiles | None = None,
        on_sample: Callable[[Sample], None] | None = None,
        on_outcome: Callable[["JobSession"], None] | None = None,
        on_end: Callable[["JobSession"], None] | None = None,
        drain: Callable[[], None] | None = None,
        prepared: PreparedLauncher | None = None,
    ) -> None:
        """Calls `on_outcome` before the outcome is recorded, and `on_end` after cleaning up."""
        self.job = job
        self.record = Record(status=Status.QUEUED, job=job)
        self._plan = plan
        self._context = context
        self.output = output
        self._on_sample = on_sample
        self._on_outcome = on_outcome
        self._on_end = on_end
        self._prepared = prepared
        self._is_pumped = drain is not None  # the pump bounds the output
        self._drain = drain  # reads the rest of the job's output
        early = job.early_signal
        self._life = JobLife(
            timeout_s=job.requirements.timeout_s if job.enforce else None,
            early_signal=early.signal if early else None,
            early_lead_s=early.lead_s if early else 0.0,
            lead_is_grace=early is not None and early.is_grace,
            grace_s=job.grace_s,
        )
        self._container = container_handle(job, context.spool_dir, context.clock)
        self._nodes = context.multi_node_job(job)
        self._processes = JobProcesses() if self._container is None else self._container.processes
        self._limits = Limits()
        self._watch = LimitWatch()
        self._is_watched = False
        self._launcher: LauncherProcess | None = None
        self._measurement: Measurement | None = None
        self._reaped = NOTHING_REAPED
        self._started_mono_ns = self._ended_mono_ns = 0
        self._wait_status: int | None = None
        self._leftovers_due_s: float | None = None
        self._stops: list[StopAsked] = []  # requested before the job started
        self.error: JoblensError | None = None  # why the job could not start
        self.is_over = False  # and recorded

    @property
    def is_stopping(self) -> bool:
        return self._life.cause is not EndCause.NONE or bool(self._stops)

    @property
    def is_steady(self) -> bool:
        """Returns whether the job runs and no work is in progress that only this process can finish."""
        life = self._life
        return life.phase is Phase.RUNNING and not self.is_stopping and self._leftovers_due_s is None

    # ---- start -------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the job once it is in the store. If it cannot start, `error` has the reason."""
        self._run_step(lambda: self._begin(self._prepare()))

    def _run_step(self, step: Callable[[], None]) -> None:
        try:
            step()
        except JoblensError as error:
            self._fail_start(error)
        except OSError as error:  # out of processes, descriptors or memory
            self._fail_start(LaunchError(f"the job could not be started: {error}"))
        except BaseException as error:  # a fault of joblens, or an interrupt: nothing may run unwatched
            self._fail_start(LaunchError(f"the job could not be started: {error!r}"))
            raise

    def _prepare(self) -> Attempt:
        """Makes the groups, the launcher, the process that waits to become the job, and its probes."""
        context = self._context
        if self._nodes is not None:
            self._plan = self._nodes.begin(self._plan)
        launcher = self._open_launcher()
        provenance = context.begin_provenance(self.job)  # while the launcher starts
        in_container, ending = self._container, "job" if self._container is None else "container"
        self._limits = limit(self.job, self._groups) if in_container is None else in_container.limit()
        pid, start_ticks = launcher.prepare(
            attach=self._groups.attach_files() if self._groups and self._is_main_process_inside else (),
            outcome_path=os.path.join(context.spool_dir, f"{self.job.uuid}.outcome"),
            rlimits=context.job_rlimits,
            affinity=self._limits.affinity,
            groups=tuple(self._groups.paths.values()) if self._groups else (),
            kill_with_owner=ending if context.kill_with_owner else "",
        )
        self._measurement = self._measure(launcher.pid, pid if self._is_main_process_inside else None)
        return Attempt(
            started_at_us=context.clock.now_us(),
            owner=context.owner,
            pid=pid,
            pid_start_ticks=start_ticks,
            launcher_pid=launcher.pid,
            launcher_start_ticks=process_start_ticks(launcher.pid),
            accounting=self._accounting,
            accounting_reason=context.accountant.reason_for(self.job) if in_container is None else "",
            groups=dict(self._groups.paths) if self._groups else {},
            enforced_by=self._limits.enforced_by,
            logs_dir=self.output.directory if self.output else "",
            kernel=context.host.kernel,
            cpu_count=context.host.cpu_count,
            memory_total_bytes=context.host.memory_total_bytes,
            gpu_count=count_gpus() if self.job.requirements.gpus else None,
            gpu_devices=self.job.gpu_devices,
            provenance=provenance,
        )

    @property
    def _groups(self) -> JobGroups | None:
        return self._processes.groups

    @property
    def _accounting(self) -> str:
        if self._groups is not None:
            return self._groups.kind
        return PROCESS_TREE if self._container is None else self._container.accounting

    @property
    def _is_main_process_inside(self) -> bool:
        """Returns whether the main process joins the groups. A client of a container engine stays outside."""
        return self.job.container is None

    def _open_launcher(self) -> LauncherProcess:
        """Starts the launcher before anything else: it removes the groups if this process is killed."""
        accountant, processes = self._context.accountant, self._processes
        if self._prepared is not None:
            self._launcher, processes.groups = self._prepared.launcher, self._prepared.groups
            self._launcher.set_plan(self._plan)
            return self._launcher
        self._context.instruments.warm_up(self.job)
        self._launcher = LauncherProcess(self._plan)
        if self._container is not None:
            self._container.begin(self._launcher, accountant, self._plan)
            return self._launcher
        # While the launcher starts: this may be a call to systemd.
        processes.groups = accountant.groups_for_process(
            self.job.uuid, self.job.accounting, self._launcher.pid
        )
        return self._launcher

    def _measure(self, launcher_pid: int, main_pid: int | None) -> Measurement:
        context, groups = self._context, self._groups
        watched = Watched(
            job=self.job,
            main_pid=main_pid,
            kind=groups.kind if groups else "",
            groups=groups.paths if groups else {},
            pids=self._processes.recent_pids,
        )
        instruments = context.instruments.open(watched)
        details = instruments.details
        try:
            if self._container is None:
                meter = context.accountant.meter(
                    groups, launcher_pid, instruments.probes, self._processes.recent_pids
                )
            else:
                others = self._container.bound(instruments.probes)
                meter = context.accountant.meter_of(self._container.probe(), self.pids, others)
                details = (*details, self._container.facts())
        except BaseException:
            instruments.close()
            raise
        self._processes.meter = meter
        if self._nodes is not None:
            self._nodes.watch(meter, groups, on_over=self._on_remote_limit, on_follow=self._watch_closely)
            details = (*details, self._nodes)
        return Measurement(self.job, context.recorder, meter, details, self._on_sample)

    def _begin(self, attempt: Attempt) -> None:
        """Stores everything needed to find the job again, before its first instruction runs."""
        assert self._measurement is not None
        assert self._launcher is not None
        base = self._measurement.meter.take_base()
        attempt = replace(attempt, base=base, started_mono_ns=self._context.clock.mono_ns())
        self.record = replace(self.record, status=Status.RUNNING, attempt=attempt)
        go = partial(self._go, attempt, self._launcher, self._measurement.meter)
        step = partial(self._context.loop.call, partial(self._run_step, go))
        self._context.recorder.put([JobQueued(self.job), JobStarted(self.job.uuid, attempt)], then=step)

    def _go(self, attempt: Attempt, launcher: LauncherProcess, meter: JobMeter) -> None:
        self._started_mono_ns = self._context.clock.mono_ns()
        meter.start_at(self._started_mono_ns)
        launcher.go(meter.counter_files())
        self._context.loop.watch(launcher.socket, self._on_message)
        self._context.loop.add_timed(self)
        self._feed(Started())
        for stop in self._stops:
            self._feed(stop)
        self.take_sample()
        if self._context.provenance is not None:
            self._context.provenance.follow(self.job.uuid, attempt)
        if self.job.monitor:
            self._context.sampler.add(self.job.uuid, self.job.interval_s, self.take_sample)
        waits_for_container = self._container is not None and self.job.monitor
        self._watch = LimitWatch(self._limits.watched_memory_bytes, self._limits.watched_pids)
        if self._watch or waits_for_container:
            self._is_watched = True
            self._context.sampler.add(limits_key(self.job.uuid), CALM_S, self.watch_limits)

    def _fail_start(self, error: JoblensError) -> None:
        self.error = error
        self._life = replace(self._life, phase=Phase.OVER)
        self._release()
        outcome = self._set_outcome(not_started(self.job, error, self._context.clock.now_us()))
        self._record([JobQueued(self.job), JobEnded(self.job.uuid, outcome)])

    def _set_outcome(self, outcome: Outcome) -> Outcome:
        """Returns the outcome as completed by the context."""
        record = replace(self.record, status=outcome.status, outcome=outcome)
        self.record = self._context.complete_record(record)
        return self.record.outcome or outcome

    def _release(self) -> None:
        """Releases everything acquired by an incomplete start."""
        self._context.sampler.remove(self.job.uuid)
        self._context.sampler.remove(limits_key(self.job.uuid))
        self._context.loop.remove_timed(self)
        self._processes.kill()
        if self._launcher is not None:
            self._context.loop.unwatch(self._launcher.socket)
            self._launcher.abandon()
        if self._measurement is not None:
            self._measurement.close()
        if self._groups is not None:
            self._groups.remove()
        if self._nodes is not None:
            self._nodes.close()

    # ---- while it runs -----------------------------------------------------------------------

    def request_stop(self, cause: EndCause, number: int = signal.SIGTERM) -> None:
        if self._started_mono_ns:
            self._feed(StopAsked(cause, number))
        else:
            self._stops.append(StopAsked(cause, number))

    def forgive(self) -> None:
        self._feed(Forgiven())

    def forward_signal(self, number: int) -> None:
        """Forwards a signal for the job alone (USR1, HUP, WINCH)."""
        if self._launcher is not None:
            self._launcher.signal_main(number)

    def kill(self) -> None:
        """Kills the job for an owner that cannot continue. The launcher leaves the outcome for recovery."""
        if self._launcher is not None:
            self._processes.kill()

    def take_sample(self) -> None:
        """Called on the sampler's thread, and at the start."""
        assert self._measurement is not None
        self._measurement.take(self._reaped)
        if self.output is not None and not self._is_pumped:
            self.output.trim()

    def watch_limits(self) -> None:
        """Checks limits that the kernel does not enforce, on the sampler's thread. For a container: polls
        until it has started, and takes its first sample."""
        assert self._measurement is not None
        if self._container is not None:
            if self._container.has_started:
                self._context.sampler.remove(limits_key(self.job.uuid))
                self.take_sample()
            return
        sample = self._measurement.peek(self._reaped)
        if sample is None:
            return
        before_s, cause = self._watch.interval_s, self._watch.judge(sample)
        if cause is not None:
            self._context.loop.call(lambda: self.request_stop(cause, signal.SIGKILL))
        elif self._watch.interval_s != before_s:
            self._context.sampler.change(limits_key(self.job.uuid), self._watch.interval_s)

    def _on_remote_limit(self, cause: EndCause) -> None:
        self._context.loop.call(lambda: self.request_stop(cause, signal.SIGKILL))  # on another node

    def _watch_closely(self) -> None:
        """Samples often, because the job now has a process that this one cannot wait for."""
        if not self._is_watched:
            self._is_watched = True
            self._context.sampler.add(limits_key(self.job.uuid), CLOSE_S, self.watch_limits)

    def next_wake_s(self) -> float | None:
        times = [due for due in (next_wake_s(self._life), self._leftovers_due_s) if due is not None]
        return min(times, default=None)

    def wake(self) -> None:
        if self._leftovers_due_s is not None and mono_s(self._context.clock) >= self._leftovers_due_s:
            self._count_leftovers()
        else:
            self._feed(Tick())

    def _count_leftovers(self) -> None:
        alive = self.pids()
        since_s = (self._context.clock.mono_ns() - self._ended_mono_ns) / 1e9
        is_step_ending = self._nodes is not None and since_s < STEP_END_S and are_step_launchers(alive)
        if alive and not is_step_ending:
            self._leftovers_due_s = None
            self._feed(Exited(len(alive)))
        else:  # the last ones are ending; the launcher reports it
            self._leftovers_due_s = mono_s(self._context.clock) + _LEFTOVERS_S

    def pids(self) -> list[int]:
        """Returns the live processes of the job."""
        return self._processes.pids()

    def _on_message(self) -> None:
        assert self._launcher is not None
        try:
            message = self._launcher.receive()
        except LauncherLost:
            self._on_launcher_lost()
            return
        kind = message[0]
        if kind in ("exited", "reaped", "empty") and self._is_main_process_inside:
            self._reaped = exit_usage_of(message[2] if kind == "exited" else message[1])
        if kind == "exited":
            self._wait_status = int(message[1])
            self._ended_mono_ns = int(message[3])
            self._leftovers_due_s = mono_s(self._context.clock) + _LEFTOVERS_S
        elif kind == "empty":
            self._leftovers_due_s = None
            if self._groups is not None and not self._groups.is_empty():
                self._groups.kill()  # moved there by another program
            self._feed(Emptied())

    def _on_launcher_lost(self) -> None:
        """Kills the rest of the job: its launcher was killed, so nothing can wait for it. The end of the main
        process may have been reported before."""
        assert self._launcher is not None
        self._context.loop.unwatch(self._launcher.socket)
        self._processes.kill()
        if self._groups is None:
            kill_marked(self.job.uuid)  # daemons that no sample contains; only the launcher held them
        self._feed(Emptied())

    def _feed(self, event: Event) -> None:
        self._life, commands = on_event(self._life, event, mono_s(self._context.clock))
        for command in commands:
            self._execute(command)

    def _execute(self, command: Command) -> None:
        if isinstance(command, Finish):
            self._finish()
        elif isinstance(command, KillAll):
            self._processes.kill()
            if self._nodes is not None:
                self._nodes.kill()
        elif isinstance(command, Send):
            if self._life.phase is Phase.DRAINING:
                self._processes.signal(command.signal)
            elif self._launcher is not None:
                self._launcher.signal_main(command.signal)

    # ---- end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        assert self._measurement is not None
        assert self._launcher is not None
        self._context.sampler.remove(self.job.uuid)
        self._context.sampler.remove(limits_key(self.job.uuid))
        self._context.loop.unwatch(self._launcher.socket)
        self._context.loop.remove_timed(self)
        if self._container is not None:
            self._container.remove_container()
        if self._nodes is not None:
            self._nodes.finish()
        self._measurement.finish(self._reaped)
        if self._drain is not None:
            self._drain()
        if self.output is not None:
            self.output.finish(self._context.secrets_of(self.job.uuid).hide)
        ended_mono_ns = self._ended_mono_ns or self._context.clock.mono_ns()
        ending = Ending(
            wait_status=self._wait_status,
            cause=self._life.cause,
            duration_s=(ended_mono_ns - self._started_mono_ns) / 1e9,
            ended_at_us=self._context.clock.now_us(),
            leftovers=self._life.leftovers,
            reaped=self._reaped,
        )
        if self._container is not None:
            ending = self._container.with_note(ending)
        measured = self._measurement
        outcome = outcome_of(
            self.record,
            ending,
            measured.summary,
            measured.meter,
            self.output,
            measured.details,
            self._nodes.merge_nodes if self._nodes is not None else None,
        )
        outcome = self._set_outcome(outcome)
        assert self.record.attempt is not None
        started = JobStarted(self.job.uuid, self.record.attempt)
        # All facts again: the store may have been recreated since the start. Readers of the end also need the
        # numbers of each node.
        parts: list[Write] = (
            [DetailsTaken(self.job.uuid, self._nodes.details)] if self._nodes is not None else []
        )
        ended = JobEnded(self.job.uuid, outcome)
        self._record(
            [JobQueued(self.job), started, *parts, ended], partial(self._clean_up, measured, self._launcher)
        )

    def _clean_up(self, measured: Measurement, launcher: LauncherProcess) -> None:
        measured.close()
        if self._nodes is not None:
            self._nodes.close()
        if self._groups is not None:
            self._groups.remove()
        if self._container is not None:
            self._container.forget()
        # Last: if the owner is killed before this point, an outcome file names what to clean up.
        launcher.bye()

    def _record(self, writes: list[Write], then: Callable[[], None] = lambda: None) -> None:
        """Calls `then` once the writes are safe."""
        if self._on_outcome is not None:
            # Before it is on disk: if this process is killed now, the launcher still reports the end.
            self._on_outcome(self)

        def recorded(number: int | None) -> None:
            self.record = replace(self.record, number=number)
            then()
            self.is_over = True
            if self._on_end is not None:
                self._on_end(self)

        context = self._context
        context.recorder.record(
            self.job.uuid, writes, lambda number: context.loop.call(lambda: recorded(number))
        )
