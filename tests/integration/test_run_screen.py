"""A run on a terminal: drawn in place, failures above, and the terminal as it was afterwards."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.cli.ui.screen import RunScreen
from tests.integration.screens import SmallTerminal, run_on_terminal

WORKFLOW = """
name: painting
jobs:
  - name: paint_{i}
    command: sleep 0.6
    parameters: {i: "1:3"}
  - name: spill
    command: sh -c 'echo oh no >&2; exit 4'
  - name: frame
    command: "true"
    depends_on_regexes: ["^paint"]
"""


def shown(read: int, terminal: SmallTerminal) -> list[str]:
    terminal.feed(os.read(read, 65536))
    return terminal.lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_picture_is_drawn_over_the_one_before(pipe: tuple[int, int]) -> None:
    screen, terminal = RunScreen(pipe[1]), SmallTerminal()
    screen.draw(["one", "two, and more", "three"])
    assert shown(pipe[0], terminal) == ["one", "two, and more", "three"]
    screen.draw(["uno", "due"])
    assert shown(pipe[0], terminal) == ["uno", "due"]


def test_what_is_said_stays_above_the_picture(pipe: tuple[int, int]) -> None:
    screen, terminal = RunScreen(pipe[1]), SmallTerminal()
    screen.draw(["a picture", "of two lines"])
    screen.say("oh no")
    screen.draw(["a picture", "of two lines"])
    screen.say("again")
    screen.draw(["the last one"])
    assert shown(pipe[0], terminal) == ["oh no", "again", "the last one"]
    screen.leave()
    assert shown(pipe[0], terminal) == ["oh no", "again", "the last one", ""]


def test_the_cursor_is_back_after_a_picture_that_was_taken_away(pipe: tuple[int, int]) -> None:
    screen, terminal = RunScreen(pipe[1]), SmallTerminal()
    screen.draw(["a picture", "of two lines"])
    screen.draw([])
    assert shown(pipe[0], terminal) == [""]
    assert terminal.is_cursor_hidden
    screen.leave()
    assert shown(pipe[0], terminal) == [""]
    assert not terminal.is_cursor_hidden


def test_nothing_is_wiped_before_it_is_drawn(pipe: tuple[int, int]) -> None:
    screen = RunScreen(pipe[1])
    screen.draw(["one", "two"])
    os.read(pipe[0], 65536)
    screen.draw(["one", "two"])
    written = os.read(pipe[0], 65536)
    assert b"\x1b[2J" not in written
    assert written.index(b"two") < written.index(b"\x1b[J")


def test_a_run_is_drawn_in_place_with_its_failures_above(tmp_path: Path, store_path: Path) -> None:
    spec = tmp_path / "painting.yaml"
    spec.write_text(WORKFLOW)
    code, written = run_on_terminal("run", spec, cwd=tmp_path)
    assert code == 1
    terminal = SmallTerminal()
    terminal.feed(written)
    text = "\n".join(terminal.lines)
    assert text.count("✗ spill") == 1
    assert "exit code 4: oh no" in text
    [head] = [line for line in terminal.lines if line.startswith("painting  run 1.1  failed")]
    bars = terminal.lines[terminal.lines.index(head) + 1 :]
    assert "3/4  1 failed" in bars[0]
    assert "1/1" in bars[1]
    assert terminal.lines.index(head) > next(
        at for at, line in enumerate(terminal.lines) if "✗ spill" in line
    )
    assert written.count(b"\x1b[?25l") >= 2, "it was drawn once only"
    assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l"), "the cursor was not given back"


def test_a_dumb_terminal_gets_lines(tmp_path: Path, store_path: Path) -> None:
    spec = tmp_path / "painting.yaml"
    spec.write_text(WORKFLOW)
    _, written = run_on_terminal("run", spec, cwd=tmp_path, TERM="dumb")
    assert b"\x1b" not in written
    assert "✓ paint_1: done in".encode() in written
