"""Pseudo-terminals for jobs started on a terminal, so that programs behave as without joblens."""

import fcntl
import os
import termios
from typing import Any

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
