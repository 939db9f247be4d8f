"""Waiting for runs, without processes: what the store and the lock say decides."""

from collections.abc import Sequence

import pytest

from joblens.app.runs import control
from joblens.app.runs.control import LocalDrivers, wait_for_run
from joblens.model.runs.run import Run, RunStatus
from joblens.model.settings import Settings


class States:
    """A store in which the run has one state after another; a driver holds its lock in some of them."""

    def __init__(self, states: Sequence[tuple[RunStatus, bool]]) -> None:
        self._states = list(states)
        self.is_driven = False

    def find_run(self, uuid: str) -> Run:
        status, self.is_driven = self._states[0]
        if len(self._states) > 1:
            self._states.pop(0)
        return Run(uuid=uuid, workflow_uuid="w", created_at_us=0, status=status)


def waited(monkeypatch: pytest.MonkeyPatch, *states: tuple[RunStatus, bool]) -> RunStatus:
    store = States(states)
    monkeypatch.setattr(LocalDrivers, "is_driven", lambda *_: store.is_driven)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return wait_for_run(store, "r", LocalDrivers(Settings()), None, lambda: None).status  # type: ignore[arg-type]


def test_a_run_that_ended_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, (RunStatus.FAILED, False)) is RunStatus.FAILED


def test_a_run_that_a_driver_is_about_to_continue_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    continued = [
        (RunStatus.FAILED, True),
        (RunStatus.RUNNING, True),
        (RunStatus.COMPLETED, True),
        (RunStatus.COMPLETED, False),
    ]
    assert waited(monkeypatch, *continued) is RunStatus.COMPLETED


def test_a_driver_that_does_not_let_go_of_an_ended_run_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "_HAND_OVER_S", 0.0)
    assert waited(monkeypatch, (RunStatus.COMPLETED, True)) is RunStatus.COMPLETED
