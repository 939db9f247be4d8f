"""Store client of a worker: queries on a thread of its own, and since when the store has been reachable."""

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from joblens.agent.runtime.loop import Loop
from joblens.model.errors import JoblensError, StoreError
from joblens.ports.store import Deliveries

_MICRO = 1_000_000
_LONGEST_GAP = 0.5  # of a lease
_GAP_POLLS = 1.5  # at least this many times the pause between two polls


class StoreWatch:
    """Decides whether live workers had the chance to renew their leases, by the store's own clock at every
    poll. A gap of much of a lease between two polls means that the store or this process hung, the machine
    slept, or the clock was set: other workers may not have renewed yet. Used on one thread."""

    def __init__(self, lease_s: float, poll_every_s: float) -> None:
        self._lease_us = round(lease_s * _MICRO)
        self._gap_us = round(max(lease_s * _LONGEST_GAP, poll_every_s * _GAP_POLLS) * _MICRO)
        self._since_us: int | None = None
        self._last_us = 0

    def note_outage(self) -> None:
        self._since_us = None

    def note_answer(self, at_us: int) -> None:
        if self._since_us is None or not 0 <= at_us - self._last_us <= self._gap_us:
            self._since_us = at_us
        self._last_us = at_us

    @property
    def is_conclusive(self) -> bool:
        """Returns whether it was available for a whole lease without a gap."""
        return self._since_us is not None and self._last_us - self._since_us > self._lease_us


T = TypeVar("T")
Question = Callable[[Deliveries], T]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_TRIES_AT_THE_END = 2  # the query in progress, and the return of claims


class AsyncStoreClient:
    """Answers queries in their order, on a thread. Callbacks run on the loop."""

    def __init__(
        self,
        deliveries: Deliveries,
        loop: Loop,
        log: Callable[[str], None],
        watch: StoreWatch | None = None,
    ) -> None:
        """`watch` is notified when the store is unavailable."""
        self._watch = watch
        self._deliveries = deliveries
        self._loop = loop
        self._log = log
        self._requests: SimpleQueue[
            tuple[Question[Any], Callable[[Any], None], Callable[[], None]] | None
        ] = SimpleQueue()
        self._pause_s = 0.0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="joblens-tickets", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(
        self, question: Question[T], then: Callable[[T], None], otherwise: Callable[[], None] = lambda: None
    ) -> None:
        """Calls `then` with the answer, or `otherwise` without one, on the loop."""
        self._requests.put((question, then, otherwise))

    def close(self) -> None:
        """Returns when all queries are answered. An unavailable store is not retried for long."""
        self._is_closing = True
        self._requests.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while (request := self._requests.get()) is not None:
            question, then, otherwise = request
            try:
                answer = question(self._deliveries)
            except JoblensError as error:
                self._on_outage(error)
                self._loop.call(otherwise)
                failures += self._is_closing and isinstance(error, StoreError)
                if failures >= _TRIES_AT_THE_END:
                    return  # leases expire by themselves
                time.sleep(self._pause_s)
            except BaseException as error:  # noqa: BLE001 - a fault of joblens is raised on the loop
                self._loop.call(partial(_raise, error))
                return
            else:
                self._on_answer()
                self._loop.call(partial(then, answer))

    def _on_answer(self) -> None:
        if self._pause_s:
            self._log("the store answers again")
        self._pause_s = 0.0

    def _on_outage(self, error: JoblensError) -> None:
        if isinstance(error, StoreError) and self._watch is not None:
            self._watch.note_outage()
        if not self._pause_s:
            self._log(f"the store is unreachable: {error}; running jobs continue, no jobs are started")
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2 or _FIRST_PAUSE_S)


def _raise(error: BaseException) -> None:
    raise error
