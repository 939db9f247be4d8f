import json
from pathlib import Path

from joblens.data.rejects import Reject, RejectsFile


def test_rejects_of_a_second_attempt_replace_those_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "rejects" / "partition_000001.jsonl"
    for _ in range(2):
        rejects = RejectsFile(str(path))
        rejects(Reject(source="a", position=3, byte=40, reason="not JSON", row=b"{\xff\n"))
        rejects(
            Reject(source="a", position=5, byte=60, operator="x_mapper", reason="why", row=b'{"text": 1}\n')
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
    assert rejects.counts == {"": 1, "x_mapper": 1}
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_attempt_without_rejects_takes_away_those_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "partition_000001.jsonl"
    rejects = RejectsFile(str(path))
    rejects(Reject(source="a", position=3, reason="why", row={"text": "t"}))
    rejects.write()
    assert json.loads(path.read_text())["row"] == {"text": "t"}
    RejectsFile(str(path)).write()
    assert not path.exists()
