"""Reads the Joblet form: our own samples, Joblet's live stream, and its two short forms.

Keys that are missing are unknown, keys nobody knows are left alone; a value of the wrong kind is refused."""

from typing import Any

from joblens.analysis.sample_keys import (
    COUNTERS,
    DEVICE_KEYS,
    HUNDREDTHS,
    PRESSURE_TOTALS,
    ZERO_IS_NO_LIMIT,
    ZERO_IS_UNREAD,
)
from joblens.model.errors import FormatError, InputError
from joblens.model.sample import DeviceIo, Sample
from joblens.model.units import parse_instant


def read_sample_object(fields: Any, previous: Sample | None) -> Sample:
    if not isinstance(fields, dict):
        raise FormatError("a sample is a JSON object")
    at_us = _timestamp(fields)
    elapsed_us = _integer(fields, "elapsed_us")
    if elapsed_us is None:
        elapsed_us = 0 if previous is None else previous.elapsed_us + max(0, at_us - previous.at_us)
    if isinstance(fields.get("cpu"), dict):
        numbers = _full_numbers(fields)
    else:
        numbers = _short_numbers(fields, elapsed_us, previous)
    return Sample(at_us=at_us, elapsed_us=elapsed_us, **numbers)


def _full_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    is_ours = "elapsed_us" in fields
    numbers: dict[str, Any] = {}
    for group, pairs in COUNTERS.items():
        part = _object(fields, group)
        for key, field in (*pairs, *PRESSURE_TOTALS.get(group, ())):
            number = _integer(part, key)
            zero_is_none = field in ZERO_IS_NO_LIMIT or (field in ZERO_IS_UNREAD and not is_ours)
            if number is not None and not (number == 0 and zero_is_none):
                numbers[field] = number
        for key, field in HUNDREDTHS.get(group, ()):
            value = _number(part, key)
            if value is not None:
                numbers[field] = round(value * 100)
    devices = _object(fields, "io").get("devices")
    if devices is not None:
        numbers["devices"] = _devices(devices)
    return numbers


def _devices(devices: Any) -> dict[str, DeviceIo]:
    if not isinstance(devices, dict):
        raise FormatError("'devices' is not an object")
    return {
        name: DeviceIo(**{field: _integer(_object(devices, name), key) or 0 for key, field in DEVICE_KEYS})
        for name in devices
    }


def _short_numbers(fields: dict[str, Any], elapsed_us: int, previous: Sample | None) -> dict[str, Any]:
    stored = _object(fields, "data")  # Joblet's files; zeros are left out there
    if stored:
        cores = _number(stored, "cpu_usage") or 0.0
        disk = _object(stored, "disk_io")
        numbers: dict[str, int | None] = {
            "memory_current_bytes": _integer(stored, "memory_usage") or 0,
            "io_read_bytes": _integer(disk, "read_bytes") or 0,
            "io_write_bytes": _integer(disk, "write_bytes") or 0,
            "io_read_ops": _integer(disk, "read_ops") or 0,
            "io_write_ops": _integer(disk, "write_ops") or 0,
        }
    elif "memory_bytes" in fields or "cpu_percent" in fields:  # Joblet's protocol
        cores = (_number(fields, "cpu_percent") or 0.0) / 100
        numbers = {
            "memory_current_bytes": _integer(fields, "memory_bytes") or 0,
            "memory_limit_bytes": _integer(fields, "memory_limit") or None,
            "io_read_bytes": _integer(fields, "disk_read_bytes") or 0,
            "io_write_bytes": _integer(fields, "disk_write_bytes") or 0,
        }
    else:
        raise FormatError("the sample has neither 'cpu', 'data' nor 'memory_bytes'")
    before = previous.cpu_total_usec if previous is not None else 0
    passed_us = elapsed_us - (0 if previous is None else previous.elapsed_us)
    numbers["cpu_total_usec"] = (before or 0) + round(cores * passed_us)
    return numbers


def _timestamp(fields: dict[str, Any]) -> int:
    value = fields.get("timestamp")
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value // 1000  # nanoseconds
    if isinstance(value, str):
        try:
            return parse_instant(_microseconds_only(value), 0)
        except (InputError, OverflowError):
            pass
    raise FormatError(f"'timestamp' is {value!r}, neither an ISO 8601 time nor nanoseconds")


def _microseconds_only(text: str) -> str:
    """Go writes up to nine decimals and Python reads six."""
    head, dot, tail = text.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return head + dot + tail[: min(digits, 6)].ljust(6, "0") + tail[digits:] if dot else text


def _object(fields: dict[str, Any], key: str) -> dict[str, Any]:
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"'{key}' is not an object")
    return value


def _integer(fields: dict[str, Any], key: str) -> int | None:
    value = _number(fields, key)
    return None if value is None else int(value)


def _number(fields: dict[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"'{key}' is not a number")
    if not 0 <= value < 2**63:  # false for NaN too
        raise FormatError(f"'{key}' is {value}, which is no amount")
    return value
