"""Worker started on demand, which exits when there is no job: `python -m
joblens.app.queue.embedded_worker`.

There is one per user and store. It needs no broker: a process that queues a job sends it a signal, and it
polls the store every second.
"""

import signal
from collections.abc import Callable

from joblens.agent.launcher.launch import is_inside_a_job
from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.background_process import start_detached, wake
from joblens.app.wiring.drivers import spool_dir, store_name
from joblens.model.errors import SupervisorError
from joblens.model.settings import Settings

_LOCK = "worker"


def worker_lock(settings: Settings) -> SupervisorLock:
    return SupervisorLock(spool_dir(store_name(settings)), _LOCK)


def wake_worker(settings: Settings, config: str | None = None) -> None:
    """Wakes the worker of this user and store, or starts it. Raises SupervisorError."""
    wake(worker_lock(settings), _LOCK, settings, lambda: _start_worker(settings, config))


def _start_worker(settings: Settings, config: str | None) -> None:
    if is_inside_a_job():
        raise SupervisorError(
            "this command runs inside a job; a worker started here would end with that job",
            hint="start one outside the job first: joblens worker &",
        )
    start_detached("joblens.app.queue.embedded_worker", "worker", settings, config)


def work(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> bool:
    """Runs until it has been idle for as long as the settings say; returns False if another one is
    running. `on_ready` is called once this one or the other is running."""
    # Before the lock: a signal may come as soon as it is held, and would kill a process without a
    # handler.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it outlives the terminal
    lock = worker_lock(settings)
    is_first = lock.take()
    if is_first:
        from joblens.app.queue.worker import run_embedded

        run_embedded(settings, lock, log, on_ready)
    else:
        on_ready()
    return is_first


def log(text: str) -> None:
    from joblens.app.wiring.background_process import log_line

    log_line("worker", text)


def main() -> None:
    from joblens.app.wiring.background_process import begin_service

    begin_service("worker", work)


if __name__ == "__main__":
    main()
