"""Carries facts to the store and the sinks on a thread of its own, so that a slow disk or a locked
database delays neither a sample nor the job."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from joblens.model.errors import JoblensError, StoreError
from joblens.model.job import Record, Status
from joblens.model.store_url import is_postgres
from joblens.model.writes import (
    CancelAsked,
    DetailsTaken,
    JobEnded,
    JobQueued,
    JobStarted,
    SamplesTaken,
    Write,
)
from joblens.ports.sink import Sink
from joblens.ports.store import Store

T = TypeVar("T")

_PATIENCE_S = 1.9  # a little less than two ticks of a second


class Recorder:
    """`put` returns at once; `write` returns when the facts are safe. Order is kept."""

    def __init__(self, store: Store, sinks: Sequence[Sink] = (), warn: Callable[[str], None] = print) -> None:
        self.store = store
        self._sinks = tuple(sinks)
        self._warn = warn
        self._waiting: list[Write] = []
        self._records: dict[str, Record] = {}
        self._changed = threading.Condition()
        self._applying = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._taken = 0
        self._applied_at_s = 0.0
        self._is_due = False  # something waits that the thread is to write now
        self.muted: set[str] = set()  # jobs of which nothing is written any more: they are another's
        self.sieve: Callable[[Sequence[Write]], list[Write]] | None = None  # what is written now, of these
        self._is_far = is_postgres(store.url)
        self._questions: dict[str, Callable[[Store], Any]] = {}  # to a store on another machine
        self._answers: dict[str, Any] = {}  # the latest
        self.applied = 0  # how many of the facts taken so far are safe

    def put(self, writes: Sequence[Write], *, can_wait: bool = False) -> int:
        """-> a ticket: the facts are safe once `applied` has reached it. What can wait is written together
        with others, when the next fact comes after `_PATIENCE_S`: waking up costs more than writing."""
        with self._changed:
            self._waiting.extend(writes)
            self._taken += len(writes)
            ticket = self._taken
            if not can_wait or time.monotonic() - self._applied_at_s >= _PATIENCE_S:
                self._is_due = True
            self._wake_thread()
        if self._thread is None:
            self._apply_waiting()
        return ticket

    def _wake_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="joblens-recorder", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads to be had: whoever puts something writes it
                return
            self._thread = thread
        if self._is_due:
            self._changed.notify()

    def write(self, writes: Sequence[Write]) -> None:
        with self._changed:
            self._waiting.extend(writes)
            self._taken += len(writes)
        self._apply_waiting()

    def wait_until_applied(self) -> None:
        """Everything that was put before this call is safe when it returns."""
        self._apply_waiting()

    def read(self, question: Callable[[Store], T]) -> T:
        """One connection, one question at a time."""
        with self._applying:
            return question(self.store)

    def cancel_requests(self) -> Mapping[str, CancelAsked]:
        """Those that are known. Raises StoreError."""
        return self.look("cancel requests", lambda store: store.cancel_requests(), {})

    def look(self, name: str, question: Callable[[Store], T], unknown: T) -> T:
        """For what is asked again and again. A store on another machine is asked on the thread, and answers
        at the next look: no network is to hold up who looks after jobs. `unknown`: before it ever has.
        Raises StoreError."""
        if not self._is_far:
            return self.read(question)
        with self._changed:
            self._questions[name] = question
            self._is_due = True
            self._wake_thread()
        if self._thread is None:
            self._ask_questions()
        answer: T = self._answers.get(name, unknown)
        return answer

    def _ask_questions(self) -> None:
        with self._changed:
            questions, self._questions = self._questions, {}
        for name, question in questions.items():
            with contextlib.suppress(StoreError):  # a store that fails has nothing new
                self._answers[name] = self.read(question)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._apply_waiting()
        for sink in self._sinks:
            sink.close()
        self.store.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due and not self._closed:
                    self._changed.wait()
                self._is_due = False
                if self._closed:
                    return
            self._apply_waiting()
            self._ask_questions()

    def _apply_waiting(self) -> None:
        with self._applying:
            with self._changed:
                batch, self._waiting = self._waiting, []
            if not batch and self.sieve is None:
                return
            self._applied_at_s = time.monotonic()
            taken = len(batch)
            batch = self._not_muted(batch)
            if self.sieve is not None:
                batch = self._not_muted(self.sieve(batch))
            if batch:
                self.store.apply(batch)
            self.applied += taken
            if self._sinks:
                self._mirror(batch)

    def _not_muted(self, batch: list[Write]) -> list[Write]:
        return [one for one in batch if uuid_of(one) not in self.muted] if self.muted else batch

    def _mirror(self, batch: Sequence[Write]) -> None:
        ended: list[Record] = []
        for write in batch:
            if isinstance(write, JobQueued):
                self._records.setdefault(write.job.uuid, Record(status=Status.QUEUED, job=write.job))
            elif isinstance(write, JobStarted):
                self._started(write)
            elif isinstance(write, SamplesTaken):
                for sink in self._sinks:
                    sink.samples_taken(write.uuid, write.samples)
            elif isinstance(write, DetailsTaken):
                for sink in self._sinks:
                    sink.details_taken(write.uuid, write.details)
            elif isinstance(write, JobEnded) and (record := self._known(write.uuid)):
                ended.append(_ended(record, write))
                self._records.pop(write.uuid, None)
        if ended:
            for sink in self._sinks:
                sink.jobs_ended(ended)

    def _known(self, uuid: str) -> Record | None:
        """A job that another process queued or started is in the store."""
        try:
            return self._records.get(uuid) or self.store.find(uuid)
        except JoblensError:
            return None  # in the journal: whoever brings it in does not mirror it

    def _started(self, write: JobStarted) -> None:
        known = self._known(write.uuid)
        if known is None:
            return
        told = known.attempt if write.uuid in self._records else None
        record = Record(status=Status.RUNNING, job=known.job, attempt=write.attempt, number=known.number)
        self._records[write.uuid] = record
        if told is not None and replace(told, provenance=write.attempt.provenance) == write.attempt:
            return  # said again, with what it runs in or for a store that was made anew
        for sink in self._sinks:
            sink.job_started(record)


def uuid_of(write: Write) -> str:
    return write.job.uuid if isinstance(write, JobQueued) else getattr(write, "uuid", "")


def _ended(record: Record, write: JobEnded) -> Record:
    return Record(
        number=record.number,
        status=write.outcome.status,
        job=record.job,
        attempt=record.attempt,
        outcome=write.outcome,
    )
