"""Whether it was for want of memory that the kernel killed a process."""

import contextlib
import os

from joblens.model.errors import ProbeError
from joblens.model.values.units import format_bytes
from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.cgroup.parsers import parse_memory_events, parse_oom_control_v1
from joblens.probes.host.machine import usable_memory_bytes

_FILES = (
    ("memory", "memory.oom_control", parse_oom_control_v1),
    ("unified", "memory.events", parse_memory_events),
)
_RATHER_THAN_OTHERS = 300  # of 1000


class MemoryKills:
    """Those of the control group that this process is in."""

    def __init__(self) -> None:
        try:
            self._layout = read_layout()
        except ProbeError:
            self._layout = CgroupLayout(kind="none")
        self._told = self._count()

    def was_one(self) -> bool | None:
        """Asked for each process that was killed: whether there is a kill that no other one had. None: nobody
        counts them here."""
        count = self._count()
        if count is None or self._told is None:
            return None
        if count <= self._told:
            return False
        self._told += 1
        return True

    def limit_told(self) -> str:
        limit = usable_memory_bytes(self._layout)
        return "" if limit is None else f" ({format_bytes(limit)} is all there is)"

    def _count(self) -> int | None:
        for key, name, parse in _FILES:
            hierarchy = self._layout.hierarchies.get(key)
            if hierarchy is None or hierarchy.directory is None:
                continue
            with contextlib.suppress(OSError), open(os.path.join(hierarchy.directory, name), "rb") as file:
                count = parse(file.read()).get("oom_kills")
                if count is not None:
                    return int(count)
        return None


def be_killed_first() -> None:
    """When memory runs out: rather this process than the one that can start it again."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+") as file:
        now = int(file.read())
        file.seek(0)
        file.write(str(min(1000, now + _RATHER_THAN_OTHERS)))
