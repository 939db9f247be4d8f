"""Numbers of lines, counted once."""

from pathlib import Path

import pytest

from joblens.data.files import json_lines
from joblens.data.files.json_lines import lines_before, note_lines


def test_lines_are_those_that_end_before_the_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n" * 100_000 + b"last")
    for place, count in ((8 * 50_000, 100_000), (4, 1), (800_004, 200_000), (0, 0), (8 * 70_000, 140_000)):
        assert lines_before(str(path), place) == count


def test_what_was_counted_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\n" * 1000)
    read: list[int] = []
    count = json_lines._count

    def watched(path: str, start: int, end: int) -> int:
        read.append(end - start)
        return count(path, start, end)

    monkeypatch.setattr(json_lines, "_count", watched)
    assert lines_before(str(path), 400) == 100
    note_lines(str(path), 800, 200)
    assert [lines_before(str(path), place) for place in (400, 1200, 800)] == [100, 300, 200]
    assert read == [400, 0, 400, 0]


def test_a_file_that_was_written_again_is_counted_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\n" * 10)
    assert lines_before(str(path), 40) == 10
    path.write_bytes(b"1\n" * 30)
    assert lines_before(str(path), 40) == 20


def test_places_too_far_into_a_file_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\n")
    assert lines_before(str(path), 1 << 40) is None
