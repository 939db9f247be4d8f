"""Terminal of a killed owner: the launcher restores its modes. launcher.py, which runs as a plain file,
imports this only then."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import os
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def restore_terminal(modes: list[Any]) -> None:
    """Restores the terminal's modes, if it still has those of the killed owner."""
    _signal.signal(_signal.SIGTTOU, _signal.SIG_IGN)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        now = termios.tcgetattr(terminal)
        if not now[3] & (termios.ISIG | termios.ICANON):  # otherwise the shell has set its own
            termios.tcsetattr(terminal, termios.TCSANOW, modes)
        os.close(terminal)
    except (OSError, termios.error):
        pass  # the terminal is gone
