"""Parts that give up their own files one by one, interrupted anywhere."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import xxhash

from joblens.data.files import shards
from joblens.data.files import shards as moving
from joblens.data.files.parquet_schema import PartManifest
from joblens.data.files.shards import forget_moved, is_there, move_parts, put_back
from joblens.model.errors import JoblensError

TEXTS = (b"1\n22\n333\n", b"", b"4444\n5\n", b"66\n7\n8\n")
WHOLE = b"".join(TEXTS)


class Cut(Exception):
    pass


class Scene:
    def __init__(self, folder: Path, shards: int = 1) -> None:
        self.parts = [part(folder / f"part{number}", text) for number, text in enumerate(TEXTS)]
        self.paths = [str(folder / f"out{number}") for number in range(shards)]
        self.hidden = [f"{path}.hidden" for path in self.paths]
        self.counts = [8 // shards] * shards
        self.journal = str(folder / "moved.json")

    def move(self, parts: Sequence[PartManifest] | None = None) -> None:
        parts = self.parts if parts is None else parts
        counts = self.counts if parts == self.parts else [sum(each.rows for each in parts)]
        move_parts(parts, self.paths, self.hidden, counts, self.journal)

    def written(self) -> bytes:
        return b"".join(Path(path).read_bytes() for path in self.hidden)

    def own_files(self) -> list[int]:
        return [number for number, each in enumerate(self.parts) if os.path.exists(each.path)]


def part(path: Path, text: bytes) -> PartManifest:
    path.write_bytes(text)
    return PartManifest(
        path=str(path),
        format="jsonl",
        rows=text.count(b"\n"),
        size_bytes=len(text),
        digest=xxhash.xxh3_128_hexdigest(text),
        content_bytes=len(text),
    )


def cut_short(scene: Scene, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The parts from that one on keep their files."""
    real = shards.copy_bytes

    def copy(source: str, target: int, start: int, end: int) -> None:
        if source == scene.parts[after].path:
            raise Cut
        real(source, target, start, end)

    with monkeypatch.context() as patch:
        patch.setattr(moving, "copy_bytes", copy)
        with pytest.raises(Cut):
            scene.move()


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_parts_end_up_in_the_export_and_nowhere_else(tmp_path: Path, shards: int) -> None:
    scene = Scene(tmp_path, shards)
    scene.move()
    assert scene.written() == WHOLE
    assert [Path(path).read_bytes().count(b"\n") for path in scene.hidden] == scene.counts
    assert scene.own_files() == []
    assert all(is_there(each, scene.journal) for each in scene.parts)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_part_is_found_in_its_file_or_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    scene = Scene(tmp_path, shards)
    cut_short(scene, monkeypatch, after=2)
    assert scene.own_files() == [2, 3]
    assert all(is_there(each, scene.journal) for each in scene.parts)
    with open(scene.hidden[0], "r+b") as file:
        file.write(b"x")
    assert [is_there(each, scene.journal) for each in scene.parts] == [False, True, True, True]
    Path(scene.parts[0].path).write_bytes(TEXTS[0])  # made again
    scene.move()
    assert scene.written() == WHOLE


def test_files_that_are_in_place_already_are_not_written_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)
    scene.move()
    os.replace(scene.hidden[0], scene.paths[0])
    assert all(is_there(each, scene.journal) for each in scene.parts)
    scene.move()
    assert not os.path.exists(scene.hidden[0])
    # A part of it that is lost after all: everything is taken back, and moved anew.
    with open(scene.paths[0], "r+b") as file:
        file.write(b"x")
    Path(scene.parts[0].path).write_bytes(TEXTS[0])
    scene.move()
    assert scene.written() == WHOLE


def test_parts_of_an_export_that_is_not_to_be_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    cut_short(scene, monkeypatch, after=3)
    os.unlink(scene.parts[3].path)  # its partition failed when the job was gone on with
    scene.move(scene.parts[:3])
    assert scene.written() == b"".join(TEXTS[:3])
    put_back(scene.parts[:3], scene.journal)
    assert [Path(each.path).read_bytes() for each in scene.parts[:3]] == list(TEXTS[:3])
    assert not os.path.exists(scene.hidden[0])
    assert not os.path.exists(scene.journal)


def test_an_error_before_the_first_part_leaves_nothing_and_later_only_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    cut_short(scene, monkeypatch, after=0)
    assert scene.own_files() == [0, 1, 2, 3]
    assert not os.path.exists(scene.hidden[0])
    assert not os.path.exists(scene.journal)
    cut_short(scene, monkeypatch, after=3)
    assert os.path.exists(scene.hidden[0])
    forget_moved(scene.journal)
    assert not os.path.exists(scene.hidden[0])


def test_a_part_that_is_in_neither_place_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    cut_short(scene, monkeypatch, after=2)
    os.unlink(scene.parts[2].path)
    with pytest.raises(JoblensError, match="part2 is missing"):
        scene.move()
