"""CPU time, memory and I/O of this process between two points in time."""

import os
import time

from msgspec import Struct

_RESET_PEAK = b"5"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(Struct, frozen=True, kw_only=True):
    wall_seconds: float
    cpu_seconds: float
    memory_peak_bytes: int | None  # private memory of the process; None: the kernel cannot reset the peak
    read_bytes: int | None
    written_bytes: int | None

    def as_metadata(self) -> dict[str, object]:
        return {
            "wall_seconds": round(self.wall_seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "memory_peak_bytes": self.memory_peak_bytes,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
        }


_mapped_bytes = 0  # bytes of mapped files: the kernel counts no reads for them


def note_mapped(size_bytes: int) -> None:
    """Records that a file was mapped for reading."""
    global _mapped_bytes  # noqa: PLW0603 - a number of the process, like the kernel's own
    _mapped_bytes += size_bytes


_most_of_files = 0  # most bytes of mapped files since the last meter was created, where sampled


def note_memory_of_files() -> None:
    """Samples the memory of mapped files; call it before one is unmapped."""
    global _most_of_files  # noqa: PLW0603 - a number of the process, like the kernel's own
    now = _memory()
    _most_of_files = max(_most_of_files, now.of_files if now else 0)


class Meter:
    """Measures from its creation. I/O: bytes of read and write calls (`rchar`, `wchar`, without the cost of
    reading them) and of files mapped for reading. Memory: private pages only; pages of mapped files are not
    charged to the job either."""

    def __init__(self) -> None:
        global _most_of_files  # noqa: PLW0603 - as above
        _most_of_files = 0
        self._can_reset = _reset_peak()
        self._memory = _memory()
        self._mapped = _mapped_bytes
        self._io = _read_io()
        self._wall = time.monotonic()
        self._cpu = time.process_time()

    def usage(self) -> Usage:
        cpu = time.process_time() - self._cpu
        wall = time.monotonic() - self._wall
        io, before = _read_io(), self._io
        mapped = _mapped_bytes - self._mapped
        return Usage(
            wall_seconds=wall,
            cpu_seconds=cpu,
            memory_peak_bytes=self._own_peak() if self._can_reset else None,
            # The first reading is itself a read call, counted afterwards.
            read_bytes=max(0, io.read - before.read - before.cost) + mapped if io and before else None,
            written_bytes=io.written - before.written if io and before else None,
        )

    def _own_peak(self) -> int | None:
        """Subtracts the largest sampled share of mapped files from the peak, which the kernel keeps for all
        pages together."""
        peak, now, before = _read_peak(), _memory(), self._memory
        if peak is None or now is None or before is None:
            return peak
        return max(now.own, before.own, peak - max(now.of_files, before.of_files, _most_of_files))


class _Io(Struct, frozen=True, gc=False):
    read: int
    written: int
    cost: int  # of reading the counters


class _Memory(Struct, frozen=True, gc=False):
    own: int
    of_files: int


def _reset_peak() -> bool:
    try:
        descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, _RESET_PEAK)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read_peak() -> int | None:
    status = _contents("/proc/self/status")
    _, found, rest = status.partition(b"VmHWM:")
    return int(rest.split(None, 1)[0]) * 1024 if found else None


def _read_io() -> _Io | None:
    content = _contents("/proc/self/io")
    fields = content.split()
    return _Io(int(fields[1]), int(fields[3]), len(content)) if len(fields) >= 4 else None  # rchar, wchar


def _memory() -> _Memory | None:
    fields = _contents("/proc/self/statm").split()
    if len(fields) < 3:
        return None
    resident, of_files = int(fields[1]) * _PAGE, int(fields[2]) * _PAGE
    return _Memory(max(0, resident - of_files), of_files)


def _contents(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
