import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from joblens.data.base.operator import RowErrors
from joblens.data.partition.operator_run import check_operator, first_bad, keeping, work_on
from joblens.data.rows.batch import joined_batches
from joblens.model.errors import BrokenOperator


def numbers(count: int) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(range(count))], names=["n"])


def doubling(bad: set[int], calls: list[int]) -> Callable[[Any], Any]:
    def double(batch: Any) -> Any:
        calls.append(batch.num_rows)
        values = batch.column("n").to_pylist()
        for value in values:
            if value in bad:
                raise ValueError(f"{value} is bad")
        return pa.RecordBatch.from_arrays([pa.array([2 * value for value in values])], names=["n"])

    return double


def test_rows_that_work_are_worked_on_and_the_others_reported_with_their_place() -> None:
    worked = work_on(numbers(10), doubling({3, 7}, []), joined_batches)
    assert worked.result.column("n").to_pylist() == [0, 2, 4, 8, 10, 12, 16, 18]
    reasons = {
        place: reason.partition(" (test_bad_rows.py, line ")[0] for place, reason in worked.reasons.items()
    }
    assert reasons == {3: "ValueError: 3 is bad", 7: "ValueError: 7 is bad"}


def test_one_bad_row_among_many_costs_few_calls() -> None:
    calls: list[int] = []
    work_on(numbers(4096), doubling({1234}, calls), joined_batches)
    assert len(calls) < 40


def test_nothing_is_left_where_all_rows_are_bad() -> None:
    worked = work_on(numbers(5), doubling(set(range(5)), []), joined_batches)
    assert worked.result is None
    assert sorted(worked.reasons) == [0, 1, 2, 3, 4]


def test_an_operator_that_knows_its_bad_rows_is_called_once_more() -> None:
    calls = []

    def knowing(batch: Any) -> Any:
        values = batch.column("n").to_pylist()
        calls.append(values)
        wrong = {place: "odd" for place, value in enumerate(values) if value % 2}
        if wrong:
            raise RowErrors(wrong)
        return batch

    worked = work_on(numbers(6), knowing, joined_batches)
    assert worked.result.column("n").to_pylist() == [0, 2, 4]
    assert worked.reasons == {1: "odd", 3: "odd", 5: "odd"}
    assert len(calls) == 2


def test_running_out_of_memory_is_not_blamed_on_rows() -> None:
    def out_of_memory(_batch: Any) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        work_on(numbers(6), out_of_memory, joined_batches)


def test_the_mask_of_what_stays() -> None:
    assert keeping(4, {1: "bad"}).tolist() == [True, False, True, True]


def test_the_first_bad_row_is_found_in_few_calls() -> None:
    calls: list[int] = []
    error = ValueError("of all")
    assert first_bad(numbers(4096), doubling({1234, 3000}, calls), error) == 1234
    assert len(calls) < 20
    assert first_bad(numbers(4), doubling(set(), []), error) is None
    assert first_bad(numbers(4), doubling({2}, []), RowErrors({3: "x", 1: "y"})) == 1


def test_leaving_the_program_is_about_a_row_too() -> None:
    def leaving(batch: Any) -> Any:
        if 2 in batch.column("n").to_pylist():
            sys.exit("enough")
        return batch

    worked = work_on(numbers(4), leaving, joined_batches)
    assert worked.reasons[2].startswith("SystemExit: enough (test_bad_rows.py, line ")
    assert len(worked.reasons) == 1
    assert worked.result.num_rows == 3


def test_an_operator_that_fails_on_nearly_every_row_for_one_reason_is_broken() -> None:
    reasons = {place: f"KeyError: '{place}'" for place in range(18)}
    with pytest.raises(BrokenOperator, match="mine failed on 18 of 20 rows: KeyError: '0'"):
        check_operator("mine", 20, reasons)


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        (19, dict.fromkeys(range(19), "KeyError: 'a'")),  # too few to say so
        (21, dict.fromkeys(range(18), "KeyError: 'a'")),
        (20, {place: f"{'KeyError' if place % 2 else 'ValueError'}: x" for place in range(20)}),
    ],
)
def test_rows_that_are_bad_are_no_reason_to_doubt_the_operator(rows: int, reasons: dict[int, str]) -> None:
    check_operator("mine", rows, reasons)


def test_what_is_not_about_rows_is_raised() -> None:
    def unreachable(_batch: Any) -> Any:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        work_on(numbers(6), unreachable, joined_batches, (MemoryError, OSError))
    assert len(work_on(numbers(6), unreachable, joined_batches).reasons) == 6
