"""Wires up what a process needs to own jobs: sampler, recorder, accounting, sinks."""

import os
import sys
from collections.abc import Callable

from joblens.agent.accounting import Accountant
from joblens.agent.loop import Loop
from joblens.agent.recorder import Recorder
from joblens.agent.recovery import Recovery
from joblens.agent.sampler import Sampler
from joblens.agent.session import Kit
from joblens.app.drivers import SystemClock, open_sinks, open_store, store_path
from joblens.app.places import spool_dir
from joblens.model.job import Owner
from joblens.model.settings import Settings
from joblens.probes.host import process_start_ticks, read_host


def warn(text: str) -> None:
    sys.stderr.write(f"joblens: warning: {text}\n")


def current_user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def open_kit(
    settings: Settings,
    take_sample: Callable[[str], None],
    job_rlimits: tuple[tuple[int, int, int], ...] = (),
) -> Kit:
    """`take_sample(uuid or watch name)` is called on the sampler's thread when a job is due."""
    clock = SystemClock()
    host = read_host()
    spool = spool_dir(store_path(settings))
    os.makedirs(spool, mode=0o700, exist_ok=True)
    recorder = Recorder(open_store(settings), open_sinks(settings), warn)
    return Kit(
        recorder=recorder,
        sampler=Sampler(take_sample, lambda: None, clock),
        accountant=Accountant(clock, settings.limits.cgroup_parent),
        clock=clock,
        loop=Loop(),
        owner=Owner(
            host=host.hostname,
            pid=os.getpid(),
            start_ticks=process_start_ticks(os.getpid()) or 0,
            boot_id=host.boot_id,
        ),
        host=host,
        spool_dir=spool,
        job_rlimits=job_rlimits,
    )


def open_recovery(kit: Kit) -> Recovery:
    return Recovery(kit.spool_dir, kit.accountant, kit.clock, kit.host)


def close_kit(kit: Kit) -> None:
    kit.sampler.close()
    kit.recorder.close()
    kit.loop.close()
