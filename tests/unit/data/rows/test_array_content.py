from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from joblens.data.partition.checkpoints import content_of

NESTED = pa.struct([("a", pa.list_(pa.string())), ("b", pa.int32())])

# Of each type: values of which no two neighbours are the same, and other ones for the last of them.
KINDS: list[tuple[Any, list[Any], Any]] = [
    (pa.int16(), [1, None, 0, 3], 4),
    (pa.float64(), [1.5, None, 0.0, 2.5], 2.0),
    (pa.bool_(), [True, None, False, True], False),
    (pa.string(), ["a", None, "", "bc"], "b"),
    (pa.large_binary(), [b"a", None, b"", b"bc"], b"bd"),
    (pa.string_view(), ["a", None, "", "bc"], "b"),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None, "", "bc"], "b"),
    (pa.decimal128(5, 2), [Decimal("1.5"), None, Decimal("0.1"), Decimal("2.2")], Decimal("2.3")),
    (pa.timestamp("ns"), [1, None, 0, 3], 4),
    (pa.binary(2), [b"ab", None, b"cd", b"ef"], b"eg"),
    (pa.list_(pa.int64()), [[1, 2], None, [], [None, 3]], [3, None]),
    (pa.large_list(pa.string()), [["a", "b"], None, [], ["cd"]], ["c", "d"]),
    (pa.list_(pa.int8(), 2), [[1, 2], None, [0, 0], [3, 4]], [3, 5]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", 2), ("c", None)]], [("b", 2), ("c", 0)]),
    (
        NESTED,
        [{"a": ["x"], "b": 1}, None, {"a": None, "b": None}, {"a": ["y", None], "b": 2}],
        {"a": ["y", ""], "b": 2},
    ),
    (pa.null(), [None, None], None),
]


def content(array: Any) -> bytes:
    return b"".join(bytes(piece) for piece in content_of(array))


@pytest.mark.parametrize(("kind", "values", "other"), KINDS, ids=[str(kind) for kind, _, _ in KINDS])
def test_equal_values_have_the_same_content_wherever_they_lie(
    kind: Any, values: list[Any], other: Any
) -> None:
    array = pa.array(values, kind)
    inside = pa.array([*values[:2], *values, *values[:1]], kind).slice(2, len(values))
    assert content(array) == content(inside)
    assert content(array.slice(1)) == content(pa.array(values[1:], kind))
    assert content(array) != content(array.slice(1))


@pytest.mark.parametrize(
    ("kind", "values", "other"), KINDS[:-1], ids=[str(kind) for kind, _, _ in KINDS[:-1]]
)
def test_other_values_have_another_content(kind: Any, values: list[Any], other: Any) -> None:
    array = pa.array(values, kind)
    assert content(array) != content(pa.array([*values[:-1], other], kind))
    assert content(array) != content(pa.array([*values[:-1], None], kind))
    assert content(array) != content(pa.array([values[0], values[0], *values[2:]], kind))


def test_what_is_left_in_the_place_of_a_null_does_not_count() -> None:
    valid = pa.py_buffer(bytes([0b101]))
    arrays = [
        pa.Array.from_buffers(pa.int8(), 3, [valid, pa.py_buffer(bytes([1, left, 3]))]) for left in (0, 9)
    ]
    assert content(arrays[0]) == content(arrays[1])
