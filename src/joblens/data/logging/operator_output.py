"""Keeps what operators of users print and log: one file of bounded size per partition."""

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

MOST_BYTES = 1 << 20  # of one partition, over all tries and runs
_READ_BYTES = 1 << 16
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


@contextlib.contextmanager
def kept_output(path: str, most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Appends standard output and error of this process, and of programs that it starts meanwhile, to the
    file. Log messages from INFO up go there too, unless the program has its own handlers. There is no file
    where nothing was printed, and a full disk costs the text only."""
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
    """-> copies of what was there before; a closed descriptor stays as it is."""
    before: dict[int, int] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):
            before[number] = os.dup(number)
            os.dup2(writing, number)
    return before


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be anything that an operator put there
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
    """Carries text from a pipe to the file of the present partition. It lives as long as its process: a
    program that an operator left running in the background can still write, and is not waited for. Its text
    is dropped between partitions."""

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
        """When everything that was written before is in the file."""
        os.write(self.writing, self._mark)
        self._is_through.wait()

    def _run(self) -> None:
        held = b""  # may be the beginning of the mark
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
    """Of this process; None where it cannot have one more thread or pipe."""
    if not _pumps or _pumps[0].process_id != os.getpid():
        try:
            _pumps[:] = [_Pump()]
        except (RuntimeError, OSError):
            return None
    return _pumps[0]


class _KeptText:
    """Text as a terminal can show it, until the file is full."""

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
