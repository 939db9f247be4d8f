"""Rows that could not be read or worked on, with the reason, in a file of each partition."""

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from joblens.data.reasons import encodable
from joblens.data.whole_files import write_whole
from joblens.stores.private_files import make_private_folder


class Reject(Struct, frozen=True, kw_only=True):
    """One row that was left out."""

    source: str  # the file as the user knows it
    position: int | None = None  # its line or row there, from 1; None: not counted
    is_line: bool = False  # JSON lines are counted in lines, tables in rows
    byte: int | None = None  # where its line begins, in a plain file of JSON lines
    operator: str = ""  # "": it could not be read
    reason: str
    row: Any = None  # what is left of it: its raw line, its text, or its fields


class RejectsFile:
    """What one attempt on one partition rejects. Nothing is on disk before `write`, which replaces what an
    earlier attempt left: rows are told once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.first_reason = ""
        self._lines: list[bytes] = []

    @property
    def count(self) -> int:
        return len(self._lines)

    def __call__(self, reject: Reject) -> None:
        self.first_reason = self.first_reason or reject.reason
        self._lines.append(line_of(reject))

    def write(self) -> None:
        write_rejects(self.path, self._lines)


def write_rejects(path: str, lines: Sequence[bytes]) -> None:
    """In place of what an earlier attempt left; without rejects there is no file."""
    if lines:
        make_private_folder(os.path.dirname(path))
        write_whole(path, b"".join(lines))
    elif os.path.exists(path):
        os.unlink(path)


def told_place(reject: Reject) -> str:
    """Where it is, who could not work on it, and why: `data.jsonl, line 7: words_filter: ValueError: …`"""
    unit = "line" if reject.is_line else "row"
    place = f", {unit} {reject.position:,}" if reject.position is not None else ""
    if not place and reject.byte is not None:
        place = f", byte {reject.byte:,}"
    operator = f"{reject.operator}: " if reject.operator else ""
    return encodable(f"{reject.source}{place}: {operator}{reject.reason}")


def line_of(reject: Reject) -> bytes:
    fields: dict[str, Any] = {"source": encodable(reject.source)}
    if reject.position is not None:
        fields["line" if reject.is_line else "row_number"] = reject.position
    if reject.byte is not None:
        fields["byte"] = reject.byte
    fields |= {
        "operator": reject.operator,
        "reason": encodable(reject.reason),
        "row": _presentable(reject.row),
    }
    try:
        return msgspec.json.encode(fields, enc_hook=str) + b"\n"
    except (ValueError, RecursionError):  # a value that JSON cannot say; that it was rejected still can
        return msgspec.json.encode(fields | {"row": ascii(fields["row"])}) + b"\n"


def _presentable(row: Any) -> Any:
    """A line that is JSON goes in as what it says, any other as a text; bytes that are no text are shown as
    such."""
    if not isinstance(row, bytes):
        return row
    line = row.strip()
    try:
        line.decode()
        msgspec.json.decode(line)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return line.decode(errors="backslashreplace")
    return msgspec.Raw(line)


def first_reason(folder: str) -> str:
    """Of the rejects of a job: who could not work on a row, and why."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jsonl"):
            with open(os.path.join(folder, name), "rb") as file:
                first = msgspec.json.decode(file.readline(), type=dict[str, Any])
            return f"{first['operator']}: {first['reason']}" if first["operator"] else str(first["reason"])
    return "without a reason"
