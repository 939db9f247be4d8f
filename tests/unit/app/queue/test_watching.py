"""Waiting for jobs on a queue, with a store that may be away."""

import time
from typing import Any

import pytest

from joblens.app.queue import watch as queue_watching
from joblens.app.queue.watch import states_until_final
from joblens.model.errors import StoreError, UnknownJob
from joblens.model.jobs.job import Status

RUNNING, DONE = {"a": Status.RUNNING}, {"a": Status.SUCCESS}


class Answers:
    """A store that says what it is told to, one thing after the other; the last for ever."""

    def __init__(self, *answers: dict[str, Status] | StoreError) -> None:
        self._answers = list(answers)

    def states(self, _uuids: Any) -> dict[str, Status]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, StoreError):
            raise answer
        return answer


def watched(*answers: dict[str, Status] | StoreError) -> list[dict[str, Status]]:
    store: Any = Answers(*answers)
    return list(states_until_final(store, ["a"], lambda: None, poll_s=0.001))


def test_states_are_reported_until_all_have_ended() -> None:
    assert watched(RUNNING, RUNNING, DONE) == [RUNNING, RUNNING, DONE]


def test_a_store_that_is_away_for_a_while_is_waited_for() -> None:
    away = StoreError("away")
    assert watched(RUNNING, away, away, RUNNING, away, DONE) == [RUNNING, RUNNING, DONE]


def test_a_store_that_stays_away_is_reported_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_watching, "_STORE_TIMEOUT_S", 0.02)
    with pytest.raises(StoreError, match="away"):
        watched(RUNNING, StoreError("away"))


def test_nobody_waits_for_a_store_beyond_the_deadline() -> None:
    store: Any = Answers(RUNNING, StoreError("away"))
    with pytest.raises(StoreError, match="away"):
        list(states_until_final(store, ["a"], lambda: None, 0.001, time.monotonic() + 0.02))


def test_a_job_that_was_removed_is_an_error() -> None:
    with pytest.raises(UnknownJob, match="was removed from the store"):
        watched(RUNNING, {})
