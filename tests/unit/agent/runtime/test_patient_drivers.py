"""Drivers that say when there is something to do again."""

import time

from joblens.agent.runtime.driver_thread import DriverThread
from tests.conftest import wait_until


class Patient:
    name = "patient"
    interval_s = 0.01

    def __init__(self) -> None:
        self.reads = 0
        self.due_s = 0.0

    def read(self) -> int:
        self.reads += 1
        return self.reads

    def idle_until_s(self) -> float:
        return self.due_s

    def close(self) -> None:
        """Nothing is kept open."""


def test_a_driver_with_nothing_to_do_is_not_read_until_someone_comes() -> None:
    driver, busy = Patient(), Patient()
    driver.due_s = float("inf")
    thread, beside = DriverThread(driver), DriverThread(busy)
    thread.use()
    wait_until(lambda: driver.reads == 1, what="the first reading")
    beside.use()
    wait_until(lambda: busy.reads > 10, what="ten readings of a driver with the same interval")
    beside.leave()
    assert driver.reads == 1
    driver.due_s = 0.0
    thread.use()
    wait_until(lambda: driver.reads > 2, what="readings for the new one")
    thread.leave()
    thread.leave()


def test_it_is_read_when_it_said_it_would_be_due() -> None:
    driver = Patient()
    driver.due_s = time.monotonic() + 0.2
    thread = DriverThread(driver)
    thread.use()
    wait_until(lambda: driver.reads >= 2, what="the second reading")
    assert time.monotonic() >= driver.due_s
    thread.leave()
