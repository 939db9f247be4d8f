"""Who supervises, who recovers: one process at a time, and asking never gets in the way."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.agent.runtime.ownership import (
    SupervisorLock,
)

HOLD = (
    "import sys, signal; from joblens.agent.runtime.ownership import SupervisorLock\n"
    "signal.signal(signal.SIGUSR1, lambda *_: print('nudged', flush=True))\n"
    "lock = SupervisorLock(sys.argv[1]); print(lock.take(), flush=True)\n"
    "while True: signal.pause()"
)


@pytest.fixture
def holder(tmp_path: Path, processes_to_end: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    processes_to_end.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_the_holder_is_known_by_its_pid_and_keeps_others_out(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    lock = SupervisorLock(str(tmp_path))
    assert lock.holder() == holder.pid
    assert not lock.take()
    assert lock.holder() == holder.pid  # a try that failed takes nothing away


def test_the_holder_can_be_nudged(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert SupervisorLock(str(tmp_path)).signal_holder(signal.SIGUSR1)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "nudged\n"


def test_a_killed_holder_holds_nothing(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    lock = SupervisorLock(str(tmp_path))
    assert lock.holder() is None
    assert lock.take()
    lock.release()


def test_waiting_ends_with_the_holder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    waiting = os.fork()
    if waiting == 0:
        SupervisorLock(str(tmp_path)).wait()
        os._exit(7)
    assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
    holder.kill()
    assert os.waitstatus_to_exitcode(os.waitpid(waiting, 0)[1]) == 7


HELD = """
import os, sys
from joblens.agent.runtime.ownership import SupervisorLock

lock = SupervisorLock(sys.argv[1])
assert lock.take()
if "AGAIN" not in os.environ or os.environ.pop("AGAIN") == "1":
    again = "0" if "SECOND" in os.environ else "1"
    env = {**os.environ, **lock.keep_across_exec(), "AGAIN": again, "SECOND": "1"}
    os.execve(sys.executable, sys.orig_argv, env)
path = os.path.join(sys.argv[1], "supervisor.lock")
held = [fd for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == path]
names = [name for name in os.environ if "DESCRIPTOR" in name]
print(len(held), [os.get_inheritable(int(fd)) for fd in held], names)
"""


def test_after_two_restarts_in_place_there_is_one_descriptor_that_no_job_inherits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HELD, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1 [False] []\n"
