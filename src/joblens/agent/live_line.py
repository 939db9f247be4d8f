"""One status line at the bottom of the terminal that gets out of the way of the job's own output."""

import os
import time

_QUIET_S = 0.15
_ERASE = b"\r\x1b[K"


class LiveLine:
    """Drawn only when the cursor is at the start of a line; erased before anything else is written.
    A program that takes over the screen switches it off."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_shown = False
        self._at_line_start = True
        self._is_off = False
        self._last_output_s = 0.0

    def erase(self) -> None:
        if self._is_shown:
            self._write(_ERASE)
            self._is_shown = False

    def note_output(self, chunk: bytes) -> None:
        self._at_line_start = chunk.endswith(b"\n")
        self._last_output_s = time.monotonic()
        if b"\x1b[?1049h" in chunk or b"\x1b[?47h" in chunk:
            self._is_off = True

    def draw(self, text: str) -> None:
        if self._is_off or not self._at_line_start:
            return
        if not self._is_shown and time.monotonic() - self._last_output_s < _QUIET_S:
            return  # the job is just printing; do not flicker in between
        self._write(_ERASE + text.encode())
        self._is_shown = True

    def _write(self, data: bytes) -> None:
        try:
            os.write(self._descriptor, data)
        except OSError:
            self._is_off = True
