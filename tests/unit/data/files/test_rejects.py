import datetime as dt
import json
from pathlib import Path

import pytest

from joblens.data.files.rejects import Reject, RejectsFile, examples_for, line_of, read_rejects
from joblens.model.jobs.details import RejectReason


def test_rejects_of_a_second_attempt_replace_those_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "rejects" / "partition_000001.jsonl"
    attempts = [RejectsFile(str(path)) for _ in range(2)]
    for rejects in attempts:
        rejects(Reject(source="a", position=3, is_line=True, byte=40, reason="not JSON", row=b"{\xff\n"))
        rejects(
            Reject(
                source="a",
                position=5,
                is_line=True,
                byte=60,
                operator="x",
                reason="why",
                row=b'{"text": 1}\n',
            )
        )
        rejects.write()
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert first == {
        "source": "a",
        "line": 3,
        "byte": 40,
        "operator": "",
        "reason": "not JSON",
        "row": "{\\xff",
    }
    assert second["row"] == {"text": 1}
    assert (attempts[1].count, attempts[1].first_reason) == (2, "not JSON")
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_attempt_without_rejects_takes_away_those_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "partition_000001.jsonl"
    rejects = RejectsFile(str(path))
    rejects(Reject(source="a", position=3, reason="why", row={"text": "t"}))
    rejects.write()
    assert json.loads(path.read_text())["row"] == {"text": "t"}
    RejectsFile(str(path)).write()
    assert not path.exists()


def test_the_number_of_a_row_and_what_is_in_it_both_stand_in_its_line() -> None:
    line = json.loads(
        line_of(Reject(source="a", position=3, reason="why", row={"at": dt.timedelta(1), "b": b"x"}))
    )
    assert (line["row_number"], line["row"]) == (3, {"at": "P1D", "b": "eA=="})


@pytest.mark.parametrize(
    "row", [{"text": "\ud800"}, b"[" * 100_000 + b"]" * 100_000, b'{"a": "\\ud800"}', {1.5: object()}]
)
def test_whatever_a_row_holds_its_rejection_can_be_written(row: object) -> None:
    assert json.loads(line_of(Reject(source="a", reason="why", row=row)))["reason"] == "why"


def write_rejects(folder: Path, partition: int, *rejects: Reject) -> None:
    file = RejectsFile(str(folder / f"partition_{partition:06d}.jsonl"))
    for reject in rejects:
        file(reject)
    file.write()


def test_rejects_are_read_by_reason_with_examples(tmp_path: Path) -> None:
    broken = [
        Reject(source="a", position=n, is_line=True, reason=f"not JSON at {n}", row=b"{") for n in (3, 9)
    ]
    write_rejects(tmp_path, 0, *broken)
    write_rejects(
        tmp_path, 1, Reject(source="b", position=4, operator="x", reason="ValueError: 1", row={"t": 2})
    )
    found = read_rejects(str(tmp_path), most_bytes=10_000, examples=1)
    assert [(each.operator, each.rows) for each in found.reasons] == [("", 2), ("x", 1)]
    assert [[each.position for each in some] for some in found.examples] == [["line 3"], ["row 4"]]
    assert (found.examples[1][0].row, found.is_all) == ('{"t":2}', True)
    known = [RejectReason(operator="x", reason="ValueError: another value", rows=500)]
    assert examples_for(known, found) == [found.examples[1]]


def test_only_the_beginning_of_many_rejects_is_read(tmp_path: Path) -> None:
    write_rejects(
        tmp_path, 0, *(Reject(source="a", position=n, reason="no", row="x" * 100) for n in range(50))
    )
    found = read_rejects(str(tmp_path), most_bytes=1000, examples=3)
    assert found.is_all is False
    assert 0 < found.reasons[0].rows < 50
    assert read_rejects(str(tmp_path / "none"), most_bytes=10, examples=3).reasons == ()
