"""Control groups that go away as soon as the last process of a scope has ended, as systemd removes them.

On a machine without systemd the groups of a job stay until joblens removes them. These helpers remove them at
the moment systemd would: when the job and its launcher have ended."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from joblens.model.jobs.job import Attempt
from tests.conftest import wait_until
from tests.integration.run_jobs import is_gone


def remove_when_over(attempt: Attempt) -> None:
    """Waits for the end of the launcher, then removes the job's groups in every hierarchy."""
    assert attempt.launcher_pid is not None
    launcher = attempt.launcher_pid
    wait_until(lambda: is_gone(launcher), what="the launcher to end", timeout=60)
    remove(attempt)


def remove(attempt: Attempt) -> None:
    for path in dict.fromkeys(attempt.groups.values()):
        for folder in [folder for folder, _, _ in os.walk(path, topdown=False)]:
            _remove_folder(folder)


def _remove_folder(folder: str) -> None:
    """A process that has just ended still counts for a moment."""
    deadline_s = time.monotonic() + 10
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            assert time.monotonic() < deadline_s, f"{folder} is still in use"
            time.sleep(0.002)
        else:
            return


@contextlib.contextmanager
def stopped(reader: int) -> Iterator[None]:
    """The process that would read the groups does nothing meanwhile."""
    os.kill(reader, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(reader, signal.SIGCONT)
