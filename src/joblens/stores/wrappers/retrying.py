"""A store that is waited for while it is away, for whoever waits for jobs: they go on without it."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from joblens.model.errors import StoreCorrupt, StoreError, StoreTooNew, StoreVanished
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.writes import Write
from joblens.ports.store import Store
from joblens.stores.wrappers.wrapper import StoreWrapper

_PAUSE_S = 0.5
_NO_WAITING_HELPS = (StoreCorrupt, StoreTooNew, StoreVanished)

T = TypeVar("T")


class RetryingStore(StoreWrapper):
    """Everything is asked until it is answered, and that this takes a while is told once an outage. Raises
    StoreError when the time is up (`until`, monotonic), or when no waiting helps."""

    def __init__(
        self,
        inner: Store,
        tell: Callable[[str], None],
        *,
        until: float | None = None,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self._tell = tell
        self._until = until
        self._pause_s = pause_s
        self._is_away = False

    def apply(self, writes: Sequence[Write]) -> None:
        self._ask(lambda: self.inner.apply(writes))

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        return iter(self._ask(lambda: list(self.inner.records(query))))

    def close(self) -> None:
        self.inner.close()

    def _reading(self) -> Store:
        return cast("Store", _Asked(self.inner, self._ask))

    def _ask(self, question: Callable[[], T]) -> T:
        while True:
            try:
                answer = question()
            except _NO_WAITING_HELPS:
                raise
            except StoreError as error:
                if self._until is not None and time.monotonic() >= self._until:
                    raise
                if not self._is_away:
                    self._tell(f"{error}; trying again until it answers")
                self._is_away = True
                time.sleep(self._pause_s)
            else:
                if self._is_away:
                    self._tell(f"the store {self.url} answers again")
                self._is_away = False
                return answer


class _Asked:
    """Each method of a store, called through `ask`."""

    def __init__(self, inner: Store, ask: Callable[[Callable[[], Any]], Any]) -> None:
        self._inner = inner
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)
        return lambda *arguments, **more: self._ask(lambda: method(*arguments, **more))
