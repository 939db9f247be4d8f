"""Streams that never fail a command that looks after jobs."""

import os
import threading
from collections.abc import Iterator

import pytest

from joblens.files.standard_streams import GuardedStream


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            pass


def guarded(descriptor: int, errors: list[OSError] | None = None) -> GuardedStream:
    result = [] if errors is None else errors
    return GuardedStream(descriptor, "utf-8", result.append)


def test_text_arrives(pipe: tuple[int, int]) -> None:
    stream = guarded(pipe[1])
    stream.write("caf\u00e9 \udcff\n")
    stream.flush()
    assert os.read(pipe[0], 100) == "café \\udcff\n".encode()


def test_a_full_disk_is_reported_once() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    errors: list[OSError] = []
    stream = guarded(descriptor, errors)
    for _ in range(3):
        assert stream.write("x" * 20_000) == 20_000
        stream.flush()
    assert [error.strerror for error in errors] == ["No space left on device"]
    os.close(descriptor)


def test_a_reader_that_has_gone_is_not_worth_a_report(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    errors: list[OSError] = []
    stream = guarded(pipe[1], errors)
    stream.write("x")
    stream.flush()
    assert errors == []


def test_text_without_room_waits_for_its_reader_and_holds_nobody_up(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    filled = 0
    try:
        while True:
            filled += os.write(pipe[1], b"." * 4096)
    except BlockingIOError:
        os.set_blocking(pipe[1], True)
    stream = guarded(pipe[1])
    stream.may_wait = False
    stream.write("first\n")
    stream.flush()
    assert os.read(pipe[0], filled) == b"." * filled
    stream.write("second\n")
    stream.flush()
    assert os.read(pipe[0], 100) == b"first\nsecond\n"


def test_a_long_text_is_written_in_pieces_that_hold_nobody_up(pipe: tuple[int, int]) -> None:
    text = "".join(f"line {number}\n" for number in range(40_000))
    stream = guarded(pipe[1])
    stream.write("before\n")  # not flushed
    stream.may_wait = False
    # A write that waits is ended by this reader, and fails below.
    stuck = threading.Timer(5, lambda: list(iter(lambda: os.read(pipe[0], 1 << 20), b"")))
    stuck.daemon = True
    stuck.start()
    stream.write(text)
    stream.flush()
    assert stuck.is_alive()
    stuck.cancel()
    seen = b""
    while len(seen) < len("before\n" + text):
        seen += os.read(pipe[0], 1 << 20)
        stream.flush()
    assert seen.decode() == "before\n" + text


def test_held_text_is_written_once_waiting_is_allowed(pipe: tuple[int, int]) -> None:
    text = "x" * 300_000 + "\n"
    stream = guarded(pipe[1])
    stream.may_wait = False
    stream.write(text)
    seen: list[bytes] = []
    reading = threading.Thread(target=lambda: seen.extend(iter(lambda: os.read(pipe[0], 1 << 20), b"")))
    reading.start()
    stream.may_wait = True
    stream.write("end\n")
    stream.flush()
    os.close(pipe[1])
    reading.join(10)
    assert b"".join(seen).decode() == text + "end\n"
