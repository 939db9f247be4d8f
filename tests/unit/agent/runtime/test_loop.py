import os
import threading
import time

import pytest

from joblens.agent.runtime.loop import Loop


class Alarm:
    def __init__(self, due_s: float | None) -> None:
        self.due_s = due_s
        self.rings = 0

    def next_wake_s(self) -> float | None:
        return self.due_s

    def wake(self) -> None:
        self.rings += 1
        self.due_s = None


def test_a_call_from_another_thread_ends_the_wait() -> None:
    loop = Loop()
    called: list[int] = []
    threading.Timer(0.05, lambda: loop.call(lambda: called.append(1))).start()
    loop.run_until(lambda: bool(called))
    loop.close()
    assert called == [1]


def test_what_is_due_is_woken_once() -> None:
    loop = Loop()
    alarm = Alarm(time.monotonic() + 0.02)
    loop.add_timed(alarm)
    loop.run_until(lambda: alarm.rings > 0)
    loop.remove_timed(alarm)
    loop.close()
    assert alarm.rings == 1


@pytest.mark.within(20)
@pytest.mark.parametrize("ahead_s", [30 * 86400.0, 1e12, 1e300])
def test_a_time_far_ahead_can_be_waited_for(ahead_s: float) -> None:
    """A time-out of a month is more milliseconds than poll takes."""
    loop = Loop()
    loop.add_timed(Alarm(time.monotonic() + ahead_s))
    loop.call(lambda: None)
    loop.run_once()
    loop.close()


def test_room_to_write_is_reported() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    received: list[int] = []
    loop.watch_writable(writer, lambda: received.append(1))
    loop.run_once()
    loop.unwatch(writer)
    loop.call(lambda: None)
    loop.run_once()
    assert received == [1]
    os.close(reader)
    os.close(writer)
    loop.close()


def test_who_is_not_watched_any_more_is_not_called_in_the_same_round() -> None:
    loop = Loop()
    pairs = [os.pipe(), os.pipe()]
    called: list[int] = []

    def first_of(reader: int) -> None:
        called.append(reader)
        for other, _ in pairs:
            loop.unwatch(other)

    for reader, writer in pairs:
        os.write(writer, b"x")
        loop.watch(reader, lambda reader=reader: first_of(reader))  # type: ignore[misc]
    loop.run_once()
    assert len(called) == 1
    for pair in pairs:
        for descriptor in pair:
            os.close(descriptor)
    loop.close()
