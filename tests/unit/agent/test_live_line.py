import fcntl
import os
from collections.abc import Iterator

import pytest

from joblens.agent import live_line
from joblens.agent.live_line import LiveLine

ERASE = b"\r\x1b[K"


class Screen:
    def __init__(self) -> None:
        self._read, self.descriptor = os.pipe()
        os.set_blocking(self._read, False)

    def got(self) -> bytes:
        try:
            return os.read(self._read, 65536)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        os.close(self._read)
        os.close(self.descriptor)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    monkeypatch.setattr(live_line, "_QUIET_S", -1.0)
    one = Screen()
    yield one
    one.close()


@pytest.fixture
def line(screen: Screen) -> LiveLine:
    return LiveLine(screen.descriptor)


def test_it_is_drawn_over_itself(line: LiveLine, screen: Screen) -> None:
    line.draw("one")
    line.draw("two")
    assert screen.got() == ERASE + b"one" + ERASE + b"two"


def test_it_is_erased_once(line: LiveLine, screen: Screen) -> None:
    line.draw("one")
    screen.got()
    line.erase()
    line.erase()
    assert screen.got() == ERASE


def test_nothing_shown_is_nothing_to_erase(line: LiveLine, screen: Screen) -> None:
    line.erase()
    assert screen.got() == b""


@pytest.mark.parametrize(
    ("chunk", "drawn"),
    [(b"whole line\n", True), (b"half a line", False), (b"progress 10%\r", False), (b"a\r\n", True)],
)
def test_it_stays_out_of_unfinished_lines(line: LiveLine, screen: Screen, chunk: bytes, drawn: bool) -> None:
    line.note_output(chunk)
    line.draw("status")
    assert bool(screen.got()) is drawn


@pytest.mark.parametrize("number", [b"1049", b"1047", b"47"])
def test_a_program_that_takes_the_screen_is_left_alone_until_it_gives_it_back(
    line: LiveLine, screen: Screen, number: bytes
) -> None:
    line.note_output(b"\x1b[?" + number + b"h\n")
    line.draw("status")
    assert screen.got() == b""
    line.note_output(b"bye\x1b[?" + number + b"l\n")
    line.draw("status")
    assert screen.got() != b""


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_sequence_in_two_pieces_is_understood(line: LiveLine, screen: Screen, cut: int) -> None:
    sequence = b"\x1b[?1049h"
    line.note_output(b"text" + sequence[:cut])
    line.note_output(sequence[cut:] + b"\n")
    line.draw("status")
    assert screen.got() == b""


def test_a_terminal_that_takes_nothing_holds_nobody_up(line: LiveLine, screen: Screen) -> None:
    size = fcntl.fcntl(screen.descriptor, fcntl.F_GETPIPE_SZ)
    os.write(screen.descriptor, b"x" * size)
    line.draw("status")  # returns
    line.erase()


def test_it_waits_until_the_job_has_been_quiet(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "_QUIET_S", 1000.0)
    line = LiveLine(screen.descriptor)
    line.note_output(b"busy\n")
    line.draw("status")
    assert screen.got() == b""
