"""Event loop: descriptors, timers, calls from other threads, and the signals of a process that drives a
run.
"""

import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

_LONGEST_WAIT_MS = 3_600_000.0  # poll takes no more than a signed 32-bit number of them


class Timed(Protocol):
    """Something that must be woken at a certain monotonic time."""

    def next_wake_s(self) -> float | None: ...

    def wake(self) -> None: ...


class Loop:
    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._timed: list[Timed] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.watch(self._wake_read, self._run_calls)

    @property
    def wake_fd(self) -> int:
        """For signal.set_wakeup_fd: a byte written here ends the wait."""
        return self._wake_write

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """`callback` is called whenever there is something to read, the end included."""
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, select.POLLIN)

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        """`callback` is called whenever there is room to write, or nobody to write to any more. One
        descriptor is watched for one thing: to read from it as well, make another of it with dup."""
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, select.POLLOUT)

    def unwatch(self, descriptor: int) -> None:
        if self._callbacks.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def add_timed(self, timed: Timed) -> None:
        self._timed.append(timed)

    def remove_timed(self, timed: Timed) -> None:
        if timed in self._timed:
            self._timed.remove(timed)

    def call(self, function: Callable[[], None]) -> None:
        """From any thread: run `function` on the loop soon."""
        self._calls.append(function)
        try:
            os.write(self._wake_write, b"c")
        except BlockingIOError:
            pass  # full: the loop is awake already

    def run_once(self) -> None:
        for descriptor, _ in self._poll.poll(self._timeout_ms()):
            callback = self._callbacks.get(descriptor)
            if callback is not None:
                callback()
        now_s = time.monotonic()
        for timed in list(self._timed):
            due_s = timed.next_wake_s()
            if due_s is not None and due_s <= now_s:
                timed.wake()

    def run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.run_once()

    def close(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _timeout_ms(self) -> float | None:
        due = [due_s for timed in self._timed if (due_s := timed.next_wake_s()) is not None]
        if not due:
            return None
        return min(_LONGEST_WAIT_MS, max(0.0, (min(due) - time.monotonic()) * 1000 + 0.5))

    def _run_calls(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass
        while self._calls:
            self._calls.popleft()()


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heed_no_nudge() -> Any:
    """Before a run's lock is taken: who holds it is sent SIGUSR1, also before it listens and when it does not
    listen any more, and that would end it. Nothing is missed, it looks every second. -> what to restore"""
    if threading.current_thread() is not threading.main_thread():
        return None  # signals are somebody else's there
    return signal.signal(signal.SIGUSR1, _do_nothing)  # to ignore it would be handed down to jobs


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def heed_as_before(handler: Any) -> None:
    if handler is not None:
        signal.signal(signal.SIGUSR1, handler)


class RunSignals:
    """Taken as long as this is entered. What is ignored already stays so: nohup, or a script that started us
    with '&', wants that."""

    def __init__(self, loop: Loop, handle: Callable[[int], None]) -> None:
        self._loop = loop
        self._handle = handle
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_signal)
        self._wakeup_before = signal.set_wakeup_fd(self._loop.wake_fd, warn_on_full_buffer=False)

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._loop.call(lambda: self._handle(number))
