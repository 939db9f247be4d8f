"""Files that a job has left behind."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from joblens.agent.queue import outcomes
from joblens.agent.queue.outcomes import collect_artifacts


def now_us() -> int:
    return time.time_ns() // 1000


def test_files_are_found_by_patterns_once_each_and_by_name(tmp_path: Path) -> None:
    started = now_us()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.dat", "a.dat", "deep/er/c.dat", "a.txt"):
        (tmp_path / name).write_text(name)
    found = collect_artifacts(str(tmp_path), ("*.dat", "a.*", "deep/**/*.dat"), started)
    assert [one.path for one in found] == ["a.dat", "a.txt", "b.dat", "deep/er/c.dat"]
    assert found[0].bytes == 5
    assert found[0].sha256 == hashlib.sha256(b"a.dat").hexdigest()


def test_what_was_there_before_is_not_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "old.dat").write_text("old")
    os.utime(tmp_path / "old.dat", (1, 1))
    started = now_us()
    (tmp_path / "new.dat").write_text("new")
    assert [one.path for one in collect_artifacts(str(tmp_path), ("*.dat",), started)] == ["new.dat"]


def test_nothing_outside_of_the_folder_is_looked_at(tmp_path: Path) -> None:
    started = now_us()
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    patterns = ("../*", str(tmp_path / "secret"), "link", "up/*", "**/*")
    assert collect_artifacts(str(folder), patterns, started) == ()


def test_folders_and_pipes_are_no_files(tmp_path: Path) -> None:
    started = now_us()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert collect_artifacts(str(tmp_path), ("*",), started) == ()


def test_large_files_are_listed_without_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_LARGEST_READ", 10)
    monkeypatch.setattr(outcomes, "_MOST_READ", 15)
    started = now_us()
    for name, size in (("a", 10), ("b", 6), ("c", 5), ("d", 11)):
        (tmp_path / name).write_bytes(b"x" * size)
    found = {
        one.path: one.sha256 != "" for one in collect_artifacts(str(tmp_path), ("a", "b", "c", "d"), started)
    }
    assert found == {"a": True, "b": False, "c": True, "d": False}


def test_there_are_no_more_than_a_record_can_carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MOST_FILES", 3)
    started = now_us()
    for number in range(5):
        (tmp_path / f"{number}").touch()
    assert len(collect_artifacts(str(tmp_path), ("*",), started)) == 3
