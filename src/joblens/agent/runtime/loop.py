"""Event loop and sampler: descriptors, timers and calls on one thread, samples of all jobs on another."""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from joblens.ports.clock import Clock


_LONGEST_WAIT_MS = 3_600_000.0  # poll takes a signed 32-bit number of milliseconds


def mono_s(clock: "Clock") -> float:
    """Returns the monotonic time in seconds."""
    return clock.mono_ns() / 1e9


class Timed(Protocol):
    """Object with a wake-up time on the monotonic clock."""

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
        """Descriptor for signal.set_wakeup_fd: a byte written here ends the wait."""
        return self._wake_write

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever the descriptor is readable or at its end."""
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, select.POLLIN)

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever the descriptor is writable or its other end is closed. A descriptor is
        watched for one direction; duplicate it to read from it as well."""
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
        """Runs `function` on the loop soon. May be called from any thread."""
        self._calls.append(function)
        try:
            os.write(self._wake_write, b"c")
        except BlockingIOError:
            pass  # pipe is full: the loop is awake already

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


MIN_INTERVAL_S = 0.05
# A job that is due within this part of its interval is sampled together with one that is due now: waking up
# costs as much as a sample. Its schedule does not change.
_EARLY_PART = 20
_LONGEST_INTERVAL_S = 86400.0  # a number that every clock can add


class Sampler:
    """Calls functions at start + k * interval on one thread. Missed calls are skipped, never repeated in a
    burst. No function may block, because all jobs wait for it."""

    def __init__(self, clock: "Clock", warn: Callable[[str], None]) -> None:
        self._calls: dict[str, Callable[[], object]] = {}
        self._clock = clock
        self._warn = warn
        self._warned_about: set[str] = set()
        self._due: list[tuple[int, str, int]] = []  # (mono ns, key, interval ns)
        self._ready: list[str] = []  # due in this round, not called yet
        self._taking: str | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, key: str, interval_s: float, call: Callable[[], object]) -> None:
        """Calls `call` on the sampler's thread until the key is removed."""
        interval_ns = _in_ns(interval_s)
        with self._changed:
            self._calls[key] = call
            heappush(self._due, (self._clock.mono_ns() + interval_ns, key, interval_ns))
            if self._thread is None:
                self._start_thread()
            self._changed.notify_all()

    def _start_thread(self) -> None:
        """If no thread can be started, the job runs nevertheless; its totals are read at its end."""
        thread = threading.Thread(target=self._run, name="joblens-sampler", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # out of threads
            self._warn(f"no samples are taken and no limits watched: {error}")
        else:
            self._thread = thread

    def change(self, key: str, interval_s: float) -> None:
        """Changes the interval, from now on. Does nothing if the key was removed."""
        interval_ns = _in_ns(interval_s)
        with self._changed:
            due_ns = self._clock.mono_ns() + interval_ns
            self._due = [entry if entry[1] != key else (due_ns, key, interval_ns) for entry in self._due]
            heapify(self._due)
            self._changed.notify_all()

    def remove(self, key: str) -> None:
        """Returns when no call for the key is in progress; none begins afterwards."""
        with self._changed:
            self._calls.pop(key, None)
            self._due = [entry for entry in self._due if entry[1] != key]
            heapify(self._due)
            self._ready = [ready for ready in self._ready if ready != key]
            self._warned_about.discard(key)
            while self._taking == key and threading.current_thread() is not self._thread:
                self._changed.wait()

    def close(self) -> None:
        """Returns when no call is in progress."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._wait_for_round():
            while (call := self._next_ready()) is not None:
                self._call_safely(*call)

    def _call_safely(self, key: str, call: Callable[[], object]) -> None:
        """Calls it. A job that cannot be sampled must not stop the sampling of others."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - reported below, once per key
            if key not in self._warned_about:
                self._warned_about.add(key)
                with suppress(OSError, ValueError):  # standard error may be closed
                    self._warn(f"a sample of {key} was not taken: {type(error).__name__}: {error}")

    def _wait_for_round(self) -> bool:
        with self._changed:
            while not self._closed and (wait_s := self._wait_s()) != 0:
                self._changed.wait(wait_s)
            self._ready = self._pop_due()
            return not self._closed

    def _next_ready(self) -> tuple[str, Callable[[], object]] | None:
        """Returns the next call; the previous one has returned."""
        with self._changed:
            self._taking = self._ready.pop(0) if self._ready and not self._closed else None
            self._changed.notify_all()
            return None if self._taking is None else (self._taking, self._calls[self._taking])

    def _wait_s(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, (self._due[0][0] - self._clock.mono_ns()) / 1e9)

    def _pop_due(self) -> list[str]:
        now_ns = self._clock.mono_ns()
        ready: list[str] = []
        while self._due and self._due[0][0] <= now_ns + (self._due[0][2] // _EARLY_PART if ready else 0):
            due_ns, key, interval_ns = heappop(self._due)
            ready.append(key)
            missed = max(0, (now_ns - due_ns) // interval_ns)
            heappush(self._due, (due_ns + (missed + 1) * interval_ns, key, interval_ns))
        return ready


def _in_ns(interval_s: float) -> int:
    return int(min(max(interval_s, MIN_INTERVAL_S), _LONGEST_INTERVAL_S) * 1e9)
