"""The background supervisor's process: `python -m joblens.app.supervising --store PATH`."""

import argparse
import os
import sys
import time

from joblens.agent.session import watch_name
from joblens.agent.supervisor import Supervisor, SupervisorLock
from joblens.app.after_job import after_job
from joblens.app.drivers import store_path
from joblens.app.owning import close_kit, current_user, open_kit, open_recovery
from joblens.app.places import logs_dir, spool_dir
from joblens.app.settings import load_settings
from joblens.model.job import Record
from joblens.model.settings import Settings

IDLE_S = 10.0
_LOG_BYTES = 5 * 1024**2


def log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} supervisor {os.getpid()}: {text}\n")
    sys.stderr.flush()


def supervise(settings: Settings) -> None:
    supervisor: Supervisor | None = None

    def take_sample(name: str) -> None:
        assert supervisor is not None
        is_watch = name.startswith(watch_name(""))
        hosted = supervisor.hosted(name.removeprefix(watch_name("")))
        if hosted is None:
            return
        if is_watch:
            hosted.watch_limits()
        else:
            hosted.take_sample()

    kit = open_kit(settings, take_sample, job_rlimits=_allow_many_files())
    base = settings.output.dir or logs_dir(store_path(settings))

    def ended(record: Record) -> None:
        kit.recorder.read(lambda store: after_job(record, store, settings, log))

    supervisor = Supervisor(
        kit,
        open_recovery(kit),
        SupervisorLock(spool_dir(store_path(settings))),
        logs_dir_of=lambda uuid: os.path.join(base, uuid),
        output_max_bytes=settings.output.max_size,
        user=current_user(),
        idle_s=IDLE_S,
        log=log,
        on_job_end=ended,
    )
    try:
        supervisor.run()
    finally:
        close_kit(kit)


def _allow_many_files() -> tuple[tuple[int, int, int], ...]:
    """Each job keeps a dozen descriptors open here. -> the limit this process was given, for the jobs."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return ((resource.RLIMIT_NOFILE, soft, hard),)


def main() -> None:
    parser = argparse.ArgumentParser(prog="joblens supervisor")
    parser.add_argument("--store", required=True)
    parser.add_argument("--config")
    options = parser.parse_args()
    if os.fstat(2).st_size > _LOG_BYTES:
        os.ftruncate(2, 0)
    supervise(load_settings(config=options.config, overrides={"store.url": options.store}).settings)


if __name__ == "__main__":
    main()
