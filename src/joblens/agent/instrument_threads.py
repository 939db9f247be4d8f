"""The threads of one job."""

import time

from joblens.agent.instruments import Instruments, Watched
from joblens.ports.probe import DetailProbe
from joblens.probes.proc_files import USEC_PER_TICK
from joblens.probes.threads import ThreadsProbe


def open_probe(watched: Watched, _instruments: Instruments) -> DetailProbe:
    since_boot_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    created_us = since_boot_us - (time.time_ns() // 1000 - watched.job.created_at_us)

    is_opening = True

    def pids() -> list[int]:
        found = watched.pids()
        if not found and is_opening and watched.main_pid is not None:
            return [watched.main_pid]  # it waits, and the job's tree is not looked at yet
        return found

    def was_before(tid: int, start_ticks: int) -> bool:
        if watched.main_pid is not None:
            return is_opening and tid == watched.main_pid  # it has only made itself ready so far
        return not watched.is_resumed and start_ticks * USEC_PER_TICK < created_us

    probe = ThreadsProbe(pids, was_before, earlier=watched.earlier.threads)
    is_opening = False
    return probe
