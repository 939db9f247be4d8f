import os
import stat
from pathlib import Path

import pytest

from joblens.files.atomic import atomic_file, output_path, write_atomically, write_durably


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


def write_half(path: Path, error: BaseException) -> None:
    with atomic_file(str(path)) as part:
        Path(part).write_bytes(b"half")
        raise error


def test_a_file_is_unchanged_until_the_new_one_is_complete(folder: Path) -> None:
    path = folder / "a.json"
    path.write_bytes(b"old")
    with atomic_file(str(path)) as part:
        Path(part).write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == ["a.json"]


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_an_error_keeps_the_old_file_and_removes_the_new_one(folder: Path, error: BaseException) -> None:
    path = folder / "a.json"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write_half(path, error)
    assert path.read_bytes() == b"old"
    assert os.listdir(folder) == ["a.json"]


def test_a_file_that_cannot_replace_a_folder_is_removed(folder: Path) -> None:
    (folder / "inner").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(str(folder / "inner"), b"x")
    assert os.listdir(folder) == ["inner"]


def test_two_writers_at_once_do_not_mix(folder: Path) -> None:
    path = folder / "a.json"
    with atomic_file(str(path)) as first, atomic_file(str(path)) as second:
        Path(first).write_bytes(b"first")
        Path(second).write_bytes(b"second")
    assert path.read_bytes() == b"first"  # the outer block ends last
    assert os.listdir(folder) == ["a.json"]


def test_the_mode_follows_the_umask(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(str(folder / "shared"), b"x", 0o666)
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "shared").stat().st_mode) == 0o640


def test_a_durable_write_makes_its_folder_and_flushes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: sizes.append(os.fstat(fd).st_size))
    path = folder / "new" / "a.spec"
    write_durably(str(path), b"content")
    assert path.read_bytes() == b"content"
    assert sizes == [len(b"content")]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_output_goes_through_a_link_and_keeps_it(folder: Path) -> None:
    (folder / "target").write_bytes(b"old")
    (folder / "link").symlink_to("target")
    with output_path(str(folder / "link")) as part:
        Path(part).write_bytes(b"new")
    assert (folder / "link").is_symlink()
    assert (folder / "target").read_bytes() == b"new"


def test_a_device_is_written_to_directly() -> None:
    with output_path("/dev/null") as path:
        assert path == "/dev/null"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
