"""Submission of a background job to the supervisor, which is started if necessary."""

import contextlib
import os
import signal
import time

from joblens.agent.launcher.launch import is_inside_a_job
from joblens.agent.runtime.ownership import SupervisorLock
from joblens.agent.runtime.payload import Payload, remove_payload, write_payload
from joblens.app.jobs.preparation import PreparedJob
from joblens.app.wiring.background_process import start_detached, wake, warn_of_logout
from joblens.app.wiring.drivers import (
    Warn,
    logs_root,
    open_store_directly,
    spool_dir,
    store_name,
    warn_in_python,
)
from joblens.model.errors import StoreError, SupervisorError
from joblens.model.jobs.job import Record
from joblens.model.settings import Settings
from joblens.model.writes import CancelAsked, JobQueued
from joblens.ports.store import Store


def submit(
    prepared: PreparedJob, settings: Settings, config: str | None, warn: Warn = warn_in_python
) -> Record:
    """Queues the job and wakes the supervisor. It runs with the present settings."""
    uuid, spool = prepared.job.uuid, spool_dir(store_name(settings))
    _check_supervisor_lasts(spool)
    payload = Payload(
        argv=prepared.argv,
        env=prepared.env,
        cwd=prepared.job.cwd,
        logs_dir=os.path.join(logs_root(settings), uuid),
        output_max_bytes=settings.output.max_size,
        notify=prepared.notify,
        secrets=prepared.secrets.shown,
    )
    try:
        write_payload(spool, uuid, payload)
    except OSError as error:
        raise SupervisorError(f"the job cannot be submitted: {spool}: {error.strerror}") from error
    record = _queue(prepared, settings, spool, warn)
    wake_supervisor(settings, config)
    warn_of_logout(_lock(settings), "this job", warn)
    return record


def _queue(prepared: PreparedJob, settings: Settings, spool: str, warn: Warn) -> Record:
    """A background job is queued in the store; without it there is no queue, and a journal would only
    record later that it should have run."""
    try:
        store = open_store_directly(settings, warn)
        try:
            store.apply([JobQueued(prepared.job)])
            return store.find(prepared.job.uuid)
        finally:
            store.close()
    except StoreError as error:
        remove_payload(spool, prepared.job.uuid)
        raise StoreError(f"the job cannot be queued: {error}", hint=error.hint) from error


def wake_supervisor(settings: Settings, config: str | None = None) -> None:
    """Wakes the running supervisor, or starts one. Raises SupervisorError."""
    wake(_lock(settings), "supervisor", settings, lambda: _start_supervisor(settings, config))


def notify_supervisor(settings: Settings) -> None:
    """Wakes the supervisor if there is one."""
    with contextlib.suppress(OSError):
        _lock(settings).signal_holder(signal.SIGUSR1)


def _lock(settings: Settings) -> SupervisorLock:
    return SupervisorLock(spool_dir(store_name(settings)))


def _start_supervisor(settings: Settings, config: str | None) -> None:
    _check_supervisor_lasts(spool_dir(store_name(settings)))
    start_detached("joblens.app.jobs.supervisor", "supervisor", settings, config)


def _check_supervisor_lasts(spool: str) -> None:
    """A running supervisor is kept."""
    if is_inside_a_job() and not (os.path.isdir(spool) and SupervisorLock(spool).holder()):
        raise SupervisorError(
            "this command runs inside a job; a supervisor started here would end with that job",
            hint="start one outside the job first: joblens supervisor --stay &",
        )


def request_cancel(record: Record, store: Store, settings: Settings, by: str) -> None:
    store.apply([CancelAsked(record.job.uuid, time.time_ns() // 1000, by)])
    notify_supervisor(settings)
