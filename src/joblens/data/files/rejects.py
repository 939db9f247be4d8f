"""Rejected rows with their reasons, in one file per partition."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from joblens.data.base.reasons import encodable
from joblens.files.atomic import write_atomically
from joblens.files.private import make_private_folder, open_plain_file
from joblens.model.jobs.details import OTHER_REASONS, RejectReason

_MOST_REASONS = 20
_LONGEST_REASON = 300
_LONGEST_ROW = 600
_NUMBER = re.compile(r"\d+")
_LINE_OF_OWN = re.compile(r"\([^()]*, line \d+\)$")


class Reject(Struct, frozen=True, kw_only=True):
    """One rejected row."""

    source: str  # original input file
    position: int | None = None  # line or row there, from 1; None: not counted
    is_line: bool = False  # JSON lines are counted in lines, tables in rows
    byte: int | None = None  # start of its line, in a plain file of JSON lines
    operator: str = ""  # "": it could not be read
    reason: str
    row: Any = None  # its raw line, its text, or its fields, as far as known


class RejectsFile:
    """Rejected rows of one attempt on one partition.

    `write` creates the file and replaces that of an earlier attempt: each row is reported once.
    """

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
    """Replaces the file of an earlier attempt; without rejects there is no file."""
    if lines:
        make_private_folder(os.path.dirname(path))
        write_atomically(path, b"".join(lines))
    elif os.path.exists(path):
        os.unlink(path)


class RejectExample(Struct, frozen=True, kw_only=True):
    """A rejected row as a rejects file has it, shortened."""

    source: str
    position: str  # 'line 7', 'row 3'; '': not known
    reason: str
    row: str


class RejectedRows(Struct, frozen=True, kw_only=True):
    """Reasons and examples of each, from the beginning of the rejects files."""

    reasons: tuple[RejectReason, ...]
    examples: tuple[tuple[RejectExample, ...], ...]  # of each reason
    is_all: bool  # False: only the beginning was read


def read_rejects(folder: str, *, most_bytes: int, examples: int) -> RejectedRows:
    """Reads rejects files of a job, not more than `most_bytes`; lines that cannot be read are skipped."""
    found: dict[tuple[str, ...], list[RejectExample]] = {}
    tallies: list[RejectReason] = []
    is_all = True
    for name in sorted(name for name in _names_in(folder) if name.endswith(".jsonl")):
        lines, is_whole = _lines_of(os.path.join(folder, name), most_bytes)
        is_all = is_all and is_whole
        most_bytes -= sum(map(len, lines))
        for line in lines:
            try:
                written = msgspec.json.decode(line, type=_Written)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            reason = RejectReason(operator=written.operator, reason=written.reason, rows=1)
            tallies.append(reason)
            kept = found.setdefault(_group_of(reason), [])
            if len(kept) < examples:
                kept.append(written.example())
    reasons = joined_reasons([tallies])
    return RejectedRows(
        reasons=reasons,
        examples=tuple(tuple(found.get(_group_of(each), ())) for each in reasons),
        is_all=is_all,
    )


def examples_for(reasons: Sequence[RejectReason], found: RejectedRows) -> list[tuple[RejectExample, ...]]:
    """Returns the examples of each of these reasons."""
    groups = {_group_of(each): some for each, some in zip(found.reasons, found.examples, strict=True)}
    return [groups.get(_group_of(each), ()) for each in reasons]


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _lines_of(path: str, most_bytes: int) -> tuple[list[bytes], bool]:
    if most_bytes <= 0:
        return [], False
    try:
        with open_plain_file(path) as file:
            data = file.read(most_bytes + 1)
    except OSError:
        return [], False
    lines = data.split(b"\n")
    if len(data) > most_bytes:
        return lines[:-1], False
    return [line for line in lines if line], True


class _Written(Struct, gc=False):
    """A line of a rejects file."""

    source: str
    operator: str
    reason: str
    line: int | None = None
    row_number: int | None = None
    row: msgspec.Raw = msgspec.Raw(b"null")

    def example(self) -> RejectExample:
        position = f"line {self.line:,}" if self.line is not None else ""
        if self.row_number is not None:
            position = f"row {self.row_number:,}"
        return RejectExample(
            source=self.source,
            position=position,
            reason=self.reason[:_LONGEST_REASON],
            row=bytes(self.row)[:_LONGEST_ROW].decode(errors="replace"),
        )


def describe_reject_position(reject: Reject) -> str:
    """Describes position, operator and reason: `data.jsonl, line 7: words_filter: ValueError: …`"""
    unit = "line" if reject.is_line else "row"
    position = f", {unit} {reject.position:,}" if reject.position is not None else ""
    if not position and reject.byte is not None:
        position = f", byte {reject.byte:,}"
    operator = f"{reject.operator}: " if reject.operator else ""
    return encodable(f"{reject.source}{position}: {operator}{reject.reason}")


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
    # the row has a value that JSON cannot express; the rejection itself can be written
    except (ValueError, RecursionError):
        return msgspec.json.encode(fields | {"row": ascii(fields["row"])}) + b"\n"


def _presentable(row: Any) -> Any:
    """Returns the row as JSON if it is valid, else as text, with escapes for invalid bytes."""
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
    """Describes the operator that failed, and why."""
    return f"{each.operator}: {each.reason}" if each.operator else each.reason


class _Reason(Struct, gc=False):
    """Reason fields of a line in a rejects file."""

    operator: str
    reason: str


_reason_in = msgspec.json.Decoder(_Reason).decode


def reasons_in(lines: Iterable[bytes]) -> tuple[RejectReason, ...]:
    """Counts lines of a rejects file by reason, the most frequent first."""
    reasons = (_reason_in(line) for line in lines)
    return joined_reasons(
        [(RejectReason(operator=each.operator, reason=each.reason, rows=1) for each in reasons)]
    )


def unread_in(lines: Iterable[bytes]) -> int:
    """Counts the lines of a rejects file that are of rows which could not be read."""
    return sum(not _reason_in(line).operator for line in lines)


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
    others_count = sum(rows for _, rows in ordered[_MOST_REASONS:]) + (others[1] if others else 0)
    return (*found, RejectReason(reason=OTHER_REASONS, rows=others_count)) if others_count else tuple(found)


def _group_of(each: RejectReason) -> tuple[str, ...]:
    """Groups errors of an operator by type and line, because messages often contain values of the row.

    Groups reasons of unreadable rows by their text without numbers.
    """
    if not each.operator:
        return "", _NUMBER.sub("", each.reason)
    line = _LINE_OF_OWN.search(each.reason)
    return each.operator, each.reason.partition(":")[0], line[0] if line else ""
