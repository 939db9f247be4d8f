import gzip
import multiprocessing
import os
from pathlib import Path

import pytest

from joblens.files.rotation import RotatingFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder / "log"


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize(("suffix", "read"), [("", bytes), (".gz", gzip.decompress)])
def test_a_full_file_becomes_the_newest_backup_and_the_oldest_goes(
    path: Path, suffix: str, read: type[bytes]
) -> None:
    file = RotatingFile(str(path), 10, 2, suffix)
    for letter in b"abcd":
        file.append(bytes([letter]) * 7 + b"\n")
    file.close()
    assert names(path) == ["log", f"log.1{suffix}", f"log.2{suffix}"]
    assert path.read_bytes() == b"ddddddd\n"
    assert read(Path(f"{path}.1{suffix}").read_bytes()) == b"ccccccc\n"
    assert read(Path(f"{path}.2{suffix}").read_bytes()) == b"bbbbbbb\n"


def test_a_line_longer_than_the_limit_has_a_file_of_its_own(path: Path) -> None:
    file = RotatingFile(str(path), 3, 1)
    file.append(b"long line\n")
    assert names(path) == ["log"]
    file.append(b"x\n")
    assert (path.read_bytes(), Path(f"{path}.1").read_bytes()) == (b"x\n", b"long line\n")


def test_without_backups_a_full_file_is_dropped(path: Path) -> None:
    file = RotatingFile(str(path), 4, 0)
    file.append(b"one\n")
    file.append(b"two\n")
    assert names(path) == ["log"]
    assert path.read_bytes() == b"two\n"


def test_without_a_limit_the_file_grows(path: Path) -> None:
    file = RotatingFile(str(path), 0, 5)
    for _ in range(100):
        file.append(b"line\n")
    assert names(path) == ["log"]
    assert path.stat().st_size == 500


def test_a_moved_file_is_created_again(path: Path) -> None:
    file = RotatingFile(str(path), 0, 0)
    file.append(b"first\n")
    path.rename(path.with_name("moved"))
    file.append(b"second\n")
    assert path.read_bytes() == b"second\n"


def test_an_unfinished_line_is_ended(path: Path) -> None:
    path.write_bytes(b"whole\nunfin")
    RotatingFile(str(path), 0, 0).append(b"next\n")
    assert path.read_bytes() == b"whole\nunfin\nnext\n"


def test_an_error_appends_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RotatingFile(str(path), 0, 0)
    file.append(b"first\n")
    real = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:2]))
        with pytest.raises(OSError, match="No space left"):
            file.append(b"second\n")
    file.append(b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def _append_many(file: RotatingFile, writer: int) -> None:
    for number in range(200):
        file.append(b"writer %d number %03d\n" % (writer, number))


def test_forked_processes_lose_no_line(path: Path) -> None:
    file = RotatingFile(str(path), 1000, 100)
    file.open()
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_append_many, args=(file, number)) for number in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    lines = [line for each in path.parent.iterdir() for line in each.read_bytes().splitlines()]
    assert sorted(lines) == [b"writer %d number %03d" % (w, n) for w in range(4) for n in range(200)]
    assert len(names(path)) > 10
