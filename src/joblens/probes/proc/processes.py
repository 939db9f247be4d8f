"""What only the single processes tell: bytes through read and write calls, open descriptors, the largest
process. Beside the control group's own counters, which tell everything else."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.probes.proc.descriptors import BUDGET, DescriptorBudget
from joblens.probes.proc.proc_files import (
    LargestProcess,
    ProcIo,
    parse_io,
    parse_soft_open_files,
    parse_status,
    parse_virtual,
)
from joblens.probes.proc.watched_process import WatchedProcess

_PEAKS_A_READING = 4  # /proc/PID/status is dear: the processes take turns
_DENIED = "a process of the job does not let this user look at it"

IO_FIELDS = (
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "io_read_bytes",
    "io_write_bytes",
)
_NO_IO = ProcIo(0, 0, 0, 0, 0, 0)


class ProcessesProbe:
    """`pids` lists the living processes. I/O is their sum, what each has reaped included; what died
    unreaped by one of them is the launcher's to add. A field is left out when one process refuses it.

    What a reading costs grows with the number of processes: the caller decides how often that is worth it."""

    name = "processes"

    def __init__(
        self, pids: Callable[[], Sequence[int]], *, proc: str = "/proc", budget: DescriptorBudget = BUDGET
    ) -> None:
        self.sources: Mapping[str, str] = {
            "io": "/proc/PID/io",
            "io_calls": "/proc/PID/io",
            "open_files": "/proc/PID/fd",
            "open_files_limit": "/proc/PID/limits",
            "memory_largest_process": "/proc/PID/status VmHWM",
            "memory_virtual": "/proc/PID/statm",
        }
        self.unknown: dict[str, str] = {}
        self._pids = pids
        self._proc = proc
        self._budget = budget
        self._watched: dict[int, WatchedProcess] = {}
        self._turn = 0
        self._largest = LargestProcess()
        self._open_files_limit: int | None = None
        self._fd_has_size = has_descriptor_counts(proc)

    def read(self) -> dict[str, Any]:
        living = self._refresh(self._pids())
        ios: list[ProcIo] = []
        virtual = open_files = 0
        denied: set[str] = set()
        for process in living:
            try:
                virtual += parse_virtual(process.read("statm"))
                ios.append(_read_io(process, denied))
                open_files += count_open_files(process, denied, has_size=self._fd_has_size)
            except ProcessLookupError:
                self._forget(process)
        self._take_turns(living)
        fields: dict[str, Any] = {"memory_virtual_bytes": virtual, "open_files": open_files}
        fields.update(sum_io(ios))
        fields.update(self._largest.fields())
        if self._open_files_limit is not None:
            fields["open_files_limit"] = self._open_files_limit
        for name in denied:
            fields.pop(name, None)
            self.unknown[name] = _DENIED
        return fields

    def forget_peaks(self) -> None:
        """What was seen so far belonged to processes that had not become the job yet."""
        self._largest.forget()

    def close(self) -> None:
        for process in self._watched.values():
            process.close()
        self._watched.clear()

    def _refresh(self, pids: Sequence[int]) -> list[WatchedProcess]:
        watched = self._watched
        for pid in watched.keys() - set(pids):
            watched.pop(pid).close()
        for pid in pids:
            if pid not in watched:
                try:
                    watched[pid] = WatchedProcess(pid, self._proc, self._budget)
                except OSError:
                    continue
        return list(watched.values())

    def _forget(self, process: WatchedProcess) -> None:
        self._watched.pop(process.pid, None)
        process.close()

    def _take_turns(self, living: list[WatchedProcess]) -> None:
        """A few processes a reading: the largest so far is a maximum, so nothing is lost by waiting."""
        for _ in range(min(_PEAKS_A_READING, len(living))):
            process = living[self._turn % len(living)]
            self._turn += 1
            try:
                self._largest.add(process.pid, parse_status(process.read_once("status")))
                if self._open_files_limit is None:
                    self._open_files_limit = parse_soft_open_files(process.read_once("limits"))
            except OSError:
                continue


def has_descriptor_counts(proc: str) -> bool:
    """Linux 6.2 and later give the number of open descriptors as the size of /proc/PID/fd."""
    try:
        return os.stat(f"{proc}/self/fd").st_size > 0
    except OSError:
        return False


def count_open_files(process: WatchedProcess, denied: set[str], *, has_size: bool) -> int:
    try:
        return process.size_of("fd") if has_size else len(process.names_in("fd"))
    except PermissionError:
        denied.add("open_files")
        return 0


def sum_io(ios: Sequence[ProcIo]) -> dict[str, int]:
    return dict(zip(IO_FIELDS, map(sum, zip(*ios, strict=True)) if ios else _NO_IO, strict=True))


def _read_io(process: WatchedProcess, denied: set[str]) -> ProcIo:
    try:
        return parse_io(process.read("io"))
    except PermissionError:
        denied.update(IO_FIELDS)
        return _NO_IO
