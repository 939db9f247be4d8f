"""Terminal (tty) of a job in the foreground: its pseudo-terminal, the user's keys, and control sequences in
its output."""

import fcntl
import os
import termios
from collections.abc import Callable
from typing import Any

from joblens.agent.runtime.loop import Loop

_IFLAG, _OFLAG, _LFLAG, _CC = 0, 1, 3, 6


class PseudoTerminal:
    """A terminal pair. The job has `slave`; its output comes from `master`."""

    def __init__(self, like: int, *, ends_lines: bool) -> None:
        """`like`: the real terminal whose modes and size it copies. `ends_lines` False: the real terminal
        still turns LF into CR LF, so this one does not."""
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
        """Returns whether the program reads whole lines and a key interrupts it: it is neither an editor nor
        a prompt."""
        wanted = termios.ICANON | termios.ISIG
        return bool(self._modes()[_LFLAG] & wanted == wanted)

    def interrupt_key(self) -> bytes:
        """Returns Ctrl-C, or the key that was set instead; empty: no key interrupts."""
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
        """Writes keys to the job without waiting for it to read them; returns how many were accepted."""
        try:
            return os.write(self.inlet, keys)
        except BlockingIOError:
            return 0
        except OSError:
            return len(keys)  # no reader is left

    def close(self) -> None:
        """Closes everything except `master`, which its reader closes."""
        os.close(self.inlet)


class RawTerminal:
    """The real terminal, in raw mode between `enter` and `leave`."""

    def __init__(self, descriptor: int, *, ends_lines: bool) -> None:
        """`ends_lines`: it still turns LF into CR LF."""
        self._descriptor = descriptor
        self._ends_lines = ends_lines
        self._is_raw = False
        self.modes: list[Any] | None = None  # modes to restore
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
    """Returns whether this process was started with '&' from it: reading from it would stop the process."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # a terminal that does not control this process stops nothing
        return False


def is_in_foreground(descriptor: int) -> bool:
    """Returns whether this process may read from and configure the terminal now (it was not started with
    '&')."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


_MOST_UNTYPED = 1 << 20


class Keyboard:
    """Forwards every key. joblens handles the interrupt key if the job is a plain command; the job does
    if it is interactive (a prompt, an editor, a shell with its own jobs)."""

    def __init__(
        self, loop: Loop, real: RawTerminal, terminals: list[PseudoTerminal], interrupt: Callable[[], None]
    ) -> None:
        """The first of `terminals` controls the job."""
        self._loop = loop
        self._real = real
        self.modes = real.modes  # of the real terminal before
        self._terminals = terminals
        self._interrupt = interrupt
        self._typists = [Typist(loop, terminal) for terminal in terminals]
        self._is_taken = False
        self.job_group = -1  # process group of the job's main process

    def take(self) -> None:
        """Takes the terminal, at the start and whenever the user may have brought joblens to the
        foreground."""
        if not self._is_taken and is_in_foreground(0):
            self._is_taken = True
            self._real.enter()
            self._loop.watch(0, self._keys_came)

    def release(self) -> None:
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
            self.release()
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
        """Returns the terminal where the job reads keys: a pager reads them from the one of its stderr."""
        for terminal, typist in zip(self._terminals, self._typists, strict=True):
            if not terminal.is_line_mode():
                return typist
        return self._typists[0]

    def _runs_a_plain_command(self) -> bool:
        if not all(terminal.is_line_mode() for terminal in self._terminals):
            return False
        return self._terminals[0].foreground_group() == self.job_group


class Typist:
    """Types into one terminal. If the job does not read, the rest is buffered here."""

    def __init__(self, loop: Loop, terminal: PseudoTerminal) -> None:
        self._loop = loop
        self._terminal = terminal
        self._untyped = b""

    def type(self, keys: bytes) -> None:
        self._untyped = (self._untyped + keys)[:_MOST_UNTYPED]
        self._type_rest()

    def stop(self) -> None:
        self._loop.unwatch(self._terminal.inlet)

    def _type_rest(self) -> None:
        self._untyped = self._untyped[self._terminal.type_in(self._untyped) :]
        if self._untyped:
            self._loop.watch_writable(self._terminal.inlet, self._type_rest)
        else:
            self._loop.unwatch(self._terminal.inlet)


TAKES_SCREEN = (b"\x1b[?1049h", b"\x1b[?1047h", b"\x1b[?47h")
GIVES_SCREEN_BACK = (b"\x1b[?1049l", b"\x1b[?1047l", b"\x1b[?47l")
LONGEST_SEQUENCE = 8
_INVISIBLE = rb"(?:\x1b\[[0-9;?>]*[@-~]|\x1b[=>])+\Z"
_CLEARED = (b"\r\x1b[K", b"\r\x1b[0K", b"\x1b[2K\r")


def leaves_line_open(chunk: bytes, *, was_open: bool) -> bool:
    """Returns whether the next text would continue a line. Colours that are reset after the end of the
    line, a progress bar that erased itself and a program that restored the screen leave none open."""
    if chunk.endswith(_CLEARED) or any(sequence in chunk for sequence in GIVES_SCREEN_BACK):
        return False
    shown = chunk
    if b"\x1b" in chunk:
        import re  # not for every start of joblens

        shown = re.sub(_INVISIBLE, b"", chunk)
    return not shown.endswith(b"\n") if shown else was_open
