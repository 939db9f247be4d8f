from typing import Any

import msgspec
import pytest
from hypothesis import given

from joblens.analysis.formats.history import from_history_record, returncode_of, to_history_record
from joblens.model.errors import FormatError
from joblens.model.jobs.job import Artifact, FileStamp, Finding, Job, Outcome, Record, Severity, Status, Usage
from joblens.model.values.units import MIB
from tests.builders.records import START_US, UUID, a_record, an_attempt, an_outcome, ended_records
from tests.keystone import KEYSTONE_KEYS, KEYSTONE_RECORD


def keystone_line(**changes: Any) -> dict[str, Any]:
    return {**KEYSTONE_RECORD, **changes}


def test_a_record_starts_with_the_history_keys_in_their_order() -> None:
    assert list(to_history_record(a_record()))[:12] == KEYSTONE_KEYS


def test_resource_usage_starts_with_seconds_and_mib() -> None:
    usage = to_history_record(a_record())["resource_usage"]
    assert list(usage.items())[:4] == [
        ("cpu_user_seconds", 285.45),
        ("cpu_system_seconds", 12.34),
        ("cpu_total_seconds", 297.79),
        ("memory_peak_mb", 2048.0),
    ]


def test_an_unknown_number_is_null_and_its_key_stays() -> None:
    usage = to_history_record(a_record(usage=Usage()))["resource_usage"]
    assert usage["memory_peak_mb"] is None
    assert usage["io_read_bytes"] is None


def test_times_are_iso_with_offset() -> None:
    form = to_history_record(a_record())
    assert form["start_time"] == "2025-10-15T10:30:00.000000+00:00"
    assert form["end_time"] == "2025-10-15T10:35:30.123456+00:00"


def test_the_callers_own_id_is_the_task_id_and_the_uuid_stands_beside_it() -> None:
    form = to_history_record(a_record())
    assert (form["task_id"], form["job_uuid"]) == ("my-task-123", UUID)


def test_without_an_own_id_the_uuid_is_the_task_id() -> None:
    assert to_history_record(a_record(job={"external_id": None}))["task_id"] == UUID


def test_the_profile_is_there_only_when_there_is_one() -> None:
    assert "detailed_profile" not in to_history_record(a_record())
    assert to_history_record(a_record(profile={"cpu": {}}))["detailed_profile"] == {"cpu": {}}


def test_the_accounting_says_how_each_number_was_had() -> None:
    accounting = to_history_record(a_record())["accounting"]
    assert accounting["mode"] == "cgroup-v2"
    assert accounting["sources"] == {"cpu": "cgroup cpu.stat"}
    assert accounting["enforced_by"] == {"memory": "cgroup memory.max"}


def test_findings_come_as_plain_objects() -> None:
    findings = (Finding("signal", Severity.PROBLEM, "killed"),)
    assert to_history_record(a_record(findings=findings))["findings"] == [
        {"code": "signal", "severity": "problem", "text": "killed", "advice": ""}
    ]


@pytest.mark.parametrize(
    ("outcome", "returncode"),
    [
        (an_outcome(exit_code=3), 3),
        (an_outcome(status=Status.FAILED, exit_code=None, signal=9), 137),
        (an_outcome(status=Status.TIMEOUT, exit_code=None, signal=15), 124),
        (an_outcome(status=Status.TIMEOUT, exit_code=0), 124),
        (an_outcome(status=Status.TIMEOUT, exit_code=152), 152),
        (an_outcome(status=Status.LOST, exit_code=None), None),
    ],
)
def test_the_return_code_is_what_a_shell_would_show(outcome: Outcome, returncode: int | None) -> None:
    assert returncode_of(outcome) == returncode


def test_a_running_job_has_no_end_and_no_duration() -> None:
    running = Record(status=Status.RUNNING, job=a_record().job, attempt=an_attempt())
    form = to_history_record(running)
    assert (form["end_time"], form["duration_seconds"], form["returncode"]) == (None, None, None)
    assert from_history_record(form).outcome is None


def test_a_job_that_never_started_is_sorted_by_when_it_was_tried() -> None:
    outcome = an_outcome(status=Status.ERROR, reason="not-started", exit_code=127)
    record = Record(status=Status.ERROR, job=a_record().job, outcome=outcome)
    form = to_history_record(record)
    assert form["start_time"] == form["created_time"]
    assert from_history_record(form).attempt is None


@given(ended_records())
def test_a_record_read_back_is_written_the_same(record: Record) -> None:
    form = to_history_record(record)
    through_json = msgspec.json.decode(msgspec.json.encode(form))
    assert to_history_record(from_history_record(through_json)) == through_json


@given(ended_records())
def test_a_record_read_back_is_the_same_record(record: Record) -> None:
    again = from_history_record(to_history_record(record))
    assert again.job == record.job
    assert again.attempt == record.attempt
    # exit codes are kept as they were, whatever the shell would show
    assert again.outcome == record.outcome


def test_a_keystone_line_is_read_with_naive_times_as_utc() -> None:
    record = from_history_record(keystone_line())
    assert record.attempt is not None
    assert record.outcome is not None
    assert record.attempt.started_at_us == START_US
    assert record.outcome.ended_at_us == START_US + 330_123_456
    assert record.outcome.duration_s == 330.12


def test_a_keystone_line_keeps_id_numbers_and_parameters() -> None:
    record = from_history_record(keystone_line())
    assert record.job.external_id == "abc-123-xyz"
    assert record.job.params == {"mesh_size": 64}
    assert record.outcome is not None
    assert record.outcome.usage.cpu_total_usec == 297_790_000
    assert record.outcome.usage.memory_peak_bytes == round(2048.56 * MIB)
    assert record.outcome.has_result


def test_a_keystone_line_is_marked_as_imported() -> None:
    record = from_history_record(keystone_line())
    assert record.attempt is not None
    assert record.outcome is not None
    assert record.attempt.accounting == "imported"
    assert "worker" in record.outcome.usage.sources["cpu"]


def test_the_same_line_always_gives_the_same_uuid() -> None:
    assert from_history_record(keystone_line()).job.uuid == from_history_record(keystone_line()).job.uuid


def test_a_second_start_of_the_same_task_is_another_job() -> None:
    retried = keystone_line(start_time="2025-10-15T11:30:00.000000")
    assert from_history_record(retried).job.uuid != from_history_record(keystone_line()).job.uuid


def test_a_negative_return_code_is_a_signal() -> None:
    outcome = from_history_record(keystone_line(status="failed", returncode=-9)).outcome
    assert outcome is not None
    assert (outcome.signal, outcome.exit_code) == (9, None)


def test_missing_keys_are_taken_as_unknown() -> None:
    record = from_history_record(
        {"task_id": "t", "status": "failed", "start_time": "2025-10-15T10:30:00", "duration_seconds": 2}
    )
    assert record.outcome is not None
    assert record.outcome.ended_at_us == START_US + 2_000_000
    assert record.outcome.usage.cpu_total_usec is None


def test_keys_nobody_knows_are_left_alone() -> None:
    assert (
        from_history_record(keystone_line(container_name="x")).job == from_history_record(keystone_line()).job
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ([], "a JSON object"),
        ("x", "a JSON object"),
        (keystone_line(task_id=None), "no 'task_id'"),
        (keystone_line(task_id=7), "'task_id' is not a string"),
        (keystone_line(status="done"), "'status' is 'done'"),
        (keystone_line(start_time="yesterday"), "'start_time' is 'yesterday'"),
        (keystone_line(start_time="2h"), "'start_time' is '2h'"),
        (keystone_line(start_time=None, end_time=None), "neither 'start_time' nor 'end_time'"),
        (keystone_line(end_time=None, duration_seconds=None), "neither 'end_time' nor 'duration_seconds'"),
        (keystone_line(duration_seconds=-1), "'duration_seconds' is -1"),
        (keystone_line(duration_seconds=float("nan")), "'duration_seconds' is nan"),
        (keystone_line(params=[1]), "'params'"),
        (keystone_line(returncode="0"), "'returncode'"),
        (keystone_line(resource_usage={"cpu_user_seconds": "much"}), "'cpu_user_seconds'"),
        (keystone_line(resource_usage=3), "'resource_usage'"),
    ],
)
def test_garbage_is_refused_with_what_is_wrong(line: Any, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        from_history_record(line)


def test_only_the_uuid_and_no_command_is_needed_of_a_job() -> None:
    job = Job(uuid=UUID, argv=(), created_at_us=START_US)
    assert to_history_record(Record(status=Status.QUEUED, job=job))["task_id"] == UUID


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"has_result": True}, True),
        ({"artifacts": (Artifact("out.vtk", 3),)}, True),
        ({"outputs": (FileStamp("model.pt", size=5, mtime_ns=1),)}, True),
        ({"outputs": (FileStamp("folder", mtime_ns=1),)}, True),
        ({"outputs": (FileStamp("missing.pt"),)}, False),
    ],
)
def test_a_job_that_left_a_result_or_a_file_has_a_result(changes: dict[str, Any], expected: bool) -> None:
    form = to_history_record(a_record(**{"has_result": False, "artifacts": (), "outputs": ()} | changes))
    assert form["has_result"] is expected
