"""YAML writer for plain values. PyYAML takes minutes for large documents, and writes YAML 1.1."""

import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec import json

# Plain scalars that need no quotes in YAML 1.1 and 1.2.
_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.{}+=@%-]*(?: [A-Za-z0-9_/.{}+=@%$-]+)*")
_NOT_PLAIN = re.compile(r"(?i)true|false|yes|no|on|off|null|y|n|\.?inf|\.?nan|\.{1,3}")
_NUMBER_LIKE = re.compile(r"[.][0-9]")
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BLOCK = re.compile(r"(?![\s#-])[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff\r]*")


def yaml_lines(document: dict[str, Any]) -> Iterator[str]:
    yield from _mapping(document, "")


def _mapping(value: dict[str, Any], indent: str) -> Iterator[str]:
    for key, each in value.items():
        yield from _after(f"{indent}{_scalar(key)}:", each, indent)


def _sequence(value: list[Any] | tuple[Any, ...], indent: str) -> Iterator[str]:
    for each in value:
        if isinstance(each, dict) and each:
            lines = _mapping(each, indent + "  ")
            yield f"{indent}- {next(lines)[len(indent) + 2 :]}"
            yield from lines
        else:
            yield from _after(f"{indent}-", each, indent)


def _after(start: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield start
        yield from _mapping(value, indent + "  ")
    elif isinstance(value, list | tuple) and value:
        if all(_is_short(each) for each in value) and sum(len(str(each)) + 2 for each in value) < 80:
            yield f"{start} [{', '.join(_scalar(each, in_list=True) for each in value)}]"
        else:
            yield start
            yield from _sequence(value, indent + "  ")
    elif isinstance(value, str) and "\n" in value.rstrip("\n") and _BLOCK.fullmatch(value):
        yield f"{start} {_block_mark(value)}"
        yield from (f"{indent}  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{start} {_scalar(value)}"


def _block_mark(text: str) -> str:
    if not text.endswith("\n"):
        return "|-"
    return "|+" if text.endswith("\n\n") else "|"


def _is_short(value: Any) -> bool:
    return not isinstance(value, dict | list | tuple) and len(str(value)) < 40


def _scalar(value: Any, *, in_list: bool = False) -> str:
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and not _NOT_PLAIN.fullmatch(value)
        if is_plain and not _NUMBER_LIKE.match(value) and not (in_list and ("{" in value or "}" in value)):
            return value
        return _UNPRINTABLE.sub(lambda found: f"\\U{ord(found[0]):08x}", json.encode(value).decode())
    if value is None:
        return "null"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.encode(value).decode()
