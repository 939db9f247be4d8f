"""How messages that other threads have settled get back to the thread of the broker."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("celery")

from joblens.runners.celery import consumer


class MessageHandler:
    def __init__(self) -> None:
        self.pending: list[Callable[[], None]] = []

    def on_message(self, uuid: str, pending: Callable[[], None]) -> None:
        self.pending.append(pending)


class Message:
    def __init__(self) -> None:
        self.is_acknowledged = False

    def decode(self) -> Any:
        return [["a-job"], {}, {}]

    def ack(self) -> None:
        self.is_acknowledged = True


@pytest.fixture
def handler() -> MessageHandler:
    return MessageHandler()


@pytest.fixture
def inbox(handler: MessageHandler) -> Iterator[Any]:
    made = consumer._Inbox(handler, threading.Event())
    yield made
    made.close()


def test_what_is_acknowledged_while_the_waking_byte_is_read_does_not_silence_what_follows(
    inbox: Any, handler: MessageHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [Message() for _ in range(3)]
    for message in messages:
        inbox._on_message(message, None, None, None, None)
    first, second, third = handler.pending

    def read(descriptor: int, count: int) -> bytes:
        second()  # another thread, at the worst moment
        return os.read(descriptor, count)

    first()
    monkeypatch.setattr(consumer, "os", SimpleNamespace(read=read, write=os.write, close=os.close))
    inbox._on_woken()
    third()
    readable, _, _ = select.select([inbox._read_end], [], [], 0)
    assert readable
    monkeypatch.undo()
    inbox._on_woken()
    assert all(message.is_acknowledged for message in messages)
