"""Kernel interfaces: readers and parsers of files in /proc and /sys that several probes need, detection of
hardware, and system calls without a Python name.
"""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct

# The kernel hands out seq files about one page at a time; a shorter answer is the last one.
LAST_CHUNK_BELOW = 4000


def read_bytes(path: str) -> bytes:
    """Reads a file in half the time of `open` and `read`, which query the file first."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return pread_whole(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: str) -> str | None:
    """Returns None if the file does not exist or is not readable."""
    try:
        return read_bytes(path).decode("ascii", "replace")
    except OSError:
        return None


def read_words(path: str) -> frozenset[str]:
    """Returns the words of a file such as cgroup.controllers; empty if it does not exist."""
    return frozenset((read_text(path) or "").split())


def pread_whole(fd: int) -> bytes:
    """Reads a file from the start through an open descriptor."""
    data = os.pread(fd, 65536, 0)
    if len(data) < LAST_CHUNK_BELOW:
        return data
    chunks, offset = [data], len(data)
    while chunk := os.pread(fd, 65536, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)


def names_in(folder: str) -> list[str]:
    """Returns the sorted names in a folder; empty if it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def subgroups(directory: str) -> list[str]:
    """Returns the directories of the groups directly below this one."""
    try:
        # A group directory has two links and one more per sub-group: most have none, and need no listing.
        if os.stat(directory).st_nlink == 2:
            return []
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def list_pids(directory: str) -> list[int]:
    """Returns the processes in the group and in every group below it; empty if it was removed."""
    try:
        pids = [int(word) for word in read_bytes(f"{directory}/cgroup.procs").split()]
    except OSError:
        pids = []
    for subgroup in subgroups(directory):
        pids += list_pids(subgroup)
    return pids


_KIB = 1024
# Windows has no sysconf, and no /proc.
_has_sysconf = hasattr(os, "sysconf")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if _has_sysconf else 4096
USEC_PER_TICK = 1_000_000 // (os.sysconf("SC_CLK_TCK") if _has_sysconf else 100)
_SIGCHLD_BIT = 1 << (17 - 1)


class ProcStat(Struct, frozen=True):
    """Counters of a process, times in clock ticks. `…_reaped`: of all descendants that were waited for."""

    state: str
    parent_pid: int
    faults_minor: int
    faults_minor_reaped: int
    faults_major: int
    faults_major_reaped: int
    user_ticks: int
    system_ticks: int
    user_ticks_reaped: int
    system_ticks_reaped: int
    threads: int
    start_ticks: int
    virtual_bytes: int
    stack_start: int  # random per exec, inherited by fork: equal in a process and its forks

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZXx"


class ProcIo(Struct, frozen=True):
    """I/O of a process and of every child it has waited for."""

    call_read_bytes: int
    call_write_bytes: int
    call_reads: int
    call_writes: int
    read_bytes: int
    write_bytes: int


class ProcStatm(Struct, frozen=True):
    virtual_bytes: int
    resident_bytes: int
    shared_bytes: int  # of files and shared memory

    @property
    def anon_bytes(self) -> int:
        """Returns resident memory that is neither a file nor shared memory."""
        return self.resident_bytes - self.shared_bytes


class ProcStatus(Struct, frozen=True):
    """Memory of a process. None: it has no memory (a zombie), or the kernel lacks the line."""

    peak_bytes: int | None
    shmem_bytes: int | None
    swap_bytes: int | None
    file_bytes: int | None
    ignores_sigchld: bool


class SmapsRollup(Struct, frozen=True):
    """All mappings of a process added up, in bytes. PSS: a page that n processes share counts 1/n in each."""

    rss: int
    pss: int
    anon: int
    pss_anon: int | None  # None: the kernel does not divide PSS (before 5.4)
    pss_shmem: int | None
    private: int
    private_dirty: int
    shared: int
    swap: int
    huge: int
    hugetlb_private: int
    hugetlb_shared: int


def stat_fields(data: bytes) -> list[bytes]:
    """Returns the fields of a stat file from the third one (the state) on. The command before them may
    contain blanks and parentheses: the last parenthesis ends it."""
    return data[data.rindex(b")") + 2 :].split()


def parse_stat(data: bytes) -> ProcStat:
    f = stat_fields(data)
    return ProcStat(
        state=f[0].decode(),
        parent_pid=int(f[1]),
        faults_minor=int(f[7]),
        faults_minor_reaped=int(f[8]),
        faults_major=int(f[9]),
        faults_major_reaped=int(f[10]),
        user_ticks=int(f[11]),
        system_ticks=int(f[12]),
        user_ticks_reaped=int(f[13]),
        system_ticks_reaped=int(f[14]),
        threads=int(f[17]),
        start_ticks=int(f[19]),
        virtual_bytes=int(f[20]),
        stack_start=int(f[25]),
    )


def parse_io(data: bytes) -> ProcIo:
    words = data.split(maxsplit=12)  # seven 'name: value' lines, always in this order
    return ProcIo(int(words[1]), int(words[3]), int(words[5]), int(words[7]), int(words[9]), int(words[11]))


def parse_statm(data: bytes) -> ProcStatm:
    size, resident, shared, _ = data.split(maxsplit=3)
    return ProcStatm(int(size) * PAGE_BYTES, int(resident) * PAGE_BYTES, int(shared) * PAGE_BYTES)


def parse_status(data: bytes) -> ProcStatus:
    ignored = line_value(data, b"\nSigIgn:")
    return ProcStatus(
        peak_bytes=_kib_value(data, b"\nVmHWM:"),
        shmem_bytes=_kib_value(data, b"\nRssShmem:"),
        swap_bytes=_kib_value(data, b"\nVmSwap:"),
        file_bytes=_kib_value(data, b"\nRssFile:"),
        ignores_sigchld=ignored is not None and bool(int(ignored, 16) & _SIGCHLD_BIT),
    )


class LargestProcess:
    """Highest resident memory of any process so far, and the files which that process maps."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._pid, self._peak_bytes = 0, 0
        self._file_bytes: int | None = None

    def add(self, pid: int, status: ProcStatus) -> None:
        peak_bytes = status.peak_bytes or 0
        if peak_bytes and (peak_bytes > self._peak_bytes or pid == self._pid):
            self._pid, self._peak_bytes = pid, max(peak_bytes, self._peak_bytes)
            self._file_bytes = status.file_bytes

    def fields(self) -> dict[str, int]:
        if not self._peak_bytes:
            return {}
        fields = {"memory_largest_process_bytes": self._peak_bytes}
        if self._file_bytes is not None:
            fields["memory_largest_process_file_bytes"] = self._file_bytes
        return fields


def parse_pairs(data: bytes) -> dict[bytes, bytes]:
    """Returns the 'key value' lines of memory.stat and similar files of control groups."""
    words = data.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def kib_lines(data: bytes) -> dict[bytes, int]:
    """Returns all 'Name: N kB' lines of status, smaps_rollup or meminfo, in bytes. A zombie has none."""
    return {
        name: int(value[:-3]) * _KIB
        for name, _, value in (line.partition(b":") for line in data.splitlines())
        if value.endswith(b" kB")
    }


def parse_smaps_rollup(data: bytes) -> SmapsRollup:
    sizes = kib_lines(data)

    def total(*names: bytes) -> int:
        return sum(sizes.get(name, 0) for name in names)

    return SmapsRollup(
        rss=total(b"Rss"),
        pss=total(b"Pss"),
        anon=total(b"Anonymous"),
        pss_anon=sizes.get(b"Pss_Anon"),
        pss_shmem=sizes.get(b"Pss_Shmem"),
        private=total(b"Private_Clean", b"Private_Dirty"),
        private_dirty=total(b"Private_Dirty"),
        shared=total(b"Shared_Clean", b"Shared_Dirty"),
        swap=total(b"Swap"),
        huge=total(b"AnonHugePages", b"ShmemPmdMapped", b"FilePmdMapped"),
        hugetlb_private=total(b"Private_Hugetlb"),
        hugetlb_shared=total(b"Shared_Hugetlb"),
    )


def parse_soft_open_files(data: bytes) -> int | None:
    """Parses /proc/PID/limits; None: unlimited, or no such line."""
    value = line_value(data, b"\nMax open files")
    word = value.split(maxsplit=1)[0] if value else b""
    return int(word) if word.isdigit() else None


def line_value(data: bytes, name: bytes) -> bytes | None:
    """Returns the rest of the line that starts with `name`, which begins with a newline."""
    start = data.find(name)
    if start < 0:
        return None
    start += len(name)
    end = data.find(b"\n", start)
    return data[start : end if end >= 0 else len(data)].strip()


def _kib_value(data: bytes, name: bytes) -> int | None:
    value = line_value(data, name)
    return int(value.split()[0]) * _KIB if value else None


_DRM_DRIVERS = ("amdgpu", "i915", "xe")
_NVIDIA_SIGN = "/dev/nvidiactl"
_DRM_SIGN = "/sys/class/drm"


def has_nvidia() -> bool:
    return os.path.exists(_NVIDIA_SIGN)


@cache
def has_drm() -> bool:
    """Returns whether there is a card whose driver reports anything. Most servers have one only for text."""
    return bool(drm_cards())


def count_gpus(dev: str = "/dev", drm: str = _DRM_SIGN) -> int:
    """Counts GPUs of any vendor that a job could use."""
    return len(nvidia_indexes(dev)) + len(drm_cards(drm))


def nvidia_indexes(dev: str = "/dev") -> list[int]:
    """Returns the numbers of NVIDIA's devices, in order."""
    numbers = (name.removeprefix("nvidia") for name in names_in(dev) if name.startswith("nvidia"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def drm_cards(drm: str = _DRM_SIGN) -> dict[str, str]:
    """Returns the cards whose driver reports anything, in order, with the driver's name. Outputs of a card
    (card0-HDMI-A-1) are not cards."""
    numbers = [name.removeprefix("card") for name in names_in(drm) if name.startswith("card")]
    cards = [f"card{number}" for number in sorted(filter(str.isdecimal, numbers), key=int)]
    drivers = {card: os.path.basename(os.path.realpath(f"{drm}/{card}/device/driver")) for card in cards}
    return {card: driver for card, driver in drivers.items() if driver in _DRM_DRIVERS}


POWERCAP = "/sys/class/powercap"
NO_ZONES = "no energy counters on this machine: no RAPL under /sys/class/powercap"


def has_zones() -> bool:
    return bool(names_in(POWERCAP))


def call(number: int, *arguments: int | bytes) -> int:
    """Makes a system call. Numbers must fit a C int; bytes are passed by pointer, and the kernel must only
    read them. Raises OSError."""
    result = _quick_call(number, *arguments)
    if result is None or result < 0:
        # Repeated in a way that returns the error; only a denied process pays for the import.
        result = _checked_call(number, *arguments)
    return result


def call_writing(number: int, first: int, buffer: bytearray, size: int) -> int:
    """Makes a system call that also writes to `buffer`. Raises OSError."""
    import ctypes

    return _checked_call(number, first, (ctypes.c_char * len(buffer)).from_buffer(buffer), size)


def _quick_call(number: int, *arguments: int | bytes) -> int | None:
    function = _syscall_address()
    if function is None:
        return None
    import _ctypes

    result: int = _ctypes.call_function(function, (number, *arguments))
    return result


@cache
def _syscall_address() -> int | None:
    try:
        import _ctypes  # the package around it costs milliseconds of every job's start

        return _ctypes.dlsym(_ctypes.dlopen(None, 2), "syscall")  # type: ignore[arg-type]
    except (ImportError, AttributeError, OSError):
        return None


def _checked_call(number: int, *arguments: Any) -> int:
    import ctypes

    result: int = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def interface_lines(data: bytes) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
    """Yields the lines of /proc/net/dev: name; bytes, packets, errors, dropped, … received; the same sent."""
    for line in data.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        words = rest.split()
        yield name.strip(), words[:8], words[8:]


def parse_host_network(data: bytes) -> dict[str, int]:
    """Parses /proc/net/dev: bytes of all interfaces but loopback. Traffic through a bridge counts at each of
    its interfaces."""
    received = sent = 0
    for name, rx, tx in interface_lines(data):
        if name != b"lo":
            received += int(rx[0])
            sent += int(tx[0])
    return {"host_network_rx_bytes": received, "host_network_tx_bytes": sent}
