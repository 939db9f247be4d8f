"""Cleanup after a lost attempt never runs on the thread that asks for it: that one renews leases."""

import os
import threading
from pathlib import Path

import pytest

from joblens.agent.queue import lost_workers
from joblens.agent.queue.lost_workers import Leftovers
from joblens.agent.runtime.loop import Loop
from joblens.model.jobs.job import Attempt, Owner
from joblens.probes.host.machine_load import read_host

HOST = read_host()
GONE = Owner(host=HOST.hostname, pid=os.getpid(), start_ticks=1, boot_id=HOST.boot_id)
LOST = Attempt(started_at_us=1, owner=GONE)


class SlowCleanup:
    """Kills what is left as slowly as a full machine does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end = threading.Event()
        self.ended_by = ""
        monkeypatch.setattr(lost_workers, "kill_leftover_processes", self._end)

    def _end(self, *_: object) -> None:
        assert self.may_end.wait(30)
        self.ended_by = threading.current_thread().name


def test_processes_of_a_lost_attempt_are_killed_on_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleanup, loop, events = SlowCleanup(monkeypatch), Loop(), list[str]()
    one = Leftovers(str(tmp_path), HOST, loop)
    assert one.may_exist(LOST)
    one.remove("a", LOST, lambda: events.append("cleared"))
    events.append("lease renewed")
    busy = [one.is_busy]
    cleanup.may_end.set()
    loop.run_until(lambda: len(events) == 2)
    assert events == ["lease renewed", "cleared"]
    assert [*busy, one.is_busy] == [True, False]
    assert cleanup.ended_by == "joblens-leftovers"


def test_a_cleanup_that_fails_does_not_hold_the_job_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such group")

    monkeypatch.setattr(lost_workers, "kill_leftover_processes", fail)
    loop, cleared = Loop(), list[int]()
    one = Leftovers(str(tmp_path), HOST, loop)
    for number in range(2):
        one.remove("a", LOST, lambda number=number: cleared.append(number))  # type: ignore[misc]
    loop.run_until(lambda: len(cleared) == 2)


@pytest.mark.parametrize(
    "attempt",
    [None, Attempt(started_at_us=1, owner=Owner(host="elsewhere", pid=1, start_ticks=1, boot_id="x"))],
)
def test_nothing_is_left_of_an_attempt_elsewhere(tmp_path: Path, attempt: Attempt | None) -> None:
    loop, cleared = Loop(), list[int]()
    one = Leftovers(str(tmp_path), HOST, loop)
    assert not one.may_exist(attempt)
    one.remove("a", attempt, lambda: cleared.append(1))
    loop.run_until(lambda: bool(cleared))
