import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status
from tests.conftest import REPOSITORY, python_path


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


_APPENDS = """
import sys
from joblens.stores.sinks.history_jsonl import HistoryJsonl
from tests.unit.stores.sinks.test_history_jsonl import ended_record
sink = HistoryJsonl(sys.argv[1], max_size=20_000, backup_count=1000)
for number in range(60):
    sink.jobs_ended([ended_record(f"{sys.argv[2]}-{number}")])
"""


def test_many_processes_append_and_rotate_without_losing_a_line(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path(REPOSITORY)}
    writers = [
        subprocess.Popen([sys.executable, "-c", _APPENDS, str(path), name], env=environment)
        for name in ("a", "b", "c", "d")
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    found = [task for file in path.parent.iterdir() for task in _ids(file)]
    assert sorted(found) == sorted(f"{name}-{number}" for name in "abcd" for number in range(60))
