"""Streams of a job: output files with a size limit, and the copy to the user's terminal.

The job (or the pump) appends to a plain file. When the file exceeds its limit, the middle is returned to the
file system as a hole while writing continues; at the end the file is shortened, with a line that reports the
omitted size.

Nothing here waits for a reader: while it does not read, the job waits (its pipe is not read until there is
space) and joblens still handles time-outs, limits and signals.

On a terminal the job gets pseudo-terminals: one for keys and stdout, which controls it, and one for stderr,
so that the two can be separated. Elsewhere it gets pipes, and our own stdin."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from joblens.files.private import make_private_folder

if TYPE_CHECKING:
    from joblens.agent.runtime.loop import Loop
    from joblens.agent.terminal.tty import PseudoTerminal
    from joblens.model.jobs.sample import Sample

STDOUT, STDERR = "stdout.log", "stderr.log"
NOTHING_NEW = "oe"  # streams of a job that already has its files
_BLOCK = 65536
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2


class LiveDisplay(Protocol):
    """Shows a job while it runs, on the screen that its output goes to."""

    redraw_at_s: float | None  # time when the output will be quiet

    def draw(self, samples: list[Sample]) -> None:
        """Draws the display, unless it would disturb the output."""
        ...

    def erase(self) -> None:
        """Called before anything is written to the screen."""
        ...

    def note_output(self, chunk: bytes) -> None: ...


class CappedFile:
    """Output file of one stream. Half of `max_bytes` is kept from the start, half from the end."""

    def __init__(self, path: str, max_bytes: int, *, is_used: bool = True) -> None:
        self.path = path
        self._half = max(_BLOCK, max_bytes // 2 // _BLOCK * _BLOCK)
        self._punched_to = self._half
        self._can_punch = True
        if is_used:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))

    def trim(self) -> None:
        """Punches a hole between head and tail. Safe while others append."""
        size = self.size()
        end = (size - self._half) // _BLOCK * _BLOCK
        # In large steps, so that a busy stream is not trimmed at every tick.
        if not self._can_punch or end - self._punched_to < self._half:
            return
        if _punch_hole(self.path, self._punched_to, end - self._punched_to):
            self._punched_to = end
        else:
            self._can_punch = False  # unsupported by this file system; `finish` cuts the file instead

    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def finish(self) -> int:
        """Removes the hole. Returns the size of all output."""
        size = self.size()
        if size > 2 * self._half + _BLOCK:
            try:
                self._cut(size)
            except OSError:
                pass  # a full disk: the file keeps its hole
        return size

    def _cut(self, size: int) -> None:
        left_out = size - 2 * self._half
        mark = f"\n[joblens: {left_out} bytes omitted]\n".encode()
        from joblens.files.atomic import atomic_file  # rarely needed

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
    """Output files of one job. `streams`: differences from the default in slots (slot_launcher); only files
    that get output are created."""

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
        """`hide`: removes the job's secrets from its stored output."""
        self._hide = hide
        self.stdout_bytes = self.stdout.finish()
        self.stderr_bytes = self.stderr.finish()

    def stderr_tail(self) -> str:
        return self._hide(tail_of((self.stdout if self._is_combined else self.stderr).path))


def tail_of(path: str, max_bytes: int = 2000) -> str:
    """Returns the last part of the output; empty if there is no such file."""
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
    import ctypes  # needed only by jobs that print more than the limit

    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        mode = _FALLOC_KEEP_SIZE | _FALLOC_PUNCH_HOLE
        return bool(libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) == 0)
    finally:
        os.close(descriptor)


_CHUNK = 1 << 16
_ALWAYS_FITS = select.PIPE_BUF  # a writable pipe takes this much without blocking
_TRIM_EVERY = 8 << 20


class Target:
    """Output stream of this process, written without blocking. It may be shared with other processes, so its
    mode is not changed: it is opened a second time instead, if possible."""

    def __init__(self, descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        self._most_at_once = _CHUNK
        try:
            if not stat.S_ISFIFO(mode) and not os.isatty(descriptor):
                raise OSError("a file is always ready, and has one offset for writing")
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            self.descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
            self._poll = None
        except OSError:  # also: another user's pipe, a socket
            self.descriptor = os.dup(descriptor)
            self._poll = select.poll()
            self._poll.register(self.descriptor, select.POLLOUT)
            if not stat.S_ISREG(mode):
                self._most_at_once = _ALWAYS_FITS

    def write(self, data: memoryview) -> int:
        """Returns how many bytes were written; 0 if it is full."""
        if self._poll is not None and not self._poll.poll(0):
            return 0
        try:
            return os.write(self.descriptor, data[: self._most_at_once])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.descriptor)


class OutputPump:
    """Copies one stream from the job's pipe or terminal (`source`) to `target` and to the output file."""

    def __init__(
        self,
        loop: Loop,
        source: int,
        target: int,
        keep: CappedFile | None = None,
        *,
        from_terminal: bool = False,
        before_write: Callable[[], None] = lambda: None,
        after_write: Callable[[bytes], None] = lambda _chunk: None,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._loop = loop
        self._source = source
        self._target: Target | None = Target(target)
        self._output_file = (
            OutputWriter(keep, from_terminal=from_terminal, warn=warn) if keep is not None else None
        )
        self._before_write = before_write
        self._after_write = after_write
        self._warn = warn
        self._unshown: deque[memoryview] = deque()
        self._is_open = True
        os.set_blocking(source, False)

    @property
    def is_flushed(self) -> bool:
        return not self._unshown

    def start(self) -> None:
        self._loop.watch(self._source, self._move)

    def drain(self) -> None:
        """Stores unread output after the job's end; it is shown as soon as the target accepts it."""
        while self._is_open and self._read():
            pass
        if self._output_file is not None:
            self._output_file.close()

    def close(self) -> None:
        self._close_source()
        self._give_up_target()
        if self._output_file is not None:
            self._output_file.close()

    def _move(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Returns whether there may be more."""
        try:
            chunk = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a pseudo-terminal returns EIO when its last writer is gone
            chunk = b""
        if not chunk:
            self._close_source()
            return False
        if self._output_file is not None:
            self._output_file.keep(chunk)
        if self._target is not None:
            self._unshown.append(memoryview(chunk))
            self._show()
        return True

    def _show(self) -> None:
        while self._unshown and self._target is not None:
            self._before_write()
            try:
                written = self._target.write(self._unshown[0])
            except BrokenPipeError:
                # The reader is gone. The job gets SIGPIPE, as without joblens.
                self._give_up_target()
                self._close_source()
                return
            except OSError as error:
                self._warn(f"the job's output cannot be passed on: {error.strerror}")
                self._give_up_target()
                self._read_on()
                return
            if not written:
                self._wait_until_writable()
                return
            self._after_write(bytes(self._unshown[0][:written]))
            self._unshown[0] = self._unshown[0][written:]
            if not self._unshown[0]:
                self._unshown.popleft()
        self._read_on()

    def _wait_until_writable(self) -> None:
        assert self._target is not None
        if self._is_open:
            self._loop.unwatch(self._source)
        self._loop.watch_writable(self._target.descriptor, self._show)

    def _read_on(self) -> None:
        if self._target is not None:
            self._loop.unwatch(self._target.descriptor)
        if self._is_open:
            self._loop.watch(self._source, self._move)

    def _close_source(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.unwatch(self._source)
            os.close(self._source)

    def _give_up_target(self) -> None:
        if self._target is not None:
            self._loop.unwatch(self._target.descriptor)
            self._target.close()
            self._target = None
        self._unshown.clear()


class OutputWriter:
    """Appends to the output file until that fails."""

    def __init__(self, file: CappedFile, *, from_terminal: bool, warn: Callable[[str], None]) -> None:
        self._capped = file
        self._descriptor: int | None = os.open(file.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._from_terminal = from_terminal
        self._held_back = b""
        self._warn = warn
        self._untrimmed = 0

    def keep(self, chunk: bytes) -> None:
        if self._from_terminal:
            # The terminal ends lines with CR LF for the screen; the file gets LF.
            chunk = (self._held_back + chunk).replace(b"\r\n", b"\n")
            self._held_back = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk[: len(chunk) - len(self._held_back)]
        self._write(chunk)
        self._untrimmed += len(chunk)
        if self._untrimmed >= _TRIM_EVERY:
            self._untrimmed = 0
            self._capped.trim()

    def close(self) -> None:
        self._write(self._held_back)
        self._held_back = b""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and self._descriptor is not None:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._warn(f"the job's output is no longer recorded: {self._capped.path}: {error.strerror}")
            assert self._descriptor is not None
            os.close(self._descriptor)
            self._descriptor = None


Noting = Callable[[bytes], None]


class JobStreams:
    """`terminal`: the job's controlling terminal, or None; it is also the first of `terminals`."""

    def __init__(
        self,
        loop: Loop,
        output: OutputFiles,
        *,
        takes_keys: bool,
        before_write: Callable[[], None],
        after_write: tuple[Noting, Noting],
        warn: Callable[[str], None],
    ) -> None:
        """`takes_keys`: the real terminal will be in raw mode. `after_write` gets what was written to
        stdout and to stderr."""
        self._loop = loop
        self._before_write = before_write
        self._after_write = after_write
        self._warn = warn
        self._pumps: list[OutputPump] = []
        self.terminals: list[PseudoTerminal] = []
        self._job_side: list[int] = []
        self.terminal: PseudoTerminal | None = None
        on_terminal = [os.isatty(descriptor) for descriptor in (0, 1, 2)]
        if on_terminal[0] or on_terminal[1]:
            self.terminal = self._make_terminal(1 if on_terminal[1] else 0, takes_keys=takes_keys)
        # If this process may not read from the terminal now (it was started with '&'), the job may not
        # either.
        stdin = self.terminal.slave if on_terminal[0] and self.terminal else 0
        stdout = self._connect(1, self.terminal if on_terminal[1] else None, output)
        error_terminal = self._make_terminal(2, takes_keys=takes_keys) if on_terminal[2] else None
        stderr = self._connect(2, error_terminal, output)
        if self.terminal is not None and not on_terminal[1]:
            # Only the keys go through it; its echo belongs on the terminal.
            self._pumps.append(OutputPump(loop, self.terminal.master, 2 if on_terminal[2] else 0))
        self.stdio = (stdin, stdout, stderr)

    @property
    def controlling(self) -> int | None:
        """Returns which of the job's streams is its controlling terminal."""
        if self.terminal is None:
            return None
        return self.stdio.index(self.terminal.slave)

    @property
    def is_flushed(self) -> bool:
        return all(pump.is_flushed for pump in self._pumps)

    def close_job_side(self) -> None:
        """Closes the job's ends, which it has now: open here, they would hide the end of its output."""
        for descriptor in self._job_side:
            os.close(descriptor)
        self._job_side.clear()

    def start(self) -> None:
        for pump in self._pumps:
            pump.start()

    def drain(self) -> None:
        for pump in self._pumps:
            pump.drain()

    def copy_size(self) -> None:
        for terminal in self.terminals:
            terminal.copy_size()

    def close(self) -> None:
        self.close_job_side()
        for pump in self._pumps:
            pump.close()
        for terminal in self.terminals:
            terminal.close()

    def _make_terminal(self, like: int, *, takes_keys: bool) -> PseudoTerminal:
        from joblens.agent.terminal.tty import PseudoTerminal  # few jobs have one

        terminal = PseudoTerminal(like, ends_lines=takes_keys)
        self.terminals.append(terminal)
        self._job_side.append(terminal.slave)
        return terminal

    def _connect(self, target: int, terminal: PseudoTerminal | None, output: OutputFiles) -> int:
        if terminal is not None:
            source, job_end = terminal.master, terminal.slave
        else:
            source, job_end = os.pipe()
            self._job_side.append(job_end)
        pump = OutputPump(
            self._loop,
            source,
            target,
            output.stdout if target == 1 else output.stderr,
            from_terminal=terminal is not None,
            before_write=self._before_write,
            after_write=self._after_write[target - 1],
            warn=self._warn,
        )
        self._pumps.append(pump)
        return job_end
