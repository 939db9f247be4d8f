"""Standard output and standard error that never raise, and never block while a job needs attention."""

from __future__ import annotations

import io
import os
import select
import sys

TYPE_CHECKING = False  # importing typing would make the launcher larger, which is forked after this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_MOST_HELD = 1 << 24  # bytes; a reader that never reads costs no more memory than this


class GuardedStream(io.TextIOWrapper):
    """Drops text that cannot be written: the disk is full, the terminal closed, the reader has exited."""

    def __init__(self, descriptor: int, encoding: str, on_error: Callable[[OSError], None]) -> None:
        """`on_error` is called once, unless the reader has exited."""
        raw = io.FileIO(descriptor, "w", closefd=False)
        is_terminal = raw.isatty()
        super().__init__(
            io.BufferedWriter(raw),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=descriptor == 2 or is_terminal,
        )
        self._on_error: Callable[[OSError], None] | None = on_error
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._held = bytearray()  # encoded text that did not fit in the pipe
        self._may_wait = True

    @property
    def may_wait(self) -> bool:
        """False: text that does not fit is written later."""
        return self._may_wait

    @may_wait.setter
    def may_wait(self, may_wait: bool) -> None:
        self.flush()  # so that the buffers below are empty while `_held` is used
        self._may_wait = may_wait

    def write(self, text: str) -> int:
        try:
            if self._may_wait:
                self._write_held()
                super().write(text)
            elif len(self._held) < _MOST_HELD:
                self._held += text.encode(self.encoding, "backslashreplace")
                self._write_held()
        except (OSError, ValueError) as error:
            self._failed(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._write_held()
            if self._may_wait:
                super().flush()
        except (OSError, ValueError) as error:
            self._failed(error)

    def _write_held(self) -> None:
        """Writes in pieces that fit in a pipe whenever it has space: a larger one would block."""
        try:
            while self._held and (self._may_wait or self._poll.poll(0)):
                del self._held[: os.write(self.fileno(), self._held[: select.PIPE_BUF])]
        except OSError:
            self._held.clear()
            raise

    def _failed(self, error: OSError | ValueError) -> None:
        on_error, self._on_error = self._on_error, None
        if on_error is not None and isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            on_error(error)


def open_missing_streams() -> None:
    """Opens /dev/null for each missing standard stream (`>&-`).

    Else the next opened file would get its number, and everything printed would go there.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is used, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def guard_standard_error() -> None:
    """Makes writes to standard error never fail: there is nowhere to report a failure."""
    sys.stderr = GuardedStream(2, sys.stderr.encoding, lambda _error: None)


def guard_standard_output(warn: Callable[[str], None]) -> None:
    """Makes writes to standard output never fail; the first failure is reported by `warn`.

    For commands whose exit code is a job's: others end with an error when their output cannot be written.
    """
    if isinstance(sys.stdout, GuardedStream) or _descriptor_of(sys.stdout) != 1:
        return

    def failed(error: OSError) -> None:
        warn(f"standard output cannot be written: {error.strerror}")

    sys.stdout.flush()
    sys.stdout = GuardedStream(1, sys.stdout.encoding, failed)


def wait_for_readers(*, may_wait: bool) -> None:
    """Whether writing may block on a reader. Text that does not fit meanwhile is written later."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, GuardedStream):
            stream.may_wait = may_wait


def _descriptor_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
