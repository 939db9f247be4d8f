"""Who supervises, who recovers: one process at a time, and asking never gets in the way."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from joblens.agent.runtime.ownership import (
    RunLock,
    SupervisorLock,
    exclusive_lock,
    remove_idle_folder,
    remove_idle_folders,
)


def test_nobody_holds_a_lock_that_nobody_took(tmp_path: Path) -> None:
    assert SupervisorLock(str(tmp_path)).holder() is None
    assert not SupervisorLock(str(tmp_path)).signal_holder(signal.SIGUSR1)


def test_only_one_is_alone_at_a_time(tmp_path: Path) -> None:
    with (
        exclusive_lock(str(tmp_path), "work", 0.0) as first,
        exclusive_lock(str(tmp_path), "work", 0.02) as second,
    ):
        assert (first, second) == (True, False)
    with exclusive_lock(str(tmp_path), "work", 0.0) as third:
        assert third


def test_where_no_lock_can_be_made_nobody_is_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with exclusive_lock(str(tmp_path / "file" / "below"), "work", 0.0) as is_alone:
        assert not is_alone


def test_a_folder_with_nothing_but_free_locks_is_taken_away(tmp_path: Path) -> None:
    spool = tmp_path / "spool" / "one"
    lock = RunLock(str(spool), "r")
    assert lock.holder() is None
    assert not spool.exists()  # asking makes nothing
    with exclusive_lock(str(spool), "recovery", 0.0):
        assert not remove_idle_folder(str(spool))
    assert lock.take()
    assert not remove_idle_folder(str(spool))
    assert lock.holder() == os.getpid()
    assert RunLock(str(spool), "r").holder() == os.getpid()
    lock.release()
    (spool / "job.outcome").write_text("")
    assert not remove_idle_folder(str(spool))
    (spool / "job.outcome").unlink()
    remove_idle_folders(str(tmp_path / "spool" / "another"))
    assert not spool.exists()
    assert lock.take()
    lock.release()


def test_a_lock_whose_file_was_taken_away_is_taken_again(tmp_path: Path) -> None:
    """Else two processes could each hold one: the file that is gone, and the one that is there."""
    path = tmp_path / "run-r.lock"
    lock = RunLock(str(tmp_path), "r")
    real_lockf = fcntl.lockf
    taken_away = False

    def lockf(descriptor: int, how: int) -> None:
        nonlocal taken_away
        real_lockf(descriptor, how)
        if not taken_away:
            taken_away = True
            path.unlink()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "lockf", lockf)
        assert lock.take()
    assert path.exists()
    lock.release()
