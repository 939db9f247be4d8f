"""Live line of a job in the foreground: one line below its output, with the numbers of its last samples."""

import os
import time
from collections.abc import Callable

from joblens.agent.terminal.tty import GIVES_SCREEN_BACK, LONGEST_SEQUENCE, TAKES_SCREEN
from joblens.cli.ui.screen import is_writable
from joblens.model.jobs.sample import Sample

_QUIET_S = 0.15
_ERASE = b"\r\x1b[K"


class LiveLine:
    """Drawn only when the cursor is at the start of a line; erased before anything else is written.
    Hidden while a program uses the whole screen."""

    def __init__(self, render: Callable[[list[Sample]], str], descriptor: int = 2) -> None:
        self._render = render
        self._descriptor = descriptor
        self._is_shown = False
        self._at_line_start = True
        self._screen_is_taken = False
        self._tail = b""
        self._last_output_s = 0.0
        self.redraw_at_s: float | None = None  # when the output will be quiet

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
            taken_at = max(recent.rfind(sequence) for sequence in TAKES_SCREEN)
            released_at = max(recent.rfind(sequence) for sequence in GIVES_SCREEN_BACK)
            if taken_at != released_at:
                self._screen_is_taken = taken_at > released_at
        self._tail = chunk[1 - LONGEST_SEQUENCE :]

    def draw(self, samples: list[Sample]) -> None:
        if self._screen_is_taken or not self._at_line_start:
            return
        if not self._is_shown and time.monotonic() < self._last_output_s + _QUIET_S:
            return  # the job is just printing; do not flicker
        if is_writable(self._descriptor):
            self._is_shown = self._write(_ERASE + self._render(samples).encode(errors="replace"))

    def _write(self, data: bytes) -> bool:
        try:
            os.write(self._descriptor, data)
        except OSError:
            return False
        return True
