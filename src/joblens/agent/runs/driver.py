"""Run driver: feeds events to the schedule of one run and executes the commands.

Everything here runs on the loop. `hosts` runs the attempts."""

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from joblens.agent.attempts.preparation import AttemptMaker, PreparedAttempt, RunSetup
from joblens.agent.clusters.tickets import QueueSide
from joblens.agent.provenance.datasets import RunDatasets
from joblens.agent.provenance.file_stamps import FileStamps
from joblens.agent.recovery.orphans import Recovery
from joblens.agent.runs.facts import AddedJobs, JobsQuestion, ReportedFact, RunFacts, RunInbox
from joblens.agent.runs.hosts import RunHosts
from joblens.agent.runs.in_flight import InFlightAttempts, RunStarts
from joblens.agent.runs.signals import WAKEUP, RunSignals
from joblens.agent.runs.view import RunView, ViewFeed
from joblens.agent.runtime.loop import mono_s
from joblens.agent.runtime.output_folders import RunFolder
from joblens.agent.session.context import AgentContext
from joblens.engine.schedule.events import (
    AskForJobs,
    AskForNodes,
    AttemptBegan,
    AttemptEnded,
    Command,
    CommandEnded,
    Event,
    FinalizationEnded,
    FinalizeDataset,
    JobsAsked,
    OfferGrew,
    RunActionCommand,
    RunIsOver,
    RunRecovery,
    StartAttempt,
    StateChanged,
    StopAttempt,
    StopMode,
    StopWanted,
    Tick,
)
from joblens.engine.schedule.retries import NOT_STARTED
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import FileStamp, Outcome, Record, Status
from joblens.model.runs.run import (
    ActionRan,
    DatasetFinalized,
    JobsSpawned,
    JobState,
    OutputsMissing,
    RecoveryRan,
    RunStatus,
    StopAskedFor,
)
from joblens.model.runs.workflow_spec import WORKER_TRIGGERS

_SLOTS = "run:slots"
_POLL_EVERY_S = 1.0
_DRAW_EVERY_S = 0.2
_HEADROOM_SHARE = 0.1  # maximum share of the run's time that is reserved for stopping jobs
_SWITCH_S = 0.0005  # two threads pass jobs to each other; the default of 5 ms would delay each start


@contextmanager
def _quick_switches() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


class RunDriver:
    """Implements QueueReports for the hosts of attempts."""

    def __init__(
        self,
        setup: RunSetup,
        context: AgentContext,
        recovery: Recovery,
        schedule: Schedule,
        facts: RunFacts,
        view: RunView,
        side: QueueSide | None = None,
    ) -> None:
        """`side`: workers of a queue run its jobs."""
        self._setup = setup
        self._context = context
        self._schedule = schedule
        self._plan = setup.plan
        self._facts = facts
        self._feed = ViewFeed(view)
        self._view = view
        self._maker = AttemptMaker(setup, context)
        self._hosts = RunHosts(
            setup, context, recovery, self._maker, self, side=side, note=view.note, note_fact=facts.note
        )
        self._datasets = RunDatasets(context.loop, setup.plan, setup.cwd, self._dataset_ended)
        self._starts = RunStarts(setup.plan, FileStamps(context.loop, setup.cwd), self._submit, context.clock)
        self._folder = RunFolder(setup.logs_dir)
        self._events: deque[Event] = deque()
        self._is_pumping = False
        self._in_flight = InFlightAttempts()
        # exit code of the last attempt of jobs with a running recovery script
        self._exit_codes: dict[int, int | None] = {}
        self._has_worker_actions = side is not None and any(
            action.spec.trigger_type in WORKER_TRIGGERS for action in setup.plan.actions
        )
        self._is_over = False
        self._next_draw_s = 0.0
        self._next_poll_s = mono_s(self._context.clock) + _POLL_EVERY_S
        self._deadline_s: float | None = None
        self.added_jobs = AddedJobs(setup.plan, context, self._maker.add_secrets, view.note)
        self.inbox = RunInbox(
            schedule,
            facts,
            self._in_flight,
            self.added_jobs,
            self._feed,
            post=self._post,
            end=lambda uuid: self.end(uuid, at_once=False),
            stop=self.stop,
        )
        self._question = JobsQuestion(
            facts,
            self.inbox.take,
            lambda: self._post(JobsAsked()),
            lambda: schedule.stopping is None and self.added_jobs.are_likely,
            context.clock,
        )
        self.was_interrupted = False
        self.interrupted_by: int | None = None  # first signal that asked it to stop

    # ---- the whole run -------------------------------------------------------------------------------

    def adopt(self) -> list[Record]:
        """Finalizes jobs of an earlier driver. Returns those that still run; call it before the schedule
        is restored."""
        return self._hosts.adopt()

    def run(self, signals: RunSignals, running: Sequence[Record] = ()) -> RunStatus:
        """Drives the run to its end. `running`: jobs that `adopt` returned."""
        for record in running:
            assert record.job.run is not None
            link = record.job.run
            start = StartAttempt(link.index, link.attempt, record.job.requirements, record.job.gpu_devices)
            self._in_flight.add(start, record.job.uuid)
        with (
            _quick_switches() if signals.owns_process else nullcontext(),
            signals.handled(self._context.loop, self._handle_signal),
        ):
            self._run_to_its_end()
        self._feed.flush()
        return self._status()

    def _run_to_its_end(self) -> None:
        context = self._context
        try:
            self._report_states()
            context.loop.add_timed(self)
            if self._plan.monitor.enabled and self._setup.monitor:
                interval_s = self._plan.monitor.sample_interval_s
                context.sampler.add(_SLOTS, interval_s, self._hosts.take_samples)
            self._begin()
            context.loop.run_until(lambda: self._is_over and self._hosts.is_idle)
            self._hosts.finalize()
        finally:
            self._close()

    def _begin(self) -> None:
        now_s = mono_s(self._context.clock)
        time_s = self._schedule.offer.time_s
        if time_s is not None:
            headroom_s = min(self._plan.execution.sigkill_headroom_s, time_s * _HEADROOM_SHARE)
            self._deadline_s = now_s + time_s - headroom_s
        self._folder.make()
        self._hosts.expect_limited(self._limited_jobs())
        self._pump(self._schedule.begin(now_s))

    def _limited_jobs(self) -> int:
        schedule = self._schedule
        return sum(
            schedule.buckets.of(index).is_limited and not schedule.state_of(index).is_final
            for index in range(len(self._plan.jobs))
        )

    def _close(self) -> None:
        context = self._context
        context.loop.remove_timed(self)
        context.sampler.remove(_SLOTS)
        self._starts.close()
        self._datasets.close()
        self._hosts.close(is_over=self._is_over)

    def wait(self) -> None:
        """Waits until a cluster knows that the run is over."""
        self._hosts.wait()

    def _status(self) -> RunStatus:
        counts = self._schedule.counts()
        done = counts.get(JobState.COMPLETED, 0) + counts.get(JobState.DISABLED, 0)
        are_datasets_done = not (self._schedule.failed_datasets() or self._schedule.table.datasets.is_busy)
        if done == len(self._plan.jobs) and are_datasets_done and not self._schedule.failed_actions():
            return RunStatus.COMPLETED
        return RunStatus.STOPPED if self._schedule.stopping is not None else RunStatus.FAILED

    # ---- events and commands -------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_pumping:
            self._pump()

    def _pump(self, commands: Sequence[Command] = ()) -> None:
        """Executes commands one after the other, including those that they cause."""
        self._is_pumping = True
        try:
            self._execute_all(commands)
            while self._events:
                event = self._events.popleft()
                following = self._schedule.handle(event, mono_s(self._context.clock))
                if isinstance(event, AttemptEnded):
                    self._feed.state(event.index, *self._state_after(event.index, following))
                self._execute_all(following)
        finally:
            self._is_pumping = False
        self._hosts.flush()

    def _state_after(self, index: int, commands: Sequence[Command]) -> tuple[JobState, str]:
        """Returns the state of a job whose attempt has ended, and how it ended or is retried."""
        if (state := self._schedule.state_of(index)).is_final:
            return state, self._schedule.whys.get(index, "")
        whys = (each.why for each in commands if isinstance(each, StateChanged) and each.index == index)
        return state, next(whys, "")

    def _execute_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            kind = type(command)
            if kind is StartAttempt:
                self._start(command)  # type: ignore[arg-type]
            elif kind is StateChanged:
                index = command.index  # type: ignore[union-attr]
                self._feed.state(index, self._schedule.state_of(index), command.why)  # type: ignore[union-attr]
            elif kind is StopAttempt:
                self._stop(command)  # type: ignore[arg-type]
            elif kind is RunIsOver:
                self._end_of_run()
            elif kind is FinalizeDataset:
                self._datasets.finalize(command.index)  # type: ignore[union-attr]
            elif kind is AskForJobs:
                self._question.ask()
            elif kind is AskForNodes:
                self._hosts.ask_for_nodes(command.action)  # type: ignore[union-attr]
            else:
                self._start_auxiliary(command)  # type: ignore[arg-type]

    def _end_of_run(self) -> None:
        """Polls actions on workers once more: the last ones may have failed since the last poll."""
        if self._has_worker_actions:
            self._facts.fetch(self._take_last_facts)
        else:
            self._is_over = True

    def _take_last_facts(self, news: list[ReportedFact]) -> None:
        self.inbox.take([fact for fact in news if isinstance(fact, ActionRan)])
        self._facts.late_jobs += sum(len(fact.jobs) for fact in news if isinstance(fact, JobsSpawned))
        self._is_over = True

    # ---- starting ------------------------------------------------------------------------------------

    def _start(self, start: StartAttempt) -> None:
        self._feed.state(start.index, JobState.PENDING)
        self._starts.add(start)

    def _submit(self, start: StartAttempt, stamps: tuple[FileStamp, ...]) -> None:
        stamps += self._facts.stamps_of_datasets(start.index)
        attempt = self._maker.make(start, self._facts.data, stamps)
        self._in_flight.add(start, attempt.job.uuid)
        self._hosts.start(attempt, start, is_limited=self._schedule.buckets.of(start.index).is_limited)
        if not self._is_pumping:
            self._hosts.flush()

    def _start_auxiliary(self, command: RunActionCommand | RunRecovery) -> None:
        if isinstance(command, RunActionCommand):
            attempt: PreparedAttempt = self._maker.make_action(command)
        else:
            attempt = self._maker.make_recovery(command, self._exit_codes.pop(command.index, None))
        self._in_flight.add(command, attempt.job.uuid)
        self._hosts.start_auxiliary(attempt)

    # ---- stopping ------------------------------------------------------------------------------------

    def _stop(self, stop: StopAttempt) -> None:
        start = self._starts.take_out(stop.index)
        if start is not None:
            self._post(AttemptEnded(start.index, start.attempt, Status.CANCELLED, reason=NOT_STARTED))
            return
        uuid = self._in_flight.uuid_of(stop.index)
        if uuid is not None:
            self.end(uuid, at_once=stop.at_once)

    def end(self, uuid: str, *, at_once: bool) -> None:
        self._hosts.end(uuid, at_once=at_once)

    def stop(self, mode: StopMode, by: str) -> None:
        """Starts nothing more; with KILL, stops running jobs."""
        ended = self._in_flight.attempts() if mode is StopMode.KILL else self._waiting_for_workers()
        self._facts.note(StopAskedFor(mode.value, by, ended))
        if mode is StopMode.DRAIN:
            self._post(StopWanted(mode))
            for index in self._schedule.running():  # jobs that have not started yet need not start
                if self._schedule.state_of(index) is JobState.PENDING:
                    self._stop(StopAttempt(index))
        else:
            at_once = self._schedule.stopping is StopMode.KILL  # a repeated request
            for uuid in self._in_flight.auxiliary():
                self.end(uuid, at_once=at_once)
            self._post(StopWanted(mode))
        running = self._in_flight.describe()
        if mode is StopMode.KILL:
            self._view.note(f"ending {running}")
        elif self._in_flight or self._schedule.table.datasets.is_busy:
            awaited = running if self._in_flight else "datasets to be finalized"
            self._view.note(f"starting nothing more, waiting for {awaited}; Ctrl-C again kills them")

    def _waiting_for_workers(self) -> tuple[tuple[int, int], ...]:
        """Returns (index, attempt) of queued jobs: they are removed from the queue, and their records
        stay."""
        return tuple(
            (flight.what.index, flight.what.attempt)
            for uuid, flight in self._in_flight.items()
            if isinstance(flight.what, StartAttempt)
            and self._hosts.is_with_workers(uuid)
            and self._schedule.state_of(flight.what.index) is JobState.PENDING
        )

    # ---- reports of hosts --------------------------------------------------------------------------------

    def began(self, uuid: str, at_us: int, lost: int = 0) -> None:
        flight = self._in_flight.get(uuid)
        if flight is not None and isinstance(flight.what, StartAttempt):
            self._feed.began(flight.what.index, flight.what.attempt + lost, uuid, at_us)
            self._post(AttemptBegan(flight.what.index))

    def ended(self, uuid: str, outcome: Outcome) -> None:
        flight = self._in_flight.remove(uuid)
        if flight is None:
            return
        if isinstance(flight.what, StartAttempt):
            self._job_ended(flight.what, uuid, outcome)
        else:
            self._auxiliary_ended(flight.what, uuid, outcome.status)

    def _job_ended(self, start: StartAttempt, uuid: str, outcome: Outcome) -> None:
        planned = self._plan.jobs[start.index]
        if planned.output_user_data or self.added_jobs.are_likely:
            # Jobs that need the data must not start without it, and added jobs start at once.
            self._facts.fetch(lambda news: self._on_data(news, start, uuid, outcome))
        else:
            self._report_end(start, uuid, outcome)

    def _on_data(self, news: list[ReportedFact], start: StartAttempt, uuid: str, outcome: Outcome) -> None:
        self.inbox.take(news)
        self._report_end(start, uuid, outcome)

    def _report_end(self, start: StartAttempt, uuid: str, outcome: Outcome) -> None:
        index, planned = start.index, self._plan.jobs[start.index]
        missing: tuple[str, ...] = ()
        if planned.output_files and outcome.status is Status.SUCCESS:
            missing = self._missing_outputs(planned.output_files)
            if missing:
                self._facts.note(OutputsMissing(index, start.attempt, missing))
        if planned.failure_handler is not None:
            self._exit_codes[index] = outcome.exit_code
        self._feed.ended(index, start.attempt, uuid)
        self._post(
            AttemptEnded(
                index,
                start.attempt,
                outcome.status,
                outcome.exit_code,
                outcome.reason,
                outcome.duration_s,
                outputs_missing=bool(missing),
            )
        )

    def _missing_outputs(self, numbers: tuple[int, ...]) -> tuple[str, ...]:
        paths = (self._plan.files[number].path for number in numbers)
        return tuple(path for path in paths if not os.path.exists(os.path.join(self._setup.cwd, path)))

    def _dataset_ended(self, fact: DatasetFinalized) -> None:
        if self._is_over:
            return
        fact = self._setup.secrets.hide(fact)
        self._facts.note(fact)
        if fact.error:
            self._view.note(f"dataset '{fact.name}' could not be finalized: {fact.error}")
        self._post(FinalizationEnded(fact.index, fact.error))

    def _auxiliary_ended(self, what: RunActionCommand | RunRecovery, uuid: str, status: Status) -> None:
        if isinstance(what, RunActionCommand):
            self._facts.note(ActionRan(what.action, what.command, uuid, status))
            self._post(CommandEnded(status, what.action, what.command))
        else:
            self._facts.note(RecoveryRan(what.index, what.attempt, uuid, status))
            self._post(CommandEnded(status, index=what.index))

    def withdrawn(self, uuid: str) -> None:
        flight = self._in_flight.remove(uuid)
        if flight is None:
            return
        if isinstance(flight.what, StartAttempt):
            start = flight.what
            self._post(AttemptEnded(start.index, start.attempt, Status.CANCELLED, reason=NOT_STARTED))
        else:
            self._auxiliary_ended(flight.what, uuid, Status.CANCELLED)

    def offered(self, cpus: float, memory_bytes: int) -> None:
        offer = self._schedule.offer
        if cpus > offer.cpus or memory_bytes > offer.memory_bytes:
            self._post(OfferGrew(cpus, memory_bytes))

    def waits(self, uuid: str, why: str) -> None:
        flight = self._in_flight.get(uuid)
        if flight is not None and isinstance(flight.what, StartAttempt):
            self._feed.state(flight.what.index, JobState.PENDING, why)

    def recorded(self, record: Record) -> None:
        self._feed.recorded(record)

    def _poll(self) -> None:
        """The store answers on the recorder's thread."""
        self._facts.poll(self.inbox.take_poll)
        self._hosts.poll_elsewhere()
        news = self._folder.check()
        if news:
            self._view.note(news)

    # ---- time ----------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        due = [
            self._schedule.next_wake_s(),
            self._deadline_s,
            self._next_draw_s,
            self._next_poll_s,
            self._starts.next_wake_s(),
            self._question.next_wake_s,
        ]
        return min((at for at in due if at is not None), default=None)

    def wake(self) -> None:
        now_s = mono_s(self._context.clock)
        if self._deadline_s is not None and now_s >= self._deadline_s:
            self._deadline_s = None
            self._view.note("the run timed out")
            self.stop(StopMode.KILL, "time")
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + _POLL_EVERY_S
            self._poll()
        if now_s >= self._next_draw_s:
            self._next_draw_s = now_s + _DRAW_EVERY_S
            self._view.tick()
        self._starts.wake()
        self._question.wake(now_s)
        due_s = self._schedule.next_wake_s()
        if due_s is not None and due_s <= now_s:
            self._post(Tick())
        self._hosts.flush()

    def _report_states(self) -> None:
        for index in range(len(self._plan.jobs)):
            state = self._schedule.state_of(index)
            if state is not JobState.UNINITIALIZED:
                self._feed.state(index, state, self._schedule.whys.get(index, ""))

    # ---- signals -------------------------------------------------------------------------------------

    def _handle_signal(self, number: int) -> None:
        if number == WAKEUP:
            self._facts.fetch(self.inbox.take)  # another process has written to the store
            return
        self.was_interrupted = True
        self.interrupted_by = self.interrupted_by or number
        drains = number == signal.SIGINT and self._setup.run.options.interrupt == "drain"
        is_first = self._schedule.stopping is None
        self.stop(StopMode.DRAIN if drains and is_first else StopMode.KILL, signal.Signals(number).name)
