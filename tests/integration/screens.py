"""A terminal small enough to read: what is on it after the few sequences that joblens draws with."""

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

_TOKEN = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class SmallTerminal:
    """Lines as they would be seen, those that scrolled away included."""

    def __init__(self) -> None:
        self.lines = [""]
        self.is_cursor_hidden = False
        self._row = self._column = 0

    def feed(self, data: bytes) -> None:
        for token in _TOKEN.finditer(data):
            if token[3] is not None:
                self._sequence(token[2].decode(), token[3].decode(), is_private=bool(token[1]))
            elif token[0] == b"\r":
                self._column = 0
            elif token[0] == b"\n":
                self._row += 1
                if self._row == len(self.lines):
                    self.lines.append("")
            else:
                self._put(token[0].decode())

    def _sequence(self, numbers: str, letter: str, *, is_private: bool) -> None:
        if is_private and numbers == "25":
            self.is_cursor_hidden = letter == "l"
        if is_private or letter == "m":
            return
        if letter == "A":
            self._row -= int(numbers or 1)
            assert self._row >= 0, "the cursor went above the first line"
        elif letter == "K":
            self.lines[self._row] = self.lines[self._row][: self._column]
        elif letter == "J":
            del self.lines[self._row + 1 :]
            self.lines[self._row] = self.lines[self._row][: self._column]
        else:
            raise AssertionError(f"unknown sequence {letter}")

    def _put(self, text: str) -> None:
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + text + line[self._column + len(text) :]
        self._column += len(text)


def run_on_terminal(
    *arguments: str | Path,
    cwd: Path,
    columns: int = 90,
    rows: int = 24,
    timeout: float = 30.0,
    typed: bytes = b"",
    **env: str,
) -> tuple[int, bytes]:
    """A joblens command with a terminal for input and output. `typed`: ahead, before it asks.
    -> (exit code, all it wrote)"""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    around = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "joblens", *map(str, arguments)],
        cwd=cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**around, "TERM": "xterm", **env},
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, typed)
    written = b""
    end = time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([master], [], [], 0.1)
            if ready:
                try:
                    chunk = os.read(master, 65536)
                except OSError:  # the other side is closed
                    break
                written += chunk
            elif process.poll() is not None:
                break
        return process.wait(timeout=5), written
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
