"""Run a job in the background: hand it to the supervisor, which is started when it is not there."""

import os
import signal
import sys
import time

from joblens.agent.payload import Payload, write_payload
from joblens.agent.supervisor import SupervisorLock
from joblens.app.drivers import open_store, store_path
from joblens.app.jobs import PreparedJob
from joblens.app.places import spool_dir, state_dir
from joblens.model.errors import SupervisorError
from joblens.model.job import Record
from joblens.model.settings import Settings
from joblens.model.writes import CancelAsked, JobQueued
from joblens.ports.store import Store

_START_PATIENCE_S = 10.0


def submit(prepared: PreparedJob, settings: Settings, config: str | None) -> Record:
    spool = spool_dir(store_path(settings))
    payload = Payload(argv=prepared.argv, env=prepared.env, cwd=prepared.job.cwd)
    write_payload(spool, prepared.job.uuid, payload)
    store = open_store(settings)
    try:
        store.apply([JobQueued(prepared.job)])
        wake_supervisor(settings, config)
        return store.find(prepared.job.uuid)
    finally:
        store.close()


def wake_supervisor(settings: Settings, config: str | None) -> None:
    """Tells the running supervisor to look now, or starts one."""
    path = store_path(settings)
    lock = SupervisorLock(spool_dir(path))
    pid = lock.holder()
    if pid is not None:
        try:
            os.kill(pid, signal.SIGUSR1)
        except ProcessLookupError:
            pass  # it has just ended; the next one is started below
        else:
            return
    _start_supervisor(path, config)
    deadline = time.monotonic() + _START_PATIENCE_S
    while lock.holder() is None:
        if time.monotonic() > deadline:
            raise SupervisorError(
                "the background supervisor did not start",
                hint=f"its log is {supervisor_log()}; the job stays queued until one starts",
            )
        time.sleep(0.02)


def supervisor_log() -> str:
    return os.path.join(state_dir(), "supervisor.log")


def _start_supervisor(path: str, config: str | None) -> None:
    log = supervisor_log()
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    argv = [sys.executable, "-m", "joblens.app.supervising", "--store", os.path.abspath(path)]
    if config:
        argv += ["--config", os.path.abspath(config)]
    files = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    os.posix_spawn(sys.executable, argv, os.environ, file_actions=files, setsid=True)


def ask_to_cancel(record: Record, store: Store, by: str) -> None:
    store.apply([CancelAsked(record.job.uuid, time.time_ns() // 1000, by)])
