"""Kernel interfaces: files in /proc and /sys, system calls without a Python name, and which hardware is
present.
"""

import functools
import os
from functools import cache
from typing import Any, NamedTuple

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
    """A list such as cgroup.controllers; empty where there is no such file."""
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


def subgroups(directory: str) -> list[str]:
    """Directories of the groups directly below this one."""
    try:
        # A group directory has two links and one more per sub-group: most have none, and need no listing.
        if os.stat(directory).st_nlink == 2:
            return []
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def list_pids(directory: str) -> list[int]:
    """Returns processes in the group and in every group below it; empty if it was removed."""
    try:
        pids = [int(word) for word in read_bytes(f"{directory}/cgroup.procs").split()]
    except OSError:
        pids = []
    for subgroup in subgroups(directory):
        pids += list_pids(subgroup)
    return pids


# Windows has no such question, and no /proc to need the answer for.
_has_sysconf = hasattr(os, "sysconf")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if _has_sysconf else 4096
USEC_PER_TICK = 1_000_000 // (os.sysconf("SC_CLK_TCK") if _has_sysconf else 100)
_SIGCHLD_BIT = 1 << (17 - 1)


class ProcStat(Struct, frozen=True):
    """Times in clock ticks. `c…`: of children that were waited for, theirs included."""

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
    stack_start: int  # random per exec and preserved by fork: equal in processes that share their origin

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZXx"


class ProcIo(NamedTuple):
    """Of the process and of every child it has waited for."""

    call_read_bytes: int
    call_write_bytes: int
    call_reads: int
    call_writes: int
    read_bytes: int
    write_bytes: int


class ProcStatus(Struct, frozen=True):
    """None: the process has no memory of its own (a zombie), or the kernel lacks the line."""

    peak_bytes: int | None
    shmem_bytes: int | None
    swap_bytes: int | None
    file_bytes: int | None
    ignores_sigchld: bool


class Proportional(Struct, frozen=True):
    """Proportional shares of shared pages, per process: they add up to the real total."""

    anon_bytes: int
    pss_anon_bytes: int
    pss_shmem_bytes: int


def parse_stat(data: bytes) -> ProcStat:
    """Parses stat. The command may contain blanks and parentheses: the last parenthesis counts."""
    f = data[data.rindex(b")") + 2 :].split()
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


def parse_statm(data: bytes) -> tuple[int, int]:
    """Returns (virtual, anonymous) bytes; anonymous is resident but neither file nor shared memory."""
    size, resident, shared, _ = data.split(maxsplit=3)
    return int(size) * PAGE_BYTES, (int(resident) - int(shared)) * PAGE_BYTES


def parse_virtual(data: bytes) -> int:
    """Returns only the virtual size, from statm."""
    return int(data[: data.index(b" ")]) * PAGE_BYTES


def parse_status(data: bytes) -> ProcStatus:
    ignored = _line_value(data, b"\nSigIgn:")
    return ProcStatus(
        peak_bytes=_kib(data, b"\nVmHWM:"),
        shmem_bytes=_kib(data, b"\nRssShmem:"),
        swap_bytes=_kib(data, b"\nVmSwap:"),
        file_bytes=_kib(data, b"\nRssFile:"),
        ignores_sigchld=ignored is not None and bool(int(ignored, 16) & _SIGCHLD_BIT),
    )


class LargestProcess:
    """The highest mark of all processes that were read, and the files that one mapped at its last reading."""

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


def parse_smaps_rollup(data: bytes) -> Proportional | None:
    """None: the kernel does not divide the shares by kind (before 5.4)."""
    anon, pss_anon, pss_shmem = (
        _kib(data, name) for name in (b"\nAnonymous:", b"\nPss_Anon:", b"\nPss_Shmem:")
    )
    if anon is None or pss_anon is None or pss_shmem is None:
        return None
    return Proportional(anon, pss_anon, pss_shmem)


def parse_soft_open_files(data: bytes) -> int | None:
    """From /proc/PID/limits; None: unlimited, or no such line."""
    value = _line_value(data, b"\nMax open files")
    word = value.split(maxsplit=1)[0] if value else b""
    return int(word) if word.isdigit() else None


def _line_value(data: bytes, name: bytes) -> bytes | None:
    start = data.find(name)
    if start < 0:
        return None
    start += len(name)
    end = data.find(b"\n", start)
    return data[start : end if end >= 0 else len(data)].strip()


def _kib(data: bytes, name: bytes) -> int | None:
    value = _line_value(data, name)
    return int(value.split()[0]) * 1024 if value else None


DRM_DRIVERS = ("amdgpu", "i915", "xe")
_NVIDIA_SIGN = "/dev/nvidiactl"
_DRM_SIGN = "/sys/class/drm"


def has_nvidia() -> bool:
    return os.path.exists(_NVIDIA_SIGN)


@functools.cache
def has_drm() -> bool:
    """Whether there is a card whose driver reports anything. Most servers have one only for text."""
    return _drm_cards(_DRM_SIGN) > 0


def count_gpus(dev: str = "/dev", drm: str = _DRM_SIGN) -> int:
    """Counts GPUs of any vendor that a job could use."""
    nvidia = [name for name in _names(dev) if name.removeprefix("nvidia").isdecimal() and name[0] == "n"]
    return len(nvidia) + _drm_cards(drm)


def _drm_cards(drm: str) -> int:
    cards = [name for name in _names(drm) if name.startswith("card") and "-" not in name]
    drivers = [os.path.basename(os.path.realpath(f"{drm}/{card}/device/driver")) for card in cards]
    return sum(driver in DRM_DRIVERS for driver in drivers)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


POWERCAP = "/sys/class/powercap"
NO_ZONES = "no energy counters on this machine: no RAPL under /sys/class/powercap"


def has_zones(root: str = POWERCAP) -> bool:
    try:
        return bool(os.listdir(root))
    except OSError:
        return False


def call(number: int, *arguments: int | bytes) -> int:
    """Numbers must fit a C int; bytes go as a pointer to them, and the kernel only reads them. Raises
    OSError."""
    result = _quick_call(number, *arguments)
    if result is None or result < 0:
        # Retried in a way that reports the reason; only a denied process pays for the import.
        result = _telling_call(number, *arguments)
    return result


def call_writing(number: int, first: int, buffer: bytearray, size: int) -> int:
    """The kernel answers in `buffer`, too. Raises OSError."""
    import ctypes

    return _telling_call(number, first, (ctypes.c_char * len(buffer)).from_buffer(buffer), size)


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


def _telling_call(number: int, *arguments: Any) -> int:
    import ctypes

    result: int = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


_RX_FIELD, _TX_FIELD = 0, 8  # bytes received and sent, of a line of /proc/net/dev


def parse_host_network(data: bytes) -> dict[str, int]:
    """Parses /proc/net/dev: bytes of all interfaces but loopback. Traffic through a bridge counts at each of
    its interfaces."""
    received = sent = 0
    for line in data.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        if name.strip() != b"lo":
            words = rest.split(None, _TX_FIELD + 1)
            received += int(words[_RX_FIELD])
            sent += int(words[_TX_FIELD])
    return {"host_network_rx_bytes": received, "host_network_tx_bytes": sent}
