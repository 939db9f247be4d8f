"""Attached processes: counters since attaching, and the exit status of a process that is no child."""

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Mapping
from typing import Any

from joblens.ports.probe import Probe
from joblens.probes.proc.kernel_files import read_bytes, stat_fields
from joblens.probes.proc.processes import IO_FIELDS

_PEAKS = ("memory_kernel_peak_bytes", "memory_largest_process_bytes")
# Sampled anyway, and not a sum.
_AS_SAMPLED = frozenset({"processes", "threads", "open_files", "open_files_limit", "memory_virtual"})
_NOT_ABOVE = "it has not exceeded its peak from before joblens attached, which the kernel keeps"
_NO_BEGINNING = "its state when joblens attached could not be read"


class BaselinedProbe:
    """The caller subtracts the base of counters.

    The kernel's high-water marks are from before the measurement until they rise: only then they are
    returned.
    """

    def __init__(self, probe: Probe) -> None:
        self.name = probe.name
        self.inner = probe
        self._before: dict[str, int] = {}
        self._missed: set[str] = set()
        self._absent: set[str] | None = None  # sums that were not there at first
        self._no_beginning: dict[str, str] = {}  # … and were later

    @property
    def sources(self) -> Mapping[str, str]:
        return self.inner.sources

    @property
    def unknown(self) -> Mapping[str, str]:
        # Last, numbers that the probe cannot have at all.
        return {**dict.fromkeys(self._before, _NOT_ABOVE), **self._no_beginning, **self.inner.unknown}

    @property
    def lower_bounds(self) -> set[str]:
        return {*getattr(self.inner, "lower_bounds", ()), *self._missed}

    def miss_the_end(self) -> None:
        """Records that it ended before the last reading."""
        self._missed.update(group for group in self.inner.sources if group not in _AS_SAMPLED)

    def was_not_missed(self, group: str) -> None:
        """Records that another source has its end."""
        self._missed.discard(group)

    def scan_all(self) -> None:
        """The next reading is the last."""
        scan_all = getattr(self.inner, "scan_all", None)
        if scan_all is not None:
            scan_all()

    def read(self) -> dict[str, Any]:
        reading = self.inner.read()
        if self._absent is None:
            self._absent = {name for name in IO_FIELDS if name not in reading}
        for name in self._absent.intersection(reading):
            del reading[name]  # since the start of the processes, with an unknown base
            self._no_beginning[name] = _NO_BEGINNING
        for name in _PEAKS:
            if name in reading and reading[name] <= self._before.setdefault(name, reading[name]):
                del reading[name]
        return reading

    def descendants(self) -> list[int]:
        """Of a process tree."""
        found: list[int] = self.inner.descendants()  # type: ignore[attr-defined]
        return found

    def close(self) -> None:
        self.inner.close()


# PIDFD_GET_INFO (Linux 6.13; the exit status since 6.15): _IOWR(0xFF, 11, struct pidfd_info of 64 bytes).
_GET_INFO = 0xC040FF0B
_INFO_BYTES = 64
_INFO_EXIT = 1 << 3
_EXIT_CODE = slice(60, 64)
_STAT_EXIT_CODE = 49  # field 52 of /proc/PID/stat, counted behind the name
_REAP_TIMEOUT_S = 0.5


def exit_status_of(pidfd: int, pid: int) -> int | None:
    """Returns the wait status of an ended process whose `pidfd` was opened while it ran.

    The kernel has it once the parent has reaped it, which may take a moment; before that /proc has. None:
    neither.
    """
    give_up_s = time.monotonic() + _REAP_TIMEOUT_S
    while True:
        status = _status_by_descriptor(pidfd)
        if status is None:
            status = _status_by_proc(pid, pidfd)
        if status is not None or time.monotonic() >= give_up_s or not _is_unreaped(pidfd):
            return status if status is not None else _status_by_descriptor(pidfd)
        time.sleep(0.01)


def _status_by_descriptor(pidfd: int) -> int | None:
    info = bytearray(_INFO_BYTES)
    info[0:8] = _INFO_EXIT.to_bytes(8, "little")
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None  # an older kernel, or not waited for yet
    if not int.from_bytes(info[0:8], "little") & _INFO_EXIT:
        return None
    return int.from_bytes(info[_EXIT_CODE], "little")


def _status_by_proc(pid: int, pidfd: int) -> int | None:
    """Of one that has ended and waits to be waited for."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = stat_fields(read_bytes(f"/proc/{pid}/stat"))
        # Ours still exists, so the pid is not reused yet. Without permission it reads as 0.
        if fields[0] == b"Z" and _is_unreaped(pidfd) and os.access(f"/proc/{pid}/environ", os.R_OK):
            return int(fields[_STAT_EXIT_CODE])
    return None


def _is_unreaped(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not any(events & select.POLLHUP for _, events in poll.poll(0))
