"""Ends that are kept back for a moment, because whoever tells of them may be ended itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from joblens.agent.queue.outcomes import OutcomeDelay
from joblens.agent.runtime.loop import Loop
from joblens.agent.runtime.recorder import Recorder
from joblens.model.jobs.job import Status
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until
from tests.contract.store_builders import ended, queued, samples, started


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(SqliteStore(str(tmp_path / "joblens.db")))
    yield recorder
    recorder.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def status(recorder: Recorder, uuid: str) -> Status:
    return recorder.read(lambda store: store.find(uuid)).status


def test_an_end_is_written_after_its_time(recorder: Recorder, loop: Loop) -> None:
    ends = OutcomeDelay(0.05, recorder, loop)
    recorder.write([queued("a1"), queued("b1"), started("a1"), started("b1")])
    recorder.write([samples("b1", 0, 1), ended("a1")])
    due_s = ends.next_wake_s()
    assert due_s is not None
    wait_until(lambda: time.monotonic() > due_s)
    ends.wake()
    wait_until(lambda: status(recorder, "a1") is Status.SUCCESS)
    assert status(recorder, "b1") is Status.RUNNING
    assert ends.next_wake_s() is None


def test_an_end_that_is_caught_is_never_written(recorder: Recorder, loop: Loop) -> None:
    ends = OutcomeDelay(60.0, recorder, loop)
    recorder.write([queued("a1"), started("a1")])
    recorder.write([ended("a1")])
    assert ends.catch() == ["a1"]
    ends.open()
    recorder.wait_until_applied()
    assert status(recorder, "a1") is Status.RUNNING


def test_frozen_ends_are_written_as_they_are_rewritten(recorder: Recorder, loop: Loop) -> None:
    ends = OutcomeDelay(0.0, recorder, loop)
    recorder.write([queued("a1"), started("a1"), queued("b1"), started("b1")])
    ends.freeze()
    recorder.write([ended("a1"), ended("b1")])
    ends.wake()
    recorder.wait_until_applied()
    assert status(recorder, "a1") is Status.RUNNING
    assert ends.next_wake_s() is None
    assert ends.catch(but=["a1"]) == ["b1"]
    ends.release(lambda _uuid, outcome: replace(outcome, status=Status.CANCELLED))
    recorder.wait_until_applied()
    assert status(recorder, "a1") is Status.CANCELLED
    assert status(recorder, "b1") is Status.RUNNING


def test_what_belongs_to_an_end_stays_with_it(recorder: Recorder, loop: Loop) -> None:
    ends = OutcomeDelay(60.0, recorder, loop)
    assert ends.sift([queued("a1"), started("b1"), ended("a1")]) == [started("b1")]
    late = samples("a1", 0, 1)
    assert ends.sift([late]) == []
    ends.open()
    assert ends.sift([started("c1")]) == [queued("a1"), ended("a1"), late, started("c1")]


def test_what_was_muted_meanwhile_is_not_written(recorder: Recorder, loop: Loop) -> None:
    ends = OutcomeDelay(60.0, recorder, loop)
    recorder.write([queued("a1"), started("a1"), queued("b1"), started("b1")])
    recorder.write([ended("a1"), ended("b1")])
    recorder.muted.add("a1")
    ends.open()
    recorder.wait_until_applied()
    assert (status(recorder, "a1"), status(recorder, "b1")) == (Status.RUNNING, Status.SUCCESS)
