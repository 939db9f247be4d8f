"""Out-of-memory kills in a container's group, noticed when they happen. An engine that has its groups made by
systemd loses them with the last process, often before the counters can be read."""

import os
from collections.abc import Mapping

from joblens.probes.cgroup.parsers import parse_memory_events


class OomWatch:
    """`fd` is to be polled for POLLPRI: the kernel marks it when a counter of the group changes. -1: there is
    nothing to wait for, or no more."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        self.has_killed = False
        self.fd = -1
        try:
            self.fd = os.open(f"{groups['unified']}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
        except (KeyError, OSError):
            return  # cgroup v1 keeps the counter, or the container has ended
        self.look()

    def look(self) -> None:
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
