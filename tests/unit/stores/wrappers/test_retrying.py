"""Who waits for a job goes on waiting when the store is away."""

import time
from pathlib import Path
from typing import Any

import pytest

from joblens.model.errors import StoreError, StoreVanished, UnknownJob
from joblens.model.history import HistoryQuery
from joblens.stores.sqlite import SqliteStore
from joblens.stores.wrappers.retrying import RetryingStore
from tests.builders.writes import ended, queued


class SometimesAway(SqliteStore):
    """Does not answer as often as `outages` says, from now on."""

    outages: list[StoreError]

    def _use(self) -> Any:
        if getattr(self, "outages", None):
            raise self.outages.pop(0)
        return super()._use()


@pytest.fixture
def inner(tmp_path: Path) -> SometimesAway:
    return SometimesAway(str(tmp_path / "joblens.db"))


def _patient(inner: SometimesAway, messages: list[str], until: float | None = None) -> RetryingStore:
    return RetryingStore(inner, messages.append, until=until, pause_s=0.001)


def _away(times: int) -> list[StoreError]:
    return [StoreError("the store is away") for _ in range(times)]


def test_a_store_that_is_away_is_asked_until_it_answers_and_that_is_reported_once(
    inner: SometimesAway,
) -> None:
    messages: list[str] = []
    store = _patient(inner, messages)
    inner.outages = _away(3)
    store.apply([queued("a1"), ended("a1")])
    assert messages == [
        "the store is away; retrying until it answers",
        f"the store {inner.url} answers again",
    ]
    inner.outages = _away(2)
    assert store.find("a1").job.uuid == "a1"
    inner.outages = _away(2)
    assert [record.job.uuid for record in store.records(HistoryQuery())] == ["a1"]
    assert len(messages) == 6
    assert store.states(["a1"]).keys() == {"a1"}
    assert len(messages) == 6


def test_it_is_not_asked_beyond_the_time(inner: SometimesAway) -> None:
    messages: list[str] = []
    store = _patient(inner, messages, until=time.monotonic())
    inner.outages = _away(1)
    with pytest.raises(StoreError, match="is away"):
        store.running()
    assert messages == []


def test_what_no_waiting_helps_against_is_reported_at_once(inner: SometimesAway) -> None:
    store = _patient(inner, [])
    inner.outages = [StoreVanished("gone")]
    with pytest.raises(StoreVanished):
        store.running()
    with pytest.raises(UnknownJob):
        store.find("nobody")
