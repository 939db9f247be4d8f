"""Event loop: descriptors, timers, and calls from other threads."""

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

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
