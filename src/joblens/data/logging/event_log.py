"""Event log of a recipe's job: one JSON object per line, and a readable log."""

import contextlib
import os
import threading
from datetime import UTC, datetime
from typing import Self

import msgspec
from msgspec import UNSET, structs

from joblens.files.private import append_whole, open_to_append
from joblens.files.rotation import RotatingFile
from joblens.model.recipes.recipe import RecipeEvent


def event_line(event: RecipeEvent) -> str:
    """Returns `2025-08-09 04:00:53.496 op_complete partition 3 operator 2 words_num_filter rows 5 -> 4 0.12
    s: …`."""
    at = datetime.fromtimestamp(event.timestamp, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {event_text(event)}\n"


def event_text(event: RecipeEvent) -> str:
    """Returns the same without the time, for a log that has its own."""
    parts = [str(event.event_type)]
    if event.partition_id is not UNSET:
        parts.append(f"partition {event.partition_id}")
    if event.operation_idx is not UNSET:
        parts.append(f"operator {event.operation_idx}")
    if event.operation_name is not UNSET:
        parts.append(event.operation_name)
    if event.retry_count is not UNSET and event.retry_count:
        parts.append(f"retry {event.retry_count}")
    if event.output_rows is not UNSET:
        came = "" if event.input_rows is UNSET else f"{event.input_rows} -> "
        parts.append(f"rows {came}{event.output_rows}")
    if event.duration is not UNSET:
        parts.append(f"{event.duration:.3f} s")
    if event.checkpoint_path is not UNSET:
        parts.append(event.checkpoint_path)
    words = [text for text in (event.message, event.error_message) if text is not UNSET and text]
    line = ": ".join([" ".join(parts), *words])
    return " ".join(line.split())  # one line, even for multi-line error messages


TEXT_BYTES = 100 * 2**20  # as in the other logs of a job
TEXT_BACKUPS = 5

_encode = msgspec.json.Encoder().encode


class EventLog:
    """The only writer of the event log.

    Each event is one write to a file opened for appending, so a line is complete or absent unless the machine
    crashes. A line torn by a crash is terminated before anything is appended. The same events go to
    `text_path`, if set, as text; that log is rotated and compressed.
    """

    def __init__(self, path: str, *, job_id: str = "", text_path: str = "") -> None:
        self._job_id: str | msgspec.UnsetType = job_id or UNSET
        self._file = _open_closed_off(path)
        self._text: RotatingFile | None = None
        if text_path:
            self._text = RotatingFile(text_path, TEXT_BYTES, TEXT_BACKUPS, ".gz")
            self._text.open()
        self._process_id = os.getpid()
        # Ids differ between logs and resumes of a job, without random bytes for every event.
        self._next_id = int.from_bytes(os.urandom(4), "little")

    def append(self, *events: RecipeEvent) -> None:
        """Appends all events or, with an OSError, none."""
        if not events:
            return
        whole = [self._completed(event) for event in events]
        append_whole(self._file, b"".join(_encode(event) + b"\n" for event in whole))
        if self._text is not None:
            text = "".join(event_line(event) for event in whole).encode(errors="backslashreplace")
            with contextlib.suppress(OSError):  # the events themselves are written
                self._text.append(text)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        if self._text is not None:
            self._text.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _completed(self, event: RecipeEvent) -> RecipeEvent:
        """Adds the common fields; values that a worker has set stay."""
        self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        return structs.replace(
            event,
            event_id=_event_id(event, self._next_id) if event.event_id is UNSET else event.event_id,
            job_id=self._job_id if event.job_id is UNSET else event.job_id,
            process_id=self._process_id if event.process_id is UNSET else event.process_id,
            thread_id=threading.get_native_id() if event.thread_id is UNSET else event.thread_id,
        )


def _event_id(event: RecipeEvent, number: int) -> str:
    parts = [str(event.event_type)]
    parts += [str(part) for part in (event.partition_id, event.operation_idx) if part is not UNSET]
    return "_".join([*parts, str(int(event.timestamp)), f"{number:08x}"])


def _open_closed_off(path: str) -> int:
    descriptor = open_to_append(path)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        append_whole(descriptor, b"\n")
    return descriptor
