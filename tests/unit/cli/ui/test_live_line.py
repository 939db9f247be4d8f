import fcntl
import os
import time
from collections.abc import Iterator

import pytest

from joblens.agent.terminal.tty import leaves_line_open
from joblens.cli.ui import live_line
from joblens.cli.ui.live_line import LiveLine
from joblens.model.jobs.sample import Sample

ERASE = b"\r\x1b[K"


class Named(Sample, frozen=True, kw_only=True):
    name: str = ""


def samples(name: str) -> list[Sample]:
    return [Named(at_us=0, elapsed_us=0, name=name)]


def names_of(shown: list[Sample]) -> str:
    return " ".join(sample.name for sample in shown if isinstance(sample, Named))


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
    return LiveLine(names_of, screen.descriptor)


def test_it_is_drawn_over_itself(line: LiveLine, screen: Screen) -> None:
    line.draw(samples("one"))
    line.draw(samples("two"))
    assert screen.got() == ERASE + b"one" + ERASE + b"two"


def test_it_is_erased_once(line: LiveLine, screen: Screen) -> None:
    line.draw(samples("one"))
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
    line.draw(samples("status"))
    assert bool(screen.got()) is drawn


@pytest.mark.parametrize("number", [b"1049", b"1047", b"47"])
def test_a_program_that_takes_the_screen_is_left_alone_until_it_gives_it_back(
    line: LiveLine, screen: Screen, number: bytes
) -> None:
    line.note_output(b"\x1b[?" + number + b"h\n")
    line.draw(samples("status"))
    assert screen.got() == b""
    line.note_output(b"bye\x1b[?" + number + b"l\n")
    line.draw(samples("status"))
    assert screen.got() != b""


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_sequence_in_two_pieces_is_understood(line: LiveLine, screen: Screen, cut: int) -> None:
    sequence = b"\x1b[?1049h"
    line.note_output(b"text" + sequence[:cut])
    line.note_output(sequence[cut:] + b"\n")
    line.draw(samples("status"))
    assert screen.got() == b""


@pytest.mark.within(20)
def test_a_terminal_that_takes_nothing_holds_nobody_up(line: LiveLine, screen: Screen) -> None:
    size = fcntl.fcntl(screen.descriptor, fcntl.F_GETPIPE_SZ)
    os.write(screen.descriptor, b"x" * size)
    line.draw(samples("status"))  # returns
    line.erase()


def test_it_waits_until_the_job_has_been_quiet(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "_QUIET_S", 1000.0)
    line = LiveLine(names_of, screen.descriptor)
    line.note_output(b"busy\n")
    line.draw(samples("status"))
    assert screen.got() == b""


def test_it_comes_back_as_soon_as_the_output_is_complete(
    line: LiveLine, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_line, "_QUIET_S", 0.15)
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    line.note_output(b"words\n")
    now_s = 100.1
    line.draw(samples("too early"))
    line.note_output(b"more\n")
    due_s = line.redraw_at_s
    assert due_s == pytest.approx(100.25)
    assert screen.got() == b""
    now_s = due_s or 0.0
    line.draw(samples("now"))
    assert screen.got() == ERASE + b"now"


def test_it_does_not_come_back_into_an_unfinished_line(line: LiveLine) -> None:
    line.note_output(b"words\n")
    line.note_output(b"and then")
    assert line.redraw_at_s is None


@pytest.mark.parametrize(
    ("chunk", "is_open"),
    [
        (b"abc", True),
        (b"abc\n", False),
        (b"\x1b[31mabc\n\x1b[0m", False),
        (b"\x1b[31mabc\x1b[0m", True),
        (b"50%\r\x1b[K", False),
        (b"50%\r", True),
        (b"\x1b[?1049l\x1b[?1l\x1b>", False),
    ],
)
def test_what_leaves_a_line_open(chunk: bytes, is_open: bool) -> None:
    assert leaves_line_open(chunk, was_open=not is_open) == is_open


@pytest.mark.parametrize("was_open", [True, False])
def test_what_cannot_be_seen_changes_nothing_about_the_line(was_open: bool) -> None:
    assert leaves_line_open(b"\x1b[0m", was_open=was_open) == was_open
