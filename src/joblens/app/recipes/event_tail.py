"""Event logs of recipes' jobs, read as far as they go, and further the next time."""

import os
from typing import Any

import msgspec

from joblens.analysis.recipes.seen import SeenEvent, SeenMetadata
from joblens.analysis.recipes.snapshot import SnapshotFold
from joblens.files.private import open_plain_file
from joblens.model.values.json_text import decode_json, decode_json_lines

_CHUNK_BYTES = 1 << 18
_LONGEST_LINE = 1 << 24
_decoder = msgspec.json.Decoder(SeenEvent)


class EventTail:
    """One file. A last line without its end is left for the next time: somebody may be writing it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._inode: int | None = None
        self.has_torn_end = False  # half a line, of which nobody will write the rest

    def is_replaced(self) -> bool:
        """The file is not the one that was read, or it was cut: everything has to be read again."""
        if self._inode is None:
            return False
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return True
        return status.st_ino != self._inode or status.st_size < self._offset

    def feed(self, fold: SnapshotFold) -> None:
        try:
            file = open_plain_file(self.path)
        except FileNotFoundError:
            return
        with file:
            self._inode = os.fstat(file.fileno()).st_ino
            file.seek(self._offset)
            begun: list[bytes] = []  # of a line of which the end has not come
            while chunk := file.read(_CHUNK_BYTES):
                lines, line_end, rest = chunk.rpartition(b"\n")
                if line_end:
                    whole = b"".join([*begun, lines])
                    self._offset += len(whole) + 1
                    _add_lines(whole, fold)
                    begun = []
                begun.append(rest)
                if len(begun) * _CHUNK_BYTES > _LONGEST_LINE:  # no event is so long
                    self._offset += sum(map(len, begun))
                    begun = []
                    fold.add_malformed()

    def feed_rest(self, fold: SnapshotFold) -> None:
        """A last line without an end, of a log that nobody writes any more. Half an event stays where it is:
        should somebody go on with the job, it is read again."""
        with open_plain_file(self.path) as file:
            file.seek(self._offset)
            rest = file.read(_LONGEST_LINE)
        event = _event_in(rest) if rest.strip() else None
        if event is not None:
            self._offset += len(rest)
            fold.add(event)
        self.has_torn_end = event is None and bool(rest.strip())


def _add_lines(lines: bytes, fold: SnapshotFold) -> None:
    try:
        events = decode_json_lines(lines, _decoder)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        for line in lines.split(b"\n"):
            if line.strip():
                _add_line(line, fold)
        return
    fold.add_all(events)


def _add_line(line: bytes, fold: SnapshotFold) -> None:
    event = _event_in(line)
    if event is None:
        fold.add_malformed()
    else:
        fold.add(event)


def _event_in(line: bytes) -> SeenEvent | None:
    try:
        return decode_json(line, SeenEvent)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _odd_event(line)


def _odd_event(line: bytes) -> SeenEvent | None:
    """An event with fields of another form than expected is taken without those."""
    try:
        written = decode_json(line, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    metadata = written.pop("metadata", None)
    kept = _fitting(written, SeenEvent)
    if isinstance(metadata, dict):
        kept["metadata"] = _fitting(metadata, SeenMetadata)
    try:
        return msgspec.convert(kept, SeenEvent, strict=False)
    except msgspec.ValidationError:
        return None


def _fitting(written: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    fits = {}
    for field in msgspec.structs.fields(kind):
        value = written.get(field.encode_name)
        try:
            msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError:
            continue
        if value is not None:
            fits[field.encode_name] = value
    return fits
