"""Supervisor: which jobs it starts at a poll, what it gives up, and when it leaves; the time is a fake."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.recovery import supervisor as module
from joblens.agent.recovery.supervisor import Supervisor, SupervisorPlan
from joblens.agent.runtime.payload import Payload, write_payload
from joblens.agent.session.host import SessionOrder
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Job, Record, Status
from joblens.model.writes import CancelAsked, JobEnded, Write
from tests.unit.agent.fake_clock import FakeClock


class Calls:
    """A loop that calls at once."""

    def call(self, function: Callable[[], None]) -> None:
        function()


class Store:
    """A recorder whose answers the test sets."""

    def __init__(self) -> None:
        self.unfinished: list[Record] = []
        self.cancels: dict[str, CancelAsked] = {}
        self.error: JoblensError | None = None
        self.writes: list[Write] = []

    def ask(self, _question: Any, then: Callable[[Any], None], otherwise: Callable[[Any], None]) -> None:
        if self.error is not None:
            otherwise(self.error)
        else:
            then((self.unfinished, self.cancels))

    def put(self, writes: list[Write], then: Callable[[], None] = lambda: None) -> None:
        self.writes += writes
        then()


class Host:
    """Starts jobs that the test ends."""

    def __init__(self, on_end: Callable[[Record, JoblensError | None], None]) -> None:
        self.started: dict[str, SessionOrder] = {}
        self.cancelled: list[str] = []
        self.refusal: LaunchError | None = None
        self.is_steady = True
        self._on_end = on_end

    def start(self, order: SessionOrder) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.started[order.job.uuid] = order
        return SimpleNamespace(output=None)

    def refuse(self, job: Job, error: JoblensError) -> None:
        self._on_end(Record(status=Status.ERROR, job=job), error)

    def end(self, uuid: str) -> None:
        order = self.started.pop(uuid)
        self._on_end(Record(status=Status.SUCCESS, job=order.job), None)

    def holds(self, uuid: str) -> bool:
        return uuid in self.started

    def cancel(self, requests: dict[str, CancelAsked]) -> None:
        self.cancelled += [uuid for uuid in requests if uuid in self.started]

    def __len__(self) -> int:
        return len(self.started)


class Recovery:
    """Nothing was left behind by earlier owners."""

    def disown(self, *_: object) -> None: ...

    def orphans(self, _records: object) -> list[Record]:
        return []

    def has_unrecorded(self) -> bool:
        return False

    def give_up(self, record: Record, why: str) -> list[Write]:
        return [JobEnded(record.job.uuid, SimpleNamespace(error=why))]  # type: ignore[arg-type]


class Supervised:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, most_jobs: int = 8) -> None:
        self.clock, self.store, self.folder = FakeClock(), Store(), str(folder)
        self.lines: list[str] = []
        self.ended: list[str] = []
        self.hosts: list[Host] = []

        def host(_context: Any, *, on_end: Any) -> Host:
            self.hosts.append(Host(on_end))
            return self.hosts[0]

        monkeypatch.setattr(module, "SessionHost", host)
        monkeypatch.setattr(module, "starts_here", lambda _job, _host: True)
        context: Any = SimpleNamespace(
            loop=Calls(),
            recorder=self.store,
            clock=self.clock,
            spool_dir=self.folder,
            host=None,
            owner=None,
            add_secrets=lambda *_: None,
        )
        self.supervisor = Supervisor(
            context,
            Recovery(),  # type: ignore[arg-type]
            SimpleNamespace(is_inherited=False),  # type: ignore[arg-type]
            SupervisorPlan(user="ann", most_jobs=most_jobs, idle_s=60.0, output_max_bytes=1 << 20),
            log=self.lines.append,
            on_job_end=lambda record, _payload: self.ended.append(record.job.uuid),
        )

    @property
    def host(self) -> Host:
        return self.hosts[0]

    def queue(self, *uuids: str, payload: bool = True) -> None:
        for uuid in uuids:
            job = Job(uuid=uuid, argv=("true",), created_at_us=self.clock.now_us(), user="ann")
            self.store.unfinished.append(Record(status=Status.QUEUED, job=job))
            if payload:
                made = Payload(argv=("true",), env={}, cwd="/", logs_dir=self.folder, output_max_bytes=1)
                write_payload(self.folder, uuid, made)

    def poll(self, after_s: float = 0.0) -> None:
        self.clock.pass_s(after_s)
        self.supervisor.wake()

    def is_done(self) -> bool:
        return self.supervisor._is_done()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Supervised]:
    return lambda **options: Supervised(tmp_path, monkeypatch, **options)


def test_queued_jobs_are_started_in_their_order_as_many_as_may_run(make: Callable[..., Supervised]) -> None:
    one = make(most_jobs=2)
    one.queue("a", "b", "c")
    one.poll()
    assert list(one.host.started) == ["a", "b"]
    assert one.supervisor.next_wake_s() == 0.0, "there is more to start"
    one.store.unfinished.pop(0)
    one.host.end("a")
    one.poll()
    assert list(one.host.started) == ["b", "c"]


def test_a_job_whose_command_is_missing_is_given_up_after_half_a_minute(
    make: Callable[..., Supervised],
) -> None:
    one = make()
    one.queue("a", payload=False)
    one.poll(after_s=29)
    assert one.store.writes == []
    one.poll(after_s=2)
    assert [type(write) for write in one.store.writes] == [JobEnded]
    assert one.host.started == {}


def test_a_job_that_is_cancelled_before_its_start_never_runs(make: Callable[..., Supervised]) -> None:
    one = make()
    one.queue("a", "b")
    one.store.cancels = {"a": CancelAsked("a", 1, "ann")}
    one.poll()
    assert list(one.host.started) == ["b"]
    (write,) = one.store.writes
    assert isinstance(write, JobEnded)
    assert write.outcome.status is Status.CANCELLED


def test_a_job_that_cannot_be_started_ends_with_the_reason_in_the_log(
    make: Callable[..., Supervised],
) -> None:
    one = make()
    one.queue("a")
    one.host.refusal = LaunchError("no space left")
    one.poll()
    assert one.ended == ["a"]
    assert "a could not be started: no space left" in one.lines[0]


def test_it_leaves_after_its_idle_time_and_a_job_restarts_that(make: Callable[..., Supervised]) -> None:
    one = make()
    assert not one.is_done(), "it has not polled yet"
    one.poll(after_s=61)
    assert one.is_done()
    one.queue("a")
    one.poll()
    one.clock.pass_s(600)
    assert not one.is_done(), "a job runs"
    one.host.end("a")
    one.clock.pass_s(59)
    assert not one.is_done()
    one.clock.pass_s(2)
    assert one.is_done()


def test_a_store_that_does_not_answer_is_reported_once_and_asked_again(
    make: Callable[..., Supervised],
) -> None:
    one = make()
    one.store.error = JoblensError("the store is away")
    one.poll()
    one.poll(after_s=1)
    assert one.lines == ["the store is away"]
    one.store.error = None
    one.queue("a")
    one.poll(after_s=1)
    assert list(one.host.started) == ["a"]


def test_nothing_is_started_once_it_was_asked_to_restart(make: Callable[..., Supervised]) -> None:
    one = make()
    one.poll()
    one.supervisor._on_restart_signal(12, None)
    one.queue("a")
    one.poll()
    assert one.host.started == {}
    assert one.is_done()
