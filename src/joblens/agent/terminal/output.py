"""What the job prints, kept in files of bounded size: the first and the last part of each stream.

The job (or the pump) appends to a plain file. When the file grows past its bound, the middle is given
back to the file system as a hole while writing goes on; at the end the file is made short, with a line
that says what was left out."""

import os
from collections.abc import Callable

from joblens.files.private import make_private_folder

STDOUT, STDERR = "stdout.log", "stderr.log"
NOTHING_NEW = "oe"  # streams of a job that has its files already
_BLOCK = 65536
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2


class CappedFile:
    """One stream. `max_bytes` is kept half from the start and half from the end."""

    def __init__(self, path: str, max_bytes: int, *, is_used: bool = True) -> None:
        self.path = path
        self._half = max(_BLOCK, max_bytes // 2 // _BLOCK * _BLOCK)
        self._punched_to = self._half
        self._can_punch = True
        if is_used:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))

    def trim(self) -> None:
        """Gives back what lies between head and tail. Safe while others append."""
        size = self.size()
        end = (size - self._half) // _BLOCK * _BLOCK
        # In large steps, so that a busy stream is not trimmed at every tick.
        if not self._can_punch or end - self._punched_to < self._half:
            return
        if _punch_hole(self.path, self._punched_to, end - self._punched_to):
            self._punched_to = end
        else:
            self._can_punch = False  # this file system cannot; `finish` cuts the file instead

    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def finish(self) -> int:
        """Closes the hole. -> how much the job printed in all."""
        size = self.size()
        if size > 2 * self._half + _BLOCK:
            try:
                self._cut(size)
            except OSError:
                pass  # a full disk: the file with its hole is kept as it is
        return size

    def _cut(self, size: int) -> None:
        from joblens.files.atomic import atomic_file  # rarely needed

        left_out = size - 2 * self._half
        mark = f"\n[joblens: {left_out} bytes left out here]\n".encode()
        with (
            open(self.path, "rb") as source,
            atomic_file(self.path) as part,
            open(part, "wb") as target,
        ):
            _copy(source.fileno(), target.fileno(), 0, self._half)
            target.write(mark)
            target.flush()
            _copy(source.fileno(), target.fileno(), size - self._half, self._half)


class OutputFiles:
    """The two streams of one job. `streams`: what is different about them, as slots have it (slot_launcher);
    only files that something goes to are made."""

    def __init__(self, directory: str, max_bytes: int, streams: str = "") -> None:
        make_private_folder(directory)
        self.directory = directory
        self._is_combined = "c" in streams
        keeps_stderr = not self._is_combined and "e" not in streams
        self.stdout = CappedFile(os.path.join(directory, STDOUT), max_bytes, is_used="o" not in streams)
        self.stderr = CappedFile(os.path.join(directory, STDERR), max_bytes, is_used=keeps_stderr)
        self.stdout_bytes = self.stderr_bytes = 0
        self._hide: Callable[[str], str] = str

    def trim(self) -> None:
        self.stdout.trim()
        self.stderr.trim()

    def finish(self, hide: Callable[[str], str] = str) -> None:
        """`hide`: takes the job's secrets out of what is stored of its output."""
        self._hide = hide
        self.stdout_bytes = self.stdout.finish()
        self.stderr_bytes = self.stderr.finish()

    def stderr_tail(self) -> str:
        return self._hide(tail_of((self.stdout if self._is_combined else self.stderr).path))


def tail_of(path: str, max_bytes: int = 2000) -> str:
    """The last part of what was printed; nothing when there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""


def _copy(source: int, target: int, offset: int, count: int) -> None:
    while count > 0:
        chunk = os.pread(source, min(count, 1 << 20), offset)
        if not chunk:
            return
        os.write(target, chunk)
        offset += len(chunk)
        count -= len(chunk)


def _punch_hole(path: str, offset: int, length: int) -> bool:
    import ctypes  # needed only by jobs that print more than the bound

    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        mode = _FALLOC_KEEP_SIZE | _FALLOC_PUNCH_HOLE
        return bool(libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) == 0)
    finally:
        os.close(descriptor)
