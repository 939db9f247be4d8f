"""Processes that this one has started, and what those have."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from joblens.runners.ray.cluster import OwnDescendants
from tests.conftest import wait_until

PARENT = "import subprocess; one = subprocess.Popen(['sleep', '60']); print(one.pid, flush=True); one.wait()"


@pytest.fixture
def parent_and_sleep() -> Iterator[tuple[int, int]]:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    sleep = int(process.stdout.readline())
    pidfd = os.pidfd_open(sleep)
    yield process.pid, sleep
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.close(pidfd)
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("parent_and_sleep")
def test_only_those_of_the_names_that_are_asked_for_are_looked_at() -> None:
    sleeps, others = OwnDescendants(["sleep"]), OwnDescendants(["no-such-program"])
    assert sleeps.all_live
    assert others.all_live
    others.wait(60.0)  # there is none to wait for
    sleeps.close()


def test_one_that_has_ended_does_not_live_even_if_nobody_has_waited_for_it(
    parent_and_sleep: tuple[int, int],
) -> None:
    parent, sleep = parent_and_sleep
    found = OwnDescendants(["sleep"])
    os.kill(parent, signal.SIGSTOP)  # so that it does not wait for its child
    wait_until(lambda: state_of(parent) == "T", what="it to stop")
    os.kill(sleep, signal.SIGKILL)
    found.wait(60.0)
    assert not found.all_live
    assert state_of(sleep) == "Z"
    found.close()


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
