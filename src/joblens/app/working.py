"""The worker that is started for a job and ends when there is none: `python -m joblens.app.working`. One for
each user and store. It needs no broker: whoever queues a job sends it a signal, and it looks into the store
every second anyway."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable

from joblens.agent.enclosing_job import is_inside_a_job
from joblens.agent.locks import SupervisorLock, alone
from joblens.app.child_store import store_of_arguments
from joblens.app.detached_process import start_detached
from joblens.app.drivers import store_name
from joblens.app.places import spool_dir
from joblens.model.errors import JoblensError, SupervisorError
from joblens.model.settings import Settings
from joblens.stores.private_files import make_private_folder

_LOCK = "worker"
_START_PATIENCE_S = 30.0
_LOG_BYTES = 5 * 1024**2


def worker_lock(settings: Settings) -> SupervisorLock:
    return SupervisorLock(spool_dir(store_name(settings)), _LOCK)


def wake_worker(settings: Settings, config: str | None = None) -> None:
    """Tells the worker of this user and store to look now, or starts it. Raises SupervisorError."""
    spool = spool_dir(store_name(settings))
    lock = worker_lock(settings)
    try:
        make_private_folder(spool)
    except OSError as error:
        raise SupervisorError(f"the worker needs {spool}: {error.strerror}") from error
    if lock.signal_holder(signal.SIGUSR1):
        return
    # One at a time, or every one of many submits would start a worker of which all but one end again.
    with alone(spool, "starting-worker", _START_PATIENCE_S):
        if lock.signal_holder(signal.SIGUSR1):
            return
        if is_inside_a_job():
            raise SupervisorError(
                "this command runs inside a job, and a worker that it starts would end with that job",
                hint="start one before, outside of the job: joblens worker &",
            )
        start_detached("joblens.app.working", "worker", settings, config)


def nudge_worker(settings: Settings) -> None:
    """Where it runs, it looks now."""
    try:
        worker_lock(settings).signal_holder(signal.SIGUSR1)
    except OSError:
        pass


def work(settings: Settings, when_there: Callable[[], None] = lambda: None) -> bool:
    """Until it has been idle for so long as the settings say; False when another one is at work already.
    `when_there` is called once one is, be it this or the other."""
    # Before the lock: a signal may come as soon as it is held, and would end a process that does not listen.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it outlives the terminal
    lock = worker_lock(settings)
    is_first = lock.take()
    if is_first:
        from joblens.app.worker_running import run_embedded

        run_embedded(settings, lock, log, when_there)
    else:
        when_there()
    return is_first


def log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} worker {os.getpid()}: {text}\n")
    sys.stderr.flush()


def main() -> None:
    from joblens.app.settings import load_settings
    from joblens.app.supervising import leave_directory, stand_on_its_own

    parser = argparse.ArgumentParser(prog="joblens worker")
    parser.add_argument("--store", required=True)
    parser.add_argument("--config")
    parser.add_argument("--detach", action="store_true")
    options = parser.parse_args()
    if os.fstat(2).st_size > _LOG_BYTES:
        os.ftruncate(2, 0)
    try:
        store = store_of_arguments(options.store)
        settings = load_settings(config=options.config, overrides={"store.url": store}).settings
        leave_directory()
        work(settings, stand_on_its_own() if options.detach else lambda: None)
    except (JoblensError, OSError) as error:
        log(f"ended: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
