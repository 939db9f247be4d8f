"""A run's view on a thread of its own."""

import threading

import pytest

from joblens.agent.runs.view import NoView, ThreadedView
from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until


class Notes(NoView):
    """Writes down the calls; waits in a tick until it is let, fails on a note."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_ticking, self.may_tick = threading.Event(), threading.Event()

    def note(self, text: str) -> None:
        if text == "fail":
            raise ValueError("no terminal")
        self.calls.append(text)

    def tick(self) -> None:
        self.is_ticking.set()
        self.may_tick.wait(20)
        self.calls.append("tick")

    def close(self, status: RunStatus) -> None:
        self.calls.append(f"close {status.value}")


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
