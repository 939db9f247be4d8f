"""Terminal (tty) of a job in the foreground: its pseudo-terminal, the user's keys on their way to it, and
the status line below its output.
"""

import fcntl
import os
import select
import termios
import time
from collections.abc import Callable
from typing import Any

from joblens.agent.runtime.loop import Loop

_IFLAG, _OFLAG, _LFLAG, _CC = 0, 1, 3, 6


class PseudoTerminal:
    """A terminal pair. The job holds `slave`; what it prints comes out of `master`."""

    def __init__(self, like: int, *, ends_lines: bool) -> None:
        """`like` is the real terminal whose modes and size it takes over. `ends_lines` False: that one
        still makes CR LF out of LF itself, so it is not done here."""
        self.master, self.slave = os.openpty()
        self._like = like
        try:
            modes = termios.tcgetattr(like)
            if not ends_lines:
                modes[_OFLAG] &= ~termios.OPOST
            termios.tcsetattr(self.slave, termios.TCSANOW, modes)
        except termios.error:
            pass
        self.inlet = os.dup(self.master)  # for keys and questions; `master` is watched for reading
        self.copy_size()

    def copy_size(self) -> None:
        try:
            size = fcntl.ioctl(self._like, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.inlet, termios.TIOCSWINSZ, size)
        except OSError:
            pass

    def is_line_mode(self) -> bool:
        """The program reads whole lines and lets a key interrupt it: it is not an editor or a prompt."""
        wanted = termios.ICANON | termios.ISIG
        return bool(self._modes()[_LFLAG] & wanted == wanted)

    def interrupt_key(self) -> bytes:
        """Ctrl-C, unless someone chose another; empty when no key interrupts."""
        modes = self._modes()
        key: bytes = modes[_CC][termios.VINTR]
        return key.strip(b"\0") if modes[_LFLAG] & termios.ISIG else b""

    def _modes(self) -> list[Any]:
        return termios.tcgetattr(self.inlet)

    def foreground_group(self) -> int:
        try:
            return os.tcgetpgrp(self.inlet)
        except OSError:
            return -1

    def type_in(self, keys: bytes) -> int:
        """Hands keys to the job without waiting for it to read them; how many it took."""
        try:
            return os.write(self.inlet, keys)
        except BlockingIOError:
            return 0
        except OSError:
            return len(keys)  # nobody is there to read them any more

    def close(self) -> None:
        """All but `master`, which is its reader's to close."""
        os.close(self.inlet)


class RawTerminal:
    """The real terminal, which hands every key on untouched between `enter` and `leave`."""

    def __init__(self, descriptor: int, *, ends_lines: bool) -> None:
        """`ends_lines`: it goes on making CR LF out of LF."""
        self._descriptor = descriptor
        self._ends_lines = ends_lines
        self._is_raw = False
        self.modes: list[Any] | None = None  # those it is to have again
        try:
            self.modes = termios.tcgetattr(descriptor)
        except termios.error:
            pass

    def enter(self) -> None:
        if self.modes is None or self._is_raw:
            return
        raw = [*self.modes[:_CC], list(self.modes[_CC])]
        raw[_IFLAG] &= ~(
            termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON | termios.INLCR
        )
        if not self._ends_lines:
            raw[_OFLAG] &= ~termios.OPOST
        raw[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        raw[_CC][termios.VMIN], raw[_CC][termios.VTIME] = 1, 0
        self._is_raw = self._set(raw)

    def leave(self) -> None:
        if self._is_raw and self.modes is not None:
            self._set(self.modes)
            self._is_raw = False

    def _set(self, modes: list[Any]) -> bool:
        try:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, modes)
        except termios.error:
            return False
        return True


def is_in_background(descriptor: int) -> bool:
    """Whether this process was started with '&' from it: reading from it would stop the process."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # a terminal that does not control this process stops nothing
        return False


def is_in_foreground(descriptor: int) -> bool:
    """Whether this process may read from and set up the terminal now (it was not started with '&')."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


_MOST_UNTYPED = 1 << 20


class Keyboard:
    """Hands every key on. The one that interrupts is joblens' business where the job is a plain command,
    and the job's own where it holds a conversation (a prompt, an editor, a shell with jobs of its own)."""

    def __init__(
        self, loop: Loop, real: RawTerminal, terminals: list[PseudoTerminal], interrupt: Callable[[], None]
    ) -> None:
        """The first of `terminals` is the one that controls the job."""
        self._loop = loop
        self._real = real
        self._terminals = terminals
        self._interrupt = interrupt
        self._typists = [Typist(loop, terminal) for terminal in terminals]
        self._is_taken = False
        self.job_group = -1  # process group of the job's main process

    def take(self) -> None:
        """Once at the start, and again whenever the user may have brought joblens to the foreground."""
        if not self._is_taken and is_in_foreground(0):
            self._is_taken = True
            self._real.enter()
            self._loop.watch(0, self._keys_came)

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._loop.unwatch(0)
            for typist in self._typists:
                typist.stop()
            self._real.leave()

    def _keys_came(self) -> None:
        try:
            keys = os.read(0, 4096)
        except OSError:
            keys = b""
        if not keys:  # the terminal is gone
            self.give_back()
            return
        key = self._terminals[0].interrupt_key()
        if key and key in keys:
            keys = keys.replace(key, b"")
            if self._runs_a_plain_command():
                self._interrupt()
            else:
                self._typists[0].type(key)  # only there it becomes a signal
        self._listener().type(keys)

    def _listener(self) -> "Typist":
        """Where the job reads keys: a pager reads them from the terminal its stderr is."""
        for terminal, typist in zip(self._terminals, self._typists, strict=True):
            if not terminal.is_line_mode():
                return typist
        return self._typists[0]

    def _runs_a_plain_command(self) -> bool:
        if not all(terminal.is_line_mode() for terminal in self._terminals):
            return False
        return self._terminals[0].foreground_group() == self.job_group


class Typist:
    """Types into one terminal. A job that does not read leaves no room: the rest waits here."""

    def __init__(self, loop: Loop, terminal: PseudoTerminal) -> None:
        self._loop = loop
        self._terminal = terminal
        self._untyped = b""

    def type(self, keys: bytes) -> None:
        self._untyped = (self._untyped + keys)[:_MOST_UNTYPED]
        self._go_on()

    def stop(self) -> None:
        self._loop.unwatch(self._terminal.inlet)

    def _go_on(self) -> None:
        self._untyped = self._untyped[self._terminal.type_in(self._untyped) :]
        if self._untyped:
            self._loop.watch_writable(self._terminal.inlet, self._go_on)
        else:
            self._loop.unwatch(self._terminal.inlet)


_QUIET_S = 0.15
_ERASE = b"\r\x1b[K"
_TAKES_SCREEN = (b"\x1b[?1049h", b"\x1b[?1047h", b"\x1b[?47h")
_GIVES_SCREEN_BACK = (b"\x1b[?1049l", b"\x1b[?1047l", b"\x1b[?47l")
_LONGEST_SEQUENCE = 8
_INVISIBLE = rb"(?:\x1b\[[0-9;?>]*[@-~]|\x1b[=>])+\Z"
_CLEARED = (b"\r\x1b[K", b"\r\x1b[0K", b"\x1b[2K\r")


def leaves_line_open(chunk: bytes, *, was_open: bool) -> bool:
    """Whether the next text would continue a line. Colours that are reset after the end of the line, a
    progress bar that wiped itself and a program that gave the screen back leave none open."""
    if chunk.endswith(_CLEARED) or any(sequence in chunk for sequence in _GIVES_SCREEN_BACK):
        return False
    shown = chunk
    if b"\x1b" in chunk:
        import re  # not for every start of joblens

        shown = re.sub(_INVISIBLE, b"", chunk)
    return not shown.endswith(b"\n") if shown else was_open


class LiveLine:
    """Drawn only when the cursor is at the start of a line; erased before anything else is written.
    It is not there while a program has the whole screen."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_shown = False
        self._at_line_start = True
        self._screen_is_taken = False
        self._tail = b""
        self._last_output_s = 0.0
        self.redraw_at_s: float | None = None  # when the output will have settled

    def erase(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._write(_ERASE)

    def note_output(self, chunk: bytes) -> None:
        self._at_line_start = chunk.endswith(b"\n")
        self._last_output_s = time.monotonic()
        self.redraw_at_s = self._last_output_s + _QUIET_S if self._at_line_start else None
        if b"\x1b" in chunk or b"\x1b" in self._tail:
            recent = self._tail + chunk  # a sequence may come in two pieces
            taken = max(recent.rfind(sequence) for sequence in _TAKES_SCREEN)
            given_back = max(recent.rfind(sequence) for sequence in _GIVES_SCREEN_BACK)
            if taken != given_back:
                self._screen_is_taken = taken > given_back
        self._tail = chunk[1 - _LONGEST_SEQUENCE :]

    def draw(self, text: str) -> None:
        if self._screen_is_taken or not self._at_line_start:
            return
        if not self._is_shown and time.monotonic() < self._last_output_s + _QUIET_S:
            return  # the job is just printing; do not flicker in between
        if self._has_room():
            self._is_shown = self._write(_ERASE + text.encode(errors="replace"))

    def _has_room(self) -> bool:
        """A terminal that is held up must not hold us up."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def _write(self, data: bytes) -> bool:
        try:
            os.write(self._descriptor, data)
        except OSError:
            return False
        return True
