"""Signals of a process that drives a run: the process's own, or none inside a host program."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Protocol

from joblens.agent.runtime.loop import Loop

WAKEUP = signal.SIGUSR1  # sent to the driver of a run when the store has news
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handle = Callable[[int], None]


class RunSignals(Protocol):
    owns_process: bool  # the driver may use its signals, limits and interpreter

    def handled(self, loop: Loop, handle: Handle) -> AbstractContextManager[None]:
        """Calls `handle` on the loop with the number of each signal."""
        ...


@contextmanager
def wakeups_ignored() -> Iterator[None]:
    """Ignores WAKEUP while the lock of a run is held: it may come before and after the driver handles it, and
    would kill the process. Nothing is missed: the driver polls the store."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return
    before = ignore_wakeups()
    try:
        yield
    finally:
        signal.signal(WAKEUP, before)


def ignore_wakeups() -> Any:
    """Returns the previous handler. The handler does nothing: jobs would inherit SIG_IGN."""
    return signal.signal(WAKEUP, _do_nothing)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


class ProcessSignals:
    """SIGINT, SIGTERM, SIGHUP and WAKEUP of this process. Ignored signals stay ignored, as for nohup, or a
    script that started the process with '&'."""

    owns_process = True

    @contextmanager
    def handled(self, loop: Loop, handle: Handle) -> Iterator[None]:
        def on_signal(number: int, _frame: FrameType | None) -> None:
            loop.call(lambda: handle(number))

        before: dict[int, Any] = {}
        for number in (*_ENDING, WAKEUP):
            if number is WAKEUP or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, on_signal)
        wakeup_fd = signal.set_wakeup_fd(loop.wake_fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_fd)
            for taken, handler in before.items():
                signal.signal(taken, handler)


class HostSignals:
    """Signals of a run inside a host program, whose handlers stay unchanged. `send` acts like a signal, from
    any thread; before the run begins it is stored."""

    owns_process = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[int] = []
        self._send: Handle | None = None

    def send(self, number: int) -> None:
        with self._lock:
            if self._send is None:
                self._waiting.append(number)
            else:
                self._send(number)

    @contextmanager
    def handled(self, loop: Loop, handle: Handle) -> Iterator[None]:
        with self._lock:
            self._send = lambda number: loop.call(lambda: handle(number))
            for number in self._waiting:
                self._send(number)
        try:
            yield
        finally:
            with self._lock:  # the loop is closed next
                self._send = lambda _number: None
