"""Pseudo-terminals for jobs started on a terminal, so that programs behave as without joblens."""

import fcntl
import os
import termios
from types import TracebackType

_INTERRUPT = b"\x03"
_LFLAG = 3


class PseudoTerminal:
    """A terminal pair. The job holds `slave`; what it prints comes out of `master`."""

    def __init__(self, like: int) -> None:
        """`like` is the real terminal whose modes and size it takes over."""
        self.master, self.slave = os.openpty()
        self._like = like
        try:
            termios.tcsetattr(self.slave, termios.TCSANOW, termios.tcgetattr(like))
        except termios.error:
            pass
        self.copy_size()

    def copy_size(self) -> None:
        try:
            size = fcntl.ioctl(self._like, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
        except OSError:
            pass

    def close_slave(self) -> None:
        os.close(self.slave)

    def is_line_mode(self) -> bool:
        """The program reads whole lines and lets Ctrl-C interrupt it: it is not an editor or a prompt."""
        try:
            modes = termios.tcgetattr(self.master)[_LFLAG]
        except termios.error:
            return False
        return bool(modes & termios.ICANON) and bool(modes & termios.ISIG)

    def foreground_group(self) -> int:
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return -1


class RawTerminal:
    """The real terminal hands every key on untouched, while this is entered."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[object] | None = None

    def __enter__(self) -> "RawTerminal":
        try:
            self._before = termios.tcgetattr(self._descriptor)
            raw = termios.tcgetattr(self._descriptor)
            raw[0] &= ~(
                termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON | termios.INLCR
            )
            raw[1] &= ~termios.OPOST
            raw[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
            raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, raw)
        except termios.error:
            self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
            except termios.error:
                pass


def is_in_foreground(descriptor: int) -> bool:
    """Whether this process may read from and set up the terminal now (it was not started with '&')."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


def has_interrupt(keys: bytes) -> bool:
    return _INTERRUPT in keys


def without_interrupt(keys: bytes) -> bytes:
    return keys.replace(_INTERRUPT, b"")
