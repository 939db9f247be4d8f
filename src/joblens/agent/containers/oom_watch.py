"""Out-of-memory kills of a container, recorded as they happen."""

import os
from collections.abc import Mapping

from joblens.probes.cgroup.counters import parse_memory_events


class OomWatch:
    """Records an out-of-memory kill when it happens.

    An engine that uses systemd for its groups loses them with the last process, often before the counters can
    be read. Poll `fd` for POLLPRI: the kernel marks it when a counter changes. -1: nothing to wait for."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        self.has_killed = False
        self.fd = -1
        try:
            self.fd = os.open(f"{groups['unified']}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
        except (KeyError, OSError):
            return  # cgroup v1 keeps the counter, or the container has ended
        self.read()

    def read(self) -> None:
        """Reading also makes the next poll wait for the next change."""
        if self.fd < 0:
            return
        try:
            kills = parse_memory_events(os.pread(self.fd, 4096, 0)).get("oom_kills")
        except OSError:  # the group is gone
            self.close()
            return
        if kills:
            self.has_killed = True
            self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
