"""History format reader, for records of joblens and Keystone.

Missing keys are unknown, unknown keys are ignored; a value of the wrong kind raises an error that names the
key.
"""

import math
from typing import Any

import msgspec

from joblens.analysis.formats.gpu import text_in
from joblens.model.errors import FormatError, InputError
from joblens.model.jobs.job import (
    USAGE_NUMBERS,
    Attempt,
    Finding,
    Job,
    Outcome,
    Owner,
    Record,
    Requirements,
    Status,
    Usage,
)
from joblens.model.values.ids import uuid_from
from joblens.model.values.units import MIB, parse_instant

_IMPORTED = "imported"
_IMPORTED_SOURCES = {
    "cpu": "imported; Keystone measured its worker process, not the job",
    "memory_peak_bytes": "imported; Keystone read the worker's RSS when the job ended",
}


def read_history_record(fields: Any) -> Record:
    if not isinstance(fields, dict):
        raise FormatError("a history record is a JSON object")
    task_id = text_in(fields, "task_id")
    if not task_id:
        raise FormatError("the record has no 'task_id'")
    status = _status(fields)
    started_at_us, ended_at_us, duration_s = _times(fields, status)
    created_at_us = _instant(fields, "created_time")
    uuid = text_in(fields, "job_uuid") or uuid_from("history", task_id, str(started_at_us))
    job = _job(fields, uuid, task_id, started_at_us if created_at_us is None else created_at_us)
    outcome = None
    if status.is_final:
        outcome = _outcome(fields, status, ended_at_us, duration_s)
    return Record(
        number=_value(fields, "number", int | None, None),
        status=status,
        job=job,
        attempt=_attempt(fields, started_at_us) if _was_started(fields, status) else None,
        outcome=outcome,
    )


def _job(fields: dict[str, Any], uuid: str, task_id: str, created_at_us: int) -> Job:
    return Job(
        uuid=uuid,
        argv=_value(fields, "command", tuple[str, ...], ()),
        created_at_us=created_at_us,
        external_id=None if task_id == uuid else task_id,
        name=text_in(fields, "name"),
        tool=text_in(fields, "tool"),
        script=text_in(fields, "script"),
        params=_value(fields, "params", dict[str, Any], {}),
        tags=_value(fields, "tags", tuple[str, ...], ()),
        is_shell=_value(fields, "is_shell", bool, False),
        cwd=text_in(fields, "cwd"),
        env=_value(fields, "env", dict[str, str], {}),
        requirements=_value(fields, "requirements", Requirements, Requirements()),
        user=text_in(fields, "user"),
    )


def _was_started(fields: dict[str, Any], status: Status) -> bool:
    # In records of joblens, a job that did not start has no attempt; Keystone has no such key.
    return status is not Status.QUEUED and ("attempt" in fields or "job_uuid" not in fields)


def _attempt(fields: dict[str, Any], started_at_us: int) -> Attempt:
    machine = _value(fields, "machine", dict[str, Any], {})
    accounting = _value(fields, "accounting", dict[str, Any], {})
    return Attempt(
        number=_value(fields, "attempt", int, 1),
        started_at_us=started_at_us,
        owner=Owner(host=text_in(fields, "host"), pid=0, start_ticks=0, boot_id=""),
        accounting=text_in(accounting, "mode") if accounting else _IMPORTED,
        accounting_reason=text_in(accounting, "reason"),
        enforced_by=_value(accounting, "enforced_by", dict[str, str], {}),
        logs_dir=text_in(fields, "logs_dir"),
        kernel=text_in(machine, "kernel"),
        cpu_count=_value(machine, "cpu_count", int | None, None),
        memory_total_bytes=_value(machine, "memory_total_bytes", int | None, None),
    )


def _outcome(fields: dict[str, Any], status: Status, ended_at_us: int, duration_s: float) -> Outcome:
    returncode = _value(fields, "returncode", int | None, None)
    signal = _value(fields, "signal", int | None, None)
    if returncode is not None and returncode < 0 and signal is None:
        signal = -returncode  # Python's notation for signal N
        returncode = None
    exit_code = _value(fields, "exit_code", int | None, None) if "exit_code" in fields else returncode
    return Outcome(
        status=status,
        ended_at_us=ended_at_us,
        duration_s=duration_s,
        exit_code=exit_code,
        signal=signal,
        reason=text_in(fields, "reason"),
        error=_value(fields, "error", str | None, None),
        has_result=_value(fields, "has_result", bool, False),
        usage=_usage(fields),
        profile=_value(fields, "detailed_profile", dict[str, Any] | None, None),
        findings=_value(fields, "findings", tuple[Finding, ...], ()),
        samples=_value(fields, "samples", int, 0),
        sampling_interval_s=_value(fields, "sampling_interval_seconds", float | None, None),
        leftovers=_value(fields, "leftovers", int, 0),
        stdout_bytes=_value(fields, "stdout_bytes", int | None, None),
        stderr_bytes=_value(fields, "stderr_bytes", int | None, None),
        stderr_tail=text_in(fields, "stderr_tail"),
    )


def _usage(fields: dict[str, Any]) -> Usage:
    numbers = _value(fields, "resource_usage", dict[str, Any], {})
    accounting = _value(fields, "accounting", dict[str, Any] | None, None)
    known = {name: _value(numbers, name, int | None, None) for name in USAGE_NUMBERS}
    known["cpu_user_usec"] = _scaled(numbers, "cpu_user_seconds", 1_000_000)
    known["cpu_system_usec"] = _scaled(numbers, "cpu_system_seconds", 1_000_000)
    known["cpu_total_usec"] = _scaled(numbers, "cpu_total_seconds", 1_000_000)
    known["memory_peak_bytes"] = _scaled(numbers, "memory_peak_mb", MIB)
    is_ours = accounting is not None
    accounting = accounting or {}
    return Usage(
        sources=_value(accounting, "sources", dict[str, str], {}) if is_ours else _IMPORTED_SOURCES,
        unknown=_value(accounting, "unknown", dict[str, str], {}),
        lower_bounds=_value(accounting, "lower_bounds", tuple[str, ...], ()),
        estimates=_value(accounting, "estimates", tuple[str, ...], ()),
        memory_peak_basis=_value(accounting, "memory_peak_basis", str, ""),
        shared=_value(accounting, "shared", bool, False),
        **known,
    )


def _times(fields: dict[str, Any], status: Status) -> tuple[int, int, float]:
    """Returns (start, end, duration), one of which may be derived from the others."""
    start = _instant(fields, "start_time")
    end = _instant(fields, "end_time")
    duration_s = _number(fields, "duration_seconds")
    if start is None:
        start = _instant(fields, "created_time")
    if start is None and end is not None:
        start = end - round((duration_s or 0.0) * 1_000_000)
    if start is None:
        raise FormatError("the record has neither 'start_time' nor 'end_time'")
    if not status.is_final:
        return start, start, 0.0
    if end is None:
        if duration_s is None:
            raise FormatError("the record has neither 'end_time' nor 'duration_seconds'")
        end = start + round(duration_s * 1_000_000)
    if duration_s is None:
        duration_s = max(0, end - start) / 1_000_000
    return start, end, duration_s


def _status(fields: dict[str, Any]) -> Status:
    text = text_in(fields, "status").lower()
    try:
        return Status(text)
    except ValueError:
        known = ", ".join(Status)
        raise FormatError(f"'status' is {text!r}, not one of {known}") from None


def _instant(fields: dict[str, Any], key: str) -> int | None:
    text = _value(fields, key, str | None, None)
    if text is None:
        return None
    try:
        # In files, ages ('2h') are invalid: a time must begin with a date.
        if len(text) < 10 or text[4] != "-":
            raise InputError
        return parse_instant(text, 0)
    except (InputError, OverflowError):
        raise FormatError(f"'{key}' is {text!r}, which is not an ISO 8601 time") from None


def _scaled(fields: dict[str, Any], key: str, unit: int) -> int | None:
    number = _number(fields, key)
    return None if number is None else round(number * unit)


def _number(fields: dict[str, Any], key: str) -> float | None:
    number: float | None = _value(fields, key, float | None, None)
    if number is not None and (not math.isfinite(number) or number < 0):
        raise FormatError(f"'{key}' is {number}, which is not a valid amount")
    return number


def _value(fields: dict[str, Any], key: str, kind: Any, absent: Any) -> Any:
    value = fields.get(key)
    if value is None:
        return absent
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"'{key}' is invalid: {error}") from None
