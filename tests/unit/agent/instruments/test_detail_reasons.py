"""Why a part of a job's details is missing."""

import os
import threading
import time
from typing import Any

import pytest

from joblens.agent.instruments.endpoints import EndpointProbe
from joblens.agent.instruments.memory import MemoryDetails, MemoryDriver
from joblens.agent.instruments.table import DetailTaker, Instruments, Watched
from joblens.agent.instruments.threads import ThreadsFromTheStart
from joblens.agent.runtime.driver_thread import DriverThread
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from tests.conftest import wait_until


def watched() -> Watched:
    job = Job(uuid="0" * 32, argv=("x",), created_at_us=0)
    return Watched(job=job, main_pid=1, pids=list)


class NobodyAsked(Instruments):
    def driver(self, *_: Any) -> DriverThread[Any]:
        raise AssertionError("a thread is begun for a job that is over")


@pytest.mark.parametrize("age_s", [0.0, 0.7])
def test_a_job_that_was_over_before_its_sockets_were_listed_says_so(age_s: float) -> None:
    probe = EndpointProbe(watched(), "/nowhere", NobodyAsked())
    probe._opened_s -= age_s
    taker = DetailTaker("0" * 32, [probe], lambda _: None)
    taker.tick(final=True)
    assert "ended before its sockets were first listed" in taker.latest.unknown["endpoints"]
    taker.close()


def test_a_job_that_was_over_before_its_threads_were_looked_at_says_so() -> None:
    taker = DetailTaker("0" * 32, [ThreadsFromTheStart(watched(), os.getpid())], lambda _: None)
    taker.tick()  # at the very start there is nothing to see
    assert taker.latest.threads is None
    taker.tick(final=True)
    assert "ended before its threads were first scanned" in taker.latest.unknown["threads"]


def test_threads_are_looked_at_by_the_first_sample_after_the_start() -> None:
    job = Job(uuid="0" * 32, argv=("x",), created_at_us=0)
    own = Watched(job=job, main_pid=os.getpid(), pids=lambda: [os.getpid()])
    taker = DetailTaker("0" * 32, [ThreadsFromTheStart(own, os.getpid())], lambda _: None)
    taker.tick()
    taker.tick()
    assert taker.latest.threads is not None
    assert taker.latest.unknown.get("threads") is None


def test_threads_are_not_read_again_while_the_job_is_idle_unless_they_ran_before() -> None:
    class Threads:
        name, interval_s, is_stable, count = "threads", 0.0, True, 0

        def read(self) -> Details:
            self.count += 1
            return Details()

        def close(self) -> None:
            """Nothing to close."""

    threads = Threads()
    taker = DetailTaker("0" * 32, [threads], lambda _: None)
    taker.tick()
    taker.tick(is_idle=True)
    assert threads.count == 1
    taker._due_ns["threads"] = time.monotonic_ns() + 10**12
    taker.tick()  # it ran, but its threads are not due
    taker._due_ns["threads"] = 0
    taker.tick(is_idle=True)
    assert threads.count == 2


def test_a_driver_that_hangs_after_the_first_look_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    class Hanging(MemoryDriver):
        def read(self) -> None:
            release.wait()

    monkeypatch.setattr("joblens.agent.runtime.driver_thread._SILENT_AFTER_S", 0.05)
    monkeypatch.setattr("joblens.agent.runtime.driver_thread._SILENT_AFTER", 0)
    thread: DriverThread[None] = DriverThread(Hanging())
    details = MemoryDetails("0" * 32, thread)
    try:
        assert "not scanned" in details.read().unknown["memory"]
        wait_until(thread.problem)
        assert "has not answered" in details.read().unknown["memory"]
    finally:
        release.set()
        details.close()
