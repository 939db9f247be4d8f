"""Event log: appending, torn lines, and the log for people."""

import json
import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from joblens.data.logging import event_log
from joblens.data.logging.event_log import EventLog
from joblens.model.recipes.recipe import EventType, RecipeEvent


def event(number: int = 0, kind: str = EventType.OP_COMPLETE) -> RecipeEvent:
    return RecipeEvent(event_type=kind, timestamp=1754712053.5 + number, partition_id=number, operation_idx=2)


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_one_line_without_unset_fields(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "events.jsonl"), job_id="job") as log:
        log.append(event())
    (line,) = lines_of(tmp_path / "events.jsonl")
    assert line.pop("event_id").startswith("op_complete_0_2_1754712053_")  # type: ignore[attr-defined]
    assert line == {
        "event_type": "op_complete",
        "timestamp": 1754712053.5,
        "job_id": "job",
        "partition_id": 0,
        "operation_idx": 2,
        "process_id": os.getpid(),
        "thread_id": threading.get_native_id(),
    }


def test_fields_set_by_a_worker_are_kept(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "events.jsonl")) as log:
        log.append(msgspec.structs.replace(event(), process_id=7, thread_id=8, event_id="mine", job_id="its"))
    (line,) = lines_of(tmp_path / "events.jsonl")
    assert (line["process_id"], line["thread_id"], line["event_id"], line["job_id"]) == (7, 8, "mine", "its")


def test_event_ids_are_unique(tmp_path: Path) -> None:
    for _ in range(2):
        with EventLog(str(tmp_path / "events.jsonl")) as log:
            log.append(*[event()] * 50)
    assert len({line["event_id"] for line in lines_of(tmp_path / "events.jsonl")}) == 100


def test_events_are_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(str(path)) as log:
        log.append(*(event(number) for number in range(5)))
    assert [line["partition_id"] for line in lines_of(path)] == [0, 1, 2, 3, 4]


def test_a_torn_line_is_ended_before_the_next_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(str(path)) as log:
        log.append(event(1))
    with path.open("ab") as file:
        file.write(b'{"event_type":"op_st')
    with EventLog(str(path)) as log:
        log.append(event(2))
    first, torn, second = path.read_text().splitlines()
    assert torn == '{"event_type":"op_st'
    assert [json.loads(line)["partition_id"] for line in (first, second)] == [1, 2]


def test_logs_are_private(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "events.jsonl"), text_path=str(tmp_path / "events.log")):
        pass
    for name in ("events.jsonl", "events.log"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_events_are_also_logged_as_text(tmp_path: Path) -> None:
    result = RecipeEvent(
        event_type=EventType.OP_COMPLETE,
        timestamp=1754712053.4966,
        partition_id=3,
        operation_idx=2,
        operation_name="words_filter",
        input_rows=5,
        output_rows=4,
        duration=0.1234,
        retry_count=1,
    )
    failed = RecipeEvent(
        event_type=EventType.JOB_FAILED, timestamp=0.0, message="ended", error_message="a\nb"
    )
    with EventLog(str(tmp_path / "e.jsonl"), text_path=str(tmp_path / "events.log")) as log:
        log.append(result, failed)
    assert (tmp_path / "events.log").read_text().splitlines() == [
        "2025-08-09 04:00:53.496 op_complete partition 3 operator 2 words_filter retry 1 rows 5 -> 4 0.123 s",
        "1970-01-01 00:00:00.000 job_failed: ended: a b",
    ]


def test_the_text_log_is_rotated_and_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "TEXT_BYTES", 500)
    monkeypatch.setattr(event_log, "TEXT_BACKUPS", 2)
    text = tmp_path / "events.log"
    with EventLog(str(tmp_path / "e.jsonl"), text_path=str(text)) as log:
        for number in range(40):
            log.append(
                RecipeEvent(event_type="op_start", timestamp=float(number), message=f"number {number}")
            )
    assert sorted(path.name for path in tmp_path.glob("events.log*")) == [
        "events.log",
        "events.log.1.gz",
        "events.log.2.gz",
    ]
    assert text.read_text().endswith("number 39\n")
    assert len(lines_of(tmp_path / "e.jsonl")) == 40


def test_a_text_log_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "e.jsonl"), text_path="/dev/full") as log:
        log.append(RecipeEvent(event_type="op_start", timestamp=1.0))
    assert len(lines_of(tmp_path / "e.jsonl")) == 1
