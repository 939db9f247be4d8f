"""Terminal output: a progress bar for slow commands, and a full screen redrawn with keys."""

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from joblens.agent.terminal.tty import is_in_background

_SHOW_AFTER_S = 2.0
_POLL_EVERY = 64
_DRAW_EVERY_S = 0.1
_BAR_WIDTH = 40


class ProgressBar:
    """One line on standard error, drawn once a command takes long and erased at its end."""

    def __init__(self, label: str, total: int | None = None, poll_every: int = _POLL_EVERY) -> None:
        self._label = label
        self._total = total
        self._poll_every = poll_every
        self._done = 0
        self._checked_at = 0
        self._started_at_s = time.monotonic()
        self._next_draw_s = self._started_at_s + _SHOW_AFTER_S
        self._is_shown = sys.stderr.isatty()
        self._is_drawn = False

    def expect(self, total: int) -> Callable[[int], None]:
        """Sets the total if it becomes known later. Returns `advance`."""
        self._total = total
        return self.advance

    def advance(self, count: int) -> None:
        self._done += count
        if not self._is_shown or self._done - self._checked_at < self._poll_every:
            return
        self._checked_at = self._done
        now_s = time.monotonic()
        if now_s >= self._next_draw_s:
            self._next_draw_s = now_s + _DRAW_EVERY_S
            self._draw(now_s - self._started_at_s)

    def _draw(self, elapsed_s: float) -> None:
        line = progress_line(self._label, self._done, self._total, elapsed_s)
        sys.stderr.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}{_CLEAR_LINE}")
        sys.stderr.flush()
        self._is_drawn = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_drawn:
            sys.stderr.write(f"\r{_CLEAR_LINE}")
            sys.stderr.flush()


def progress_line(label: str, done: int, total: int | None, elapsed_s: float) -> str:
    """Returns `label [####....] 40/100 0:00:07`; without a total, no bar."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    took = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    if not total:
        return f"{label} {done} {took}"
    filled = min(_BAR_WIDTH, _BAR_WIDTH * done // total)
    return f"{label} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {done}/{total} {took}"


_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_USUAL_HEIGHT = 24
_HOME = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"


class Keys:
    """Reads keys without Enter, if standard input is a terminal that this process may read from now.
    Restores its modes, also after Ctrl-C or SIGTERM."""

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
        """Returns the key pressed within that time, or ''."""
        if self._before is None:
            select.select([], [], [], timeout_s)
            return ""
        try:
            ready, _, _ = select.select([self._input], [], [], timeout_s)
        except InterruptedError:  # the window changed its size
            return ""
        return os.read(self._input, 1).decode(errors="replace") if ready else ""

    def wants_to_quit(self, timeout_s: float) -> bool:
        """Returns whether q or Esc is pressed within that time."""
        return self.key(timeout_s) in ("q", "Q", "\x1b")


class Screen(Keys):
    """The alternate screen of the terminal."""

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
        """Draws over the previous frame without erasing it, which would flicker."""
        body = "\r\n".join(line + _CLEAR_LINE for line in lines[: self.height])
        sys.stdout.write(_HOME + body + _CLEAR_BELOW)
        sys.stdout.flush()

    @property
    def height(self) -> int:
        # a terminal of unknown size reports 0
        return os.get_terminal_size(sys.stdout.fileno()).lines or _USUAL_HEIGHT


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
