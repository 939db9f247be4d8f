"""Where a run asks the cluster, on a thread of its own: a cluster may take any time to answer."""

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from joblens.agent.runtime.loop import Loop
from joblens.model.errors import JoblensError
from joblens.ports.cluster import ClusterBackend

T = TypeVar("T")
_PATIENCE_S = 30.0  # with a cluster that does not answer, at the end of a run


class AsyncPlacer:
    """One question after the other, in the order they were asked. Answers come on the loop."""

    def __init__(self, placer: ClusterBackend, loop: Loop) -> None:
        self._placer = placer
        self._loop = loop
        self._asked: SimpleQueue[
            tuple[Callable[[ClusterBackend], Any], Callable[[Any], None], Callable[[JoblensError], None]]
            | None
        ] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="joblens-placing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(
        self,
        question: Callable[[ClusterBackend], T],
        then: Callable[[T], None],
        otherwise: Callable[[JoblensError], None] = lambda _: None,
    ) -> None:
        self._asked.put((question, then, otherwise))

    def close(self, *, is_over: bool) -> None:
        """The last that is asked, and at once: `wait` for it."""
        self._asked.put((lambda placer: placer.close(is_over=is_over), lambda _: None, lambda _: None))
        self._asked.put(None)

    def wait(self) -> None:
        """Returns when the cluster has been told, unless it does not answer."""
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            question, then, otherwise = asked
            try:
                answer = question(self._placer)
            except JoblensError as error:
                self._loop.call(partial(otherwise, error))
            except BaseException as error:  # noqa: BLE001 - a fault of joblens is told on the loop
                self._loop.call(partial(_raise, error))
                return
            else:
                self._loop.call(partial(then, answer))


def _raise(error: BaseException) -> None:
    raise error
