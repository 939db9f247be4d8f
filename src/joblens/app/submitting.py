"""Run a job in the background: hand it to the supervisor, which is started when it is not there."""

import os
import signal
import sys
import time

from joblens.agent.enclosing_job import is_inside_a_job
from joblens.agent.locks import SupervisorLock, alone
from joblens.agent.marked import JOB_ID_VARIABLE
from joblens.agent.payload import Payload, remove_payload, write_payload
from joblens.app.child_store import store_arguments, store_environment
from joblens.app.drivers import Warn, open_store_directly, store_name, warn_in_python
from joblens.app.jobs import PreparedJob
from joblens.app.places import logs_dir, spool_dir, state_dir
from joblens.model.errors import StoreError, SupervisorError
from joblens.model.job import Record
from joblens.model.settings import Settings
from joblens.model.writes import CancelAsked, JobQueued
from joblens.ports.store import Store
from joblens.stores.private_files import make_private_folder

_START_PATIENCE_S = 30.0
_LOG_TAIL = 400


def submit(
    prepared: PreparedJob, settings: Settings, config: str | None, warn: Warn = warn_in_python
) -> Record:
    """Queues the job and has the supervisor look. It runs with the settings in force here and now."""
    uuid, spool = prepared.job.uuid, spool_dir(store_name(settings))
    _check_supervisor_lasts(spool)
    base = settings.output.dir or logs_dir(store_name(settings))
    payload = Payload(
        argv=prepared.argv,
        env=prepared.env,
        cwd=prepared.job.cwd,
        logs_dir=os.path.join(base, uuid),
        output_max_bytes=settings.output.max_size,
        notify=prepared.notify,
    )
    try:
        write_payload(spool, uuid, payload)
    except OSError as error:
        raise SupervisorError(f"the job cannot be handed over: {spool}: {error.strerror}") from error
    record = _queue(prepared, settings, spool, warn)
    wake_supervisor(settings, config)
    return record


def _queue(prepared: PreparedJob, settings: Settings, spool: str, warn: Warn) -> Record:
    """A background job lives in the store; where that fails there is no queue to put it into, and a journal
    would only say later that it should have run."""
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
    """Tells the running supervisor to look now, or starts one."""
    spool = spool_dir(store_name(settings))
    lock = SupervisorLock(spool)
    try:
        make_private_folder(spool)
    except OSError as error:
        raise SupervisorError(f"the supervisor needs {spool}: {error.strerror}") from error
    if lock.signal_holder(signal.SIGUSR1):
        return
    # One at a time, or every one of many submits would start a supervisor of which all but one end again.
    with alone(spool, "starting", _START_PATIENCE_S):
        if not lock.signal_holder(signal.SIGUSR1):
            _start_supervisor(settings, config)


def nudge_supervisor(settings: Settings) -> None:
    """Where one runs, it looks now."""
    try:
        SupervisorLock(spool_dir(store_name(settings))).signal_holder(signal.SIGUSR1)
    except OSError:
        pass


def supervisor_log() -> str:
    return os.path.join(state_dir(), "supervisor.log")


def _start_supervisor(settings: Settings, config: str | None) -> None:
    """Returns when it is there. The process started here ends as soon as the supervisor, its child, stands
    on its own: whoever calls this gets no child that lives on."""
    _check_supervisor_lasts(spool_dir(store_name(settings)))
    log = supervisor_log()
    argv = [sys.executable, "-P", "-m", "joblens.app.supervising", "--detach"]
    argv += store_arguments(settings)
    if config:
        argv += ["--config", os.path.abspath(config)]
    files = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        make_private_folder(os.path.dirname(log))
        env = _own_environment() | store_environment(settings)
        pid = os.posix_spawn(sys.executable, argv, env, file_actions=files, setsid=True)
    except OSError as error:
        raise SupervisorError(f"the background supervisor could not be started: {error}") from error
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return  # the host program takes its children itself
    if status:
        raise SupervisorError(
            f"the background supervisor could not be started: {_last_words(log)}",
            hint=f"its log is {log}; the job stays queued until one starts",
        )


def _check_supervisor_lasts(spool: str) -> None:
    """One that is there already lasts, whoever submits."""
    if is_inside_a_job() and not (os.path.isdir(spool) and SupervisorLock(spool).holder()):
        raise SupervisorError(
            "this command runs inside a job, and a supervisor that it starts would end with that job",
            hint="start one before, outside of the job: joblens supervisor --stay &",
        )


def _own_environment() -> dict[str, str]:
    """It is nobody's job, though a job's notification may have started it."""
    return {name: value for name, value in os.environ.items() if name != JOB_ID_VARIABLE}


def _last_words(log: str) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return "it left no word"


def ask_to_cancel(record: Record, store: Store, settings: Settings, by: str) -> None:
    store.apply([CancelAsked(record.job.uuid, time.time_ns() // 1000, by)])
    nudge_supervisor(settings)
