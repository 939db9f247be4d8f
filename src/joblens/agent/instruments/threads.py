"""Threads instrument: CPU use of the threads of one job."""

import time
from typing import TYPE_CHECKING

from joblens.agent.instruments.table import Instruments, Watched
from joblens.model.jobs.details import Details
from joblens.probes.proc.kernel_files import read_bytes

if TYPE_CHECKING:  # most jobs end before it is needed
    from joblens.ports.probe import DetailProbe
    from joblens.probes.proc.threads import ThreadsProbe

_TOO_SHORT = "it ended before its threads were first scanned"
_NOTHING_NEW = Details()
_FILES = ("schedstat", "stat", "sched")


class ThreadsFromTheStart:
    """Threads of a job that is about to start: the usage of its waiting first process belongs to joblens. The
    first reading is taken at the start."""

    name = "threads"

    def __init__(self, watched: Watched, main_pid: int) -> None:
        """Raises OSError."""
        self._watched = watched
        self._waited = main_pid, _files_of(main_pid)
        self._is_at_start = True
        self._probe: ThreadsProbe | None = None

    @property
    def interval_s(self) -> float:
        return 0.0 if self._probe is None else self._probe.interval_s

    @property
    def is_stable(self) -> bool:
        return self._probe is not None and self._probe.is_stable

    def read(self) -> Details:
        if self._probe is None:
            if self._is_at_start:
                self._is_at_start = False
                return _NOTHING_NEW
            from joblens.probes.proc.threads import ThreadsProbe

            self._probe = ThreadsProbe(self._watched.pids, _never, waited=self._waited)
        return self._probe.read()

    def read_last(self) -> Details:
        return Details(unknown={"threads": _TOO_SHORT}) if self._probe is None else self._probe.read()

    def close(self) -> None:
        """Nothing to close."""


def _never(_tid: int, _start_ticks: int) -> bool:
    return False


def _files_of(pid: int) -> dict[str, bytes]:
    """Returns the files by name. Some kernels do not have all of them."""
    files: dict[str, bytes] = {}
    for name in _FILES:
        try:
            files[name] = read_bytes(f"/proc/{pid}/task/{pid}/{name}")
        except FileNotFoundError:
            continue
    if "sched" not in files:
        files["status"] = read_bytes(f"/proc/{pid}/task/{pid}/status")
    return files


def open_probe(watched: Watched, _instruments: Instruments) -> "DetailProbe":
    if watched.main_pid is not None:
        return ThreadsFromTheStart(watched, watched.main_pid)
    from joblens.probes.proc.kernel_files import USEC_PER_TICK
    from joblens.probes.proc.threads import ThreadsProbe

    since_boot_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    created_us = since_boot_us - (time.time_ns() // 1000 - watched.job.created_at_us)

    def was_before(_tid: int, start_ticks: int) -> bool:
        return not watched.is_resumed and start_ticks * USEC_PER_TICK < created_us

    return ThreadsProbe(watched.pids, was_before, earlier=watched.earlier.threads)
