"""Session host: what it reports to its owner, and whom it stops."""

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.session.host import SessionHost
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Job, Record, Status
from joblens.model.writes import CancelAsked, JobEnded, JobQueued, Write
from tests.unit.agent.fake_clock import FakeClock


class Calls:
    """A loop that calls at once."""

    def call(self, function: Callable[[], None]) -> None:
        function()


class Writes:
    """A recorder that has written when the test says so."""

    def __init__(self) -> None:
        self.put_so_far: list[Write] = []
        self._then: list[Callable[[], None]] = []

    def put(self, writes: list[Write], then: Callable[[], None]) -> None:
        self.put_so_far += writes
        self._then.append(then)

    def finish(self) -> None:
        for then in self._then:
            then()


class OneJob:
    def __init__(self, uuid: str, *, is_steady: bool = True) -> None:
        self.job = Job(uuid=uuid, argv=("true",), created_at_us=1)
        self.record = Record(status=Status.RUNNING, job=self.job)
        self.error: JoblensError | None = None
        self.stops: list[tuple[EndCause, int]] = []
        self.is_steady = is_steady
        self.is_started = self.is_killed = False

    @property
    def is_stopping(self) -> bool:
        return bool(self.stops)

    def start(self) -> None:
        self.is_started = True

    def request_stop(self, cause: EndCause, number: int = signal.SIGTERM) -> None:
        self.stops.append((cause, number))

    def kill(self) -> None:
        self.is_killed = True


class Owner:
    """A host, and what it reported."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.ends: list[tuple[str, str]] = []
        self.writes = Writes()
        context: Any = SimpleNamespace(loop=Calls(), recorder=self.writes, clock=FakeClock())
        self.host = SessionHost(
            context,
            on_outcome=lambda record: self.outcomes.append(record.job.uuid),
            on_end=lambda record, error: self.ends.append((record.job.uuid, str(error or ""))),
        )

    def add(self, uuid: str, **more: Any) -> OneJob:
        one = OneJob(uuid, **more)
        self.host.add(one)
        return one


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_a_job_is_held_from_its_start_to_its_end(owner: Owner) -> None:
    one = owner.add("a")
    assert one.is_started
    assert owner.host.holds("a")
    owner.host.handle_outcome(one)
    assert owner.host.holds("a")
    owner.host.handle_end(one)
    assert (owner.outcomes, owner.ends) == (["a"], [("a", "")])
    assert not owner.host.holds("a")
    assert not owner.host


def test_a_job_whose_start_raises_is_not_held(owner: Owner) -> None:
    class Broken(OneJob):
        def start(self) -> None:
            raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        owner.host.add(Broken("a"))
    assert not owner.host


def test_a_refused_job_has_an_outcome_at_once_and_ends_once_that_is_written(owner: Owner) -> None:
    job = Job(uuid="a", argv=("true",), created_at_us=1)
    owner.host.refuse(job, LaunchError("no such folder"))
    assert (owner.outcomes, owner.ends) == (["a"], [])
    assert owner.host.holds("a")
    assert not owner.host.is_steady
    assert [type(write) for write in owner.writes.put_so_far] == [JobQueued, JobEnded]
    owner.writes.finish()
    assert owner.ends == [("a", "no such folder")]
    assert not owner.host


def test_a_cancel_request_stops_its_job_once(owner: Owner) -> None:
    one, other = owner.add("a"), owner.add("b")
    requests = {uuid: CancelAsked(uuid, 1, "ann") for uuid in ("a", "gone")}
    owner.host.cancel(requests)
    owner.host.cancel(requests)
    assert one.stops == [(EndCause.CANCELLED, signal.SIGTERM)]
    assert other.stops == []


def test_a_stop_asked_again_reaches_the_job_again(owner: Owner) -> None:
    one = owner.add("a")
    owner.host.stop("a", signal.SIGINT)
    owner.host.stop("a", signal.SIGKILL)
    owner.host.stop("gone", signal.SIGKILL)
    assert [number for _, number in one.stops] == [signal.SIGINT, signal.SIGKILL]


def test_a_host_is_steady_while_all_its_jobs_are(owner: Owner) -> None:
    owner.add("a")
    assert owner.host.is_steady
    owner.add("b", is_steady=False)
    assert not owner.host.is_steady


def test_closing_kills_what_still_runs_although_one_kill_fails(owner: Owner) -> None:
    class Stubborn(OneJob):
        def kill(self) -> None:
            raise OSError("no such process")

    owner.host.add(Stubborn("a"))
    other = owner.add("b")
    owner.host.close()
    assert other.is_killed
