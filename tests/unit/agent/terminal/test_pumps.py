import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.runtime.loop import Loop
from joblens.agent.terminal.streams import CappedFile, OutputPump, Target


class Pipe:
    def __init__(self) -> None:
        self.read, self.write = os.pipe()

    def close_read(self) -> None:
        os.close(self.read)

    def taken(self) -> bytes:
        os.set_blocking(self.read, False)
        found = b""
        while True:
            try:
                chunk = os.read(self.read, 65536)
            except BlockingIOError:
                return found
            if not chunk:
                return found
            found += chunk


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.close()


@pytest.fixture
def kept(tmp_path: Path) -> CappedFile:
    return CappedFile(str(tmp_path / "kept"), 1 << 20)


def test_bytes_go_to_the_target_and_into_the_file(loop: Loop, kept: CappedFile) -> None:
    job, ours = Pipe(), Pipe()
    pump = OutputPump(loop, job.read, ours.write, kept)
    pump.start()
    os.write(job.write, b"\x00\xffbytes")
    loop.run_once()
    assert ours.taken() == b"\x00\xffbytes"
    pump.close()
    assert Path(kept.path).read_bytes() == b"\x00\xffbytes"


def test_while_the_target_is_full_the_source_is_left_alone(loop: Loop) -> None:
    job, ours = Pipe(), Pipe()
    os.set_blocking(job.write, False)
    pump = OutputPump(loop, job.read, ours.write)
    pump.start()
    sent = 0
    for _ in range(100):
        try:
            sent += os.write(job.write, b"x" * 65536)
        except BlockingIOError:
            break
        loop.call(lambda: None)
        loop.run_once()
    assert sent < 100 * 65536  # the job is held up
    waits = not pump.is_flushed
    got = 0
    while got < sent:
        got += len(ours.taken())
        loop.call(lambda: None)
        loop.run_once()
    assert (waits, pump.is_flushed) == (True, True)
    assert got == sent
    pump.close()


def test_the_rest_is_kept_at_once_and_shown_when_there_is_room(loop: Loop, kept: CappedFile) -> None:
    job, ours = Pipe(), Pipe()
    pump = OutputPump(loop, job.read, ours.write, kept)
    os.write(job.write, b"x" * 65536)
    pump.drain()
    os.write(job.write, b"y" * 65536)
    os.close(job.write)
    pump.drain()
    assert kept.size() == 65536  # the file is closed with the first end of the job
    pump.close()


def test_a_reader_that_is_gone_closes_the_jobs_pipe(loop: Loop) -> None:
    job, ours = Pipe(), Pipe()
    pump = OutputPump(loop, job.read, ours.write)
    pump.start()
    ours.close_read()
    os.write(job.write, b"x")
    loop.run_once()
    with pytest.raises(BrokenPipeError):
        os.write(job.write, b"x")
    assert pump.is_flushed
    pump.close()


def test_a_target_that_fails_is_reported_and_the_job_goes_on(loop: Loop, kept: CappedFile) -> None:
    job = Pipe()
    messages: list[str] = []
    with open("/dev/full", "wb", buffering=0) as full:
        pump = OutputPump(loop, job.read, full.fileno(), kept, warn=messages.append)
    pump.start()
    for _ in range(3):
        os.write(job.write, b"x")
        loop.run_once()
    pump.close()
    assert len(messages) == 1
    assert "cannot be passed on" in messages[0]
    assert Path(kept.path).read_bytes() == b"xxx"


def test_a_full_disk_is_reported_once_and_showing_goes_on(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    job, ours = Pipe(), Pipe()
    messages: list[str] = []
    pump = OutputPump(
        loop, job.read, ours.write, CappedFile(str(tmp_path / "full"), 1 << 20), warn=messages.append
    )
    pump.start()
    for _ in range(3):
        os.write(job.write, b"x")
        loop.run_once()
    pump.close()
    assert ours.taken() == b"xxx"
    assert len(messages) == 1
    assert "no longer recorded" in messages[0]


@pytest.mark.parametrize("pieces", [[b"a\r\nb"], [b"a\r", b"\nb"], [b"a", b"\r", b"\n", b"b"]])
def test_line_ends_of_the_terminal_are_kept_as_plain_ones(
    loop: Loop, kept: CappedFile, pieces: list[bytes]
) -> None:
    job, ours = Pipe(), Pipe()
    pump = OutputPump(loop, job.read, ours.write, kept, from_terminal=True)
    pump.start()
    for piece in pieces:
        os.write(job.write, piece)
        loop.run_once()
    pump.close()
    assert ours.taken() == b"a\r\nb"
    assert Path(kept.path).read_bytes() == b"a\nb"


def test_a_lone_carriage_return_at_the_end_is_kept(loop: Loop, kept: CappedFile) -> None:
    job, ours = Pipe(), Pipe()
    pump = OutputPump(loop, job.read, ours.write, kept, from_terminal=True)
    os.write(job.write, b"50%\r")
    pump.drain()
    assert Path(kept.path).read_bytes() == b"50%\r"
    pump.close()


def test_others_who_share_the_stream_keep_their_mode() -> None:
    ours = Pipe()
    target = Target(ours.write)
    assert os.get_blocking(ours.write)
    assert not os.get_blocking(target.descriptor)
    target.close()


def test_a_socket_takes_what_fits_and_then_nothing() -> None:
    ours, theirs = socket.socketpair()
    target = Target(ours.fileno())
    total = 0
    while written := target.write(memoryview(b"x" * 65536)):
        total += written
    assert total > 0
    target.close()
    ours.close()
    theirs.close()


def test_a_file_is_written_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"begun ")
    with path.open("r+b", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        target = Target(file.fileno())
        target.write(memoryview(b"gone on "))
        file.write(b"and on")
        target.close()
    assert path.read_bytes() == b"begun gone on and on"
