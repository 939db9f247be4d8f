"""The background supervisor's process: `python -m joblens.app.jobs.supervisor --store PATH`."""

import signal
from collections.abc import Callable

from msgspec.structs import replace

from joblens.agent.cgroups.login_session import name_stop
from joblens.agent.cgroups.systemd_scope import own_group
from joblens.agent.recovery.supervisor import Supervisor, SupervisorPlan
from joblens.agent.runtime.locks import SupervisorLock, remove_idle_folders
from joblens.agent.session.context import AgentContext, watch_name
from joblens.app.jobs.after_jobs import AfterJobs
from joblens.app.wiring.background_process import begin_service, log_line
from joblens.app.wiring.child_store import store_environment
from joblens.app.wiring.drivers import store_name
from joblens.app.wiring.owning import OwnLog, close_context, current_user, open_context, open_recovery
from joblens.app.wiring.paths import spool_dir
from joblens.app.wiring.restarting import Installation, restart
from joblens.model.errors import ConfigError
from joblens.model.settings import LogSettings, Settings

_OWN_FILES, _FILES_A_JOB = 100, 24  # descriptors, generously


def log(text: str) -> None:
    log_line("supervisor", text)


def stay(settings: Settings, *, has_own_group: bool) -> None:
    """For a service manager: until it is told to end. Where another supervisor is at work, after that one.
    `has_own_group`: this process stands alone in a control group that it may divide among the jobs."""
    _ignore_wake_ups()
    if has_own_group:
        parent = own_group()
        settings = replace(settings, limits=replace(settings.limits, cgroup_parent=parent))
    lock = SupervisorLock(spool_dir(store_name(settings)))
    if not lock.take():
        log("another supervisor is at work; waiting for its end")
        lock.wait()
    _supervise(settings, lock, None)


def supervise(
    settings: Settings, *, idle_s: float | None, when_there: Callable[[], None] = lambda: None
) -> bool:
    """Until it has been idle for so long (None: for ever); False when another one is at work already.
    `when_there` is called once one is, be it this or the other."""
    # Before the lock: a nudge may come as soon as it is held, and would end a process that does not listen.
    _ignore_wake_ups()
    lock = SupervisorLock(spool_dir(store_name(settings)))
    is_first = lock.take()
    when_there()
    if is_first:
        _supervise(settings, lock, idle_s)
    return is_first


def _ignore_wake_ups() -> None:
    """Until the supervisor handles them: by default each would end this process."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def _supervise(settings: Settings, lock: SupervisorLock, idle_s: float | None) -> None:
    supervisor: Supervisor | None = None
    installation = Installation()

    def take_sample(name: str) -> None:
        is_watch = name.startswith(watch_name(""))
        hosted = supervisor.hosted(name.removeprefix(watch_name(""))) if supervisor else None
        if hosted is None:
            return
        if is_watch:
            hosted.watch_limits()
        else:
            hosted.take_sample()

    limits = allow_many_files()
    own_log = _open_log(settings)
    context = replace(open_context(settings, take_sample, limits, own_log.warn), complete=name_stop)
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
    own_log.info(f"a supervisor begins, for {store_name(settings)}")
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
        own_log.info("the supervisor ends")


def _restart(
    context: AgentContext, settings: Settings, lock: SupervisorLock, own_log: OwnLog, supervisor: Supervisor
) -> None:
    """Leaves running jobs to their launchers; they are adopted after the restart. Nothing is imported on the
    way: it could be another version's."""
    context.sampler.close()
    context.recorder.close()
    own_log.warn("restarts in place: another version of joblens was installed, or SIGUSR2 asked for it")
    env = {**store_environment(settings), **lock.keep_across_exec()}
    restart("joblens.app.jobs.supervisor", env, was_asked_to_end=lambda: supervisor.is_asked_to_end)


def _open_log(settings: Settings) -> OwnLog:
    def show(text: str, level: str) -> None:
        log(text if level == "warning" else f"{level}: {text}")

    try:
        return OwnLog(settings.logs, show)
    except ConfigError as error:
        log(str(error))  # jobs that wait are not to wait for that
        return OwnLog(LogSettings(), show)


def allow_many_files() -> tuple[tuple[int, int, int], ...]:
    """Each job keeps a dozen descriptors open here. -> the limit this process was given, for the jobs."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return ((resource.RLIMIT_NOFILE, soft, hard),)


def main() -> None:
    begin_service(
        "supervisor",
        lambda settings, when_there: supervise(
            settings, idle_s=settings.supervisor.idle, when_there=when_there
        ),
    )


if __name__ == "__main__":
    main()
