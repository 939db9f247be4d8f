"""The living processes of one job: found by its groups, or by its process tree where it has none."""

import os
import signal
import time

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.measuring.meter import JobMeter

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
