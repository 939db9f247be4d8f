"""Functions on single rows, over batches."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.data.base.operator import RowErrors
from joblens.data.registry.row_operators import row_operator
from joblens.data.rows.batch import LINE, whole_rows

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def json_batch(*lines: str, text: list[str] | None = None) -> Any:
    columns: dict[str, Any] = {}
    if text is not None:
        columns["text"] = pa.array(text, pa.large_string())
    columns[LINE] = pa.array([line.encode() + b"\n" for line in lines], pa.large_binary())
    return pa.record_batch(columns)


def mapped(
    function: Callable[..., Any], batch: Any, fields: tuple[str, ...] | None = None, **params: Any
) -> Any:
    operator: Any = row_operator(function, "mine", "mapper", fields)(**params)
    assert operator.columns() == ()
    return operator.map(batch)


def lines_of(batch: Any) -> list[str]:
    return [line.decode() for line in batch.column(LINE).to_pylist()]


def test_what_a_mapper_changes_is_put_back_and_all_else_stays_to_the_byte() -> None:
    batch = json_batch('{"n": 1.50, "big": 123456789012345678901234567890, "word":"\\u0061"}')
    changed = mapped(lambda row, by: row | {"n": row["n"] * by}, batch, by=2)
    assert lines_of(changed) == ['{"n":3.0,"big":123456789012345678901234567890,"word":"\\u0061"}\n']


def test_a_mapper_sees_what_operators_before_it_made_of_a_field() -> None:
    batch = json_batch('{"text":"old","n":1}', text=["new"])
    seen: list[dict[str, Any]] = []
    mapped(seen.append, batch)
    assert seen == [{"text": "new", "n": 1}]


def test_a_field_that_is_a_column_is_changed_there_and_its_line_stays() -> None:
    batch = json_batch('{"text":"a"}', text=["b"])
    changed = mapped(lambda row: row | {"text": row["text"] + "!"}, batch)
    assert changed.column("text").to_pylist() == ["b!"]
    assert changed.column(LINE).equals(batch.column(LINE))


def test_column_and_line_of_a_row_agree_when_other_fields_change_too() -> None:
    changed = mapped(lambda row: {"text": row["text"] + "!", "n": 1}, json_batch('{"text":"a"}', text=["b"]))
    assert changed.column("text").to_pylist() == ["b!"]
    assert lines_of(changed) == ['{"text":"b!","n":1}\n']


def test_a_mapper_that_gives_nothing_back_has_changed_what_it_was_handed() -> None:
    def deep(row: dict[str, Any]) -> None:
        row["meta"]["seen"] = True

    assert lines_of(mapped(deep, json_batch('{"meta":{"a":1}}'))) == ['{"meta":{"a":1,"seen":true}}\n']


def test_a_batch_that_no_row_changes_is_handed_on_as_it_is() -> None:
    batch = json_batch('{"text":"a"}', text=["b"])
    assert mapped(lambda row: dict(reversed(row.items())), batch) is batch


def test_columns_that_no_row_changes_are_handed_on_as_they_are() -> None:
    batch = json_batch('{"text":"a"}', '{"text":"b"}', text=["a", "b"])
    changed = mapped(lambda row: row | {"new": 1}, batch)
    assert changed.column("text").buffers()[2].address == batch.column("text").buffers()[2].address
    assert lines_of(changed)[1] == '{"text":"b","new":1}\n'


def test_a_field_can_be_taken_away() -> None:
    changed = mapped(lambda row: {"a": row["a"]}, json_batch('{"a":1,"b":2}'))
    assert lines_of(changed) == ['{"a":1}\n']


def test_a_number_that_becomes_another_type_has_changed() -> None:
    assert lines_of(mapped(lambda row: {"a": True}, json_batch('{"a":1}'))) == ['{"a":true}\n']


def test_rows_that_raise_are_reported_with_their_place_and_reason() -> None:
    batch = json_batch('{"n":1}', '{"m":1}', '{"n":"x"}')
    with pytest.raises(RowErrors) as raised:
        mapped(lambda row: {"n": row["n"] + 1}, batch)
    assert raised.value.reasons.keys() == {1, 2}
    assert raised.value.reasons[1].startswith("KeyError: 'n' (test_row_operators.py, line ")


@pytest.mark.parametrize(
    ("given_back", "reason"),
    [
        ([1], "a mapper must return a dict, not list"),
        ({"text": None}, "it no longer has 'text'"),
        ({}, "it no longer has 'text'"),
        ({"text": 5}, "'text' is int, its column large_string"),
        ({"text": object()}, "object"),
    ],
)
def test_what_cannot_be_a_row_is_reported(given_back: Any, reason: str) -> None:
    with pytest.raises(RowErrors) as raised:
        mapped(lambda row: given_back, json_batch('{"text":"a"}', text=["a"]))
    assert reason in raised.value.reasons[0]


def test_rows_have_only_the_fields_that_were_asked_for() -> None:
    seen: list[dict[str, Any]] = []
    batch = json_batch('{"a":1,"b":[2],"text":"old"}', '{"c":3,"text":"old"}', text=["x", "y"])
    mapped(lambda row: seen.append(dict(row)), batch, fields=("b", "text"))
    assert seen == [{"b": [2], "text": "x"}, {"text": "y"}]


def test_a_change_of_the_fields_asked_for_leaves_the_others_where_they_are() -> None:
    changed = mapped(lambda row: {"b": 9}, json_batch('{"a":1,"b":2,"c":3}'), fields=("b",))
    assert lines_of(changed) == ['{"a":1,"b":9,"c":3}\n']


def test_a_field_that_was_not_asked_for_cannot_be_set() -> None:
    with pytest.raises(RowErrors, match="unexpected fields: c"):
        mapped(lambda row: {"c": 9}, json_batch('{"a":1}'), fields=("a",))


def test_rows_of_parquet_keep_the_types_of_their_columns() -> None:
    batch = pa.record_batch({"n": pa.array([1, None], pa.int16()), "data": pa.array([b"a", b"b"])})
    changed = mapped(lambda row: row | {"n": (row["n"] or 0) + 1, "new": "x"}, batch)
    assert changed.schema.field("n").type == pa.int16()
    assert whole_rows(changed) == [{"n": 2, "data": b"a", "new": "x"}, {"n": 1, "data": b"b", "new": "x"}]


def test_new_fields_of_tables_are_what_each_row_was_given() -> None:
    batch = pa.record_batch({"n": pa.array([0, 1, 2, 3])})
    given: list[dict[str, Any]] = [{}, {"new": 5}, {"new": "text"}, {"new": [b"bytes", 2.5]}]
    changed = mapped(lambda row: row | given[row["n"]], batch)
    assert whole_rows(changed) == [{"n": n, **each} for n, each in enumerate(given)]
    again = mapped(lambda row: {"n": row["n"], "last": row.get("new")} if row["n"] else row, changed)
    assert whole_rows(again)[:2] == [{"n": 0}, {"n": 1, "last": 5}]
    seen: list[Any] = []
    mapped(seen.append, again, fields=("last",))
    assert seen == [{}, {"last": 5}, {"last": "text"}, {"last": [b"bytes", 2.5]}]


def test_a_change_of_fields_asked_for_keeps_other_new_fields_of_tables() -> None:
    batch = mapped(lambda row: row | {"a": 1, "b": 2}, pa.record_batch({"n": pa.array([0])}))
    assert whole_rows(mapped(lambda row: {"a": 3}, batch, fields=("a",))) == [{"n": 0, "a": 3, "b": 2}]


def test_what_cannot_be_kept_of_a_new_field_is_reported_for_its_row() -> None:
    batch = pa.record_batch({"n": pa.array([0, 1])})
    with pytest.raises(RowErrors) as raised:
        mapped(lambda row: row | {"new": object() if row["n"] else 1}, batch)
    assert list(raised.value.reasons) == [1]


def test_numbers_of_numpy_are_taken_as_numbers() -> None:
    def measure(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"mean": np.float32(0.5), "all": np.arange(2)}

    expected = {"n": 1, "mean": 0.5, "all": [0, 1]}
    assert json.loads(lines_of(mapped(measure, json_batch('{"n":1}')))[0]) == expected
    assert whole_rows(mapped(measure, pa.record_batch({"n": pa.array([1])}))) == [expected]


def test_a_value_that_a_column_cannot_hold_is_reported_for_its_row() -> None:
    batch = pa.record_batch({"n": pa.array([1, 200], pa.int16())})
    with pytest.raises(RowErrors) as raised:
        mapped(lambda row: {"n": row["n"] * 1000}, batch)
    assert list(raised.value.reasons) == [1]


def test_a_filter_is_asked_for_every_row() -> None:
    kind: Any = row_operator(lambda row, least: row["n"] >= least, "big_filter", None, None)
    operator = kind(least=2)
    stats = operator.stats(json_batch('{"n":1}', '{"n":2}', '{"n":3}'))
    assert operator.keep(stats).to_pylist() == [False, True, True]


def test_rows_that_a_filter_cannot_judge_are_reported() -> None:
    operator: Any = row_operator(lambda row: row["n"] > 0, "positive_filter", None, None)()
    with pytest.raises(RowErrors) as raised:
        operator.stats(json_batch('{"n":1}', "{}"))
    assert list(raised.value.reasons) == [1]
    assert raised.value.reasons[1].startswith("KeyError: 'n' (test_row_operators.py, line ")


def test_a_class_is_made_once_from_its_parameters() -> None:
    class Counting:
        made = 0

        def __init__(self, start: int = 0) -> None:
            Counting.made += 1
            self.count = start

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            self.count += 1
            return row | {"n": self.count}

    changed = mapped(Counting, json_batch("{}", "{}"), start=5)
    assert lines_of(changed) == ['{"n":6}\n', '{"n":7}\n']
    assert Counting.made == 1


def test_that_no_row_can_reach_something_is_about_none_of_them() -> None:
    def ask(row: dict[str, Any]) -> None:
        if row["n"] > 0:
            raise ConnectionError("refused")

    with pytest.raises(ConnectionError):
        mapped(ask, json_batch('{"n":1}', '{"n":2}'))
    with pytest.raises(RowErrors):
        mapped(ask, json_batch('{"n":1}', '{"n":0}'))


def test_running_out_of_memory_is_not_about_a_row() -> None:
    def swell(row: dict[str, Any]) -> bool:
        raise MemoryError

    operator: Any = row_operator(swell, "swell_filter", None, None)()
    with pytest.raises(MemoryError):
        operator.stats(json_batch('{"n":1}', "{}"))


@given(rows=st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4), value=JSON, name=st.text())
def test_any_field_of_any_row_can_be_set_to_anything(
    rows: list[dict[str, Any]], value: Any, name: str
) -> None:
    batch = json_batch(*(json.dumps(row) for row in rows))
    changed = mapped(lambda row: row | {name: value}, batch)
    assert [json.loads(line) for line in lines_of(changed)] == [row | {name: value} for row in rows]
