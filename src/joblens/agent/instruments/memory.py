"""Memory-in-depth instrument for jobs that request it: on its own thread, because the kernel is slow."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from joblens.agent.instruments.table import Instruments, Watched, pause_ns
from joblens.agent.runtime.driver_thread import DriverThread
from joblens.model.errors import JoblensError
from joblens.model.jobs.details import Details, MemoryDepth
from joblens.probes.cgroup.memory_detail import memory_group, read_memory_depth

if TYPE_CHECKING:
    from joblens.ports.probe import DetailProbe, Probe

_FIRST_AFTER_S = 0.5  # a program has to be loaded first
_SHORTEST_PAUSE_S = 5.0
_NOTHING_NEW = Details()
_NOT_YET = "not scanned: it had just started, or had already ended"


class _ScannedJob(Struct):
    watched: Watched
    due_s: float
    scans: int = 0
    latest: MemoryDepth | None = None


class MemoryDriver:
    """Scans one job after the other; each has its own pause, in proportion to the cost of its last scan."""

    name = "memory"
    interval_s = 1.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scanned: dict[str, _ScannedJob] = {}

    def add(self, watched: Watched) -> None:
        with self._lock:
            if watched.job.uuid not in self._scanned:
                due_s = time.monotonic() + _FIRST_AFTER_S
                self._scanned[watched.job.uuid] = _ScannedJob(watched, due_s)

    def remove(self, uuid: str) -> None:
        with self._lock:
            self._scanned.pop(uuid, None)

    def latest(self, uuid: str) -> tuple[int, MemoryDepth | None]:
        """Returns (number of scans, the last result)."""
        with self._lock:
            scanned = self._scanned.get(uuid)
            return (scanned.scans, scanned.latest) if scanned is not None else (0, None)

    def read(self) -> None:
        with self._lock:
            due = [scanned for scanned in self._scanned.values() if scanned.due_s <= time.monotonic()]
        for scanned in due:
            self._scan(scanned)

    def idle_until_s(self) -> float:
        with self._lock:
            return min((scanned.due_s for scanned in self._scanned.values()), default=float("inf"))

    def close(self) -> None:
        """Nothing to close."""

    def _scan(self, scanned: _ScannedJob) -> None:
        cpu_before_ns = time.thread_time_ns()
        depth: MemoryDepth | None = None
        with suppress(JoblensError, OSError):  # it is just ending
            depth = read_memory_depth(scanned.watched.pids(), scanned.watched.groups, within_s=1.0)
        pause_s = max(_SHORTEST_PAUSE_S, pause_ns(time.thread_time_ns() - cpu_before_ns) / 1e9)
        with self._lock:
            scanned.due_s = time.monotonic() + pause_s
            if depth is not None and depth.seen:  # otherwise the previous scan is the last
                scanned.scans += 1
                scanned.latest = depth


class MemoryProbe:
    """Adds PSS to the sample after a scan; also huge pages, if the job's group has no such counter."""

    name = "memory"

    def __init__(self, read: Callable[[], tuple[int, MemoryDepth | None]], groups: Mapping[str, str]) -> None:
        self._read = read
        self._reported = 0
        self._has_group_counter = memory_group(groups) is not None
        self.sources: Mapping[str, str] = {
            "memory_pss_bytes": "/proc/PID/smaps_rollup",
            **({} if self._has_group_counter else {"memory_huge_bytes": "/proc/PID/smaps_rollup"}),
        }
        self.unknown: dict[str, str] = {}

    def read(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        scans, depth = self._read()
        if depth is not None and scans != self._reported:
            self._reported = scans
            if depth.pss_bytes is not None:
                fields["memory_pss_bytes"] = depth.pss_bytes
            if not self._has_group_counter and depth.huge_bytes is not None:
                fields["memory_huge_bytes"] = depth.huge_bytes
        return fields

    def close(self) -> None:
        """The probe of details releases the driver."""


class MemoryDetails:
    name = "memory"
    interval_s = _SHORTEST_PAUSE_S / 2

    def __init__(self, uuid: str, driver: "DriverThread[None]") -> None:
        self._uuid = uuid
        self._driver = driver
        self._reported = (-1, "")
        driver.use()

    def read(self) -> Details:
        memory: MemoryDriver = self._driver.driver  # type: ignore[assignment]
        scans, depth = memory.latest(self._uuid)
        why = "" if depth is not None else self._driver.problem() or _NOT_YET
        if (scans, why) == self._reported:
            return _NOTHING_NEW
        self._reported = scans, why
        return Details(memory=depth, unknown={"memory": why} if why else {})

    def close(self) -> None:
        memory: MemoryDriver = self._driver.driver  # type: ignore[assignment]
        memory.remove(self._uuid)
        self._driver.leave()


def _driver(watched: Watched, instruments: Instruments) -> "tuple[DriverThread[None], MemoryDriver]":
    thread: DriverThread[None] = instruments.driver("memory", MemoryDriver)
    driver: MemoryDriver = thread.driver  # type: ignore[assignment]
    driver.add(watched)
    return thread, driver


def open_probe(watched: Watched, instruments: Instruments) -> "Probe":
    _, driver = _driver(watched, instruments)
    return MemoryProbe(lambda: driver.latest(watched.job.uuid), watched.groups)


def open_details(watched: Watched, instruments: Instruments) -> "DetailProbe":
    thread, _ = _driver(watched, instruments)
    return MemoryDetails(watched.job.uuid, thread)
