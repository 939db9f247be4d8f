"""Schedule of a run, decided purely: events and the time in, commands out.

    blocked ──► ready ──► pending ──► running ──► completed, failed, terminated, pending_failed
       │          ▲ │                    │
       └─► canceled └────── retry ◄──────┘

A job is ready when all its dependencies have succeeded (or it runs anyway), its user data has a value and its
datasets are finalized. It starts when CPUs, memory, devices, the number of jobs and the remaining time allow
it: `ready_queue` has the order, `backfill` decides which jobs may pass, `starting` starts tiny jobs ahead.
The run is over when nothing runs and nothing can start."""

from collections.abc import Callable

from msgspec.structs import replace

from joblens.engine.schedule.capacity import Choices, RunCapacity, whole_of
from joblens.engine.schedule.events import (
    AskForJobs,
    AttemptBegan,
    AttemptEnded,
    CancelWanted,
    Command,
    CommandEnded,
    DataChanged,
    Event,
    FinalizationEnded,
    FinalizeDataset,
    JobsAdded,
    JobsAsked,
    OfferGrew,
    RunActionCommand,
    RunIsOver,
    RunRecovery,
    StateChanged,
    StopAttempt,
    StopMode,
    StopWanted,
)
from joblens.engine.schedule.job_table import Consequences, JobTable
from joblens.engine.schedule.ready_queue import Bucket
from joblens.engine.schedule.reasons import dataset_failed, explain
from joblens.engine.schedule.retries import (
    CANCELLED,
    CUT_OFF,
    NOT_STARTED,
    Ending,
    Failures,
    Final,
    Past,
    Pauses,
    Retry,
    judge,
)
from joblens.engine.schedule.starting import Starter
from joblens.engine.schedule.triggers import Due, Triggers
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails

NO_CHOICES = Choices()


class Schedule:
    """Decides which job starts when. Commands are executed in their order; every StartAttempt is answered
    by one AttemptEnded."""

    def __init__(self, plan: Plan, offer: RunCapacity, choices: Choices = NO_CHOICES) -> None:
        self.plan = plan
        self.offer = offer
        self.choices = choices
        self.table = JobTable(plan)
        self._starter = Starter(self.table, offer, choices)
        self.buckets = self._starter.buckets
        self.occupancy = self._starter.occupancy
        self.triggers = Triggers(plan, is_worker=choices.is_worker)
        self.stopping: StopMode | None = None
        self.is_over = False
        self.whys: dict[int, str] = {}  # why jobs did not succeed
        self.pauses = Pauses()  # before the next attempt
        self.recovering: dict[int, Retry] = {}  # retries that follow when the recovery script has succeeded
        self._has_begun = False
        self._failures: dict[int, Failures] = {}
        self._cancelled: set[int] = set()  # running and cancelled
        self._past: dict[int, Retry] = {}  # restored jobs with a pending retry
        self._wrapped_up = False
        self._is_worker_ending = False  # this worker ends: running jobs continue even if the run is stopped
        self._is_asking = False  # AskForJobs is pending
        self._has_asked = not choices.may_grow  # nothing has ended since
        self._became_ready: list[int] = []
        self._now_s = 0.0  # time of the last event
        self._commands: list[Command] = []
        self._handlers: dict[type, Callable[..., None]] = {
            AttemptEnded: self._attempt_ended,
            DataChanged: self._data_changed,
            FinalizationEnded: self._finalization_ended,
            CommandEnded: self._command_ended,
            StopWanted: self._stop_wanted,
            CancelWanted: self._cancel_wanted,
            OfferGrew: self._offer_grew,
            JobsAsked: self._jobs_asked,
        }

    # ---- queries -----------------------------------------------------------------------------------------

    def state_of(self, index: int) -> JobState:
        return self.table.state(index)

    def counts(self) -> dict[JobState, int]:
        return {state: self.table.counts[state] for state in JobState if self.table.counts[state]}

    def attempt_of(self, index: int) -> int:
        """Returns the number of the last started attempt; 0: none."""
        return self.table.attempts[index]

    def requirements_of(self, index: int) -> Requirements:
        """Returns the requirements of the running or next attempt; a handler may have raised them."""
        return self.buckets.of(index).requirements

    def running(self) -> list[int]:
        """Returns jobs that were started and have not ended."""
        return sorted(self.occupancy.held)

    def next_wake_s(self) -> float | None:
        """Returns when a Tick is due at the latest; None: only events matter."""
        return None if self.stopping or self.is_over else self.pauses.next_s()

    def failed_actions(self) -> frozenset[int]:
        return frozenset(self.triggers.failed)

    def failed_datasets(self) -> list[int]:
        """Returns the indices of datasets that could not be finalized."""
        return self.table.datasets.failed()

    def why(self, index: int) -> str:
        """Returns why a job is not running, or how it ended."""
        return explain(self, index)

    def time_is_short_for(self, bucket: Bucket) -> bool:
        """Uses the time of the last event."""
        return not self._starter.has_time(bucket, self._now_s)

    # ---- events ------------------------------------------------------------------------------------------

    def add_jobs(self, first: int) -> None:
        """Adds jobs of a grown plan; `first`: index of the first one. Before `begin`, or on JobsAdded."""
        jobs = self.plan.jobs[first:]
        assert first == len(self.table.states), "jobs come in order, each once"
        self._starter.add_jobs(jobs, first)
        self._follow(self.table.add(jobs, first))
        for index in range(first, first + len(jobs)):
            self._cancel_for_dataset(index)
        if self._has_begun:
            self._commands += [StateChanged(index) for index in range(first, first + len(jobs))]

    def _cancel_for_dataset(self, index: int) -> None:
        """Cancels an added job if a dataset that it reads has failed."""
        broken = self.table.datasets.failed_for(index)
        policy = self.plan.jobs[index].when_blocked_fails
        if broken is None or policy is not WhenBlockedFails.CANCEL:
            return
        if self.table.state(index) is JobState.BLOCKED:
            error = self.table.datasets.errors[broken]
            self._end(index, JobState.CANCELED, dataset_failed(self.plan.datasets[broken].name, error))

    def recall(self, index: int, past: Past) -> None:
        """Restores the state of a job; only before `begin`."""
        self.table.attempts[index] = past.attempt
        self._failures[index] = past.failures
        self.buckets.change(index, past.requirements)
        if past.why:
            self.whys[index] = past.why
        if past.again is not None:
            self._past[index] = past.again
            self.table.set_state(index, JobState.READY)
        elif past.state is JobState.RUNNING:
            if past.is_cancelled:
                self._cancelled.add(index)
            self._starter.adopt(index, past.devices)
            self.table.set_state(index, JobState.RUNNING)
        elif past.state is not None:
            self.table.set_state(index, past.state)

    def begin(self, now_s: float) -> list[Command]:
        assert not self._has_begun, "a schedule begins once"
        self._has_begun = True
        self._starter.begin(now_s)
        self._exclude()
        known = [index for index, state in enumerate(self.table.states) if state >= JobState.READY]
        self._commands += self.triggers.on_start()
        for index in known:
            self._note_progress(index)
        self._follow(self.table.open())
        for index, again in sorted(self._past.items()):
            if self.table.state(index) is JobState.READY:
                self._try_again(index, again, now_s)
        self._past.clear()
        return self._go_on(now_s)

    def handle(self, event: Event, now_s: float) -> list[Command]:
        if isinstance(event, AttemptBegan):
            self._attempt_began(event, now_s)
            return []  # nothing became free
        if isinstance(event, JobsAdded):
            self.add_jobs(event.first)
        handler = self._handlers.get(type(event))
        if handler is not None and not self.is_over:
            handler(event, now_s)
        return self._go_on(now_s)

    def _offer_grew(self, event: OfferGrew, now_s: float) -> None:
        self.offer = replace(
            self.offer,
            cpus=max(self.offer.cpus, event.cpus),
            memory_bytes=max(self.offer.memory_bytes, event.memory_bytes),
        )
        whole = whole_of(self.offer)
        self.occupancy.capacity.grow(whole)
        self.buckets.grow(whole)

    def _jobs_asked(self, event: JobsAsked, now_s: float) -> None:
        self._is_asking, self._has_asked = False, True

    def _exclude(self) -> None:
        enabled = self.choices.enabled
        if enabled is None:
            return
        wanted = frozenset(enabled)
        for index in range(len(self.plan.jobs)):
            if index not in wanted and self.table.states[index] not in (JobState.COMPLETED, JobState.RUNNING):
                self._past.pop(index, None)
                self.table.set_state(index, JobState.DISABLED)

    def _attempt_began(self, event: AttemptBegan, now_s: float) -> None:
        if self.table.state(event.index) is JobState.PENDING:
            self.table.set_state(event.index, JobState.RUNNING)
            self.occupancy.began(event.index, now_s)

    def _attempt_ended(self, event: AttemptEnded, now_s: float) -> None:
        index = event.index
        if index not in self.occupancy.held or event.attempt != self.table.attempts[index]:
            return
        self.occupancy.leave(index)
        self._has_asked = not self.choices.may_grow
        if event.status is Status.CANCELLED and event.reason == NOT_STARTED:
            self._never_started(index)
            return
        if event.status is Status.SUCCESS:
            self._starter.observe(index, event.duration_s)
        ending = Ending(event.status, event.exit_code, event.reason, event.outputs_missing)
        failures = self._failures.get(index, Failures())
        verdict = judge(
            self.plan,
            self.plan.jobs[index],
            ending,
            failures,
            self.requirements_of(index),
            self.offer,
            self.choices,
        )
        if isinstance(verdict, Retry) and index not in self._cancelled and self.stopping is not StopMode.KILL:
            self._failures[index] = verdict.failures
            self.table.set_state(index, JobState.READY)
            self._commands.append(StateChanged(index, verdict.why))
            self._note_progress(index)
            self._try_again(index, verdict, now_s)
            return
        if isinstance(verdict, Retry):
            was_ours = event.status is Status.TIMEOUT or index in self._cancelled
            verdict = Final(JobState.TERMINATED if was_ours else JobState.FAILED, verdict.why)
        self._cancelled.discard(index)
        self._end(index, verdict.state, verdict.why)

    def _never_started(self, index: int) -> None:
        self.table.attempts[index] -= 1
        if index in self._cancelled or self.stopping is StopMode.KILL:
            self._cancelled.discard(index)
            self._end(index, JobState.CANCELED, f"{CANCELLED} before it started")
            return
        self.table.set_state(index, JobState.READY)
        self._starter.add(index)

    def _data_changed(self, event: DataChanged, now_s: float) -> None:
        self._follow(Consequences(ready=self.table.set_value(event.index)))

    def _finalization_ended(self, event: FinalizationEnded, now_s: float) -> None:
        found = self.table.end_dataset(event.index, event.error)
        canceled, found.canceled = found.canceled, []
        self._follow(found)
        why = dataset_failed(self.plan.datasets[event.index].name, event.error)
        for index, _ in canceled:
            self._end(index, JobState.CANCELED, why)
        for index in self.table.datasets.readers(event.index):
            if self.table.state(index) is JobState.BLOCKED:
                self._commands.append(StateChanged(index, self.why(index)))

    def _command_ended(self, event: CommandEnded, now_s: float) -> None:
        if event.index < 0:
            self._action_ended(event)
            return
        again = self.recovering.pop(event.index, None)
        if again is None or self.table.state(event.index) is not JobState.READY:
            return
        if event.status is Status.SUCCESS:
            self._pause(event.index, again, now_s)
        else:
            self._end(event.index, JobState.FAILED, f"{again.why}, but the recovery script failed")

    def _action_ended(self, event: CommandEnded) -> None:
        if self.stopping is not None and event.status in CUT_OFF:
            self.triggers.forget([RunActionCommand(event.action, event.command)])
        else:
            self._run_actions(self.triggers.on_command_ended(event.action, event.command, event.status))

    def _stop_wanted(self, event: StopWanted, now_s: float) -> None:
        if event.mode is StopMode.DRAIN:
            self.stopping = self.stopping or StopMode.DRAIN
            return
        at_once = self.stopping is StopMode.KILL
        self.stopping = StopMode.KILL
        self._commands += [StopAttempt(index, at_once) for index in sorted(self.occupancy.held)]
        if at_once:
            return
        for index in list(self.table.unfinished()):
            if index not in self.occupancy.held:
                was_tried = self.table.attempts[index] > 0
                self.table.set_state(index, JobState.FAILED if was_tried else JobState.CANCELED)
                self.whys[index] = "the run was cancelled"
                self._commands.append(StateChanged(index, self.whys[index]))
        self.pauses.clear()

    def _cancel_wanted(self, event: CancelWanted, now_s: float) -> None:
        index = event.index
        state = self.table.state(index)
        if index in self.occupancy.held:
            self._commands.append(StopAttempt(index, at_once=index in self._cancelled))
            self._cancelled.add(index)
        elif not state.is_final:
            was_paused = self.pauses.remove(index)
            if state is JobState.READY and not was_paused and index not in self.recovering:
                self._starter.remove(index)
            was_tried = self.table.attempts[index] > 0
            self._end(index, JobState.TERMINATED if was_tried else JobState.CANCELED, CANCELLED)

    # ---- transitions -------------------------------------------------------------------------------------

    def _end(self, index: int, state: JobState, why: str) -> None:
        if state is not JobState.COMPLETED:
            self.whys[index] = why
            self._commands.append(StateChanged(index, why))
        found = self.table.end(index, state)
        self._note_progress(index)
        self._follow(found)

    def _follow(self, found: Consequences) -> None:
        self._became_ready += found.ready
        for index in found.ready:
            self._starter.add(index)
            self._note_progress(index)
        if self.stopping is not StopMode.KILL:
            self._commands += [FinalizeDataset(number) for number in found.datasets]
        for index, because in found.canceled:
            self.whys[index] = f"{self.plan.jobs[because].name}, which it depends on, did not succeed"
            self._commands.append(StateChanged(index, self.whys[index]))
            self._note_progress(index)

    def _note_progress(self, index: int) -> None:
        is_final = self.table.states[index] >= JobState.COMPLETED
        self._run_actions(self.triggers.on_job_ready(index, is_final=is_final))
        if is_final:
            self._run_actions(self.triggers.on_job_complete(index))

    def _run_actions(self, due: list[Due]) -> None:
        if self.stopping is None or self._is_worker_ending:
            self._commands += due
        else:
            self.triggers.forget(due)

    def _try_again(self, index: int, again: Retry, now_s: float) -> None:
        self.buckets.change(index, again.requirements)
        if again.script is not None and self.stopping is None:
            self.recovering[index] = again
            self._commands.append(RunRecovery(index, self.table.attempts[index], again.script))
        else:
            self._pause(index, again, now_s)

    def _pause(self, index: int, again: Retry, now_s: float) -> None:
        if again.pause_s <= 0:
            self._starter.add(index)
        else:
            self.pauses.add(index, now_s + again.pause_s)

    # ---- starts and end ----------------------------------------------------------------------------------

    def _go_on(self, now_s: float) -> list[Command]:
        self._now_s = now_s
        if not self.is_over:
            if self.stopping is None:
                for index in self.pauses.over(now_s):
                    self._starter.add(index)
            if self.stopping is None and self.triggers.start_is_over:
                self._commands += self._starter.fill(now_s)
            self._report_ready()
            self._end_if_done()
        commands, self._commands = self._commands, []
        return commands

    def _report_ready(self) -> None:
        """Reports jobs that are ready but have to wait; jobs that start are reported by their start."""
        if self._became_ready:
            ready, self._became_ready = self._became_ready, []
            states = self.table.states
            self._commands += [StateChanged(index) for index in ready if states[index] == JobState.READY]

    def _end_if_done(self) -> None:
        if self.occupancy.held or self.triggers.any_running or self.recovering:
            return
        if self.table.datasets.is_busy and self.stopping is not StopMode.KILL:
            return
        if self.stopping is None and self.pauses:
            return
        if not self._has_asked:
            self._ask_for_jobs()
            return
        if self.stopping is None and not self._wrapped_up:
            self._wrapped_up = True
            due = self.triggers.on_complete()
            self._commands += due
            if due:
                return
        if not self._is_worker_ending:
            self._is_worker_ending = True
            due = self.triggers.on_worker_complete()
            self._commands += due
            if due:
                return
        self.is_over = True
        self._commands.append(RunIsOver())

    def _ask_for_jobs(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._commands.append(AskForJobs())
