"""Wires up what a process needs to own jobs: sampler, recorder, accounting, sinks."""

import os
import sys
from collections.abc import Callable

from joblens.agent.accounting import Accountant
from joblens.agent.loop import Loop
from joblens.agent.owners import this_process
from joblens.agent.recorder import Recorder
from joblens.agent.recovery import Recovery
from joblens.agent.sampler import Sampler
from joblens.agent.session import Kit
from joblens.app.drivers import SystemClock, is_own_store, open_sinks, open_store, store_path
from joblens.app.places import spool_dir
from joblens.model.settings import Settings
from joblens.probes.host import read_host
from joblens.stores.private_files import make_private_folder


def warn(text: str) -> None:
    if sys.stderr is None:  # joblens was started with it closed
        return
    line = f"joblens: warning: {text}"
    # On a terminal it takes the place of a live line, and the terminal may be in raw mode.
    sys.stderr.write(f"\r{line}\x1b[K\r\n" if sys.stderr.isatty() else f"{line}\n")


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
    warn: Callable[[str], None] = warn,
) -> Kit:
    """`take_sample(uuid or watch name)` is called on the sampler's thread when a job is due."""
    clock = SystemClock()
    host = read_host()
    spool = spool_dir(store_path(settings))
    try:
        make_private_folder(spool)
    except OSError as error:
        # Only a job whose joblens is killed would miss it.
        warn(f"launchers have no place to leave outcomes: {spool}: {error.strerror}")
    recorder = Recorder(open_store(settings, warn), open_sinks(settings, warn), warn)
    return Kit(
        recorder=recorder,
        sampler=Sampler(take_sample, clock, warn),
        accountant=Accountant(clock, settings.limits.cgroup_parent, warn),
        clock=clock,
        loop=Loop(),
        owner=this_process(host),
        host=host,
        spool_dir=spool,
        job_rlimits=job_rlimits,
    )


def open_recovery(kit: Kit, settings: Settings) -> Recovery:
    return Recovery(
        kit.spool_dir,
        kit.accountant,
        kit.clock,
        kit.host,
        user=current_user(),
        output_max_bytes=settings.output.max_size,
        trusts_records=is_own_store(settings),
    )


def close_kit(kit: Kit) -> None:
    kit.sampler.close()
    kit.recorder.close()
    kit.accountant.close()
    kit.loop.close()
