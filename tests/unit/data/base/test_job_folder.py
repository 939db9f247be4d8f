"""Lock of a job's folder."""

import fcntl
import os
from pathlib import Path

import msgspec
import pytest

from joblens.data.base.job_folder import Holder, JobFolder, take_lock
from joblens.data.executor.executor import StopCheck
from joblens.model.errors import JobIsRunning, JoblensError


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 0.0

    def mono_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def hold(folder: JobFolder, holder: Holder) -> int:
    os.makedirs(folder.metadata)
    descriptor = os.open(folder.lock, os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, msgspec.json.encode(holder))
    return descriptor


def test_the_lock_of_a_dead_executor_is_waited_for_because_its_workers_hold_it_too(tmp_path: Path) -> None:
    passing, folder = FakeTime(), JobFolder(str(tmp_path / "job"))
    dead = Holder(pid=os.getpid(), start_ticks=1, host=os.uname().nodename)
    descriptor = hold(folder, dead)
    with pytest.raises(JobIsRunning, match=r"already running in process \d+ on "):
        take_lock(folder, mono_s=passing.mono_s, sleep=passing.sleep)
    assert 10 <= passing.now_s < 10.1
    os.close(descriptor)


def test_a_removed_folder_is_noticed_within_half_a_second(tmp_path: Path) -> None:
    passing, folder = FakeTime(), JobFolder(str(tmp_path / "job"))
    lock = take_lock(folder)
    check = StopCheck(lambda: 15, folder, lock, passing.mono_s)
    assert check() == 15
    os.unlink(folder.lock)
    assert check() == 15
    passing.sleep(0.5)
    with pytest.raises(JoblensError, match="was removed"):
        check()
    os.close(lock)
