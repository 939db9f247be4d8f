"""A whole terminal for one picture that is drawn again and again, and keys without Enter."""

import os
import select
import signal
import sys
import termios
import tty
from types import FrameType, TracebackType
from typing import Any, Self

from joblens.agent.terminal.pseudo_terminal import is_in_background

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_USUAL_HEIGHT = 24
_HOME = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"


class Keys:
    """Keys without Enter, where standard input is a terminal that this process may read from now. It is given
    back as it was, also after Ctrl-C or SIGTERM."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._on_term: Any = None

    def __enter__(self) -> Self:
        if os.isatty(self._input) and not is_in_background(self._input):
            self._before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)
        self._on_term = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._on_term)
        if self._before is not None:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def key(self, timeout_s: float) -> str:
        """The key pressed within that time, or ''."""
        if self._before is None:
            select.select([], [], [], timeout_s)
            return ""
        try:
            ready, _, _ = select.select([self._input], [], [], timeout_s)
        except InterruptedError:  # the window changed its size
            return ""
        return os.read(self._input, 1).decode(errors="replace") if ready else ""

    def wants_to_quit(self, timeout_s: float) -> bool:
        """Whether q or Esc is pressed within that time."""
        return self.key(timeout_s) in ("q", "Q", "\x1b")


class Screen(Keys):
    """The whole terminal besides."""

    def __enter__(self) -> Self:
        super().__enter__()
        sys.stdout.write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        super().__exit__(kind, error, trace)

    def draw(self, lines: list[str]) -> None:
        """Over the picture before, without wiping it first: that is what would flicker."""
        body = "\r\n".join(line + _CLEAR_LINE for line in lines[: self.height])
        sys.stdout.write(_HOME + body + _CLEAR_BELOW)
        sys.stdout.flush()

    @property
    def height(self) -> int:
        # a terminal that does not know its size says 0
        return os.get_terminal_size(sys.stdout.fileno()).lines or _USUAL_HEIGHT


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
