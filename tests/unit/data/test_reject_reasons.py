"""Reasons of rejected rows, grouped and counted."""

from joblens.data.files.rejects import Reject, joined_reasons, line_of, reasons_in
from joblens.model.details import RejectReason


def _line(reason: str, operator: str = "") -> bytes:
    return line_of(Reject(source="a.jsonl", reason=reason, operator=operator))


def test_reasons_that_differ_in_numbers_or_words_of_one_error_are_counted_together() -> None:
    lines = [
        _line("not JSON: the line ends too early, behind character 7"),
        _line("ValueError: 'x' is bad (own.py, line 3)", "picky"),
        _line("not JSON: the line ends too early, behind character 12"),
        _line("ValueError: 'y' is bad (own.py, line 3)", "picky"),
        _line("ValueError: 'y' is bad (own.py, line 9)", "picky"),
        _line("no field 'text'"),
        _line("no field 'title'"),
    ]
    found = reasons_in(lines)
    assert [(each.operator, each.rows) for each in found] == [
        ("", 2),
        ("picky", 2),
        ("picky", 1),
        ("", 1),
        ("", 1),
    ]
    assert found[1].reason == "ValueError: 'x' is bad (own.py, line 3)"


def test_many_reasons_are_bounded_and_no_row_is_lost() -> None:
    lines = [_line(f"{'a' * number}: x" * 2000, "op") for number in range(100)]
    found = joined_reasons([reasons_in(lines), reasons_in(lines[:50])])
    assert sum(each.rows for each in found) == 150
    assert len(found) <= 21
    assert found[-1] == RejectReason(reason="other reasons", rows=found[-1].rows)
    assert max(len(each.reason) for each in found) <= 300
