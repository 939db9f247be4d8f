"""What the recorder hands on to the sinks, and what it tells those who look after jobs."""

import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from joblens.agent.recorder import Recorder
from joblens.agent.run_facts import RunFacts
from joblens.model.details import Details
from joblens.model.job import Record
from joblens.model.plan import Plan
from joblens.model.run import RunEvent, StopAskedFor
from joblens.model.sample import Sample
from joblens.model.writes import CancelAsked
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until
from tests.contract.store_builders import ended, queued, samples, started, threads


class Notebook:
    """ports.sink.Sink that writes down what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, object]] = []

    def job_started(self, record: Record) -> None:
        self.told.append(("started", record.job.uuid, record.status.value))

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        self.told.append(("samples", uuid, len(samples)))

    def details_taken(self, uuid: str, details: Details) -> None:
        self.told.append(("details", uuid, details))

    def jobs_ended(self, records: Sequence[Record]) -> None:
        self.told += [("ended", record.job.uuid, record.status.value) for record in records]

    def close(self) -> None:
        self.told.append(("closed", "", None))


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


@pytest.fixture
def recorder(tmp_path: Path, notebook: Notebook) -> Iterator[Recorder]:
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")), [notebook])
    yield recorder
    recorder.close()


def test_sinks_are_told_everything_in_order(recorder: Recorder, notebook: Notebook) -> None:
    details = threads("a1")
    recorder.write([queued("a1"), started("a1"), samples("a1", 0, 2), details])
    recorder.write([samples("a1", 2, 1), ended("a1")])
    assert notebook.told == [
        ("started", "a1", "running"),
        ("samples", "a1", 2),
        ("details", "a1", details.details),
        ("samples", "a1", 1),
        ("ended", "a1", "success"),
    ]
    assert recorder.store.details("a1") == details.details


def test_a_start_that_is_said_again_is_told_once(recorder: Recorder, notebook: Notebook) -> None:
    recorder.write([queued("a1"), started("a1")])
    recorder.write([queued("a1"), started("a1")])
    assert [what for what, _, _ in notebook.told] == ["started"]


class SlowServer:
    """A store on another machine that answers when it is let."""

    url = "postgresql://far/away"

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def cancel_requests(self) -> dict[str, CancelAsked]:
        self.may_answer.wait(20)
        return {"a1": CancelAsked("a1", 1)}

    def run_events(self, run_uuid: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        self.may_answer.wait(20)
        event = RunEvent("e1", run_uuid, 1, StopAskedFor("kill", "ann", ()))
        return [(7, event)] if after < 7 else []

    def close(self) -> None:
        pass


def test_who_asks_what_is_wished_never_waits_for_another_machine() -> None:
    server = SlowServer()
    recorder = Recorder(server)  # type: ignore[arg-type]
    assert recorder.cancel_requests() == {}  # it has not answered yet
    assert recorder.cancel_requests() == {}
    server.may_answer.set()
    wait_until(lambda: set(recorder.cancel_requests()) == {"a1"}, what="the answer")
    recorder.close()


def test_whether_a_run_has_news_is_asked_without_waiting_for_another_machine() -> None:
    server = SlowServer()
    recorder = Recorder(server)  # type: ignore[arg-type]
    facts = RunFacts(Namespace(recorder=recorder), "r1", Plan(name="p", jobs=()))  # type: ignore[arg-type]
    assert not facts.has_new()  # it has not answered yet
    server.may_answer.set()
    wait_until(facts.has_new, what="the news")
    assert [type(fact) for fact in facts.read_new()] == [StopAskedFor]
    assert not facts.has_new()  # although the last answer is about them
    recorder.close()
