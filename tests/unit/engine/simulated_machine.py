"""A machine that exists only as a list of what will happen next: carries out the commands of a schedule in no
time, checks that they never ask for more than is there, and remembers the facts a store would."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from heapq import heappop, heappush

from joblens.engine.schedule.capacity import RunCapacity, Shape, shape_of, whole_of
from joblens.engine.schedule.events import (
    AttemptBegan,
    AttemptEnded,
    Command,
    CommandEnded,
    DataChanged,
    Event,
    FinalizationEnded,
    FinalizeDataset,
    RunActionCommand,
    RunIsOver,
    RunRecovery,
    StartAttempt,
    StopAttempt,
    Tick,
)
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.retries import NOT_STARTED, Ending
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import (
    ActionRan,
    DatasetFinalized,
    JobResult,
    OutputsMissing,
    RecoveryRan,
    RunEvent,
    RunFact,
    UserDataSet,
)

SUCCESS = Ending(Status.SUCCESS, 0, "exited")
COMMAND_S = 0.25


def always_succeeds(index: int, run: int) -> Ending:
    return SUCCESS


class SimulatedMachine:
    """`ending`: how the nth run (from 1, lost ones not counted) of a job ends; `recovery`: whether
    the recovery script of a job succeeds."""

    def __init__(
        self,
        plan: Plan,
        offer: RunCapacity,
        duration_s: Callable[[int], float],
        ending: Callable[[int, int], Ending] = always_succeeds,
        recovery: Callable[[int], bool] = lambda index: True,
    ) -> None:
        self.plan, self.offer = plan, offer
        self.duration_s, self.ending, self.recovery = duration_s, ending, recovery
        self.now_s = 0.0
        self.results: list[JobResult] = []
        self.facts: list[RunEvent] = []
        self.starts: list[tuple[float, StartAttempt]] = []
        self.runs: Counter[int] = Counter()  # ended and not lost, by job
        self.overs = 0
        self.actions: list[RunActionCommand] = []
        self.recoveries: list[RunRecovery] = []
        self.busy: dict[int, StartAttempt] = {}
        self.lined_up: dict[Requirements, deque[StartAttempt]] = defaultdict(deque)
        self.began_s: dict[int, float] = {}
        self._coming: list[tuple[float, int, Event]] = []
        self._sequence = 0

    # ---- running -----------------------------------------------------------------------------------------

    def play(self, schedule: Schedule, most_events: int | None = None) -> int:
        """Until the run is over, or so many events were handled. How many there were."""
        self._carry_out(schedule, schedule.begin(self.now_s))
        return self.go_on(schedule, most_events)

    def go_on(self, schedule: Schedule, most_events: int | None = None) -> int:
        handled = 0
        while self.overs == 0 and (most_events is None or handled < most_events):
            event = self._next(schedule)
            if event is None:
                break
            self.feed(schedule, event)
            handled += 1
        return handled

    def feed(self, schedule: Schedule, event: Event) -> list[Command]:
        """A lane does not wait for its owner: whoever is next in line begins before the end is told."""
        following = self._following(event) if isinstance(event, AttemptEnded) else None
        self._remember(event)
        if following is not None:
            self._start(following)
        commands = schedule.handle(event, self.now_s)
        self._carry_out(schedule, commands)
        return commands

    def die(self) -> None:
        """The agent is killed, and all its jobs with it."""
        for index, start in self.busy.items():
            self._result(index, start.attempt, Ending(Status.LOST, None, "lost"), 0.0)
        self.busy.clear()
        self.lined_up.clear()
        self._coming.clear()

    def restored(self, schedule: Schedule) -> Schedule:
        restore(schedule, self.results, self.facts)
        return schedule

    def _next(self, schedule: Schedule) -> Event | None:
        wake_s = schedule.next_wake_s()
        if wake_s is not None and (not self._coming or wake_s < self._coming[0][0]):
            self.now_s = max(self.now_s, wake_s)
            return Tick()
        if not self._coming:
            return None
        at_s, _, event = heappop(self._coming)
        self.now_s = max(self.now_s, at_s)
        return event

    def expect(self, after_s: float, event: Event) -> None:
        self._sequence += 1
        heappush(self._coming, (self.now_s + after_s, self._sequence, event))

    # ---- commands ----------------------------------------------------------------------------------------

    def _carry_out(self, schedule: Schedule, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, StartAttempt):
                self.starts.append((self.now_s, command))
                if command.behind:
                    self.lined_up[command.requirements].append(command)
                else:
                    self._start(command)
            elif isinstance(command, StopAttempt):
                self._stop(command.index)
            elif isinstance(command, RunActionCommand):
                self.actions.append(command)
                ended = CommandEnded(Status.SUCCESS, action=command.action, command=command.command)
                self.expect(COMMAND_S, ended)
            elif isinstance(command, RunRecovery):
                self.recoveries.append(command)
                status = Status.SUCCESS if self.recovery(command.index) else Status.FAILED
                self.expect(COMMAND_S, CommandEnded(status, index=command.index))
            elif isinstance(command, FinalizeDataset):
                self.expect(COMMAND_S, FinalizationEnded(command.index))
            elif isinstance(command, RunIsOver):
                self.overs += 1
                assert not self.busy
                assert not any(self.lined_up.values())
        assert schedule.next_wake_s() is None or not schedule.is_over

    def _start(self, start: StartAttempt) -> None:
        index = start.index
        assert index not in self.busy, "started twice"
        self.busy[index] = start
        self.began_s[index] = self.now_s
        self._check_room()
        self.expect(0.0, AttemptBegan(index))
        how = self.ending(index, self.runs[index] + 1)
        duration_s = self.duration_s(index)
        if how.status is Status.SUCCESS:
            for place in self.plan.jobs[index].output_user_data:
                self.expect(duration_s, DataChanged(place))
        self.expect(duration_s, self._ended(start, how, duration_s))

    @staticmethod
    def _ended(start: StartAttempt, how: Ending, duration_s: float) -> AttemptEnded:
        return AttemptEnded(
            start.index,
            start.attempt,
            how.status,
            how.exit_code,
            how.reason,
            duration_s,
            how.outputs_missing,
        )

    def _following(self, ended: AttemptEnded) -> StartAttempt | None:
        start = self.busy.get(ended.index)
        line = self.lined_up.get(start.requirements) if start is not None else None
        return line.popleft() if line else None

    def _stop(self, index: int) -> None:
        for line in self.lined_up.values():
            for start in [waiting for waiting in line if waiting.index == index]:
                line.remove(start)
                self.expect(0.0, self._ended(start, Ending(Status.CANCELLED, None, NOT_STARTED), 0.0))
        running = self.busy.get(index)
        if running is not None:
            how = Ending(Status.CANCELLED, 143, "cancelled")
            self._coming = [
                entry
                for entry in self._coming
                if not (isinstance(entry[2], AttemptEnded) and entry[2].index == index)
            ]
            self._coming.sort()
            self.expect(0.01, self._ended(running, how, self.now_s - self.began_s[index]))

    def _check_room(self) -> None:
        held, devices = Shape(0, 0, 0), Counter[str]()
        for start in self.busy.values():
            held = held.plus(shape_of(start.requirements))
            devices.update(start.gpus)
            assert len(start.gpus) == (start.requirements.gpus or 0)
        assert held.within(whole_of(self.offer)), "more than the machine has"
        assert all(count == 1 for count in devices.values()), "a device given twice"
        assert set(devices) <= set(self.offer.gpus)
        assert self.offer.most_jobs is None or len(self.busy) <= self.offer.most_jobs

    # ---- facts -------------------------------------------------------------------------------------------

    def _remember(self, event: Event) -> None:
        if isinstance(event, AttemptEnded):
            if self.busy.pop(event.index, None) is not None:
                self.runs[event.index] += 1
            how = Ending(event.status, event.exit_code, event.reason, event.outputs_missing)
            self._result(event.index, event.attempt, how, event.duration_s)
            if event.outputs_missing:
                self._fact(OutputsMissing(event.index, event.attempt, ("missing",)))
        elif isinstance(event, DataChanged):
            self._fact(UserDataSet(self.plan.user_data[event.index].name, 1))
        elif isinstance(event, FinalizationEnded):
            dataset = self.plan.datasets[event.index]
            self._fact(DatasetFinalized(event.index, dataset.name, dataset.path, dataset.hash_mode))
        elif isinstance(event, CommandEnded) and event.index >= 0:
            attempt = max(result.attempt for result in self.results if result.index == event.index)
            self._fact(RecoveryRan(event.index, attempt, "", event.status))
        elif isinstance(event, CommandEnded):
            self._fact(ActionRan(event.action, event.command, "", event.status))

    def _result(self, index: int, attempt: int, how: Ending, duration_s: float) -> None:
        number = len(self.results) + 1
        began_at_us = int(self.began_s.get(index, self.now_s) * 1e6)
        self.results.append(
            JobResult(
                index,
                attempt,
                number,
                f"job-{number}",
                how.status,
                how.exit_code,
                how.reason,
                began_at_us,
                duration_s,
            )
        )

    def _fact(self, fact: RunFact) -> None:
        self.facts.append(RunEvent(f"event-{len(self.facts)}", "run", int(self.now_s * 1e6), fact))
