"""Facts of a run in the store: those that its driver records, and requests to it (user data, added jobs, a
stop)."""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from joblens.agent.runs.in_flight import InFlightAttempts
from joblens.agent.runs.view import ViewFeed
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext
from joblens.engine.schedule.events import CancelWanted, DataChanged, Event, JobsAdded, StartAttempt, StopMode
from joblens.engine.schedule.schedule import Schedule
from joblens.files.private import read_own
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import FileStamp, Status
from joblens.model.redaction.secrets import SecretValues, secret_values
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import (
    ActionRan,
    DatasetFinalized,
    JobCancelled,
    JobsSpawned,
    RunEvent,
    RunFact,
    StopAskedFor,
    UserDataSet,
)
from joblens.model.runs.workflow_spec import JobSpec
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked, RunNoted
from joblens.plan.workflows.spawning import PlanExtender
from joblens.ports.clock import Clock

ReportedFact = UserDataSet | StopAskedFor | JobCancelled | ActionRan | JobsSpawned


def value_of(fact: UserDataSet, spool_dir: str) -> Any:
    """Returns the value that was set; if its private file is gone, the one in the store."""
    if fact.private:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(read_own(os.path.join(spool_dir, os.path.basename(fact.private))))
    return fact.data


def stamp_of_dataset(path: str, fact: DatasetFinalized) -> FileStamp:
    digest = fact.sha256 or None
    return FileStamp(path, fact.bytes, digest=digest, files=fact.files, hash_mode=fact.hash_mode.value)


class RunFacts:
    def __init__(self, context: AgentContext, run_uuid: str, plan: Plan) -> None:
        self._context = context
        self._run_uuid = run_uuid
        self._numbers = {data.name: number for number, data in enumerate(plan.user_data)}
        self.data: dict[str, Any] = {data.name: data.data for data in plan.user_data}
        self._plan = plan
        self._datasets: dict[int, DatasetFinalized] = {}  # last finalizations, by index in the plan
        self._own: set[str] = set()  # events recorded by this process
        self._seen = 0
        self.late_jobs = 0  # added after the schedule had ended the run
        self._requests: set[str] = set()
        self._is_ending_all = False  # from now on, this process itself asks workers to stop jobs

    def begin(self) -> list[RunEvent]:
        """Returns all recorded facts for the schedule; earlier requests to stop are dropped."""
        events = self._context.recorder.read(lambda store: store.run_events(self._run_uuid))
        for number, event in events:
            self._seen = number
            if isinstance(event.fact, UserDataSet):
                self.take_data(event.fact)
            elif isinstance(event.fact, DatasetFinalized):
                self._datasets[event.fact.index] = event.fact
        return [event for _, event in events]

    def take_earlier(self, events: Sequence[RunEvent]) -> None:
        """Reads facts of the run whose outcomes this one reuses; datasets may have another index there."""
        numbers = {(one.name, one.path, one.hash_mode): at for at, one in enumerate(self._plan.datasets)}
        for event in events:
            fact = event.fact
            if isinstance(fact, UserDataSet):
                self.take_data(fact)
            elif isinstance(fact, DatasetFinalized):
                number = numbers.get((fact.name, fact.path, fact.hash_mode))
                if number is not None:
                    self._datasets[number] = fact

    def stamps_of_datasets(self, index: int) -> tuple[FileStamp, ...]:
        """Returns the stamps of finalized datasets that a job reads."""
        found = []
        for number in self._plan.jobs[index].input_datasets:
            fact = self._datasets.get(number)
            if fact is not None and not fact.error:
                found.append(stamp_of_dataset(self._plan.datasets[number].path, fact))
        return tuple(found)

    def note(self, fact: RunFact) -> None:
        if isinstance(fact, DatasetFinalized):
            self._datasets[fact.index] = fact
        self._context.recorder.put([self.write_of(fact)])

    def note_now(self, fact: RunFact) -> None:
        """Records a fact and returns when it is in the store."""
        self._context.recorder.write([self.write_of(fact)])

    def write_of(self, fact: RunFact) -> RunNoted:
        self._is_ending_all |= isinstance(fact, StopAskedFor) and fact.how == "kill"
        event = RunEvent(new_uuid(), self._run_uuid, self._context.clock.now_us(), fact)
        self._own.add(event.uuid)
        return RunNoted(event)

    def fetch(
        self, then: Callable[[list[ReportedFact]], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        """Calls `then` on the loop with facts that other processes have recorded since the last call. If the
        store does not answer, calls `otherwise`, or `then` with nothing."""
        recorder, loop, seen = self._context.recorder, self._context.loop, self._seen
        recorder.ask(
            lambda store: store.run_events(self._run_uuid, seen),
            lambda events: loop.call(lambda: then(self._news(events))),
            lambda _error: loop.call(otherwise or (lambda: then([]))),
        )

    def count_late_jobs(self) -> int:
        """Returns how many jobs were added since the last answer: after the end of the run they are not
        started. Waits for the store."""
        try:
            events = self._context.recorder.read(lambda store: store.run_events(self._run_uuid, self._seen))
        except JoblensError:
            return self.late_jobs
        return self.late_jobs + sum(
            len(event.fact.jobs) for _, event in events if isinstance(event.fact, JobsSpawned)
        )

    def poll(self, then: Callable[[list[ReportedFact], Mapping[str, CancelAsked]], None]) -> None:
        """Like `fetch`, for regular polls, with the jobs to cancel. `then` is not called if there is
        nothing new."""
        recorder, loop, seen = self._context.recorder, self._context.loop, self._seen

        def take(answer: tuple[list[tuple[int, RunEvent]], Mapping[str, CancelAsked]]) -> None:
            events, cancels = answer
            if events or cancels:
                loop.call(lambda: then(self._news(events), {} if self._is_ending_all else cancels))

        recorder.ask(
            lambda store: (store.run_events(self._run_uuid, seen), store.cancel_requests()),
            take,
            name="run",
        )

    def _news(self, events: Sequence[tuple[int, RunEvent]]) -> list[ReportedFact]:
        news: list[ReportedFact] = []
        for number, event in events:
            if number <= self._seen:
                continue  # an earlier answer had it
            self._seen = number
            is_own = event.uuid in self._own
            self._own.discard(event.uuid)
            if not is_own and isinstance(event.fact, ReportedFact):
                news.append(event.fact)
        return news

    def take_data(self, fact: UserDataSet) -> int | None:
        """Returns its index in the plan; None: the plan has no such data."""
        if fact.name not in self._numbers:
            return None
        value = self.data[fact.name] = value_of(fact, self._context.spool_dir)
        self._context.add_secrets(secret_values({fact.name: value}))
        return self._numbers[fact.name]

    def is_first_request(self, uuid: str) -> bool:
        is_first = uuid not in self._requests
        self._requests.add(uuid)
        return is_first


_ASK_AGAIN_S = 1.0
_ASK_LONGEST_S = 60.0
# A command without its secrets could do anything.
_WITHOUT_SECRETS = "echo 'joblens: the private file with the secrets of this job is gone' >&2; exit 125"


class PrivateBatch(Struct, frozen=True):
    """Complete fields of a JobsSpawned that may contain secrets."""

    jobs: tuple[JobSpec, ...]
    state: Any = None


def whole_batch(fact: JobsSpawned, spool_dir: str) -> JobsSpawned | None:
    """Returns the original batch; None if its private file is gone."""
    if not fact.private:
        return fact
    try:
        data = read_own(os.path.join(spool_dir, os.path.basename(fact.private)))
        kept = msgspec.json.decode(data, type=PrivateBatch)
    except (OSError, msgspec.MsgspecError):
        return None
    return structs.replace(fact, jobs=kept.jobs, state=kept.state)


def secrets_of_batch(batch: JobsSpawned) -> SecretValues:
    """Returns the values of its environments that are secret by their names."""
    env: dict[str, str] = {}
    for job in batch.jobs:
        env |= job.env
    return secret_values(env)


class AddedJobs:
    """Jobs that jobs of the run have added. `are_likely`: the file allows it, or it has happened; the driver
    then polls at the end of every job."""

    def __init__(
        self,
        plan: Plan,
        context: AgentContext,
        add_secrets: Callable[[SecretValues], None],
        note: Callable[[str], None],
    ) -> None:
        """`plan`: a growing one."""
        self._plan = plan
        self._context = context
        self._add_secrets = add_secrets
        self._note = note
        self._extender: PlanExtender | None = None  # created for the first batch
        self.batches: list[JobsSpawned] = []  # received by this driver
        self.are_likely = "dynamic_jobs" in plan.other or any(job.spawned_by >= 0 for job in plan.jobs)

    def take(self, fact: JobsSpawned) -> int | None:
        """Adds the jobs of a batch to the plan. Returns the index of the first one, or None if the plan
        already has them."""
        self.are_likely = True
        if fact.first < len(self._plan.jobs):
            return None
        batch = whole_batch(fact, self._context.spool_dir)
        if batch is None:
            self._note(f"the secrets of {len(fact.jobs)} added jobs are not on this machine: they will fail")
            batch = structs.replace(
                fact, jobs=tuple(structs.replace(job, command=_WITHOUT_SECRETS) for job in fact.jobs)
            )
        if self._extender is None:
            self._extender = PlanExtender(self._plan)
        self.batches.append(batch)
        if not self._extender.add(batch):
            return None
        secrets = secrets_of_batch(batch)
        self._context.add_secrets(secrets)
        self._add_secrets(secrets)
        return batch.first


class JobsQuestion:
    """Polls for added jobs before the run ends. If jobs of this run add jobs, an unavailable store is polled
    again for a while, unless the run is being stopped; `resume` runs jobs that were missed. Otherwise an
    unavailable store does not delay the end of the run."""

    def __init__(
        self,
        facts: RunFacts,
        take: Callable[[list[ReportedFact]], None],
        answered: Callable[[], None],
        may_wait: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """`may_wait`: returns whether to wait for an answer."""
        self._facts = facts
        self._take = take
        self._answered = answered
        self._may_wait = may_wait
        self._clock = clock
        self._until_s: float | None = None  # asked again until then
        self.next_wake_s: float | None = None

    def ask(self) -> None:
        self.next_wake_s = None
        self._facts.fetch(self._then, self._otherwise)

    def wake(self, now_s: float) -> None:
        if self.next_wake_s is not None and now_s >= self.next_wake_s:
            self.ask()

    def _then(self, news: list[ReportedFact]) -> None:
        self._until_s = None
        self._take(news)
        self._answered()

    def _otherwise(self) -> None:
        now_s = mono_s(self._clock)
        if self._until_s is None:
            self._until_s = now_s + _ASK_LONGEST_S
        if self._may_wait() and now_s < self._until_s:
            self.next_wake_s = now_s + _ASK_AGAIN_S
        else:
            self._until_s = None
            self._answered()


class RunInbox:
    """Handles facts that other processes recorded. Used on the loop."""

    def __init__(
        self,
        schedule: Schedule,
        facts: RunFacts,
        flights: InFlightAttempts,
        added_jobs: AddedJobs,
        feed: ViewFeed,
        *,
        post: Callable[[Event], None],
        end: Callable[[str], None],
        stop: Callable[[StopMode, str], None],
    ) -> None:
        """`end` ends an attempt, by UUID; `stop` stops the run, for who asked."""
        self._schedule = schedule
        self._plan = schedule.plan
        self._facts = facts
        self._in_flight = flights
        self._added_jobs = added_jobs
        self._feed = feed
        self._post = post
        self._end = end
        self._stop = stop

    def take(self, news: Iterable[ReportedFact]) -> None:
        for fact in news:
            self._take_fact(fact)

    def take_poll(self, news: list[ReportedFact], cancels: Iterable[str]) -> None:
        """`cancels`: UUIDs of jobs to cancel."""
        self.take(news)
        for uuid in cancels:
            flight = self._in_flight.get(uuid)
            if flight is not None and self._facts.is_first_request(uuid):
                if isinstance(flight.what, StartAttempt):
                    self._facts.note(JobCancelled(flight.what.index))
                    self._post(CancelWanted(flight.what.index))
                else:
                    self._end(uuid)

    def take_batch(self, batch: JobsSpawned) -> int | None:
        """Adds its jobs to the plan. Returns the index of the first one, or None if nothing is new."""
        first = self._added_jobs.take(batch)
        if first is not None:
            self._feed.jobs_added(tuple(self._plan.jobs[first:]))
        return first

    def _take_fact(self, fact: Any) -> None:
        if isinstance(fact, StopAskedFor):
            self._stop(StopMode(fact.how), fact.by)
        elif isinstance(fact, JobCancelled):
            self._cancel_job(fact.index)
        elif isinstance(fact, ActionRan):  # on a worker
            if fact.status is not Status.SUCCESS:
                self._schedule.triggers.failed_elsewhere(fact.action)
        elif isinstance(fact, JobsSpawned):
            first = self.take_batch(fact)
            if first is not None:
                self._post(JobsAdded(first))
        else:
            number = self._facts.take_data(fact)
            if number is not None:
                self._post(DataChanged(number))

    def _cancel_job(self, index: int) -> None:
        """Cancels a running or waiting job, and its recovery script."""
        if not 0 <= index < len(self._plan.jobs):
            return
        for uuid in self._in_flight.recovery_of(index):
            self._end(uuid)
        running = self._in_flight.uuid_of(index)
        if running is None or self._facts.is_first_request(running):
            self._post(CancelWanted(index))
