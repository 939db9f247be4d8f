"""Reasons of rejected rows, grouped and counted."""

from pathlib import Path

import msgspec
import pytest

from joblens.data.base.job_folder import JobFolder
from joblens.data.executor.coordinator import Rejects
from joblens.data.files.rejects import Reject, joined_reasons, line_of, reasons_in
from joblens.data.partition.report import RejectsOfPartition
from joblens.model.errors import JobCannotGoOn
from joblens.model.jobs.details import RejectReason


def _line(reason: str, operator: str = "") -> bytes:
    return line_of(Reject(source="a.jsonl", reason=reason, operator=operator))


def test_reasons_that_differ_in_numbers_or_words_of_one_error_are_counted_together() -> None:
    lines = [
        _line("not JSON: unexpected end of line after character 7"),
        _line("ValueError: 'x' is bad (own.py, line 3)", "picky"),
        _line("not JSON: unexpected end of line after character 12"),
        _line("ValueError: 'y' is bad (own.py, line 3)", "picky"),
        _line("ValueError: 'y' is bad (own.py, line 9)", "picky"),
        _line("missing field 'text'"),
        _line("missing field 'title'"),
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


def test_every_unread_row_counts_in_a_share_however_many_reasons_there_are(tmp_path: Path) -> None:
    """40 unread rows of 40 reasons and 60 that were read: 40 % of 100."""
    folder = JobFolder(str(tmp_path))
    of_partition = RejectsOfPartition(folder, 0, None)  # type: ignore[arg-type]
    of_partition.begin([_line("no field " + "x" * number) for number in range(40)])
    so_far = of_partition.keep_all(str(tmp_path / "rejects"))
    for limit, is_enough in (("40%", True), ("39%", False)):
        rejects = Rejects(limit)
        rejects.set_partition(0, {"rejects": msgspec.to_builtins(so_far), "source_rows": 60})
        if is_enough:
            rejects.check("here", are_all_read=True)
        else:
            with pytest.raises(JobCannotGoOn, match="40 of 100 rows"):
                rejects.check("here", are_all_read=True)
