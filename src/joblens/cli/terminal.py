"""Terminal output: a progress bar for slow commands, and a full screen redrawn with keys."""

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from joblens.agent.terminal.tty import is_in_background

_PATIENCE_S = 2.0
_LOOK_EVERY = 64


class ProgressBar:
    """`advance` costs next to nothing until the bar is due; only then is rich imported."""

    def __init__(self, label: str, total: int | None = None, look_every: int = _LOOK_EVERY) -> None:
        self._label = label
        self._total = total
        self._look_every = look_every
        self._done = 0
        self._looked_at = 0
        self._started_at = time.monotonic()
        self._is_wanted = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def expect(self, total: int) -> Callable[[int], None]:
        """When it is known only after a while. -> `advance`"""
        self._total = total
        return self.advance

    def advance(self, count: int) -> None:
        self._done += count
        if not self._is_wanted or self._done - self._looked_at < self._look_every:
            return
        self._looked_at = self._done
        if self._bar is None and time.monotonic() - self._started_at >= _PATIENCE_S:
            self._start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=self._total)
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


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
