"""What can be read only while a container is there, taken by its client: its own control groups, which vanish
with it, and what the engine's processes use for its sake."""

import glob
import os
import resource
from collections.abc import Mapping
from typing import Any

from joblens.agent.containers.note import ContainerNote
from joblens.model.errors import ProbeError
from joblens.probes.cgroup.parsers import parse_memory_events
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.proc_files import USEC_PER_TICK, parse_stat

_NOT_KEPT = ("devices",)  # tables; the totals of a group say the same


class ContainerGauge:
    """To be made when the container has just been started. The engine's helper is the process above the
    container's first one: a shim, or conmon. The kernel adds to a process's numbers those of what it waited
    for, in the end the container itself: so that counts up to the start only, when it was the runtime which
    made the container."""

    def __init__(self, note: ContainerNote, engine: "EngineProcess") -> None:
        self._engine = engine
        self._helper = _parent_of(note.pid) if note.pid is not None else None
        self._reaped_usec, self._start_io = 0, (0, 0)
        if self._helper is not None:
            _, self._reaped_usec = _cpu_usec(self._helper) or (0, 0)
            whole, own = _io_of([f"/proc/{self._helper}/io"]), _io_of(_task_files(self._helper))
            self._start_io = (whole[0] - own[0], whole[1] - own[1])
        self._helper_at_start = self._of_helper() if self._helper is not None else {}
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
        """What is known of it; the engine's own time is for all that it did meanwhile. Of a helper that has
        ended with its container it is what it had used when that began, which is most."""
        used = self._of_helper() if self._helper is not None else {}
        used = used or dict(self._helper_at_start)
        engine_s = self._engine.used_s()
        if engine_s is not None:
            used["engine_cpu_s"] = engine_s
        own = resource.getrusage(resource.RUSAGE_SELF)
        used["client_cpu_s"] = own.ru_utime + own.ru_stime
        used["client_memory_bytes"] = float(own.ru_maxrss * 1024)
        return used

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def _of_helper(self) -> dict[str, float]:
        assert self._helper is not None
        cpu, memory = _cpu_usec(self._helper), _line_value(f"/proc/{self._helper}/status", b"VmHWM:")
        if cpu is None or memory is None:
            return {}  # it has ended with the container
        own = _io_of(_task_files(self._helper))
        return {
            "helper_cpu_s": (cpu[0] + self._reaped_usec) / 1e6,
            "helper_memory_bytes": float(memory * 1024),
            "helper_io_read_bytes": float(self._start_io[0] + own[0]),
            "helper_io_write_bytes": float(self._start_io[1] + own[1]),
        }


class OomWatch:
    """Notices a kill for lack of memory when it happens. An engine that has its groups made by systemd loses
    them with the last process, often before the counters can be read. `fd` is to be polled for POLLPRI: the
    kernel marks it when a counter of the group changes. -1: there is nothing to wait for, or no more."""

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


class EngineProcess:
    """The engine itself, from the moment the container is asked for."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._before = _cpu_usec(pid) if pid is not None else None

    def used_s(self) -> float | None:
        now = _cpu_usec(self._pid) if self._pid is not None else None
        return None if now is None or self._before is None else (now[0] - self._before[0]) / 1e6


def _cpu_usec(pid: int) -> tuple[int, int] | None:
    """Of the process itself, and of all it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = parse_stat(file.read())
    except (OSError, ValueError):
        return None
    own, reaped = stat.user_ticks + stat.system_ticks, stat.user_ticks_reaped + stat.system_ticks_reaped
    return own * USEC_PER_TICK, reaped * USEC_PER_TICK


def _io_of(paths: list[str]) -> tuple[int, int]:
    """Bytes read from and written to disks, added up."""
    read = sum(_line_value(path, b"read_bytes:") or 0 for path in paths)
    return read, sum(_line_value(path, b"write_bytes:") or 0 for path in paths)


def _task_files(pid: int) -> list[str]:
    """Threads count for themselves alone, without what the process has waited for."""
    return glob.glob(f"/proc/{pid}/task/*/io")


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
