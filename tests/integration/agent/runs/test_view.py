"""A run's view on a thread of its own."""

import time
from collections import deque
from collections.abc import Callable

import pytest

from joblens.agent.runs.view import ThreadedView
from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.unit.agent.runs.slow_view import Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_a_thread_that_is_quick_does_not_tick_after_the_end(notes: Notes) -> None:
    """Takes every call before its caller continues."""

    class QuickCalls(deque[Callable[[], None]]):
        def append(self, call: Callable[[], None]) -> None:
            super().append(call)
            view.tick()
            wait_until(lambda: not self, what="the call")
            time.sleep(0.05)

    notes.may_tick.set()
    view = ThreadedView(notes, print)
    view._calls = QuickCalls()
    view.close(RunStatus.COMPLETED)
    view.close(RunStatus.FAILED)
    assert notes.calls == ["close completed"]
