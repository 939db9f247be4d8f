"""CPU time, memory and I/O of this process between two points in time."""

import os
import time

from msgspec import Struct

from joblens.probes.proc.kernel_files import ProcStatm, parse_io, parse_statm, parse_status, read_bytes

_RESET_PEAK = b"5"


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


_peak_file_bytes = 0  # most bytes of mapped files in any sample since the last meter was created


def note_memory_of_files() -> None:
    """Samples the memory of mapped files; call it before one is unmapped."""
    global _peak_file_bytes  # noqa: PLW0603 - a number of the process, like the kernel's own
    now = _memory()
    _peak_file_bytes = max(_peak_file_bytes, now.shared_bytes if now else 0)


class Meter:
    """Measures from its creation. I/O: bytes of read and write calls (`rchar`, `wchar`, without the cost of
    reading them) and of files mapped for reading. Memory: private pages only; pages of mapped files are not
    charged to the job either."""

    def __init__(self) -> None:
        global _peak_file_bytes  # noqa: PLW0603 - as above
        _peak_file_bytes = 0
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
        file_bytes = max(now.shared_bytes, before.shared_bytes, _peak_file_bytes)
        return max(0, now.anon_bytes, before.anon_bytes, peak - file_bytes)


class _Io(Struct, frozen=True, gc=False):
    read: int
    written: int
    cost: int  # bytes that reading the counters adds to `read`


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
    try:
        return parse_status(read_bytes("/proc/self/status")).peak_bytes
    except OSError:
        return None


def _read_io() -> _Io | None:
    try:
        content = read_bytes("/proc/self/io")
    except OSError:
        return None
    io = parse_io(content)
    return _Io(io.call_read_bytes, io.call_write_bytes, len(content))


def _memory() -> ProcStatm | None:
    try:
        return parse_statm(read_bytes("/proc/self/statm"))
    except OSError:
        return None
