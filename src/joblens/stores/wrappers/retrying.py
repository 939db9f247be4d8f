"""Retrying store, for commands that wait for jobs while the store is unreachable."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from joblens.model.errors import StoreCorrupt, StoreError, StoreTooNew, StoreVanished
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.writes import Write
from joblens.ports.store import Store
from joblens.stores.wrappers import StoreWrapper

_PAUSE_S = 0.5
_PERMANENT = (StoreCorrupt, StoreTooNew, StoreVanished)

T = TypeVar("T")


class RetryingStore(StoreWrapper):
    """Repeats every call until the store answers, and reports each outage once. Raises StoreError at the
    deadline (`until`, monotonic), or when waiting cannot help."""

    def __init__(
        self,
        inner: Store,
        report: Callable[[str], None],
        *,
        until: float | None,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self._report = report
        self._until = until
        self._pause_s = pause_s
        self._is_away = False

    def apply(self, writes: Sequence[Write]) -> None:
        self._retry(lambda: self.inner.apply(writes))

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        return iter(self._retry(lambda: list(self.inner.records(query))))

    def close(self) -> None:
        self.inner.close()

    def _inner(self) -> Store:
        return self.inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = super().__getattr__(name)
        return lambda *arguments, **options: self._retry(lambda: method(*arguments, **options))

    def _retry(self, call: Callable[[], T]) -> T:
        while True:
            try:
                answer = call()
            except _PERMANENT:
                raise
            except StoreError as error:
                if self._until is not None and time.monotonic() >= self._until:
                    raise
                if not self._is_away:
                    self._report(f"{error}; retrying until it answers")
                self._is_away = True
                time.sleep(self._pause_s)
            else:
                if self._is_away:
                    self._report(f"the store {self.url} answers again")
                self._is_away = False
                return answer
