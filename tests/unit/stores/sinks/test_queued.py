"""A queue in front of a sink: nobody waits for a slow one, and a broken one is reported once."""

import threading
from collections.abc import Callable, Sequence

import pytest

from joblens.model.jobs.job import Record, Status
from joblens.stores.sinks import SelectiveSink
from joblens.stores.sinks import queued as queued_module
from joblens.stores.sinks.queued import QueuedSink
from tests.builders.records import a_job


class Notes(SelectiveSink):
    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.names: list[str] = []
        self.is_closed = False
        self._before = before

    def job_started(self, record: Record) -> None:
        self._before()
        self.names.append(record.job.name)

    def jobs_ended(self, records: Sequence[Record]) -> None:
        raise ValueError("broken")

    def close(self) -> None:
        self.is_closed = True


def job(name: str) -> Record:
    return Record(status=Status.RUNNING, job=a_job(name=name))


def test_events_arrive_in_order_and_are_flushed_at_the_end() -> None:
    notes = Notes()
    sink = QueuedSink("test", lambda: notes, pytest.fail, 10.0)
    for number in range(100):
        sink.job_started(job(str(number)))
    sink.close()
    assert notes.names == [str(number) for number in range(100)]
    assert notes.is_closed


def test_a_sink_without_events_is_never_made() -> None:
    sink = QueuedSink("test", lambda: pytest.fail("made"), pytest.fail, 10.0)
    sink.close()


def test_a_sink_that_hangs_delays_nobody_and_loses_only_what_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queued_module, "_MOST_EVENTS", 5)
    warnings: list[str] = []
    gate = threading.Event()

    def wait() -> None:
        gate.wait(30)

    notes = Notes(wait)
    sink = QueuedSink("test", lambda: notes, warnings.append, 0.05)
    for number in range(50):
        sink.job_started(job(str(number)))
    sink.close()
    assert warnings == ["test: the receiver is too slow; events are missing there"]
    gate.set()


def test_a_sink_that_fails_is_reported_once_and_gets_the_rest() -> None:
    warnings: list[str] = []
    notes = Notes()
    sink = QueuedSink("test", lambda: notes, warnings.append, 10.0)
    sink.jobs_ended([])
    sink.jobs_ended([])
    sink.job_started(job("after"))
    sink.close()
    assert warnings == ["test: broken; events are missing there"]
    assert notes.names == ["after"]


def test_a_sink_that_cannot_be_made_is_reported_once() -> None:
    def make() -> Notes:
        raise ImportError("no such package")

    warnings: list[str] = []
    sink = QueuedSink("test", make, warnings.append, 10.0)
    for number in range(10):
        sink.job_started(job(str(number)))
    sink.close()
    assert warnings == ["test: no such package"]
