"""A progress bar for what takes longer than two seconds, on a terminal only."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

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
