"""Ids of events, which say the attempt and the position in it."""

import pytest

from joblens.model.errors import InputError
from joblens.model.values.positions import Position


@pytest.mark.parametrize("text", ["17", "-1", "0", "2.17", "1.-1"])
def test_an_id_is_read_as_it_was_written(text: str) -> None:
    assert str(Position.parse(text)) == text


def test_an_id_without_attempt_is_of_the_present_one() -> None:
    assert (Position.parse("17"), Position.parse("2.17")) == (Position(17), Position(17, attempt=2))


@pytest.mark.parametrize(
    "wrong", ["", "x", ".5", "2.", "1.2.3", "-2", "9" * 19, "1\n", "+1", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_other_texts_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="no position"):
        Position.parse(wrong)
