"""What this process uses between two moments: processor, memory, bytes."""

import os
import time

from msgspec import Struct

_RESET_PEAK = b"5"


class Usage(Struct, frozen=True, kw_only=True):
    wall_seconds: float
    cpu_seconds: float
    memory_peak_bytes: int | None  # of the whole process meanwhile; None: the kernel does not let it be reset
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


class Meter:
    """Begins when it is made. Bytes are those of calls to read and write; files that are mapped are not among
    them."""

    def __init__(self) -> None:
        self._can_reset = _reset_peak()
        self._io = _read_io()
        self._wall = time.monotonic()
        self._cpu = time.process_time()

    def usage(self) -> Usage:
        cpu = time.process_time() - self._cpu
        wall = time.monotonic() - self._wall
        io, before = _read_io(), self._io
        return Usage(
            wall_seconds=wall,
            cpu_seconds=cpu,
            memory_peak_bytes=_read_peak() if self._can_reset else None,
            read_bytes=io[0] - before[0] if io and before else None,
            written_bytes=io[1] - before[1] if io and before else None,
        )


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


def _read_io() -> tuple[int, int] | None:
    fields = _contents("/proc/self/io").split()
    return (int(fields[1]), int(fields[3])) if len(fields) >= 4 else None  # rchar, wchar


def _contents(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
