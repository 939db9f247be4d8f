import os
from pathlib import Path

import pytest

from joblens.files.atomic import whole_file, write_whole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


def write_half(path: Path, error: BaseException) -> None:
    with whole_file(str(path)) as being_written:
        Path(being_written).write_bytes(b"half")
        raise error


def test_a_file_is_what_it_was_until_the_new_one_is_whole(folder: Path) -> None:
    path = folder / "a.json"
    path.write_bytes(b"old")
    with whole_file(str(path)) as being_written:
        Path(being_written).write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == ["a.json"]


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_after_an_error_the_old_file_stays_and_nothing_of_the_new_one(
    folder: Path, error: BaseException
) -> None:
    path = folder / "a.json"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write_half(path, error)
    assert path.read_bytes() == b"old"
    assert os.listdir(folder) == ["a.json"]


def test_a_file_that_cannot_take_its_place_is_removed(folder: Path) -> None:
    (folder / "inner").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(str(folder / "inner"), b"x")
    assert os.listdir(folder) == ["inner"]
