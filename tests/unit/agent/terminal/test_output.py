from pathlib import Path

import pytest

from joblens.agent.terminal import streams
from joblens.agent.terminal.streams import CappedFile, OutputFiles

KIB = 1024
BOUND = 256 * KIB


def write(file: CappedFile, data: bytes) -> None:
    with open(file.path, "ab") as target:
        target.write(data)


@pytest.fixture
def capped(tmp_path: Path) -> CappedFile:
    return CappedFile(str(tmp_path / "out"), BOUND)


def test_what_fits_is_left_as_it_is(capped: CappedFile) -> None:
    write(capped, b"x" * BOUND)
    assert capped.finish() == BOUND
    assert Path(capped.path).read_bytes() == b"x" * BOUND


def test_of_more_the_first_and_the_last_part_stay_with_a_word_between(capped: CappedFile) -> None:
    data = b"".join(f"{number:07}\n".encode() for number in range(200_000))
    write(capped, data)
    assert capped.finish() == len(data)
    kept = Path(capped.path).read_bytes()
    half = BOUND // 2
    assert kept[:half] == data[:half]
    assert kept[-half:] == data[-half:]
    assert kept[half:-half] == f"\n[joblens: {len(data) - BOUND} bytes omitted]\n".encode()


def test_the_middle_is_given_back_while_the_job_writes(capped: CappedFile) -> None:
    for _ in range(40):
        write(capped, b"x" * BOUND)
        capped.trim()
        assert Path(capped.path).stat().st_blocks * 512 <= 4 * BOUND
    assert capped.size() == 40 * BOUND


def test_trimmed_or_not_the_kept_part_is_the_same(tmp_path: Path) -> None:
    data = b"".join(f"{number:07}\n".encode() for number in range(100_000))
    kept = []
    for trims in (False, True):
        file = CappedFile(str(tmp_path / f"out-{trims}"), BOUND)
        for start in range(0, len(data), 10_000):
            write(file, data[start : start + 10_000])
            if trims:
                file.trim()
        file.finish()
        kept.append(Path(file.path).read_bytes())
    assert kept[0] == kept[1]


def test_a_file_system_without_holes_is_cut_at_the_end(
    capped: CappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_punch_hole", lambda path, offset, length: False)
    write(capped, b"x" * 10 * BOUND)
    capped.trim()
    capped.finish()
    assert Path(capped.path).stat().st_size < BOUND + 200


def test_files_are_private(tmp_path: Path) -> None:
    files = OutputFiles(str(tmp_path / "logs"), BOUND)
    assert Path(files.directory).stat().st_mode & 0o777 == 0o700
    write(files.stdout, b"x" * 10 * BOUND)
    files.finish()
    for path in (files.stdout.path, files.stderr.path):
        assert Path(path).stat().st_mode & 0o777 == 0o600


def test_the_last_words_are_text_whatever_was_printed(tmp_path: Path) -> None:
    files = OutputFiles(str(tmp_path / "logs"), BOUND)
    write(files.stderr, b"x" * 5000 + b"\xff the end\n")
    tail = files.stderr_tail()
    assert tail.endswith(" the end\n")
    assert len(tail.encode()) <= 2100
