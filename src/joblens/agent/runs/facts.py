"""Facts of a run in the store: those its driver notes, and requests that reach it there (user data, added
jobs, a stop).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct, structs

from joblens.agent.runs.in_flight import InFlightAttempts
from joblens.agent.runs.view import ViewFeed
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

News = UserDataSet | StopAskedFor | JobCancelled | ActionRan | JobsSpawned


def value_of(fact: UserDataSet, spool_dir: str) -> Any:
    """Returns the value that was set. Where its private file is gone, that is what the store has."""
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
        self._places = {data.name: place for place, data in enumerate(plan.user_data)}
        self.data: dict[str, Any] = {data.name: data.data for data in plan.user_data}
        self._plan = plan
        self._datasets: dict[int, DatasetFinalized] = {}  # as they were finalized last, by place in the plan
        self._own: set[str] = set()  # events that this process has noted
        self._seen = 0
        self.late_jobs = 0  # that were added after the schedule had decided that the run is over
        self._wishes: set[str] = set()
        self._is_ending_all = False  # what workers are asked to end from now on is asked by this process

    def begin(self) -> list[RunEvent]:
        """Everything that was noted so far, for the schedule; wishes of the past are over."""
        events = self._context.recorder.read(lambda store: store.run_events(self._run_uuid))
        for number, event in events:
            self._seen = number
            if isinstance(event.fact, UserDataSet):
                self.take_data(event.fact)
            elif isinstance(event.fact, DatasetFinalized):
                self._datasets[event.fact.place] = event.fact
        return [event for _, event in events]

    def take_earlier(self, events: Sequence[RunEvent]) -> None:
        """Of the run whose outcomes this one keeps; datasets may have another place there."""
        places = {(one.name, one.path, one.hash_mode): at for at, one in enumerate(self._plan.datasets)}
        for event in events:
            fact = event.fact
            if isinstance(fact, UserDataSet):
                self.take_data(fact)
            elif isinstance(fact, DatasetFinalized):
                place = places.get((fact.name, fact.path, fact.hash_mode))
                if place is not None:
                    self._datasets[place] = fact

    def stamps_of_datasets(self, index: int) -> tuple[FileStamp, ...]:
        """Returns what is known of the datasets that a job reads; nothing of those that are not finalized."""
        found = []
        for place in self._plan.jobs[index].input_datasets:
            fact = self._datasets.get(place)
            if fact is not None and not fact.error:
                found.append(stamp_of_dataset(self._plan.datasets[place].path, fact))
        return tuple(found)

    def note(self, fact: RunFact) -> None:
        if isinstance(fact, DatasetFinalized):
            self._datasets[fact.place] = fact
        self._context.recorder.put([self.write_of(fact)])

    def note_now(self, fact: RunFact) -> None:
        """It is in the store when this returns."""
        self._context.recorder.write([self.write_of(fact)])

    def write_of(self, fact: RunFact) -> RunNoted:
        self._is_ending_all |= isinstance(fact, StopAskedFor) and fact.how == "kill"
        event = RunEvent(new_uuid(), self._run_uuid, self._context.clock.now_us(), fact)
        self._own.add(event.uuid)
        return RunNoted(event)

    def fetch(self, then: Callable[[list[News]], None], otherwise: Callable[[], None] | None = None) -> None:
        """`then` gets, on the loop, what others have noted since the last time. Where the store cannot be
        asked now `otherwise` is called, or `then` gets nothing."""
        recorder, loop, seen = self._context.recorder, self._context.loop, self._seen
        recorder.ask(
            lambda store: store.run_events(self._run_uuid, seen),
            lambda events: loop.call(lambda: then(self._news(events))),
            lambda _error: loop.call(otherwise or (lambda: then([]))),
        )

    def count_late_jobs(self) -> int:
        """Returns how many jobs were added since the last answer: after the end of the run nobody takes them.
        Waits for the store."""
        try:
            events = self._context.recorder.read(lambda store: store.run_events(self._run_uuid, self._seen))
        except JoblensError:
            return self.late_jobs
        return self.late_jobs + sum(
            len(event.fact.jobs) for _, event in events if isinstance(event.fact, JobsSpawned)
        )

    def poll(self, then: Callable[[list[News], Mapping[str, CancelAsked]], None]) -> None:
        """The same for what is asked again and again, with the jobs to cancel. `then` is not
        called where there is nothing new."""
        recorder, loop, seen = self._context.recorder, self._context.loop, self._seen

        def take(answer: tuple[list[tuple[int, RunEvent]], Mapping[str, CancelAsked]]) -> None:
            events, asked = answer
            if events or asked:
                loop.call(lambda: then(self._news(events), {} if self._is_ending_all else asked))

        recorder.ask(
            lambda store: (store.run_events(self._run_uuid, seen), store.cancel_requests()),
            take,
            name="run",
        )

    def _news(self, events: Sequence[tuple[int, RunEvent]]) -> list[News]:
        news: list[News] = []
        for number, event in events:
            if number <= self._seen:
                continue  # the answer to an earlier question had it
            self._seen = number
            is_own = event.uuid in self._own
            self._own.discard(event.uuid)
            if not is_own and isinstance(event.fact, News):
                news.append(event.fact)
        return news

    def take_data(self, fact: UserDataSet) -> int | None:
        """-> its place in the plan; None: the plan knows no such data."""
        if fact.name not in self._places:
            return None
        value = self.data[fact.name] = value_of(fact, self._context.spool_dir)
        self._context.add_secrets(secret_values({fact.name: value}))
        return self._places[fact.name]

    def is_first_wish(self, uuid: str) -> bool:
        is_first = uuid not in self._wishes
        self._wishes.add(uuid)
        return is_first


_ASK_AGAIN_S = 1.0
_ASK_LONGEST_S = 60.0
# A command without its secrets could do anything.
_WITHOUT_SECRETS = "echo 'joblens: the private file with the secrets of this job is gone' >&2; exit 125"


class PrivateBatch(Struct, frozen=True):
    """The fields of a JobsSpawned that may hold secrets, whole."""

    jobs: tuple[JobSpec, ...]
    state: Any = None


def whole_batch(fact: JobsSpawned, spool_dir: str) -> JobsSpawned | None:
    """Returns the batch as it was given; None where its private file is gone."""
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
    """`are_likely`: the file says so, or it has happened; the driver then asks at the end of every job."""

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
        self._extender: PlanExtender | None = None  # made for the first batch
        self.batches: list[JobsSpawned] = []  # that came since this process drives the run
        self.are_likely = "dynamic_jobs" in plan.other or any(job.spawned_by >= 0 for job in plan.jobs)

    def take(self, fact: JobsSpawned) -> int | None:
        """Adds the jobs of a batch to the plan. -> the index of the first one; None: there are none, or the
        plan has them already"""
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
    """Nothing is left to do: before the run is over, jobs that others have added must be known. Where jobs of
    this run add jobs, a store that is away is asked again for a while, unless the run is being stopped;
    `resume` runs jobs that were missed. Where none does, a store that is gone ends no run later."""

    def __init__(
        self,
        facts: RunFacts,
        take: Callable[[list[News]], None],
        answered: Callable[[], None],
        may_wait: Callable[[], bool],
    ) -> None:
        """`may_wait`: whether an answer is worth waiting for."""
        self._facts = facts
        self._take = take
        self._answered = answered
        self._may_wait = may_wait
        self._until_s: float | None = None  # asked again until then
        self.next_wake_s: float | None = None

    def ask(self) -> None:
        self.next_wake_s = None
        self._facts.fetch(self._then, self._otherwise)

    def wake(self, now_s: float) -> None:
        if self.next_wake_s is not None and now_s >= self.next_wake_s:
            self.ask()

    def _then(self, news: list[News]) -> None:
        self._until_s = None
        self._take(news)
        self._answered()

    def _otherwise(self) -> None:
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + _ASK_LONGEST_S
        if self._may_wait() and now_s < self._until_s:
            self.next_wake_s = now_s + _ASK_AGAIN_S
        else:
            self._until_s = None
            self._answered()


class RunStopping(Protocol):
    def stop(self, mode: StopMode, by: str) -> None: ...

    def end(self, uuid: str, *, at_once: bool) -> None: ...


class RunInbox:
    """Used on the loop."""

    def __init__(
        self,
        schedule: Schedule,
        facts: RunFacts,
        flights: InFlightAttempts,
        running: Mapping[int, str],
        added_jobs: AddedJobs,
        feed: ViewFeed,
        *,
        post: Callable[[Event], None],
        driver: RunStopping,
    ) -> None:
        """`running`: UUIDs of jobs of the plan that are under way, by index."""
        self._schedule = schedule
        self._plan = schedule.plan
        self._facts = facts
        self._flights = flights
        self._running = running
        self._added_jobs = added_jobs
        self._feed = feed
        self._post = post
        self._driver = driver

    def take(self, news: Iterable[News]) -> None:
        for fact in news:
            self._take_fact(fact)

    def take_poll(self, news: list[News], asked: Iterable[str]) -> None:
        """`asked`: UUIDs of jobs whose end was asked for."""
        self.take(news)
        for uuid in asked:
            flight = self._flights.get(uuid)
            if flight is not None and self._facts.is_first_wish(uuid):
                if isinstance(flight.what, StartAttempt):
                    self._facts.note(JobCancelled(flight.what.index))
                    self._post(CancelWanted(flight.what.index))
                else:
                    self._driver.end(uuid, at_once=False)

    def take_batch(self, batch: JobsSpawned) -> int | None:
        """Adds its jobs to the plan. -> the index of the first one, for the schedule; None: nothing is new"""
        first = self._added_jobs.take(batch)
        if first is not None:
            self._feed.jobs_added(tuple(self._plan.jobs[first:]))
        return first

    def _take_fact(self, fact: Any) -> None:
        if isinstance(fact, StopAskedFor):
            self._driver.stop(StopMode(fact.how), fact.by)
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
            place = self._facts.take_data(fact)
            if place is not None:
                self._post(DataChanged(place))

    def _cancel_job(self, index: int) -> None:
        """Whether it runs or waits; a recovery script that runs for it is not needed any more."""
        if not 0 <= index < len(self._plan.jobs):
            return
        for uuid in self._flights.recovery_of(index):
            self._driver.end(uuid, at_once=False)
        running = self._running.get(index)
        if running is None or self._facts.is_first_wish(running):
            self._post(CancelWanted(index))
