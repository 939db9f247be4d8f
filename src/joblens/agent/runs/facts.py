"""The facts of a run in the store: those this process notes, and those that others have noted since."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from joblens.agent.session.context import AgentContext
from joblens.files.private import read_own
from joblens.model.errors import JoblensError
from joblens.model.jobs.run_link import FileStamp
from joblens.model.redaction.secrets import secret_values
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
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked, RunNoted

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
