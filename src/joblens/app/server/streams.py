"""Sources of event streams: samples of a job, events of a run, output of a job. Each is read by position, so
that a reader who comes back continues exactly behind the last event it got."""

import base64
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, json
from msgspec.structs import replace

from joblens.app.server.logs import LogFile, node_of
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Run, RunStatus
from joblens.ports.store import QueueStore

_MOST_EVENTS = 2000  # read at once: about a block of samples
_LOG_CHUNK = 1 << 15
_RECORD_AGE_S = 1.0


class Event(Struct, frozen=True):
    """`position` is the event's id: unique in its stream and growing."""

    position: int
    data: bytes


class Batch(Struct, frozen=True):
    """Events behind a position, in order, without a gap. `end`: the stream is over behind them.
    `is_reset`: what was sent before is void, because the job went back to the queue; positions restart.
    `attempt`: number of the attempt that was read; 0: not known, or it has not begun."""

    events: tuple[Event, ...]
    end: dict[str, Any] | None = None
    is_reset: bool = False
    attempt: int = 0


class Source(Protocol):
    event: str  # the SSE event name
    first: int  # a position before the first event
    attempt: int  # that readers are in; who takes a batch sets it, as a batch may be read in vain

    def newest(self, store: QueueStore) -> int:
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
        self.attempt = 0

    def newest(self, store: QueueStore) -> int:
        self.attempt = self.attempt or _attempt_number(store.find(self.uuid))
        tails = store.tails({self.uuid: self.first}, 1)
        return tails[self.uuid][-1][0] if self.uuid in tails else self.first

    def read(self, store: QueueStore, after: int) -> Batch:
        status = store.states([self.uuid]).get(self.uuid)
        found = store.samples(self.uuid, after, _MOST_EVENTS + 1)
        batch = found[:_MOST_EVENTS]
        is_over = (status is None or status.is_final) and len(batch) == len(found)
        return sample_batch(batch, status if is_over else Status.RUNNING)

    def close(self) -> None:
        pass


def sample_batch(found: Sequence[tuple[int, Sample]], status: Status | None) -> Batch:
    events = tuple(Event(index, json.encode(sample)) for index, sample in found)
    return Batch(events, _job_end(status))


def read_samples(store: QueueStore, after: Mapping[SampleSource, int], most: int) -> dict[str, Batch]:
    """Returns new samples of many jobs, by uuid, in three queries. Whether a job has ended is asked first:
    its owner writes the last samples before the outcome. Which attempt it is in is asked before its samples:
    one that begins again meanwhile is noticed the next time."""
    uuids = [source.uuid for source in after]
    states = store.states(uuids)
    fences = {holding.uuid: holding.fence for holding in store.holdings(of=uuids)}
    tails = store.tails({source.uuid: last for source, last in after.items()}, most)
    batches: dict[str, Batch] = {}
    for source, last in after.items():
        uuid, status = source.uuid, states.get(source.uuid)
        attempt = fences.get(uuid, 0)
        if status is not None and status.is_final and source.attempt:
            attempt = _attempt_number(store.find(uuid))
        has_restarted = status is Status.QUEUED or (attempt and attempt != source.attempt != 0)
        attempt = attempt or source.attempt
        if has_restarted and last > source.first:
            batches[uuid] = Batch((), is_reset=True, attempt=attempt)
        else:
            batches[uuid] = replace(sample_batch(tails.get(uuid, ()), status), attempt=attempt)
    return batches


def _attempt_number(record: Record) -> int:
    """0: it has not begun."""
    return 0 if record.attempt is None else record.attempt.number


def _job_end(status: Status | None) -> dict[str, Any] | None:
    if status is None:
        return {"reason": "job-deleted"}
    return {"reason": "job-ended", "status": status.value} if status.is_final else None


class RunEventSource:
    event = "run-event"
    first = 0

    def __init__(self, run: Run) -> None:
        self._uuid = run.uuid
        self.attempt = 0

    def newest(self, store: QueueStore) -> int:
        events = store.run_events(self._uuid)
        return events[-1][0] if events else self.first

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
        self.attempt = 0
        self._opened_of = 0  # the attempt that printed into the open file
        # While one thread reads, no other may close the file: its number would soon be another file's.
        self._lock = threading.Lock()
        self._is_closed = False
        # Stays open: when the file is shortened at the job's end, this one still has everything.
        self._log: LogFile | None = None

    def newest(self, store: QueueStore) -> int:
        record = self._current(store)
        with self._lock:
            self.attempt = self.attempt or _attempt_number(record)
            log = None if record.attempt is None else self._opened(record)
            return self.first if log is None else log.total

    def read(self, store: QueueStore, after: int) -> Batch:
        record = self._current(store)
        attempt = _attempt_number(record)
        if self.attempt not in (0, attempt):  # a later attempt prints into another file
            return Batch((), is_reset=True, attempt=attempt)
        return replace(self._read(record, after), attempt=attempt)

    def _read(self, record: Record, after: int) -> Batch:
        if record.attempt is None:
            return Batch((), _job_end(record.status))
        with self._lock:
            log = self._opened(record)
            if log is not None:
                return self._batch(log, after, record)
        if not record.status.is_final:
            return Batch(())
        return Batch((), {"reason": "not-readable-here", "node": node_of(record)})

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close_log()

    def _opened(self, record: Record) -> LogFile | None:
        if self._opened_of != _attempt_number(record):
            self._close_log()
        if self._log is None and not self._is_closed:
            self._log = LogFile.open(record, self._stream)
            self._opened_of = _attempt_number(record)
        return self._log

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

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
        return Batch(tuple(events), _job_end(record.status) if is_over else None)

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
