"""Driver thread: reads a driver that may block, so that it delays neither a sample, nor another driver, nor
the exit of this process."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from joblens.ports.probe import Driver

T = TypeVar("T")
_SILENT_AFTER = 3  # intervals without an answer, and …
_LONGEST_WAIT_S = 3600.0
_SILENT_AFTER_S = 5.0  # … at least this long: then the driver is reported as hanging


class Reading(Struct, Generic[T], frozen=True):
    number: int  # distinguishes readings, so that none is used twice
    at_mono_ns: int
    value: T


class DriverThread(Generic[T]):
    """Starts at the first `use`, ends after the last `leave`, and closes the driver then. Never joined,
    because a driver may hang. `latest` and `problem` return at once."""

    def __init__(self, driver: Driver[T]) -> None:
        self.driver = driver
        self.interval_s = driver.interval_s
        self._changed = threading.Condition()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._latest: Reading[T] | None = None
        self._read_began_s: float | None = None  # start of the read in progress
        self._error = ""
        self._is_read_due = False

    def use(self) -> None:
        with self._changed:
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"joblens-{self.driver.name}", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()  # a new user may be due first

    def leave(self) -> None:
        with self._changed:
            self._users -= 1
            self._changed.notify_all()

    def latest(self) -> Reading[T] | None:
        with self._changed:
            return self._latest

    def read_now(self, is_wanted: Callable[[T], bool], timeout_s: float) -> None:
        """Makes the driver read now, and waits at most `timeout_s` for a value that `is_wanted` accepts."""
        with self._changed:
            if self._thread is None or self._read_began_s is not None:
                return  # a driver that is being read may hang
            self._is_read_due = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: bool(self._error) or (self._latest is not None and is_wanted(self._latest.value)),
                timeout_s,
            )

    def problem(self) -> str:
        """Returns why there are no new readings; '' if there are."""
        with self._changed:
            if self._read_began_s is not None:
                silent_s = time.monotonic() - self._read_began_s
                if silent_s > max(_SILENT_AFTER_S, _SILENT_AFTER * self.interval_s):
                    return f"{self.driver.name} has not answered for {silent_s:.0f}s"
            return self._error

    def _run(self) -> None:
        """Reads and closes the driver until no one uses it. Users that come while it is being closed are
        served next."""
        while self._is_wanted():
            self._read_while_used()
            with self._changed:
                self._read_began_s = time.monotonic()
            with contextlib.suppress(Exception):  # at worst something stays open
                self.driver.close()
            with self._changed:
                self._read_began_s = None

    def _read_while_used(self) -> None:
        due_s = time.monotonic()
        while self._is_used():
            self._read()
            now_s = time.monotonic()
            due_s = max(due_s + self.interval_s, now_s)
            with self._changed:
                while self._must_wait() and (wait_s := self._idle_until_s(due_s) - time.monotonic()) > 0:
                    self._changed.wait(wait_s)
                self._is_read_due = False

    def _must_wait(self) -> bool:
        return self._users > 0 and not self._is_read_due

    def _idle_until_s(self, due_s: float) -> float:
        """Returns when to read next: a driver that knows its next event is not woken before."""
        idle_until_s: Callable[[], float] | None = getattr(self.driver, "idle_until_s", None)
        if idle_until_s is None:
            return due_s
        return max(due_s, min(idle_until_s(), time.monotonic() + _LONGEST_WAIT_S))

    def _is_used(self) -> bool:
        with self._changed:
            return self._users > 0

    def _is_wanted(self) -> bool:
        with self._changed:
            if self._users <= 0:
                self._thread = None
                return False
            return True

    def _read(self) -> None:
        with self._changed:
            self._read_began_s = time.monotonic()
        error, value = "", None
        try:
            value = self.driver.read()
        except Exception as failure:  # noqa: BLE001 - reported as the reason why numbers are missing
            error = str(failure) or type(failure).__name__
        with self._changed:
            self._read_began_s, self._error = None, error
            if value is not None:
                number = self._latest.number + 1 if self._latest is not None else 1
                self._latest = Reading(number, time.monotonic_ns(), value)
            self._changed.notify_all()
