"""Drives a run in a separate process: `python -m joblens.app.driving.detaching --store PATH RUN`.

It is started like the supervisor: the process that the caller waits for exits once its child, which
drives the run, has begun. Its messages go to a log file in the store's spool folder.
"""

import os
import sys
from collections.abc import Callable

import msgspec

from joblens.agent.runs.signals import ignore_wakeups
from joblens.agent.runtime.ownership import RunLock
from joblens.app.driving.checks import refuse_inside_a_job
from joblens.app.jobs.supervisor import log
from joblens.app.queue.notifiers import settings_of_run
from joblens.app.runs.control import driven_by_another
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.background_process import (
    daemonize,
    service_arguments,
    settings_of,
    start_detached_process,
    store_arguments,
    store_environment,
    warn_of_logout,
)
from joblens.app.wiring.drivers import open_store, spool_dir, store_name
from joblens.files.standard_streams import guard_standard_error
from joblens.model.errors import JoblensError
from joblens.model.runs.run import Run, RunOptions
from joblens.model.settings import Settings

_BROKER_FROM_PARENT = "JOBLENS_QUEUE_BROKER_FROM_PARENT"


def run_log(settings: Settings, run: Run) -> str:
    return os.path.join(spool_dir(store_name(settings)), f"run-{run.uuid}.log")


def detach_run(
    run: Run,
    settings: Settings,
    config: str | None,
    notify: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Returns when it is running."""
    refuse_inside_a_job()
    settings = settings_of_run(settings, run.options)
    path = run_log(settings, run)
    argv = ["-m", "joblens.app.driving.detaching", *store_arguments(settings)]
    # Without parameters: everyone can read a process's arguments, and they may be secret.
    argv += ["--options", msgspec.json.encode(msgspec.structs.replace(run.options, parameters={})).decode()]
    if config:
        argv += ["--config", os.path.abspath(config)]
    if notify:
        argv += ["--notify", notify]
    env = store_environment(settings)
    if settings.queue.broker:
        env[_BROKER_FROM_PARENT] = settings.queue.broker  # the password must not be readable
    env["JOBLENS_QUEUE_RETRY_LOST"] = settings.queue.retry_lost.value
    what, hint = "the background driver of the run", f"its log is {path}"
    start_detached_process([*argv, run.uuid], path, what, hint, env)
    warn_of_logout(RunLock(spool_dir(store_name(settings)), run.uuid), "this run", warn)


def main() -> None:
    from joblens.app.driving.driver import drive
    from joblens.app.driving.summary import notify_run
    from joblens.app.runs.specs import whole_run
    from joblens.app.workflows.loader import plan_of_run

    parser = service_arguments("run")
    parser.add_argument("--options", required=True)
    parser.add_argument("--notify")
    parser.add_argument("run")
    options = parser.parse_args()
    guard_standard_error()
    try:
        broker = os.environ.pop(_BROKER_FROM_PARENT, None)  # jobs do not get it
        settings = settings_of(options)
        settings = msgspec.structs.replace(
            settings, queue=msgspec.structs.replace(settings.queue, broker=broker)
        )
        own_log = OwnLog(settings.logs, lambda text, level: log(f"{level}: {text}"))
        store = open_store(settings, own_log.warn, must_open=True)
        run = whole_run(store.find_run(options.run), store, settings)
        run_options = msgspec.json.decode(options.options, type=RunOptions)
        run_options = msgspec.structs.replace(run_options, parameters=run.options.parameters)
        run = msgspec.structs.replace(run, options=run_options)
        plan = plan_of_run(run)
        lock = RunLock(spool_dir(store_name(settings)), run.uuid)
        store.close()  # SQLite must not be used across a fork; the child opens it again
        is_there = daemonize()
        ignore_wakeups()
        # Taken here, not by the parent: a lock belongs to the process.
        if not lock.take():
            raise driven_by_another(run, lock)
        is_there()
        driven = drive(run, plan, settings, log=own_log, lock=lock, config=options.config, store=store)
        log(f"run {run.uuid} {driven.status} in {driven.wall_s:.1f}s")
        if options.notify:
            notify_run(store, driven, options.notify, own_log.warn)
        store.close()
    except (JoblensError, OSError) as error:
        log(f"ended: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
