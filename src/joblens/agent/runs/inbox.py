"""Requests and facts that reach a run through the store while it is driven: user data, added jobs, a stop,
cancelled jobs, ends of actions on workers. Each becomes an event for the schedule."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from joblens.agent.runs.added_jobs import AddedJobs
from joblens.agent.runs.facts import News, RunFacts
from joblens.agent.runs.in_flight import InFlightAttempts
from joblens.agent.runs.view_feed import ViewFeed
from joblens.engine.schedule.events import CancelWanted, DataChanged, Event, JobsAdded, StartAttempt, StopMode
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from joblens.model.runs.run import ActionRan, JobCancelled, JobsSpawned, StopAskedFor


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
