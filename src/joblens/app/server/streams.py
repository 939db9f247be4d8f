"""Sources of event streams: samples of a job, events of a run, output of a job. Each is read by position,
so that a reader that reconnects continues exactly behind its last event.

Positions of a job start again with each attempt. A source says which attempt it has read; whether that is
another one than before is for the readers to notice."""

import base64
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, json

from joblens.app.server.logs import LogFile, node_of
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Run, RunStatus
from joblens.model.values.positions import Position
from joblens.ports.store import QueueStore

_MOST_EVENTS = 2000  # read at once: about a block of samples
_LOG_CHUNK = 1 << 15
_RECORD_AGE_S = 1.0


class Event(Struct, frozen=True):
    """`position` is unique in its attempt and growing."""

    position: int
    data: bytes


class Batch(Struct, frozen=True):
    """Events behind a position, in order, without a gap. `end`: the stream is over behind them.
    `attempt`: they are of this one, found out before they were read; 0: it has not begun, or the stream has
    no attempts; None: the job is gone."""

    events: tuple[Event, ...]
    end: dict[str, Any] | None = None
    attempt: int | None = 0


class Source(Protocol):
    event: str  # the SSE event name
    first: int  # a position before the first event

    def newest(self, store: QueueStore) -> Position:
        """Returns the position of the last event that exists now."""
        ...

    def read(self, store: QueueStore, after: int) -> Batch:
        """Returns at most some hundred events. Called from several threads."""
        ...

    def close(self) -> None: ...


class SampleSource:
    event = "sample"
    first = -1

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.unclaimed_attempt = 0  # of a job that no worker holds; 0: not known

    def newest(self, store: QueueStore) -> Position:
        while True:
            attempt = _attempt_number(store.find(self.uuid))
            found = store.tails({self.uuid: self.first}, 1).get(self.uuid)
            if attempt == _attempt_number(store.find(self.uuid)):  # the sample is of this one
                return Position(found[-1][0] if found else self.first, attempt)

    def read(self, store: QueueStore, after: int) -> Batch:
        record = store.find(self.uuid)
        found = store.samples(self.uuid, after, _MOST_EVENTS + 1)
        batch = found[:_MOST_EVENTS]
        is_over = record.status.is_final and len(batch) == len(found)
        status = record.status if is_over else Status.RUNNING
        return _sample_batch(batch, status, _attempt_number(record))

    def close(self) -> None:
        pass


def _sample_batch(found: Sequence[tuple[int, Sample]], status: Status | None, attempt: int | None) -> Batch:
    events = tuple(Event(index, json.encode(sample)) for index, sample in found)
    return Batch(events, _job_end(status), attempt)


def read_samples(store: QueueStore, after: Mapping[SampleSource, int], most: int) -> dict[str, Batch]:
    """Returns new samples of many jobs, by uuid, in three queries. Whether a job has ended is asked first:
    its owner writes the last samples before the outcome. Which attempt it is in is asked before its samples:
    one that begins again meanwhile is noticed the next time."""
    uuids = [source.uuid for source in after]
    states = store.states(uuids)
    fences = {holding.uuid: holding.fence for holding in store.holdings(of=uuids)}
    attempts = {
        source: _attempt_of(source, store, states.get(source.uuid), fences.get(source.uuid, 0))
        for source in after
    }
    tails = store.tails({source.uuid: last for source, last in after.items()}, most)
    batches: dict[str, Batch] = {}
    for source, attempt in attempts.items():
        status = states.get(source.uuid)
        found = () if status is Status.QUEUED else tails.get(source.uuid, ())  # begun since it was asked
        batches[source.uuid] = _sample_batch(found, status, attempt)
    return batches


def _attempt_of(source: SampleSource, store: QueueStore, status: Status | None, fence: int) -> int | None:
    """Returns the attempt's number: the fencing token of a job that a worker holds; else the store's."""
    if status is None:
        return None
    if status is Status.QUEUED:
        return 0
    if fence and not status.is_final:
        return fence
    if status.is_final or not source.unclaimed_attempt:
        try:
            source.unclaimed_attempt = _attempt_number(store.find(source.uuid))
        except InputError:
            return None  # deleted meanwhile
    return source.unclaimed_attempt


def _attempt_number(record: Record) -> int:
    """0: it has not begun."""
    return 0 if record.attempt is None or record.status is Status.QUEUED else record.attempt.number


def _job_end(status: Status | None) -> dict[str, Any] | None:
    if status is None:
        return {"reason": "job-deleted"}
    return {"reason": "job-ended", "status": status.value} if status.is_final else None


class RunEventSource:
    event = "run-event"
    first = 0

    def __init__(self, run: Run) -> None:
        self._uuid = run.uuid

    def newest(self, store: QueueStore) -> Position:
        events = store.run_events(self._uuid)
        return Position(events[-1][0] if events else self.first)

    def read(self, store: QueueStore, after: int) -> Batch:
        run = store.find_run(self._uuid)
        found = store.run_events(self._uuid, after)
        batch = found[:_MOST_EVENTS]
        is_over = run.status not in (RunStatus.CREATED, RunStatus.RUNNING) and len(batch) == len(found)
        end = {"reason": "run-ended", "status": run.status.value} if is_over else None
        return Batch(tuple(Event(number, json.encode(event)) for number, event in batch), end)

    def close(self) -> None:
        pass


class LogSource:
    event = "log"
    first = 0

    def __init__(self, uuid: str, stream: str) -> None:
        self._uuid = uuid
        self._stream = stream
        self._record: Record | None = None
        self._record_at = 0.0
        # While one thread reads, no other may close the file: its number would soon be another file's.
        self._lock = threading.Lock()
        self._is_closed = False
        # Stays open: when the file is shortened at the job's end, this one still has everything.
        self._log: LogFile | None = None
        self._log_attempt = 0  # a later attempt prints into another file

    def newest(self, store: QueueStore) -> Position:
        record = self._current(store)
        attempt = _attempt_number(record)
        with self._lock:
            log = self._opened(record) if attempt else None
            return Position(self.first if log is None else log.total, attempt)

    def read(self, store: QueueStore, after: int) -> Batch:
        record = self._current(store)
        attempt = _attempt_number(record)
        if not attempt:
            return Batch((), _job_end(record.status))
        with self._lock:
            log = self._opened(record)
            if log is not None:
                return self._batch(log, after, record)
        if not record.status.is_final:
            return Batch((), None, attempt)
        return Batch((), {"reason": "not-readable-here", "node": node_of(record)}, attempt)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._log is not None:
                self._log.close()
                self._log = None

    def _opened(self, record: Record) -> LogFile | None:
        attempt = _attempt_number(record)
        if self._log is not None and attempt != self._log_attempt:
            self._log.close()
            self._log = None
        if self._log is None and not self._is_closed:
            self._log, self._log_attempt = LogFile.open(record, self._stream), attempt
        return self._log

    def _batch(self, log: LogFile, after: int, record: Record) -> Batch:
        events: list[Event] = []
        position = after
        while len(events) < 8 and (part := log.read(position, _LOG_CHUNK)) is not None:
            data = part.data if record.status.is_final else whole_characters(part.data)
            if not data:
                break  # half a character: the rest comes
            position = part.end if len(data) == len(part.data) else part.start + len(data)
            events.append(Event(position, json.encode(_log_form(part.start, data))))
        is_over = record.status.is_final and position >= log.total
        return Batch(tuple(events), _job_end(record.status) if is_over else None, _attempt_number(record))

    def _current(self, store: QueueStore) -> Record:
        """The record is read once per second; once it is final, the file is complete."""
        now = time.monotonic()
        if self._record is None or (not self._record.status.is_final and now >= self._record_at):
            self._record = store.find(self._uuid)
            self._record_at = now + _RECORD_AGE_S
        return self._record


def _log_form(start: int, data: bytes) -> dict[str, Any]:
    try:
        return {"offset": start, "text": data.decode()}
    except UnicodeDecodeError:
        return {"offset": start, "base64": base64.b64encode(data).decode()}


def whole_characters(data: bytes) -> bytes:
    """Returns the data without an incomplete UTF-8 character at its end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue  # inside a character
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if length > back else data
    return data
