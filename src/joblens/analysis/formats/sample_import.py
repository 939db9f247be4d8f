"""Reads the Joblet form: our own samples, Joblet's live stream, and its two short forms.

Keys that are missing are unknown, keys nobody knows are left alone; a value of the wrong kind is refused."""

from collections.abc import Sequence
from typing import Any

from joblens.analysis.formats.gpu import read_gpus
from joblens.analysis.formats.sample_keys import (
    COUNTERS,
    DEVICE_KEYS,
    HUNDREDTHS,
    INTERFACE_KEYS,
    PRESSURE_TOTALS,
    ZERO_IS_NO_LIMIT,
    ZERO_IS_UNREAD,
)
from joblens.analysis.numbers.json_numbers import integer_in, number_in, object_in
from joblens.model.errors import FormatError, InputError
from joblens.model.jobs.sample import DeviceIo, InterfaceIo, Sample
from joblens.model.values.units import parse_instant


def read_sample_object(fields: Any, previous: Sample | None) -> Sample:
    if not isinstance(fields, dict):
        raise FormatError("a sample is a JSON object")
    at_us = _timestamp(fields)
    elapsed_us = integer_in(fields, "elapsed_us")
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
        part = object_in(fields, group)
        for key, field in (*pairs, *PRESSURE_TOTALS.get(group, ())):
            number = integer_in(part, key)
            zero_is_none = field in ZERO_IS_NO_LIMIT or (field in ZERO_IS_UNREAD and not is_ours)
            if number is not None and not (number == 0 and zero_is_none):
                numbers[field] = number
        for key, field in HUNDREDTHS.get(group, ()):
            value = number_in(part, key)
            if value is not None:
                numbers[field] = round(value * 100)
    devices = object_in(fields, "io").get("devices")
    if devices is not None:
        numbers["devices"] = _entries(devices, "devices", DeviceIo, DEVICE_KEYS)
    interfaces = object_in(fields, "network").get("interfaces")
    if interfaces is not None:
        numbers["interfaces"] = _entries(interfaces, "interfaces", InterfaceIo, INTERFACE_KEYS)
    if fields.get("gpu") is not None:
        numbers["gpus"] = read_gpus(fields["gpu"], is_ours=is_ours)
    return numbers


def _entries(
    entries: Any, what: str, kind: type[DeviceIo | InterfaceIo], keys: Sequence[tuple[str, str]]
) -> dict[str, DeviceIo | InterfaceIo]:
    if not isinstance(entries, dict):
        raise FormatError(f"'{what}' is not an object")
    return {
        name: kind(**{field: integer_in(object_in(entries, name), key) or 0 for key, field in keys})
        for name in entries
    }


def _short_numbers(fields: dict[str, Any], elapsed_us: int, previous: Sample | None) -> dict[str, Any]:
    stored = object_in(fields, "data")  # Joblet's files; zeros are left out there
    if stored:
        cores = number_in(stored, "cpu_usage") or 0.0
        disk = object_in(stored, "disk_io")
        numbers: dict[str, int | None] = {
            "memory_current_bytes": integer_in(stored, "memory_usage") or 0,
            "io_read_bytes": integer_in(disk, "read_bytes") or 0,
            "io_write_bytes": integer_in(disk, "write_bytes") or 0,
            "io_read_ops": integer_in(disk, "read_ops") or 0,
            "io_write_ops": integer_in(disk, "write_ops") or 0,
        }
    elif "memory_bytes" in fields or "cpu_percent" in fields:  # Joblet's protocol
        cores = (number_in(fields, "cpu_percent") or 0.0) / 100
        numbers = {
            "memory_current_bytes": integer_in(fields, "memory_bytes") or 0,
            "memory_limit_bytes": integer_in(fields, "memory_limit") or None,
            "io_read_bytes": integer_in(fields, "disk_read_bytes") or 0,
            "io_write_bytes": integer_in(fields, "disk_write_bytes") or 0,
            "network_rx_bytes": integer_in(fields, "net_recv_bytes") or None,  # 0 where nobody counts
            "network_tx_bytes": integer_in(fields, "net_sent_bytes") or None,
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
