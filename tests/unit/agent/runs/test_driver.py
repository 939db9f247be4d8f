"""Decisions of the driver of a run: start order, retries, cancelling, draining. Jobs are fakes."""

import signal
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.attempts.preparation import PreparedAttempt, RunSetup
from joblens.agent.runs import driver as driver_module
from joblens.agent.runs.driver import RunDriver
from joblens.agent.runs.facts import RunFacts
from joblens.agent.runs.signals import HostSignals
from joblens.agent.runs.view import NoView
from joblens.agent.runtime.loop import Loop
from joblens.engine.schedule.capacity import Choices
from joblens.engine.schedule.events import StartAttempt
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Accounting, Outcome, Owner, Status
from joblens.model.runs.plan import Plan, growing
from joblens.model.runs.run import (
    JobCancelled,
    JobState,
    Run,
    RunEvent,
    RunFact,
    RunOptions,
    RunStatus,
    StopAskedFor,
)
from joblens.model.writes import RunNoted
from tests.unit.engine.plans import OFFER, handler, job, plan_of

OWNER = Owner(pid=1, host="here", boot_id="boot", start_ticks=0)


class FakeStore:
    """Notes of others, which the driver reads."""

    def __init__(self) -> None:
        self.events: list[tuple[int, RunEvent]] = []

    def note(self, fact: RunFact) -> None:
        number = len(self.events) + 1
        self.events.append((number, RunEvent(f"other-{number}", "run", 0, fact)))

    def run_events(self, _uuid: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        return [one for one in self.events if one[0] > after]

    def cancel_requests(self) -> dict[str, Any]:
        return {}


class FakeRecorder:
    """Answers at once."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.facts: list[RunFact] = []

    def put(self, writes: Sequence[Any]) -> None:
        self.facts += [write.event.fact for write in writes if isinstance(write, RunNoted)]

    def ask(self, question: Callable[[Any], Any], then: Callable[[Any], None], *_: Any, **__: Any) -> None:
        then(question(self.store))


class FakeHosts:
    """Jobs that end as `codes` says (default: 0), one code for each attempt; None: it runs until it is
    stopped."""

    is_idle = True

    def __init__(self, loop: Loop, reports: RunDriver, codes: dict[str, list[int | None]]) -> None:
        self._loop = loop
        self._reports = reports
        self._codes = codes
        self.started: list[str] = []
        self.stopped: list[tuple[str, bool]] = []
        self._names: dict[str, str] = {}
        self.on_start: Callable[[str], None] = lambda _name: None

    def start(self, attempt: PreparedAttempt, _start: StartAttempt, *, is_limited: bool) -> None:
        del is_limited
        uuid, name = attempt.job.uuid, attempt.job.name
        self._names[uuid] = name
        self.started.append(name)
        codes = self._codes.get(name, [])
        code = codes.pop(0) if codes else 0
        self._loop.call(lambda: self._begin(uuid, name, code))

    def _begin(self, uuid: str, name: str, code: int | None) -> None:
        self._reports.began(uuid, 0)
        self.on_start(name)
        if code is not None:
            self._end(uuid, Status.FAILED if code else Status.SUCCESS, code)

    def end(self, uuid: str, *, at_once: bool) -> None:
        self.stopped.append((self._names[uuid], at_once))
        self._loop.call(lambda: self._end(uuid, Status.CANCELLED, None))

    def _end(self, uuid: str, status: Status, code: int | None) -> None:
        self._reports.ended(uuid, Outcome(status=status, ended_at_us=0, duration_s=1.0, exit_code=code))

    def is_with_workers(self, _uuid: str) -> bool:
        return False

    def expect_limited(self, _count: int) -> None: ...
    def flush(self) -> None: ...
    def take_samples(self) -> None: ...
    def poll_elsewhere(self) -> None: ...
    def finalize(self) -> None: ...
    def close(self, *, is_over: bool) -> None: ...


class Drive:
    """A driver with fake jobs."""

    def __init__(self, plan: Plan, folder: Path, **options: Any) -> None:
        self.loop = Loop()
        self.recorder = FakeRecorder()
        self.signals = HostSignals()
        context: Any = Namespace(
            recorder=self.recorder,
            loop=self.loop,
            sampler=Namespace(add=lambda *_: None, remove=lambda *_: None),
            clock=Namespace(now_us=lambda: 0, mono_ns=time.monotonic_ns),
            owner=OWNER,
            spool_dir=str(folder),
            add_secrets=lambda *_: None,
        )
        self.plan = growing(plan)
        setup = RunSetup(
            run=Run(uuid="run", workflow_uuid="w", created_at_us=0, options=RunOptions(**options)),
            plan=self.plan,
            environ={},
            recorded_env={},
            user="ann",
            cwd=str(folder),
            store_url="",
            output_dir=str(folder),
            logs_dir=str(folder / "logs"),
            enforce=True,
            monitor=True,
            probes=None,
            accounting=Accounting.AUTO,
            grace_s=1.0,
            output_max_bytes=0,
        )
        self.schedule = Schedule(self.plan, OFFER, Choices(may_grow=True))
        facts = RunFacts(context, "run", self.plan)
        self.driver = RunDriver(setup, context, Namespace(), self.schedule, facts, NoView())  # type: ignore[arg-type]
        self.hosts: FakeHosts = self.driver._hosts  # type: ignore[assignment]

    def run(self) -> RunStatus:
        try:
            return self.driver.run(self.signals)
        finally:
            self.loop.close()

    def states(self) -> list[JobState]:
        return [self.schedule.state_of(index) for index in range(len(self.plan.jobs))]


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Drive]:
    def make(plan: Plan, codes: dict[str, list[int | None]] | None = None, **options: Any) -> Drive:
        def hosts(
            _setup: Any, context: Any, _recovery: Any, _maker: Any, reports: Any, **_: Any
        ) -> FakeHosts:
            return FakeHosts(context.loop, reports, codes or {})

        monkeypatch.setattr(driver_module, "RunHosts", hosts)
        return Drive(plan, tmp_path, **options)

    return make


def test_jobs_start_after_those_they_need(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("last", 1), job("middle", 2), job("first")))
    assert driven.run() is RunStatus.COMPLETED
    assert driven.hosts.started == ["first", "middle", "last"]


def test_a_failed_job_is_retried_as_its_handler_says(drive: Callable[..., Drive]) -> None:
    again = handler(exit_codes=(9,), max_retries=1)
    plan = plan_of(job("a", failure_handler=again), job("b", 0))
    driven = drive(plan, {"a": [9, 0]})
    assert driven.run() is RunStatus.COMPLETED
    assert driven.hosts.started == ["a", "a", "b"]


def test_a_job_that_needs_a_failed_one_does_not_start(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("a"), job("b", 0), job("c")), {"a": [3]})
    assert driven.run() is RunStatus.FAILED
    assert sorted(driven.hosts.started) == ["a", "c"]
    assert driven.states()[0] is JobState.FAILED


def test_an_interrupt_that_kills_ends_running_jobs(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("a"), job("b", 0)), {"a": [None]}, interrupt="kill")
    driven.hosts.on_start = lambda _name: driven.signals.send(signal.SIGINT)
    assert driven.run() is RunStatus.STOPPED
    assert driven.hosts.stopped == [("a", False)]
    assert driven.hosts.started == ["a"]
    assert [fact.how for fact in driven.recorder.facts if isinstance(fact, StopAskedFor)] == ["kill"]
    assert driven.driver.was_interrupted


def test_an_interrupt_that_drains_waits_for_running_jobs(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("a", cpus=4), job("b", cpus=4)), interrupt="drain")

    def interrupt(_name: str) -> None:
        driven.driver._handle_signal(signal.SIGINT)

    driven.hosts.on_start = interrupt
    assert driven.run() is RunStatus.STOPPED
    assert (driven.hosts.started, driven.hosts.stopped) == (["a"], [])
    assert driven.states()[0] is JobState.COMPLETED


@pytest.mark.within(20)
def test_draining_stops_jobs_that_have_not_begun(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("a"), job("b")), {"b": [None]}, interrupt="drain")

    def interrupt(name: str) -> None:
        if name == "a":
            driven.driver._handle_signal(signal.SIGINT)

    driven.hosts.on_start = interrupt
    assert driven.run() is RunStatus.STOPPED
    assert driven.hosts.stopped == [("b", False)]


def test_cancelling_one_job_leaves_the_others(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("a"), job("b")), {"a": [None]})

    def cancel(name: str) -> None:
        if name == "a":
            driven.recorder.store.note(JobCancelled(0, "ann"))
            driven.driver._handle_signal(signal.SIGUSR1)  # something new is in the store

    driven.hosts.on_start = cancel
    assert driven.run() is RunStatus.FAILED
    assert driven.hosts.stopped == [("a", False)]
    assert driven.states()[1] is JobState.COMPLETED


def test_the_time_of_the_run_ends_its_jobs(drive: Callable[..., Drive]) -> None:
    driven = drive(plan_of(job("a")), {"a": [None]})
    driven.hosts.on_start = lambda _name: setattr(driven.driver, "_deadline_s", 0.0)
    assert driven.run() is RunStatus.STOPPED
    assert [fact.by for fact in driven.recorder.facts if isinstance(fact, StopAskedFor)] == ["time"]
