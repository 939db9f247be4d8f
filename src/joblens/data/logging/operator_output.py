"""Output of user operators: one file of bounded size per partition."""

import codecs
import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

from joblens.files.private import make_private_folder

MOST_BYTES = 1 << 20  # per partition, over all attempts and runs
_READ_BYTES = 1 << 16
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


@contextlib.contextmanager
def captured_output(path: str, most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Appends standard output and error of this process and its child processes to the file.

    Includes log messages from INFO up, unless the program has its own handlers. Creates no file if nothing is
    printed; a full disk loses only the text.
    """
    pump = _pump()
    if pump is None:
        yield
        return
    pump.begin(_KeptText(path, most_bytes))
    _flush()
    before = _replaced(pump.writing)
    try:
        with _logged():
            yield
    finally:
        _flush()
        for number, own in before.items():
            os.dup2(own, number)
            os.close(own)
        pump.end()


def _replaced(writing: int) -> dict[int, int]:
    """Returns duplicates of the previous descriptors; a closed descriptor stays closed."""
    before: dict[int, int] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):
            before[number] = os.dup(number)
            os.dup2(writing, number)
    return before


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # an operator may have replaced it with anything
            stream.flush()


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    level = root.level
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO))
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _Pump:
    """Copies text from a pipe to the file of the current partition.

    Lives as long as its process: a background program that an operator started can still write and is not
    waited for. Its text is discarded between partitions.
    """

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._reading, self.writing = os.pipe()
        self._mark = b"\x00%s\x00" % os.urandom(16).hex().encode()
        self._text: _KeptText | None = None
        self._is_through = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, text: "_KeptText") -> None:
        self._is_through.clear()
        self._text = text

    def end(self) -> None:
        """Waits until everything written before is in the file."""
        os.write(self.writing, self._mark)
        self._is_through.wait()

    def _run(self) -> None:
        held = b""  # may be the start of the marker
        while data := os.read(self._reading, _READ_BYTES):
            held += data
            while (end := held.find(self._mark)) >= 0:
                self._keep(held[:end])
                self._close()
                held = held[end + len(self._mark) :]
            start = held.find(0, max(0, len(held) - len(self._mark) + 1))
            ready = len(held) if start < 0 else start
            self._keep(held[:ready])
            held = held[ready:]

    def _keep(self, data: bytes) -> None:
        if self._text is not None and data:
            self._text.add(data)

    def _close(self) -> None:
        if self._text is not None:
            self._text.close()
        self._text = None
        self._is_through.set()


_pumps: list[_Pump] = []


def _pump() -> _Pump | None:
    """Returns this process's pump; None if no thread or pipe can be created."""
    if not _pumps or _pumps[0].process_id != os.getpid():
        try:
            _pumps[:] = [_Pump()]
        except (RuntimeError, OSError):
            return None
    return _pumps[0]


class _KeptText:
    """Text in printable form, up to the size limit of the file."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._file: BinaryIO | None = None
        self._size = 0
        self._lost = 0

    def add(self, data: bytes) -> None:
        text = self._decode(data).replace("\r\n", "\n").replace("\r", "\n")
        self._write(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).encode())

    def close(self) -> None:
        self._write(self._decode(b"", final=True).encode())
        if self._lost and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write(b"\n(%d more bytes dropped)\n" % self._lost)
        if self._file is not None:
            self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            if data and self._file is None:
                make_private_folder(os.path.dirname(self._path))
                descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
                self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - closed with this
                self._size = os.fstat(descriptor).st_size
            part = data[: max(0, self._most_bytes - self._size)]
            if part and self._file is not None:
                self._file.write(part)
                self._size += len(part)
            self._lost += len(data) - len(part)
        except OSError:
            self._lost += len(data)
