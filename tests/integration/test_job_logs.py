"""Kept output is read to its last byte, also while it grows, has a hole, or is replaced."""

import os
import subprocess
from pathlib import Path

import pytest

from joblens.agent.terminal.streams import CappedFile
from joblens.app.jobs.logs import LogReader, output_file_of
from joblens.model.errors import InputError
from tests.builders import past_jobs
from tests.builders.past_jobs import record_of


def everything(reader: LogReader) -> bytes:
    return b"".join(reader.read_on())


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"one\n")
    reader = LogReader(str(log))
    assert everything(reader) == b"one\n"
    assert everything(reader) == b""
    with log.open("ab") as file:
        file.write(b"two\n")
    assert everything(reader) == b"two\n"
    reader.close()


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    reader = LogReader(str(tmp_path / "stdout.log"))
    assert everything(reader) == b""
    (tmp_path / "stdout.log").write_bytes(b"late\n")
    assert everything(reader) == b"late\n"
    reader.close()


def test_a_file_replaced_at_the_end_of_the_job_is_read_to_its_old_end(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"start\n")
    reader = LogReader(str(log))
    assert everything(reader) == b"start\n"
    with log.open("ab") as file:
        file.write(b"end\n")
    (tmp_path / "short").write_bytes(b"cut\n")
    os.replace(tmp_path / "short", log)
    assert everything(reader) == b"end\n"
    reader.close()


def test_of_a_stream_beyond_its_cap_the_hole_is_named_and_not_printed(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    capped = CappedFile(str(log), 4 * 65536)
    with log.open("ab") as file:
        file.write(b"x" * (40 * 65536))
    capped.trim()
    reader = LogReader(str(log))
    read = everything(reader)
    reader.close()
    if log.stat().st_blocks * 512 >= 40 * 65536:
        pytest.skip("this file system has no holes")
    assert b"\0" not in read
    assert b"bytes omitted]" in read
    assert read.count(b"x") < 10 * 65536


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("text", ["", "one\n", "\n\n\n", "one\ntwo\nthree\n", "one\n\nthree", "no end"])
def test_the_last_lines_are_those_that_tail_shows(tmp_path: Path, text: str, count: int) -> None:
    log = tmp_path / "stdout.log"
    log.write_text(text)
    reader = LogReader(str(log))
    reader.seek_last_lines(count)
    read = everything(reader)
    reader.close()
    assert read == subprocess.run(["tail", "-n", str(count), log], capture_output=True, check=True).stdout


def test_the_last_lines_are_found_across_pieces_of_a_large_file(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"a" * 100_000 + b"\n" + b"b" * 200_000 + b"\nlast without an end")
    reader = LogReader(str(log))
    reader.seek_last_lines(2)
    assert everything(reader) == b"b" * 200_000 + b"\nlast without an end"
    reader.close()


def test_output_that_was_pruned_is_reported_from_output_that_was_never_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no longer exists"):
        output_file_of(record_of(past_jobs.poisson(str(tmp_path / "gone")), 1), "stdout")
    with pytest.raises(InputError, match="was not recorded"):
        output_file_of(record_of(past_jobs.poisson(), 1), "stdout")
