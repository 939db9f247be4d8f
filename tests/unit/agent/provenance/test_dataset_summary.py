"""What a dataset is counted and hashed as."""

import hashlib
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.provenance.datasets import Abandoned, DatasetError, DatasetSummary, summarize
from joblens.model.runs.workflow_spec import HashMode

MANIFEST, CONTENT, NONE = HashMode.MANIFEST, HashMode.CONTENT, HashMode.NONE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "a" / "deep").mkdir(parents=True)
    (made / "a.txt").write_text("one")
    (made / "a" / "two.txt").write_text("second")
    (made / "a" / "deep" / "three.txt").write_text("")
    return made


def test_content_is_hashed_in_the_order_of_relative_paths(folder: Path) -> None:
    digest = hashlib.sha256()
    texts = {b"a.txt": b"one", b"a/deep/three.txt": b"", b"a/two.txt": b"second"}
    assert list(texts) == sorted(texts)
    for path, text in texts.items():
        digest.update(path + b"\0" + hashlib.sha256(text).digest())
    assert summarize(str(folder), CONTENT) == DatasetSummary(3, 9, digest.hexdigest())


def test_a_manifest_has_paths_sizes_and_times(folder: Path) -> None:
    first = summarize(str(folder), MANIFEST)
    assert (first.files, first.bytes) == (3, 9)
    assert summarize(str(folder), MANIFEST) == first
    os.utime(folder / "a.txt", ns=(1, 1))
    touched = summarize(str(folder), MANIFEST)
    assert touched.sha256 != first.sha256
    (folder / "a.txt").rename(folder / "b.txt")
    assert summarize(str(folder), MANIFEST).sha256 not in (first.sha256, touched.sha256)


def test_content_does_not_care_when_files_were_written(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(folder / "a.txt", ns=(1, 1))
    assert summarize(str(folder), CONTENT) == summarize(str(tmp_path / "copy"), CONTENT)
    assert summarize(str(folder), MANIFEST) != summarize(str(tmp_path / "copy"), MANIFEST)


def test_without_a_hash_files_are_only_counted(folder: Path) -> None:
    assert summarize(str(folder), NONE) == DatasetSummary(3, 9, "")


def test_links_are_never_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x" * 100)
    before = summarize(str(folder), CONTENT)
    (folder / "file").symlink_to(outside / "secret")
    (folder / "folder").symlink_to(outside)
    (folder / "ring").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere")
    linked = summarize(str(folder), CONTENT)
    assert (linked.files, linked.bytes) == (before.files + 4, before.bytes)
    (outside / "secret").write_text("changed")
    assert summarize(str(folder), CONTENT) == linked
    (folder / "file").unlink()
    (folder / "file").symlink_to("elsewhere")
    assert summarize(str(folder), CONTENT).sha256 != linked.sha256


def test_the_dataset_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert summarize(str(tmp_path / "link"), CONTENT) == summarize(f"{folder}/", CONTENT)


def test_odd_names_are_hashed_by_their_bytes(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path / "odd")
    os.mkdir(folder)
    for name in (b"new\nline", b"\xff\xfe", "ü".encode(), b" ", b"-rf", b"\x1b[31m"):
        with open(folder + b"/" + name, "wb") as file:
            file.write(name)
    assert summarize(os.fsdecode(folder), CONTENT).files == 6


def test_pipes_and_sockets_do_not_block_and_do_not_count(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(folder)  # the name of a socket is short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    assert summarize(str(folder), CONTENT).files == 3


def test_a_plain_file_is_a_dataset_of_one_file(folder: Path) -> None:
    found = summarize(str(folder / "a.txt"), CONTENT)
    assert (found.files, found.bytes) == (1, 3)
    assert found.sha256 == hashlib.sha256(b"a.txt\0" + hashlib.sha256(b"one").digest()).hexdigest()


def test_an_empty_directory_is_a_dataset_without_files(tmp_path: Path) -> None:
    assert summarize(str(tmp_path), NONE) == DatasetSummary(0, 0, "")


def test_a_missing_directory_and_a_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"^out/parts: it does not exist$"):
        summarize(str(tmp_path / "out"), MANIFEST, shown="out/parts/")
    with pytest.raises(DatasetError, match="neither a directory nor a file"):
        summarize("/dev/null", MANIFEST)


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: bytes | str, *given: int, **named: int | None) -> int:
        if path in (b"two.txt", b"deep"):
            raise PermissionError(13, "Permission denied")
        return real(path, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DatasetError, match=r"^data/a/deep: Permission denied$"):
        summarize(str(folder), CONTENT, shown="data")
    shutil.rmtree(folder / "a" / "deep")
    with pytest.raises(DatasetError, match=r"^data/a/two.txt: Permission denied$"):
        summarize(str(folder), CONTENT, shown="data")
    assert summarize(str(folder), MANIFEST).files == 2  # nothing has to be opened


def test_files_and_directories_that_vanish_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def stat_unless_gone(path: str | bytes, **named: Any) -> os.stat_result:
        if path == b"two.txt":
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, **named)

    monkeypatch.setattr(os, "stat", stat_unless_gone)
    shutil.rmtree(folder / "a" / "deep")
    (folder / "other").mkdir()
    opened = os.open

    def open_unless_gone(path: bytes | str, *given: int, **named: int | None) -> int:
        if path == b"other":
            raise FileNotFoundError(2, "No such file or directory")
        return opened(path, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_unless_gone)
    assert summarize(str(folder), NONE).files == 1


def test_a_link_that_takes_the_place_of_a_directory_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    real = os.open

    def swap(path: bytes | str, *given: int, **named: int | None) -> int:
        if path == b"a":
            (folder / "a").rename(tmp_path / "away")
            (folder / "a").symlink_to(outside)
        return real(path, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(DatasetError):
        summarize(str(folder), CONTENT)


def test_no_descriptor_stays_open(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        summarize(str(folder), CONTENT)
    with pytest.raises(Abandoned):
        summarize(str(folder), CONTENT, lambda: False)
    assert len(os.listdir("/proc/self/fd")) == before
