"""Multi-line drawing at the bottom of a terminal, redrawn in place; messages stay above."""

import os
import select

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
# Synchronized output: terminals without it ignore it.
_TOGETHER, _NOW = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"
_USUAL = os.terminal_size((80, 24))


def is_writable(descriptor: int) -> bool:
    """A blocked terminal must not block joblens."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


class RunScreen:
    """Nothing is erased before it is drawn over, so nothing flickers. A blocked terminal (Ctrl-S) blocks
    nothing: the drawing is skipped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._drawn = 0  # lines of the current drawing
        self._is_hidden = False  # the cursor is hidden, since the first drawing
        self._messages: list[str] = []

    @property
    def size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return _USUAL
        return os.terminal_size((size.columns or _USUAL.columns, size.lines or _USUAL.lines))

    def say(self, line: str) -> None:
        """Prints above the drawing, with the next frame."""
        self._messages.append(line)

    def draw(self, lines: list[str]) -> None:
        if not is_writable(self._descriptor):
            return
        above = "".join(f"{line}{_CLEAR_LINE}\r\n" for line in self._messages)
        body = "\r\n".join(line + _CLEAR_LINE for line in lines)
        # No wrapping in the drawing: a line that is too long for a narrowed window stays one line.
        picture = f"{_NO_WRAP}{body}{_CLEAR_BELOW}{_WRAP}"
        self._is_hidden = True
        if self._write(f"{_TOGETHER}{_HIDE_CURSOR}{self._to_top()}{above}{picture}{_NOW}"):
            self._messages.clear()
            self._drawn = len(lines)

    def leave(self) -> None:
        """The drawing stays; the cursor goes below it."""
        messages = "".join(f"\r\n{line}" for line in self._messages)
        self._messages.clear()
        text = f"{messages if self._drawn else messages.lstrip()}\r\n" if self._drawn or messages else ""
        shown = _SHOW_CURSOR if self._is_hidden else ""
        if shown or text:
            self._write(shown + text)
        self._drawn, self._is_hidden = 0, False

    def _to_top(self) -> str:
        return "\r" if self._drawn <= 1 else f"\r\x1b[{self._drawn - 1}A"

    def _write(self, text: str) -> bool:
        data = memoryview(text.encode(errors="replace"))
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return False
        return True
