"""Reads numbers out of JSON that someone else may have written. Missing and null are unknown; a value of
the wrong kind is refused with its key."""

from typing import Any

from joblens.model.errors import FormatError


def object_in(fields: dict[str, Any], key: str) -> dict[str, Any]:
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"'{key}' is not an object")
    return value


def integer_in(fields: dict[str, Any], key: str) -> int | None:
    value = number_in(fields, key)
    return None if value is None else int(value)


def number_in(fields: dict[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"'{key}' is not a number")
    if not 0 <= value < 2**63:  # false for NaN too
        raise FormatError(f"'{key}' is {value}, which is no amount")
    return value


def text_in(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FormatError(f"'{key}' is not a text")
    return value
