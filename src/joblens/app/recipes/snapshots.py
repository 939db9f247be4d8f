"""Snapshots of a recipe's job: progress from its event log, once or live, and usage of operators."""

import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from joblens.analysis.recipes.columns import SeenEvent, SeenMetadata
from joblens.analysis.recipes.snapshot import JobFacts, SnapshotFold
from joblens.analysis.recipes.snapshot_json import JobAbout, snapshot_form, snapshot_json
from joblens.app.recipes.job_directory import (
    JobDirectory,
    JobProcess,
    live_process,
    plan_of_record,
    process_of_executor,
    readable_or_input_error,
)
from joblens.files.private import open_plain_file
from joblens.model.errors import JoblensError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus
from joblens.model.values.json_text import decode_json, decode_json_lines

_CHUNK_BYTES = 1 << 18
_LONGEST_LINE = 1 << 24
_decoder = msgspec.json.Decoder(SeenEvent)


class EventFile:
    """One file. An unfinished last line is read the next time: it may still be written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._inode: int | None = None
        self.has_torn_end = False  # ends in an unfinished line that is never completed

    def is_replaced(self) -> bool:
        """The file was replaced or truncated: everything has to be read again."""
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
            begun: list[bytes] = []  # parts of an unfinished line
            while chunk := file.read(_CHUNK_BYTES):
                lines, line_end, rest = chunk.rpartition(b"\n")
                if line_end:
                    whole = b"".join([*begun, lines])
                    self._offset += len(whole) + 1
                    _add_lines(whole, fold)
                    begun = []
                begun.append(rest)
                if len(begun) * _CHUNK_BYTES > _LONGEST_LINE:  # no event is this long
                    self._offset += sum(map(len, begun))
                    begun = []
                    fold.add_malformed()

    def feed_rest(self, fold: SnapshotFold) -> None:
        """Reads an unfinished last line of a log that is no longer written. Half an event is skipped: if
        the job is resumed, it is read again."""
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
    """An event with fields of an unexpected form is used without those."""
    try:
        written = decode_json(line, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    metadata = written.pop("metadata", None)
    fitting = _fitting(written, SeenEvent)
    if isinstance(metadata, dict):
        fitting["metadata"] = _fitting(metadata, SeenMetadata)
    try:
        return msgspec.convert(fitting, SeenEvent, strict=False)
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


class LiveSnapshot:
    """Snapshots of a job; each refresh reads only events since the last one."""

    def __init__(self, job_dir: str) -> None:
        self._summary: dict[str, Any] = {}
        with readable_or_input_error():
            self.directory = JobDirectory(job_dir)
            self._begin()

    def _begin(self) -> None:
        self._knows_partitions = self.directory.knows_partitions()
        self._fold = SnapshotFold(self.directory.planned())
        self._tails: dict[str, EventFile] = {}

    def refresh(self) -> JobSnapshot:
        """Raises InputError if the job's files are unreadable."""
        with readable_or_input_error():
            return self._read_all()

    def _read_all(self) -> JobSnapshot:
        is_cut = not self._knows_partitions and self.directory.knows_partitions()
        if is_cut or any(tail.is_replaced() for tail in self._tails.values()):
            self._begin()
        process = self._process()  # before its last events are read, so that none are missed
        self._read_events(is_over=process.is_alive is False)
        if process.is_alive is None:  # its events may now name the process
            process = self._process()
            self._read_events(is_over=process.is_alive is False)
        self._summary = self.directory.read_summary()
        now = time.time()
        if self._fold.events_analyzed == 0 and self._summary.get("status") == "completed":
            self._fold.add_completion(now)  # events may be disabled
        snapshot = self._fold.snapshot(self._facts(process), now)
        torn = sum(tail.has_torn_end for tail in self._tails.values())
        snapshot = msgspec.structs.replace(snapshot, malformed_lines=snapshot.malformed_lines + torn)
        return _with_summary_times(snapshot, self._summary)

    def _read_events(self, *, is_over: bool) -> None:
        files = self.directory.event_files()
        if self._tails and list(self._tails) != files[: len(self._tails)]:
            self._begin()
        for path in files:
            tail = self._tails.setdefault(path, EventFile(path))
            tail.has_torn_end = False
            tail.feed(self._fold)
            if is_over or path != files[-1]:
                tail.feed_rest(self._fold)

    def is_over(self, snapshot: JobSnapshot) -> bool:
        """Returns whether nothing more will happen: False while the job runs, or is planned and may be
        started."""
        if snapshot.overall_status is ProcessingStatus.NOT_STARTED:
            return not self.directory.is_planned()
        return snapshot.overall_status is not ProcessingStatus.IN_PROGRESS

    def process(self) -> JobProcess:
        """Returns the process of the job, from the events read so far."""
        with readable_or_input_error():
            if not self._tails:
                self._read_events(is_over=False)
            return self._process()

    def _process(self) -> JobProcess:
        by_lock = process_of_executor(self.directory.folder)
        if by_lock is not None:
            return by_lock
        return live_process(self._fold.process_id, self._fold.last_event_time)

    def _facts(self, process: JobProcess) -> JobFacts:
        return JobFacts(
            job_id=self.directory.job_id,
            is_alive=process.is_alive,
            process_id=process.process_id,
            summary=self._summary,
            checkpoint_strategy=self.directory.checkpoint_strategy(),
            has_checkpoints=self.directory.has_checkpoints(),
            is_resumable=self.directory.plan is not None or None,
            is_disk_full=process.is_alive is False and self.directory.is_disk_full(),
        )

    def about(self, snapshot: JobSnapshot) -> JobAbout:
        about = self.directory.about(self._summary, self._fold.executor_type)
        is_of_summary = (
            snapshot.total_duration is not None and about.summary_duration == snapshot.total_duration
        )
        return msgspec.structs.replace(about, is_timing_of_summary=is_of_summary)

    def json_dict(self, snapshot: JobSnapshot) -> dict[str, Any]:
        return snapshot_form(snapshot, self.about(snapshot))

    def json_pieces(self, snapshot: JobSnapshot) -> Iterator[bytes]:
        return snapshot_json(snapshot, self.about(snapshot))


def _with_summary_times(snapshot: JobSnapshot, summary: dict[str, Any]) -> JobSnapshot:
    """Times of the summary take precedence: a job starts before its first event. For a resumed job only
    joblens knows how long it worked; others include the time between the runs."""
    numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    start, duration = numbers.get("start_time"), numbers.get("duration")
    if snapshot.overall_status in (ProcessingStatus.IN_PROGRESS, ProcessingStatus.KILLED):
        is_killed = snapshot.overall_status is ProcessingStatus.KILLED
        until = snapshot.last_event_time if is_killed else snapshot.taken_at
        began, before = numbers.get("run_start_time"), numbers.get("earlier_duration")
        if start is None or until is None or began is None or before is None:
            return snapshot
        duration = before + max(0.0, until - began)
        return msgspec.structs.replace(snapshot, job_start_time=start, total_duration=duration)
    end = numbers.get("end_time")
    is_whole = snapshot.runs <= 1 or "run_duration" in numbers
    if start is None or end is None or duration is None or not is_whole:
        return snapshot
    return msgspec.structs.replace(snapshot, job_start_time=start, job_end_time=end, total_duration=duration)


class ProcessingSnapshotAnalyzer:
    """The same under the names that scripts for DataJuicer use."""

    def __init__(self, work_dir: str) -> None:
        self._live = LiveSnapshot(str(work_dir))

    def generate_snapshot(self) -> JobSnapshot:
        return self._live.refresh()

    def to_json_dict(self, snapshot: JobSnapshot) -> dict[str, Any]:
        return self._live.json_dict(snapshot)


def create_snapshot(job_dir: str) -> JobSnapshot:
    """Returns the present state of the job in that folder."""
    return LiveSnapshot(str(job_dir)).refresh()


def operators_from_folder(record: Record) -> Details:
    """Returns nothing for a job without a recipe, or whose directory is gone."""
    plan = plan_of_record(record)
    if plan is None:
        return Details()
    from joblens.analysis.recipes.usage import operator_table

    try:
        snapshot = LiveSnapshot(plan.job_dir).refresh()
    except (JoblensError, OSError):
        return Details()
    return Details(operators=operator_table(snapshot, plan, time.time_ns() // 1000))
