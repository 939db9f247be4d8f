"""The worker that runs on the queue engine start for their jobs."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from tests.conftest import wait_until


def worker_lock(store_path: Path) -> SupervisorLock:
    return SupervisorLock(spool_dir(str(store_path)), "worker")


def end_worker(store_path: Path) -> None:
    lock = worker_lock(store_path)
    pid = lock.holder()
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: lock.holder() is None, what="the worker to end")
