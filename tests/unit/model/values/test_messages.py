"""Messages between processes: whole however they arrive, and readable for the version before."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.values.messages import MessageReader, message_line


class Took(msgspec.Struct, frozen=True, tag="took"):
    uuid: str
    text: str = ""


class Left(msgspec.Struct, frozen=True, tag="left"):
    uuids: tuple[str, ...]


class TookOfNextVersion(msgspec.Struct, frozen=True, tag="took"):
    uuid: str
    text: str
    gpus: int


def reader() -> MessageReader[Took | Left]:
    return MessageReader(Took | Left)


@given(st.lists(st.text(), max_size=5), st.integers(1, 7))
def test_messages_come_out_as_they_went_in_whatever_the_pieces(texts: list[str], size: int) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    sent: list[Took | Left] = [Took("a", text) for text in texts] + [Left(("b", "c"))]
    data = b"".join(map(message_line, sent))
    one = reader()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [message for piece in pieces for message in one.feed(piece)] == sent


def test_a_field_of_the_next_version_is_ignored() -> None:
    assert list(reader().feed(message_line(TookOfNextVersion("a", "b", 2)))) == [Took("a", "b")]


@pytest.mark.parametrize("data", [b"\x05\x00\x00\x00hello\n", b'{"type":"gone"}\n', b"[]\n"])
def test_anything_else_is_an_error_and_not_a_message(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        list(reader().feed(data))
