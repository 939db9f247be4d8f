"""What the recorder hands on to the sinks, and what it tells those who look after jobs."""

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.runs.facts import RunFacts
from joblens.agent.runtime.recorder import Recorder
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RunEvent, StopAskedFor
from joblens.model.writes import CancelAsked
from joblens.stores.sinks import SelectiveSink
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import ended, queued, samples, started, threads
from tests.conftest import wait_until


class Notebook(SelectiveSink):
    """Sink that notes what it gets."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, object]] = []

    def job_started(self, record: Record) -> None:
        self.written.append(("started", record.job.uuid, record.status.value))

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        self.written.append(("samples", uuid, len(samples)))

    def details_taken(self, uuid: str, details: Details) -> None:
        self.written.append(("details", uuid, details))

    def jobs_ended(self, records: Sequence[Record]) -> None:
        self.written += [("ended", record.job.uuid, record.status.value) for record in records]

    def close(self) -> None:
        self.written.append(("closed", "", None))


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


@pytest.fixture
def recorder(tmp_path: Path, notebook: Notebook) -> Iterator[Recorder]:
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")), [notebook])
    yield recorder
    recorder.close()


def test_sinks_are_reported_everything_in_order(recorder: Recorder, notebook: Notebook) -> None:
    details = threads("a1")
    recorder.write([queued("a1"), started("a1"), samples("a1", 0, 2), details])
    recorder.write([samples("a1", 2, 1), ended("a1")])
    assert notebook.written == [
        ("started", "a1", "running"),
        ("samples", "a1", 2),
        ("details", "a1", details.details),
        ("samples", "a1", 1),
        ("ended", "a1", "success"),
    ]
    assert recorder.store.details("a1") == details.details


def test_a_start_that_is_said_again_is_reported_once(recorder: Recorder, notebook: Notebook) -> None:
    recorder.write([queued("a1"), started("a1")])
    recorder.write([queued("a1"), started("a1")])
    assert [what for what, _, _ in notebook.written] == ["started"]


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


def test_a_store_that_blocks_holds_up_nobody_who_asks() -> None:
    server = SlowServer()
    recorder = Recorder(server)  # type: ignore[arg-type]
    answers: list[set[str]] = []
    for _ in range(3):  # the second and the third while the first has no answer
        recorder.ask(lambda store: set(store.cancel_requests()), answers.append, name="cancel requests")
    assert answers == []
    server.may_answer.set()
    wait_until(lambda: answers == [{"a1"}], what="one answer")
    recorder.ask(lambda store: set(store.cancel_requests()), answers.append, name="cancel requests")
    wait_until(lambda: answers == [{"a1"}, {"a1"}], what="another")
    recorder.close()


def test_a_question_that_fails_is_answered_too() -> None:
    recorder = Recorder(SlowServer())  # type: ignore[arg-type]
    errors: list[str] = []

    def fail(_store: object) -> None:
        raise ValueError("no such table")

    recorder.ask(fail, print, lambda error: errors.append(str(error)))
    wait_until(lambda: errors, what="the error")
    assert "no such table" in errors[0]
    recorder.close()


def test_facts_are_in_the_store_before_a_later_question_is_asked(recorder: Recorder) -> None:
    numbers: list[int | None] = []
    recorder.record("a1", [queued("a1")], numbers.append)
    wait_until(lambda: numbers, what="the number")
    assert numbers == [1]


class BrokenSink(Notebook):
    def jobs_ended(self, records: Sequence[Record]) -> None:
        raise ValueError("a fault of its own")


def test_a_sink_that_fails_loses_nothing_of_what_comes_after(tmp_path: Path) -> None:
    warnings: list[str] = []
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")), [BrokenSink()], warnings.append)
    numbers: list[int | None] = []
    for uuid in ("a1", "b1"):
        recorder.record(uuid, [queued(uuid), started(uuid), ended(uuid)], numbers.append)
    wait_until(lambda: len(numbers) == 2, what="both jobs")
    assert len(warnings) == 1
    recorder.close()


class Calls:
    """A loop that does at once what it is called with."""

    def call(self, function: Callable[[], None]) -> None:
        function()


def test_news_of_a_run_come_once_and_without_waiting_for_the_store() -> None:
    server = SlowServer()
    recorder = Recorder(server)  # type: ignore[arg-type]
    context = Namespace(recorder=recorder, loop=Calls())
    facts = RunFacts(context, "r1", Plan(name="p", jobs=()))  # type: ignore[arg-type]
    news: list[list[type]] = []

    def take(facts: list[Any], _asked: Any = None) -> None:
        news.append([type(fact) for fact in facts])

    facts.poll(take)
    facts.fetch(take)  # it has the same answer, and there is nothing new in it any more
    assert news == []
    server.may_answer.set()
    wait_until(lambda: len(news) == 2, what="the answers")
    assert news == [[StopAskedFor], []]
    recorder.close()


class CountingStore:
    """Counts its commits."""

    url = "counting"

    def __init__(self) -> None:
        self.batches: list[list[object]] = []

    def apply(self, writes: Sequence[object]) -> None:
        self.batches.append(list(writes))

    def cancel_requests(self) -> dict[str, CancelAsked]:
        return {}

    def close(self) -> None:
        pass


def test_polls_leave_facts_that_can_wait_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblens.agent.runtime.recorder._TIMEOUT_S", 60.0)
    store, answers = CountingStore(), list[object]()
    recorder = Recorder(store)  # type: ignore[arg-type]
    recorder.write([queued("a1")])
    for tick in range(5):
        recorder.put([samples("a1", tick, 1)], can_wait=True)
        recorder.ask(lambda store: store.cancel_requests(), answers.append, name="cancel requests")
        wait_until(lambda tick=tick: len(answers) == tick + 1, what="the answer")  # type: ignore[misc]
    assert len(store.batches) == 1
    recorder.ask(lambda _store: None, answers.append)  # the facts are in the store before this one
    wait_until(lambda: len(answers) == 6, what="the answer")
    assert [len(batch) for batch in store.batches] == [1, 5]
    recorder.close()


def test_questions_are_answered_when_the_recorder_closes(tmp_path: Path) -> None:
    """Those that its thread has not come to."""
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")))
    answers: list[object] = []
    is_asked, may_end = threading.Event(), threading.Event()

    def wait(_store: object) -> None:
        is_asked.set()
        may_end.wait(20)

    recorder.ask(wait, answers.append)
    is_asked.wait(20)
    recorder.record("a1", [queued("a1")], answers.append)
    closing = threading.Thread(target=recorder.close)
    closing.start()
    wait_until(lambda: recorder.is_closing, what="close to begin")
    may_end.set()
    closing.join()
    assert answers == [None, 1]


def test_a_fault_of_a_callback_is_not_blamed_on_the_store() -> None:
    warnings: list[str] = []
    recorder = Recorder(CountingStore(), (), warnings.append)  # type: ignore[arg-type]

    def fail(_answer: object) -> None:
        raise ValueError("a slip")

    recorder.ask(lambda _store: None, fail)
    recorder.close()
    (warning,) = warnings
    assert "a slip" in warning
    assert "lost" not in warning


def test_jobs_whose_facts_the_store_refused_are_known() -> None:
    class RefusingStore(CountingStore):
        def apply(self, writes: Sequence[object]) -> None:
            if writes == [queued("b1")]:
                raise ValueError("no such table")

    warnings: list[str] = []
    recorder = Recorder(RefusingStore(), (), warnings.append)  # type: ignore[arg-type]
    for uuid in ("a1", "b1"):
        ticket = recorder.put([queued(uuid)])
        wait_until(lambda ticket=ticket: recorder.applied == ticket, what="the write")  # type: ignore[misc]
    recorder.close()
    assert recorder.unwritten == {"b1"}
    assert "lost" in warnings[0]


class Poller:
    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def on_cancels(self, asked: Mapping[str, CancelAsked]) -> None:
        self.asked.append(set(asked))


def test_one_who_polls_for_cancels_does_not_silence_another() -> None:
    server, pollers = SlowServer(), (Poller(), Poller())
    recorder = Recorder(server)  # type: ignore[arg-type]
    for _ in range(3):
        recorder.poll_cancels(pollers[0].on_cancels)
        recorder.poll_cancels(pollers[1].on_cancels, Calls().call)
    server.may_answer.set()
    recorder.close()
    assert [poller.asked for poller in pollers] == [[{"a1"}], [{"a1"}]]


def test_a_poll_calls_a_loop_only_where_there_are_requests(recorder: Recorder) -> None:
    calls: list[object] = []
    answered: list[int] = []
    recorder.poll_cancels(Poller().on_cancels, calls.append)
    recorder.ask(lambda store: 1, answered.append)  # in order, behind the poll
    wait_until(lambda: answered, what="the answer")
    assert calls == []
    recorder.write([queued("a1"), CancelAsked("a1", 1)])
    recorder.poll_cancels(Poller().on_cancels, calls.append)
    wait_until(lambda: calls, what="the call")


def test_a_caller_is_notified_when_its_facts_are_written(recorder: Recorder) -> None:
    found: list[str] = []
    recorder.put([queued("a1")], then=lambda: found.append(recorder.store.find("a1").job.uuid))
    wait_until(lambda: found, what="the call")


def test_a_poll_is_repeated_until_it_is_removed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblens.agent.runtime.recorder._POLL_S", 0.06)
    polled: list[None] = []

    def poll() -> None:
        polled.append(None)

    recorder.add_poll(poll)
    wait_until(lambda: len(polled) >= 2, what="the second poll")
    recorder.remove_poll(poll)
    assert not recorder._is_poll_due()


def test_a_poll_that_is_nearly_due_is_made_together_with_a_sample() -> None:
    recorder, polled = Recorder(CountingStore()), list[None]()  # type: ignore[arg-type]
    recorder.add_poll(lambda: polled.append(None))
    recorder.write([queued("a1")])
    recorder.put([samples("a1", 0, 1)], can_wait=True)
    recorder._polled_at_s -= 0.96
    assert not polled
    recorder.put([samples("a1", 1, 1)], can_wait=True)
    wait_until(lambda: polled, what="the poll")
    recorder.close()


def test_facts_that_can_wait_are_written_at_a_poll_if_nothing_else_follows(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is sampled every hour shows its first sample and its environment soon."""
    monkeypatch.setattr("joblens.agent.runtime.recorder._POLL_S", 0.06)
    monkeypatch.setattr("joblens.agent.runtime.recorder._TIMEOUT_S", 0.1)
    recorder.add_poll(lambda: None)
    recorder.write([queued("a1"), started("a1")])
    recorder.put([samples("a1", 0, 1)], can_wait=True)
    wait_until(lambda: recorder.read(lambda store: store.samples("a1")), what="the sample")
