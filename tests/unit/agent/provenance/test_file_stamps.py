"""Files as jobs find them."""

import os
from pathlib import Path

from joblens.agent.provenance.file_stamps import FileStamps
from joblens.agent.runtime.loop import Loop
from joblens.model.jobs.job import FileStamp


def stamps_of(stamps: FileStamps, loop: Loop, *paths: str) -> tuple[FileStamp, ...]:
    received: list[tuple[FileStamp, ...]] = []
    stamps.stamp(paths, received.append)
    while not received:
        loop.run_once()
    return received[0]


def test_the_same_content_has_the_same_digest_whatever_the_time(tmp_path: Path) -> None:
    loop = Loop()
    (tmp_path / "a").write_text("x")
    stamps = FileStamps(loop, str(tmp_path))
    (before,) = stamps_of(stamps, loop, "a")
    os.utime(tmp_path / "a", ns=(1, 1))
    (after,) = stamps_of(stamps, loop, "a")
    assert before.digest == after.digest
    assert before.mtime_ns != after.mtime_ns
    (tmp_path / "a").write_text("y")
    (changed,) = stamps_of(stamps, loop, "a")
    assert changed.digest != before.digest
    loop.close()


def test_a_large_file_is_read_beside_the_loop(tmp_path: Path) -> None:
    loop = Loop()
    (tmp_path / "big").write_bytes(bytes(3 << 20))
    stamps = FileStamps(loop, str(tmp_path))
    received: list[tuple[FileStamp, ...]] = []
    stamps.stamp(["big"], received.append)
    assert received == []
    while not received:
        loop.run_once()
    assert received[0][0].digest
    stamps.stamp(["big"], received.append)  # known by now
    assert received[1] == received[0]
    stamps.close()
    loop.close()


def test_what_is_not_there_and_what_is_no_file_has_no_digest(tmp_path: Path) -> None:
    loop = Loop()
    missing, folder = stamps_of(FileStamps(loop, str(tmp_path)), loop, "none", ".")
    assert missing == FileStamp("none")
    assert folder.digest is None
    assert folder.mtime_ns is not None
    loop.close()
