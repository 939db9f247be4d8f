"""The event log: appended, torn, read again."""

import json
import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from joblens.data.logging import event_log
from joblens.data.logging.event_log import EventLog, EventTail, read_events
from joblens.model.recipes.recipe import EventType, RecipeEvent


def event(number: int = 0, kind: str = EventType.OP_COMPLETE) -> RecipeEvent:
    return RecipeEvent(event_type=kind, timestamp=1754712053.5 + number, partition_id=number, operation_idx=2)


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def all_new(tail: EventTail) -> list[RecipeEvent]:
    return [event for events in tail.read_new() for event in events]


def test_an_event_is_a_line_with_only_what_it_has_to_say(tmp_path: Path) -> None:
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


def test_what_an_event_says_of_its_worker_stays(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "events.jsonl")) as log:
        log.append(msgspec.structs.replace(event(), process_id=7, thread_id=8, event_id="mine", job_id="its"))
    (line,) = lines_of(tmp_path / "events.jsonl")
    assert (line["process_id"], line["thread_id"], line["event_id"], line["job_id"]) == (7, 8, "mine", "its")


def test_no_two_events_have_one_id(tmp_path: Path) -> None:
    for _ in range(2):
        with EventLog(str(tmp_path / "events.jsonl")) as log:
            log.append(*[event()] * 50)
    assert len({line["event_id"] for line in lines_of(tmp_path / "events.jsonl")}) == 100


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    with EventLog(path) as log:
        log.append(*(event(number) for number in range(5)))
    assert [read.partition_id for read in read_events(path)] == [0, 1, 2, 3, 4]


def test_a_torn_line_is_closed_off_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(str(path)) as log:
        log.append(event(1))
    with path.open("ab") as file:
        file.write(b'{"event_type":"op_st')
    with EventLog(str(path)) as log:
        log.append(event(2))
    tail = EventTail(str(path))
    assert [read.partition_id for read in all_new(tail)] == [1, 2]
    assert tail.malformed == 1


def test_a_torn_last_line_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(str(path)) as log:
        log.append(event(1))
    with path.open("ab") as file:
        file.write(b'{"event_type":"op_start","timest')
    assert [read.partition_id for read in read_events(str(path))] == [1]


def test_a_whole_last_line_without_its_end_is_one(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event_type":"job_start","timestamp":1.0}')
    assert [read.event_type for read in read_events(str(tmp_path / "events.jsonl"))] == ["job_start"]


def test_a_log_can_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = EventTail(str(path))
    assert all_new(tail) == []  # not there yet
    with EventLog(str(path)) as log:
        log.append(event(1))
        assert [read.partition_id for read in all_new(tail)] == [1]
        assert all_new(tail) == []
        log.append(event(2), event(3))
        assert [read.partition_id for read in all_new(tail)] == [2, 3]
    assert tail.offset == path.stat().st_size


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event_type":"job_start","timestamp":1.0}\n{"event_type":"op_st')
    tail = EventTail(str(path))
    assert len(all_new(tail)) == 1
    with path.open("a") as file:
        file.write('art","timestamp":2.0}\n')
    assert [read.event_type for read in all_new(tail)] == ["op_start"]
    assert tail.malformed == 0


def test_logs_longer_than_what_is_read_at_once_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblens.data.logging.event_log._CHUNK_BYTES", 100)
    path = str(tmp_path / "events.jsonl")
    with EventLog(path) as log:
        log.append(*(event(number) for number in range(50)))
    assert [read.partition_id for read in read_events(path)] == list(range(50))


def test_lines_of_other_programs_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        b'{"event_type":"op_start","timestamp":1,"partition_id":null,"operation_idx":"3","new":[1],"metadata":5}\n'
        b"\n"
        b'{"event_type":"no_time"}\n'
        b"[1,2]\n"
        b'{"event_type":"job_start","timestamp":2.5,"message":"\xff"}\n'
        b'{"event_type":"job_complete","timestamp":3}\n'
    )
    tail = EventTail(str(path))
    read = all_new(tail)
    assert [(found.event_type, found.timestamp) for found in read] == [
        ("op_start", 1.0),
        ("job_complete", 3.0),
    ]
    assert (read[0].operation_idx, read[0].partition_id) == (3, msgspec.UNSET)
    assert tail.malformed == 3


def test_nobody_else_may_read_a_log(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "events.jsonl"), text_path=str(tmp_path / "events.log")):
        pass
    for name in ("events.jsonl", "events.log"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_the_same_facts_stand_in_words_beside_it(tmp_path: Path) -> None:
    told = RecipeEvent(
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
        log.append(told, failed)
    assert (tmp_path / "events.log").read_text().splitlines() == [
        "2025-08-09 04:00:53.496 op_complete partition 3 operator 2 words_filter retry 1 rows 5 -> 4 0.123 s",
        "1970-01-01 00:00:00.000 job_failed: ended: a b",
    ]


def test_the_log_for_people_is_put_aside_compressed_when_it_has_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert len(list(read_events(str(tmp_path / "e.jsonl")))) == 40


def test_a_log_for_people_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    with EventLog(str(tmp_path / "e.jsonl"), text_path="/dev/full") as log:
        log.append(RecipeEvent(event_type="op_start", timestamp=1.0))
    assert len(list(read_events(str(tmp_path / "e.jsonl")))) == 1
