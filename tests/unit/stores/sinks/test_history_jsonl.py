import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status
from joblens.stores.sinks.history_jsonl import HistoryJsonl
from tests.keystone import KEYSTONE_KEYS


def ended_record(task_id: str) -> Record:
    return Record(
        number=1,
        status=Status.SUCCESS,
        job=Job(uuid=task_id, argv=("true",), created_at_us=1_763_208_000_000_000, tool="t"),
        attempt=Attempt(started_at_us=1_763_208_000_000_000, owner=Owner("h", 1, 2, "b")),
        outcome=Outcome(
            status=Status.SUCCESS, ended_at_us=1_763_208_001_000_000, duration_s=1.0, exit_code=0
        ),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history" / "jobs_history.jsonl"


def _entries(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def _ids(path: Path) -> list[str]:
    return [entry["task_id"] for entry in _entries(path)]


def test_each_ended_job_is_one_line_in_the_history_form(path: Path) -> None:
    sink = HistoryJsonl(str(path))
    sink.jobs_ended([ended_record("a"), ended_record("b")])
    sink.jobs_ended([ended_record("c")])
    sink.close()
    entries = _entries(path)
    assert [entry["task_id"] for entry in entries] == ["a", "b", "c"]
    assert list(entries[0])[:12] == KEYSTONE_KEYS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_left_unfinished_spoils_no_other(path: Path) -> None:
    sink = HistoryJsonl(str(path))
    sink.jobs_ended([ended_record("a"), ended_record("b")])
    path.write_bytes(path.read_bytes()[:-20])
    sink.jobs_ended([ended_record("c")])
    sink.close()
    first, torn, last = path.read_bytes().splitlines()
    assert [msgspec.json.decode(line)["task_id"] for line in (first, last)] == ["a", "c"]
    assert torn.startswith(b"{")


def test_a_file_moved_away_is_started_over(path: Path) -> None:
    sink = HistoryJsonl(str(path))
    sink.jobs_ended([ended_record("a")])
    path.rename(path.with_suffix(".old"))
    sink.jobs_ended([ended_record("b")])
    assert _ids(path.with_suffix(".old")) == ["a"]
    assert _ids(path) == ["b"]
    path.unlink()
    sink.jobs_ended([ended_record("c")])
    assert _ids(path) == ["c"]
    sink.close()


def test_the_file_is_rotated_by_size_and_the_oldest_goes(path: Path) -> None:
    line = 3000
    sink = HistoryJsonl(str(path), max_size=line, backup_count=2)
    for number in range(12):
        sink.jobs_ended([ended_record(f"{number:02}")])
    sink.close()
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["jobs_history.jsonl", "jobs_history.jsonl.1", "jobs_history.jsonl.2"]
    together = [task for name in reversed(names) for task in _ids(path.with_name(name))]
    assert together == [f"{number:02}" for number in range(12)][-len(together) :]
    assert all(file.stat().st_size <= line for file in path.parent.iterdir())


def test_a_file_that_cannot_be_written_is_one_warning_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    warnings: list[str] = []
    sink = HistoryJsonl(str(tmp_path / "in-the-way" / "jobs.jsonl"), warn=warnings.append)
    sink.jobs_ended([ended_record("a")])
    sink.jobs_ended([ended_record("b")])
    sink.close()
    assert len(warnings) == 1
    assert "cannot be written" in warnings[0]
