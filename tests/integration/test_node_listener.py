"""A worker's private socket on a node, and what is printed there."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.model.values.messages import MessageReader, message_line
from joblens.runners.nodes.listener import (
    Bring,
    FromNode,
    LetGo,
    NodeListener,
    PrintsTo,
    Ran,
    connect_to,
)
from joblens.runners.ray.task import PrintedFiles
from tests.conftest import wait_until


class Worker:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.dropped: list[str] = []
        self.cpus: list[int] = []

    def on_message(self, uuid: str, ack: Any) -> None:
        self.taken.append(uuid)

    def assign_devices(self, *_: object) -> None:
        pass

    def set_cpus(self, cpus: int) -> None:
        self.cpus.append(cpus)

    def let_go(self, uuid: str) -> None:
        self.dropped.append(uuid)


class Guest:
    def __init__(self, path: str) -> None:
        self._connection = connect_to(path)
        self._connection.settimeout(10)
        self._messages: MessageReader[FromNode] = MessageReader(FromNode)

    def bring(self, *uuids: str, cpus: int = 1) -> None:
        self._connection.sendall(message_line(Bring(1, uuids, cpus=cpus)))

    def receive(self, count: int) -> list[FromNode]:
        received: list[FromNode] = []
        while len(received) < count:
            received += self._messages.feed(self._connection.recv(4096))
        return received

    def leave(self) -> None:
        self._connection.close()


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[NodeListener, Worker, str]]:
    folder = tmp_path / ("deep" * 30)  # longer than the kernel takes for a socket
    folder.mkdir()
    path, worker, there = str(folder / "socket"), Worker(), threading.Event()
    listener = NodeListener(path)
    thread = threading.Thread(target=listener.run, args=(worker, there.set, lambda _: None))
    thread.start()
    assert there.wait(10)
    yield listener, worker, path
    listener.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert not Path(path).exists()


def test_jobs_are_taken_with_their_room_and_the_room_goes_when_they_have_run(
    listening: tuple[NodeListener, Worker, str],
) -> None:
    listener, worker, path = listening
    guest = Guest(path)
    guest.bring("a", "b", cpus=2)
    wait_until(lambda: worker.taken == ["a", "b"])
    listener.has_run("a", 0.5)
    listener.has_ended(["a"])
    assert guest.receive(1) == [Ran("a", 0.5)], "once is enough"
    assert worker.cpus == [0, 2]
    listener.has_let_go(["b"])
    assert guest.receive(1) == [LetGo(("b",))]
    wait_until(lambda: worker.cpus == [0, 2, 0])
    guest.leave()


def test_who_goes_away_leaves_no_job_behind(listening: tuple[NodeListener, Worker, str]) -> None:
    listener, worker, path = listening
    stays, goes = Guest(path), Guest(path)
    stays.bring("a")
    goes.bring("b", "c")
    wait_until(lambda: len(worker.taken) == 3)
    listener.has_run("b", 0.1)
    goes.receive(1)
    goes.leave()
    wait_until(lambda: worker.dropped == ["c"])
    assert worker.cpus[-1] == 1
    stays.leave()


def test_a_job_whose_files_are_sent_home_keeps_its_room_until_they_are_whole(
    listening: tuple[NodeListener, Worker, str],
) -> None:
    listener, worker, path = listening
    guest = Guest(path)
    guest.bring("a")
    wait_until(lambda: worker.taken == ["a"])
    listener.prints_to("a", "/here", "/meant")
    listener.has_run("a", 0.1)
    listener.has_ended(["a"])
    first, second = guest.receive(2)
    assert first == PrintsTo("a", "/here", "/meant")
    assert not isinstance(second, Ran)
    guest.leave()


def test_what_is_printed_is_sent_as_it_comes_and_once_more_when_it_was_made_short(tmp_path: Path) -> None:
    files, log = PrintedFiles(), tmp_path / "stdout.log"
    files.add("a", str(tmp_path), "/meant")
    log.write_bytes(b"one")
    (first,) = files.news()
    assert (first.path, first.offset, first.data) == ("/meant/stdout.log", 0, b"one")
    assert list(files.news()) == []
    with log.open("ab") as file:
        file.write(b"two")
    (second,) = files.news()
    assert (second.offset, second.data, second.is_whole) == (3, b"two", False)
    (tmp_path / "short").write_bytes(b"o")
    (tmp_path / "short").replace(log)
    (last,) = files.rest_of("a")
    assert (last.offset, last.data, last.is_whole) == (0, b"o", True)
    assert not files.is_any
