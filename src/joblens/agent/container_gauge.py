"""What can be read only while a container is there, taken by its client: its own control groups, which vanish
with it, and what the engine's processes use for its sake."""

import os
import resource
from typing import Any

from joblens.agent.container_note import ContainerNote
from joblens.model.errors import ProbeError
from joblens.probes.cgroup import CgroupProbe
from joblens.probes.proc_files import USEC_PER_TICK, parse_stat

_NOT_KEPT = ("devices",)  # tables; the totals of a group say the same


class ContainerGauge:
    """`helper` is the engine's process above the container's first one: a shim, or conmon."""

    def __init__(self, note: ContainerNote, engine_pid: int | None, engine_cpu_usec: int | None) -> None:
        self._engine_pid = engine_pid
        self._engine_cpu_usec = engine_cpu_usec  # when the container was asked for
        self._helper = _parent_of(note.pid) if note.pid is not None else None
        self._probe: CgroupProbe | None = None
        if note.groups:
            try:
                self._probe = CgroupProbe(note.groups, note.layout)
            except ProbeError:
                pass  # it has ended already

    def last_reading(self) -> dict[str, Any]:
        """To be called the moment the container's first process has ended: no other outlives it, and the
        engine has yet to take the groups away."""
        if self._probe is None:
            return {}
        try:
            reading = self._probe.read()
        except ProbeError:
            return {}
        return {name: value for name, value in reading.items() if name not in _NOT_KEPT}

    def overhead(self) -> dict[str, float]:
        """What is known of it; the engine's own numbers are for all that it did meanwhile."""
        used: dict[str, float] = {}
        if self._helper is not None:
            used |= _use_of(self._helper, "helper")
        engine_now = cpu_usec_of(self._engine_pid) if self._engine_pid is not None else None
        if engine_now is not None and self._engine_cpu_usec is not None:
            used["engine_cpu_s"] = (engine_now - self._engine_cpu_usec) / 1e6
        own = resource.getrusage(resource.RUSAGE_SELF)
        used["client_cpu_s"] = own.ru_utime + own.ru_stime
        used["client_memory_bytes"] = float(own.ru_maxrss * 1024)
        return used

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()


def cpu_usec_of(pid: int) -> int | None:
    """Of a process and all it has waited for: an engine's helper waits for the runtime that makes and ends
    the container."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = parse_stat(file.read())
    except (OSError, ValueError):
        return None
    ticks = stat.user_ticks + stat.system_ticks + stat.user_ticks_reaped + stat.system_ticks_reaped
    return ticks * USEC_PER_TICK


def _use_of(pid: int, whose: str) -> dict[str, float]:
    used: dict[str, float] = {}
    cpu_usec = cpu_usec_of(pid)
    if cpu_usec is not None:
        used[f"{whose}_cpu_s"] = cpu_usec / 1e6
    for name, line, scale in (
        (f"{whose}_memory_bytes", b"VmHWM:", 1024),
        (f"{whose}_io_read_bytes", b"read_bytes:", 1),
        (f"{whose}_io_write_bytes", b"write_bytes:", 1),
    ):
        value = _line_value(f"/proc/{pid}/{'status' if line == b'VmHWM:' else 'io'}", line)
        if value is not None:
            used[name] = float(value * scale)
    return used


def _line_value(path: str, name: bytes) -> int | None:
    try:
        with open(path, "rb", buffering=0) as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(name):
            return int(line.split()[1])
    return None


def _parent_of(pid: int) -> int | None:
    """None: it is gone, or it has nobody above it but the machine's first process."""
    value = _line_value(f"/proc/{pid}/status", b"PPid:")
    return value if value is not None and value > 1 and value != os.getpid() else None
