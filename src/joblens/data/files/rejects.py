"""Rows that could not be read or worked on, with the reason, in a file of each partition."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from joblens.data.base.reasons import encodable
from joblens.files.atomic import write_atomically
from joblens.files.private import make_private_folder
from joblens.model.jobs.details import OTHER_REASONS, RejectReason

_MOST_REASONS = 20
_LONGEST_REASON = 300
_NUMBER = re.compile(r"\d+")
_LINE_OF_OWN = re.compile(r"\([^()]*, line \d+\)$")


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

    @property
    def reasons(self) -> tuple[RejectReason, ...]:
        return reasons_in(self._lines)

    def __call__(self, reject: Reject) -> None:
        self.first_reason = self.first_reason or reject.reason
        self._lines.append(line_of(reject))

    def write(self) -> None:
        write_rejects(self.path, self._lines)


def write_rejects(path: str, lines: Sequence[bytes]) -> None:
    """In place of what an earlier attempt left; without rejects there is no file."""
    if lines:
        make_private_folder(os.path.dirname(path))
        write_atomically(path, b"".join(lines))
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


def describe_reject(each: RejectReason) -> str:
    """The operator that failed on the rows, and why."""
    return f"{each.operator}: {each.reason}" if each.operator else each.reason


class _Told(Struct, gc=False):
    """The part of a line in a rejects file that says why."""

    operator: str
    reason: str


_told_in = msgspec.json.Decoder(_Told).decode


def reasons_in(lines: Iterable[bytes]) -> tuple[RejectReason, ...]:
    """Counts lines of a rejects file by reason, the most frequent first."""
    told = (_told_in(line) for line in lines)
    return joined_reasons(
        [(RejectReason(operator=each.operator, reason=each.reason, rows=1) for each in told)]
    )


def unread_in(lines: Iterable[bytes]) -> int:
    """Counts the lines of a rejects file that are of rows which could not be read."""
    return sum(not _told_in(line).operator for line in lines)


def joined_reasons(tallies: Iterable[Iterable[RejectReason]]) -> tuple[RejectReason, ...]:
    """Adds up tallies. Rare reasons beyond the limit are counted together as "other reasons"."""
    groups: dict[tuple[str, ...], tuple[RejectReason, int]] = {}
    for tally in tallies:
        for each in tally:
            first, rows = groups.setdefault(_group_of(each), (each, 0))
            groups[_group_of(each)] = (first, rows + each.rows)
    others = groups.pop(("", OTHER_REASONS), None)
    ordered = sorted(groups.values(), key=lambda one: -one[1])
    found = [
        RejectReason(operator=first.operator, reason=first.reason[:_LONGEST_REASON], rows=rows)
        for first, rows in ordered[:_MOST_REASONS]
    ]
    left = sum(rows for _, rows in ordered[_MOST_REASONS:]) + (others[1] if others else 0)
    return (*found, RejectReason(reason=OTHER_REASONS, rows=left)) if left else tuple(found)


def _group_of(each: RejectReason) -> tuple[str, ...]:
    """Errors of an operator are the same by their kind and the line that raised them; messages often name
    values of the row. Reasons why a row cannot be read differ in numbers only."""
    if not each.operator:
        return "", _NUMBER.sub("", each.reason)
    line = _LINE_OF_OWN.search(each.reason)
    return each.operator, each.reason.partition(":")[0], line[0] if line else ""
