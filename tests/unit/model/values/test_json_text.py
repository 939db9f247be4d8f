from typing import Any

import msgspec
import pytest

from joblens.model.values.json_text import MOST_DEPTH, decode_json, decode_json_lines


class Note(msgspec.Struct):
    what: Any = None


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [MOST_DEPTH + 1, 5000, 1_000_000])
@pytest.mark.parametrize("kind", [Any, Note, dict[str, Any]])
def test_json_that_is_too_deep_is_no_json(kind: Any, levels: int) -> None:
    with pytest.raises(msgspec.DecodeError, match="levels deep"):
        decode_json(f'{{"what": {nested(levels)}}}', kind)


def test_json_of_as_many_levels_as_are_allowed_is_read() -> None:
    assert decode_json(nested(MOST_DEPTH)) != []
    assert decode_json(f'{{"what": {nested(MOST_DEPTH - 1)}}}', Note).what != []


def test_lines_that_are_too_deep_are_no_json() -> None:
    decoder = msgspec.json.Decoder(Note)
    assert decode_json_lines(b'{"what": 1}\n{}\n', decoder) == [Note(what=1), Note()]
    for name in ("what", "other"):
        with pytest.raises(msgspec.DecodeError, match="levels deep"):
            decode_json_lines(f'{{"{name}": {nested(1_000_000)}}}'.encode(), decoder)
