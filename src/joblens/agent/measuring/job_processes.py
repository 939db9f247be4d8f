"""Processes of one job that are alive: found by its groups, its process tree or the job id in their
environment.

The last resort where no control group stands and no launcher is left to ask.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.measuring.meter import JobMeter

JOB_ID_VARIABLE = "JOBLENS_JOB_ID"
_ROUNDS = 50
_PAUSE_S = 0.01


def end_marked(uuid: str) -> bool:
    """New ones included: until a look finds none. -> whether there were any"""
    for round_ in range(_ROUNDS):
        if not _kill_each(uuid):
            return round_ > 0
        time.sleep(_PAUSE_S)
    return True


def marked_processes(uuid: str) -> list[int]:
    """Living ones. Only those we may look at can be ours."""
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _has_mark(int(name), mark)]


def _kill_each(uuid: str) -> int:
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    killed = 0
    for pid in marked_processes(uuid):
        with contextlib.suppress(OSError):
            held = os.pidfd_open(pid)
            try:
                # Held now: it is still the process that was found, not one that got its number since.
                if _has_mark(pid, mark):
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    killed += 1
            finally:
                os.close(held)
    return killed


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


# As the kernel has their names: 15 letters at most. mpirun leaves the srun behind that started its daemons.
_NAMES = frozenset({"srun", "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_pr"})
STEP_END_S = 5.0  # as long as Slurm may take to end a step whose tasks are gone


def are_step_launchers(pids: Iterable[int], proc: str = "/proc") -> bool:
    """Nothing but those is left: not what the job has forgotten to wait for."""
    return all(_name(pid, proc) in {*_NAMES, ""} for pid in pids)


def _name(pid: int, proc: str) -> str:
    """'' when it has just gone."""
    with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


_SAME_LOOK_S = 0.01
_KILL_TRIES = 20  # a fork may slip between listing and killing


class JobProcesses:
    """`groups` and `meter` are set as soon as they are there; until then there is nobody."""

    def __init__(self) -> None:
        self.groups: JobGroups | None = None
        self.meter: JobMeter | None = None
        self._seen: list[int] = []
        self._seen_at_s = 0.0

    def seen(self) -> list[int]:
        """As they were a moment ago: for those who look at the job together, not for signals."""
        now_s = time.monotonic()
        if now_s - self._seen_at_s > _SAME_LOOK_S:
            self._seen = self.pids()
            self._seen_at_s = now_s
        return self._seen

    def pids(self) -> list[int]:
        """Every process of the job that is alive now."""
        if self.groups is not None:
            return self.groups.pids()
        return self.meter.living() if self.meter is not None else []

    def signal(self, number: int) -> None:
        if self.groups is not None:
            self.groups.signal(number)
        else:
            signal_each(self.pids(), number)

    def kill(self) -> None:
        if self.groups is not None:
            self.groups.kill()
            return
        for _ in range(_KILL_TRIES):
            pids = self.pids()
            if not pids:
                return
            signal_each(pids, signal.SIGKILL)
            time.sleep(0.002)


def signal_each(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            continue  # it became another user's (setuid); the group kill reaches it
