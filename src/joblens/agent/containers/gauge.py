"""Numbers of a container as its client reads them: those of its groups, of the engine and its helper, and
out-of-memory kills as they happen."""

import glob
import os
import resource
from collections.abc import Mapping
from typing import Any

from joblens.agent.containers.protocol import ContainerNote
from joblens.model.errors import ProbeError
from joblens.probes.cgroup.counters import parse_memory_events
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.proc.kernel_files import USEC_PER_TICK, parse_stat


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


_SKIPPED_FIELDS = ("devices",)  # tables; the totals of a group contain the same


class ContainerGauge:
    """CPU, memory and I/O of the engine's helper, a shim or conmon, which is the parent of the container's
    first process. Create it right after the container was started. The kernel adds to a process's numbers
    those of its reaped children, in the end the container itself: so they are read only up to the start, when
    the child was the runtime that created the container."""

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
        """Call it the moment the container's first process has ended: no other process outlives it, and
        the engine has yet to remove the groups."""
        if self._probe is None:
            return {}
        try:
            reading = self._probe.read()
        except ProbeError:
            return {}
        return {name: value for name, value in reading.items() if name not in _SKIPPED_FIELDS}

    def overhead(self) -> dict[str, float]:
        """Returns the known overhead; the engine's own time includes all its work meanwhile. For a helper
        that ended with its container it is the overhead at the start, which is most of it."""
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


class EngineProcess:
    """The engine itself, from the request for the container on."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._before = _cpu_usec(pid) if pid is not None else None

    def used_s(self) -> float | None:
        now = _cpu_usec(self._pid) if self._pid is not None else None
        return None if now is None or self._before is None else (now[0] - self._before[0]) / 1e6


def _cpu_usec(pid: int) -> tuple[int, int] | None:
    """Returns the CPU time of the process and of its reaped children."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = parse_stat(file.read())
    except (OSError, ValueError):
        return None
    own, reaped = stat.user_ticks + stat.system_ticks, stat.user_ticks_reaped + stat.system_ticks_reaped
    return own * USEC_PER_TICK, reaped * USEC_PER_TICK


def _io_of(paths: list[str]) -> tuple[int, int]:
    """Returns the sum of bytes read from and written to disks."""
    read = sum(_line_value(path, b"read_bytes:") or 0 for path in paths)
    return read, sum(_line_value(path, b"write_bytes:") or 0 for path in paths)


def _task_files(pid: int) -> list[str]:
    """Threads count only for themselves, without reaped children."""
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
    """Returns None if it is gone or its parent is init."""
    value = _line_value(f"/proc/{pid}/status", b"PPid:")
    return value if value is not None and value > 1 and value != os.getpid() else None
