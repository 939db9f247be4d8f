"""Moves what the job prints to where joblens was told to print it, and into the kept file."""

import os
from collections.abc import Callable

from joblens.agent.output import CappedFile

_CHUNK = 1 << 16
_TRIM_EVERY = 8 << 20


class OutputPump:
    """One stream: from the job's pipe or terminal to `target` and to the kept file."""

    def __init__(
        self,
        source: int,
        target: int | None,
        keep: CappedFile | None,
        *,
        from_terminal: bool = False,
        before_write: Callable[[], None] | None = None,
        after_write: Callable[[bytes], None] | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.source = source
        self._target = target
        self._keep = keep
        self._file = (
            os.open(keep.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC) if keep is not None else None
        )
        self._before_write = before_write
        self._after_write = after_write
        self._warn = warn
        self._untrimmed = 0
        self._from_terminal = from_terminal
        self.at_end = False
        self.reader_is_gone = False

    def move(self) -> None:
        """Called when the source is readable. Sets `at_end` when there will be no more."""
        try:
            chunk = os.read(self.source, _CHUNK)
        except OSError:  # a pseudo-terminal says EIO when its last writer is gone
            chunk = b""
        if not chunk:
            self.at_end = True
            return
        self._show(chunk)
        self._store(chunk)

    def drain(self) -> None:
        """After the job has ended: whatever is still in the pipe, without waiting for more."""
        os.set_blocking(self.source, False)
        while not self.at_end:
            try:
                chunk = os.read(self.source, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self.at_end = True
                return
            self._show(chunk)
            self._store(chunk)

    def close(self) -> None:
        os.close(self.source)
        if self._file is not None:
            os.close(self._file)

    def _show(self, chunk: bytes) -> None:
        if self._target is None:
            return
        if self._before_write is not None:
            self._before_write()
        try:
            _write_all(self._target, chunk)
        except BrokenPipeError:
            # The reader has gone. Without joblens the job would get SIGPIPE: let it have that.
            self._target = None
            self.at_end = self.reader_is_gone = True
        except OSError as error:
            self._warn(f"the job's output cannot be passed on: {error}")
            self._target = None
        if self._after_write is not None:
            self._after_write(chunk)

    def _store(self, chunk: bytes) -> None:
        if self._file is None or self._keep is None:
            return
        if self._from_terminal:
            # The terminal ends lines with CR LF for the screen; the file is for reading later.
            chunk = chunk.replace(b"\r\n", b"\n")
        try:
            _write_all(self._file, chunk)
        except OSError as error:
            self._warn(f"the job's output is no longer kept: {self._keep.path}: {error}")
            os.close(self._file)
            self._file = None
            return
        self._untrimmed += len(chunk)
        if self._untrimmed >= _TRIM_EVERY:
            self._untrimmed = 0
            self._keep.trim()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            written = os.write(descriptor, view)
        except BlockingIOError:
            _wait_writable(descriptor)
            continue
        view = view[written:]


def _wait_writable(descriptor: int) -> None:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
