"""One status line at the bottom of the terminal that gets out of the way of the job's own output."""

import os
import select
import time

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
