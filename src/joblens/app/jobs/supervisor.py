"""Supervisor of background jobs: `python -m joblens.app.jobs.supervisor --store PATH`."""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from msgspec.structs import replace

from joblens.agent.cgroups.login_session import name_stop
from joblens.agent.cgroups.systemd_scope import own_group
from joblens.agent.recovery.supervisor import Supervisor, SupervisorPlan
from joblens.agent.runtime.ownership import SupervisorLock, remove_idle_folders
from joblens.agent.runtime.payload import Payload
from joblens.agent.session.context import AgentContext
from joblens.app.jobs.epilog import Notice, after_job, notice_from_record
from joblens.app.wiring.agent_context import OwnLog, close_context, current_user, open_context, open_recovery
from joblens.app.wiring.background_process import (
    Installation,
    begin_service,
    log_line,
    restart,
    store_environment,
)
from joblens.app.wiring.drivers import open_store, spool_dir, store_name
from joblens.model.errors import ConfigError, JoblensError
from joblens.model.jobs.job import Record
from joblens.model.settings import LogSettings, Settings
from joblens.ports.store import Store


class AfterJobs:
    def __init__(self, settings: Settings, log: OwnLog) -> None:
        self._settings = settings
        self._log = log
        self._ended: SimpleQueue[tuple[Record, Notice | None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, record: Record, payload: Payload | None) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="joblens-after-jobs")
            thread.start()
            self._thread = thread
        notice = Notice(payload.notify, payload.env, payload.cwd) if payload else notice_from_record(record)
        self._ended.put((record, notice))

    def close(self) -> None:
        """Returns when everything in the queue is done."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread.join()

    def _run(self) -> None:
        store: Store | None = None
        while (ended := self._ended.get()) is not None:
            record, notice = ended
            self._log.ended(record)
            store = store or open_store(self._settings, self._log.warn)
            if record.number is None:
                with suppress(JoblensError):  # it waits in the journal and has no number yet
                    record = store.find(record.job.uuid)
            after_job(record, store, self._settings, self._log.warn, notice)
        if store is not None:
            store.close()


_OWN_FILES, _FILES_A_JOB = 100, 24  # descriptors, generously


def log(text: str) -> None:
    log_line("supervisor", text)


def stay(settings: Settings, *, has_own_group: bool) -> None:
    """For a service manager: runs until it is stopped. If another supervisor is running, waits for its
    end. `has_own_group`: this process is alone in a control group that it may divide among the jobs."""
    _ignore_wake_ups()
    if has_own_group:
        parent = own_group()
        settings = replace(settings, limits=replace(settings.limits, cgroup_parent=parent))
    lock = SupervisorLock(spool_dir(store_name(settings)))
    if not lock.take():
        log("another supervisor is running; waiting for it to end")
        lock.wait()
    _supervise(settings, lock, None)


def supervise(
    settings: Settings, *, idle_s: float | None, on_ready: Callable[[], None] = lambda: None
) -> bool:
    """Runs until it has been idle for this long (None: indefinitely); returns False if another one is
    running. `on_ready` is called once this one or the other is running."""
    # Before the lock: a wakeup signal may come as soon as it is held, and would kill a process without a
    # handler.
    _ignore_wake_ups()
    lock = SupervisorLock(spool_dir(store_name(settings)))
    is_first = lock.take()
    on_ready()
    if is_first:
        _supervise(settings, lock, idle_s)
    return is_first


def _ignore_wake_ups() -> None:
    """Until the supervisor handles them: by default each would kill this process."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def _supervise(settings: Settings, lock: SupervisorLock, idle_s: float | None) -> None:
    installation = Installation()

    limits = allow_many_files()
    own_log = _open_log(settings)
    context = replace(open_context(settings, limits, warn=own_log.warn), complete=name_stop)
    after_jobs = AfterJobs(settings, own_log)
    supervisor = Supervisor(
        context,
        open_recovery(context, settings),
        lock,
        SupervisorPlan(
            user=current_user(),
            most_jobs=max(1, (limits[0][2] - _OWN_FILES) // _FILES_A_JOB),
            idle_s=idle_s,
            output_max_bytes=settings.output.max_size,
        ),
        log=own_log.warn,
        on_job_end=after_jobs.put,
        is_outdated=installation.has_changed,
    )
    own_log.info(f"supervisor started, for {store_name(settings)}")
    must_restart = False
    try:
        must_restart = supervisor.run()
    finally:
        after_jobs.close()
        if must_restart:
            _restart(context, settings, lock, own_log, supervisor)
        close_context(context)
        lock.release()
        remove_idle_folders(context.spool_dir)
        own_log.info("supervisor stopped")


def _restart(
    context: AgentContext, settings: Settings, lock: SupervisorLock, own_log: OwnLog, supervisor: Supervisor
) -> None:
    """Leaves running jobs to their launchers; they are adopted after the restart. Nothing is imported
    meanwhile: it could be another version's."""
    context.sampler.close()
    context.recorder.close()
    own_log.warn("restarting in place: another version of joblens was installed, or SIGUSR2 was received")
    env = {**store_environment(settings), **lock.keep_across_exec()}
    restart("joblens.app.jobs.supervisor", env, is_stopping=lambda: supervisor.is_stopping)


def _open_log(settings: Settings) -> OwnLog:
    def show(text: str, level: str) -> None:
        log(text if level == "warning" else f"{level}: {text}")

    try:
        return OwnLog(settings.logs, show)
    except ConfigError as error:
        log(str(error))  # queued jobs must not wait for that
        return OwnLog(LogSettings(), show)


def allow_many_files() -> tuple[tuple[int, int, int], ...]:
    """Each job needs a dozen descriptors here. Returns the original limit, for the jobs."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return ((resource.RLIMIT_NOFILE, soft, hard),)


def main() -> None:
    begin_service(
        "supervisor",
        lambda settings, on_ready: supervise(settings, idle_s=settings.supervisor.idle, on_ready=on_ready),
    )


if __name__ == "__main__":
    main()
