"""A run's view on a thread of its own."""

import threading

import pytest

from joblens.agent.runs.view import ThreadedView
from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.unit.agent.runs.slow_view import Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_nothing_is_shown_after_the_end(notes: Notes) -> None:
    view = ThreadedView(notes, print)
    view.tick()
    notes.is_ticking.wait(20)
    view.note("last")
    closing = threading.Thread(target=view.close, args=(RunStatus.COMPLETED,))
    closing.start()
    notes.may_tick.set()
    closing.join()
    assert notes.calls == ["tick", "last", "close completed"]


def test_a_view_that_fails_is_closed_all_the_same(notes: Notes) -> None:
    warnings: list[str] = []
    view = ThreadedView(notes, warnings.append)
    view.note("fail")
    wait_until(lambda: warnings, what="the warning")
    view.note("not shown any more")
    view.close(RunStatus.COMPLETED)
    assert notes.calls == ["close completed"]
    assert "no terminal" in warnings[0]
