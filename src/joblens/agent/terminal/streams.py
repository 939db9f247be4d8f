"""Streams of a job: output files with a size limit, and the copy to the user's terminal.

The job (or the pump) appends to a plain file. When the file grows past its bound, the middle is given
back to the file system as a hole while writing goes on; at the end the file is made short, with a line
that says what was left out.

Nothing here ever waits for a reader: while one does not read, the job waits (its pipe is left alone until
there is room again) and joblens goes on heeding time-outs, limits and signals.

On a terminal the job gets pseudo-terminals: one for keys and stdout, which controls it, and one for
stderr, so that the two can be kept apart. Elsewhere it gets pipes, and our own stdin.
"""

import os
import select
import stat
from collections import deque
from collections.abc import Callable

from joblens.agent.runtime.loop import Loop
from joblens.agent.terminal.tty import PseudoTerminal
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


_CHUNK = 1 << 16
_ALWAYS_FITS = select.PIPE_BUF  # what a pipe that says it has room takes without waiting
_TRIM_EVERY = 8 << 20


class Target:
    """A stream of ours, written to without waiting. It may be shared with other processes, so its own
    mode is left as it is: it is opened a second time instead, where that is possible."""

    def __init__(self, descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        self._most_at_once = _CHUNK
        try:
            if not stat.S_ISFIFO(mode) and not os.isatty(descriptor):
                raise OSError("a file is always ready, and has one place to write at")
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
        """How much was taken; 0: there is no room now."""
        if self._poll is not None and not self._poll.poll(0):
            return 0
        try:
            return os.write(self.descriptor, data[: self._most_at_once])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.descriptor)


class OutputPump:
    """One stream: from the job's pipe or terminal (`source`) to `target` and to the kept file."""

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
        self._keeper = Keeper(keep, from_terminal=from_terminal, warn=warn) if keep is not None else None
        self._before_write = before_write
        self._after_write = after_write
        self._warn = warn
        self._unshown: deque[memoryview] = deque()
        self._is_open = True
        os.set_blocking(source, False)

    @property
    def has_shown_all(self) -> bool:
        return not self._unshown

    def start(self) -> None:
        self._loop.watch(self._source, self._move)

    def take_rest(self) -> None:
        """The job has ended: what it printed and nobody has read yet is kept; it is shown as soon as
        there is room."""
        while self._is_open and self._read():
            pass
        if self._keeper is not None:
            self._keeper.close()

    def close(self) -> None:
        self._close_source()
        self._give_up_target()
        if self._keeper is not None:
            self._keeper.close()

    def _move(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Whether there may be more."""
        try:
            chunk = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a pseudo-terminal says EIO when its last writer is gone
            chunk = b""
        if not chunk:
            self._close_source()
            return False
        if self._keeper is not None:
            self._keeper.keep(chunk)
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
                # The reader has gone. Without joblens the job would get SIGPIPE: let it have that.
                self._give_up_target()
                self._close_source()
                return
            except OSError as error:
                self._warn(f"the job's output cannot be passed on: {error.strerror}")
                self._give_up_target()
                self._read_on()
                return
            if not written:
                self._wait_for_room()
                return
            self._after_write(bytes(self._unshown[0][:written]))
            self._unshown[0] = self._unshown[0][written:]
            if not self._unshown[0]:
                self._unshown.popleft()
        self._read_on()

    def _wait_for_room(self) -> None:
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


class Keeper:
    """Appends to the kept file until that fails."""

    def __init__(self, file: CappedFile, *, from_terminal: bool, warn: Callable[[str], None]) -> None:
        self._capped = file
        self._descriptor: int | None = os.open(file.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._from_terminal = from_terminal
        self._held_back = b""
        self._warn = warn
        self._untrimmed = 0

    def keep(self, chunk: bytes) -> None:
        if self._from_terminal:
            # The terminal ends lines with CR LF for the screen; the file is for reading later.
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
            self._warn(f"the job's output is no longer kept: {self._capped.path}: {error.strerror}")
            assert self._descriptor is not None
            os.close(self._descriptor)
            self._descriptor = None


Noting = Callable[[bytes], None]


class JobStreams:
    """`terminal` is the job's controlling one, None when it has none; it is also the first of
    `terminals`."""

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
        """`takes_keys`: the real terminal will be in raw mode. `after_write` is told what was written to
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
        # A terminal that we may not read from now (we were started with '&') is not the job's to read either.
        stdin = self.terminal.slave if on_terminal[0] and self.terminal else 0
        stdout = self._connect(1, self.terminal if on_terminal[1] else None, output)
        error_terminal = self._make_terminal(2, takes_keys=takes_keys) if on_terminal[2] else None
        stderr = self._connect(2, error_terminal, output)
        if self.terminal is not None and not on_terminal[1]:
            # Only the keys go through it; what it echoes belongs on the terminal.
            self._pumps.append(OutputPump(loop, self.terminal.master, 2 if on_terminal[2] else 0))
        self.stdio = (stdin, stdout, stderr)

    @property
    def controlling(self) -> int | None:
        """Which of the job's streams is its controlling terminal."""
        if self.terminal is None:
            return None
        return self.stdio.index(self.terminal.slave)

    @property
    def have_shown_all(self) -> bool:
        return all(pump.has_shown_all for pump in self._pumps)

    def let_go_of_job_side(self) -> None:
        """The job has its own ends now; held open here, they would hide the end of its output."""
        for descriptor in self._job_side:
            os.close(descriptor)
        self._job_side.clear()

    def start(self) -> None:
        for pump in self._pumps:
            pump.start()

    def take_rest(self) -> None:
        for pump in self._pumps:
            pump.take_rest()

    def copy_size(self) -> None:
        for terminal in self.terminals:
            terminal.copy_size()

    def close(self) -> None:
        self.let_go_of_job_side()
        for pump in self._pumps:
            pump.close()
        for terminal in self.terminals:
            terminal.close()

    def _make_terminal(self, like: int, *, takes_keys: bool) -> PseudoTerminal:
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
