"""Recorder: carries facts to the store and the sinks on a thread, and notes ends that the history file does
not have yet."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.runtime.ownership import is_gone
from joblens.files.private import create_with, names_with_suffix
from joblens.model.errors import JoblensError, StoreError
from joblens.model.jobs.job import Owner, Record, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import (
    DetailsTaken,
    JobEnded,
    JobQueued,
    JobStarted,
    ProvenanceSeen,
    RunNoted,
    SamplesTaken,
)

if TYPE_CHECKING:
    from joblens.model.writes import (
        CancelAsked,
        Write,
    )
    from joblens.ports.store import Sink, Store
    from joblens.probes.host.machine_load import HostFacts

_SUFFIX = ".ends"


class _Ends(Struct, frozen=True):
    owner: Owner
    jobs: tuple[str, ...]


class PendingEnds:
    """File with the ends that sinks do not have yet. It exists while its process lives: a file without a
    process means that the process was killed. Jobs run without it if it cannot be made."""

    def __init__(self, spool_dir: str, owner: Owner) -> None:
        self._path = os.path.join(spool_dir, new_uuid() + _SUFFIX)
        self._owner = owner
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = create_with(self._path, self._line(()))

    @contextlib.contextmanager
    def around(self, uuids: Sequence[str]) -> Iterator[None]:
        """Entered before the store gets the ends, left when all sinks have them."""
        if not uuids:
            yield
            return
        self._write(uuids)
        yield
        self._write(())

    def _write(self, uuids: Sequence[str]) -> None:
        """Only the first line counts; a longer earlier one may leave a remainder behind it."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, self._line(uuids), 0)

    def _line(self, uuids: Sequence[str]) -> bytes:
        return msgspec.json.encode(_Ends(self._owner, tuple(uuids))) + b"\n"

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def pending_ends(spool_dir: str, host: HostFacts) -> dict[str, tuple[str, ...]]:
    """Returns the files of processes that are gone, and the jobs in them."""
    paths = [os.path.join(spool_dir, name + _SUFFIX) for name in names_with_suffix(spool_dir, _SUFFIX)]
    found = {path: ends for path in paths if (ends := _read(path)) is not None}
    return {path: ends.jobs for path, ends in found.items() if is_gone(ends.owner, host)}


def _read(path: str) -> _Ends | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return msgspec.json.decode(file.read().partition(b"\n")[0], type=_Ends)
    except (OSError, msgspec.MsgspecError):
        return None


def forget_ends(path: str, host: HostFacts) -> None:
    """Clears a file once its lines are written. The file stays: it shows that the process left other things
    to recover."""
    ends = _read(path)
    if ends is not None and is_gone(ends.owner, host):
        with contextlib.suppress(OSError), open(path, "r+b", buffering=0) as file:
            file.write(msgspec.json.encode(_Ends(ends.owner, ())) + b"\n")


T = TypeVar("T")
WriteFilter: TypeAlias = "Callable[[Sequence[Write]], list[Write]]"

_TIMEOUT_S = 1.9  # a little less than two ticks of a second
_POLL_S = 1.0
_POLL_SLACK_S = 0.05  # a poll comes this much earlier with a sample, and this much later without one


def _ignore(_error: JoblensError) -> None:
    """A store that fails has nothing new."""


class Recorder:
    """Writes facts in order. `put` and `ask` return at once; `write` and `read` wait for the store, so no
    thread that runs jobs calls them."""

    def __init__(
        self,
        store: Store,
        sinks: Sequence[Sink] = (),
        warn: Callable[[str], None] = print,
        pending: PendingEnds | None = None,
        write_filter: WriteFilter | None = None,
        *,
        closes_store: bool = True,
    ) -> None:
        """`pending`: notes for the next process the ends that sinks did not get. `write_filter`: returns the
        facts to write now; also called without facts, to release the writes that it delayed."""
        self._closes_store = closes_store
        self.store = store
        self._sinks = tuple(sinks)
        self._pending = pending
        self._write_filter = write_filter
        self._warn = warn
        self._waiting: list[Write] = []
        self._records: dict[str, Record] = {}
        self._changed = threading.Condition()
        self._applying = threading.Lock()
        self._thread: threading.Thread | None = None
        self.is_closing = False
        self._taken = 0
        self._applied_at_s = time.monotonic()
        self._is_due = False  # there are facts to write now
        self._questions: list[Callable[[], None]] = []  # not asked yet
        self._names: set[Hashable | None] = set()  # of questions without an answer
        self._polls: list[Callable[[], None]] = []
        self._polled_at_s = 0.0
        self._has_warned_of_sinks = False
        self.applied = 0  # number of facts that were processed so far
        self.unwritten: set[str] = set()  # jobs with facts that the store refused

    def put(
        self, writes: Sequence[Write], *, can_wait: bool = False, then: Callable[[], None] | None = None
    ) -> int:
        """Returns a ticket: once `applied` has reached it, the facts are safe, except those of jobs in
        `unwritten`. Facts that can wait are written together with the first fact or poll after `_TIMEOUT_S`,
        because waking up costs more than writing. `then` is called on the recorder's thread afterwards."""
        with self._changed:
            self._waiting.extend(writes)
            self._taken += len(writes)
            ticket = self._taken
            if not can_wait or then is not None or time.monotonic() - self._applied_at_s >= _TIMEOUT_S:
                self._is_due = True
            if then is not None:
                self._questions.append(partial(self._call_back, then))
            self._wake_thread()
        if self._thread is None:
            self._serve()
        return ticket

    def _wake_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="joblens-recorder", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # out of threads: the caller does the work
                return
            self._thread = thread
        if self._is_due or self._questions or self._is_poll_due():
            self._changed.notify()

    def write(self, writes: Sequence[Write]) -> None:
        with self._changed:
            self._waiting.extend(writes)
            self._taken += len(writes)
        self._apply_waiting()

    def wait_until_applied(self) -> None:
        """Returns when everything that was put before is safe."""
        self._apply_waiting()

    def read(self, question: Callable[[Store], T]) -> T:
        """Queries the store: one connection, one query at a time."""
        with self._applying:
            return question(self.store)

    def ask(
        self,
        question: Callable[[Store], T],
        then: Callable[[T], None],
        otherwise: Callable[[JoblensError], None] = _ignore,
        *,
        name: Hashable | None = None,
    ) -> None:
        """Queries the store on the recorder's thread. `then` or `otherwise` is called there and has to return
        soon, usually by a call to the loop. Everything put before is written first, except for a poll.
        `name`: of a poll, which is not repeated before its answer."""
        with self._changed:
            if name is not None and name in self._names:
                return
            self._names.add(name)
            self._questions.append(partial(self._ask, question, then, otherwise, name))
            self._is_due |= name is None
            self._wake_thread()
        if self._thread is None:
            self._serve()

    def add_poll(self, poll: Callable[[], None]) -> None:
        """Calls it every second on the recorder's thread, together with a sample: waking up costs more
        than asking."""
        with self._changed:
            self._polls.append(poll)
            self._polled_at_s = time.monotonic()
            self._wake_thread()
            self._changed.notify()

    def remove_poll(self, poll: Callable[[], None]) -> None:
        with self._changed:
            if poll in self._polls:
                self._polls.remove(poll)

    def _is_poll_due(self) -> bool:
        return bool(self._polls) and time.monotonic() - self._polled_at_s >= _POLL_S - _POLL_SLACK_S

    def _poll_pause_s(self) -> float | None:
        if not self._polls:
            return None
        return max(0.0, self._polled_at_s + _POLL_S + _POLL_SLACK_S - time.monotonic())

    def poll_cancels(
        self,
        then: Callable[[Mapping[str, CancelAsked]], None],
        call: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Passes the requests of `joblens cancel` to `then`; with `call` (of a loop) only if there are any,
        because waking a loop costs more than a query. Does nothing while an earlier poll with the same bound
        method has no answer."""

        def pass_on(requests: Mapping[str, CancelAsked]) -> None:
            if call is None:
                then(requests)
            elif requests:
                call(partial(then, requests))

        self.ask(lambda store: store.cancel_requests(), pass_on, name=then)

    def record(self, uuid: str, writes: Sequence[Write], then: Callable[[int | None], None]) -> None:
        """Puts the writes. Calls `then` with the job's number once they are safe; None: they wait in a
        journal."""
        self.put(writes)
        self.ask(lambda store: store.number_of(uuid), then, lambda _error: then(None))

    def _ask(
        self,
        question: Callable[[Store], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[JoblensError], None],
        name: Hashable | None,
    ) -> None:
        try:
            answer = self.read(question)
        except Exception as error:  # noqa: BLE001 - the caller waits for one of the two
            failure = error if isinstance(error, JoblensError) else StoreError(repr(error))
            self._call_back(partial(otherwise, failure))
        else:
            self._call_back(partial(then, answer))
        finally:
            with self._changed:
                self._names.discard(name)

    def _call_back(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - the questions of others wait
            self._warn(f"a fault in joblens: an answer of the store was not used: {error!r}")

    def close(self) -> None:
        with self._changed:
            self.is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._is_due = True
        self._serve()  # what the thread did not reach: each query gets an answer
        for sink in self._sinks:
            sink.close()
        if self._pending is not None:
            self._pending.close()
        if self._closes_store:
            self.store.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._is_due or self._questions or self.is_closing or self._is_poll_due()):
                    self._changed.wait(self._poll_pause_s())
                if self.is_closing:
                    return
            self._serve()

    def _serve(self) -> None:
        """Writes the facts that are due and answers the queries."""
        if self._is_poll_due():
            self._polled_at_s = time.monotonic()
            for poll in tuple(self._polls):
                poll()
        with self._changed:
            questions, self._questions = self._questions, []
            has_waited = bool(self._waiting) and time.monotonic() - self._applied_at_s >= _TIMEOUT_S
            is_due, self._is_due = self._is_due or has_waited, False
        if is_due:
            self._apply_safely()
        for question in questions:
            question()

    def _apply_safely(self) -> None:
        """A fault of the store does not stop the recording."""
        try:
            self._apply_waiting()
        except Exception as error:  # noqa: BLE001 - jobs continue after any error
            self._warn(f"the store failed, and facts about jobs may be lost: {error!r}")

    def _apply_waiting(self) -> None:
        with self._applying:
            with self._changed:
                batch, self._waiting = self._waiting, []
            if not batch and self._write_filter is None:
                return
            self._applied_at_s = time.monotonic()
            taken = len(batch)
            if self._write_filter is not None:
                batch = self._write_filter(batch)
            with self._ends_noted(batch):
                try:
                    if batch:
                        self.store.apply(batch)
                except BaseException:
                    self.unwritten.update(map(uuid_of, batch))
                    raise
                finally:
                    self.applied += taken
                if self._sinks:
                    self._mirror_safely(batch)

    def _ends_noted(self, batch: Sequence[Write]) -> contextlib.AbstractContextManager[None]:
        if self._pending is None or not self._sinks:
            return contextlib.nullcontext()
        return self._pending.around([one.uuid for one in batch if isinstance(one, JobEnded)])

    def _mirror_safely(self, batch: Sequence[Write]) -> None:
        """Sinks report what they cannot write. A fault in one does not lose later facts."""
        try:
            self._mirror(batch)
        except Exception as error:  # noqa: BLE001 - jobs continue after any error
            if not self._has_warned_of_sinks:
                self._has_warned_of_sinks = True
                self._warn(f"a mirror of the records could not be written: {error!r}")

    def _mirror(self, batch: Sequence[Write]) -> None:
        ended: list[Record] = []
        for write in batch:
            if isinstance(write, JobQueued):
                self._records.setdefault(write.job.uuid, Record(status=Status.QUEUED, job=write.job))
            elif isinstance(write, JobStarted):
                self._started(write)
            elif isinstance(write, JobEnded):
                if record := self._known(write.uuid):
                    ended.append(_ended(record, write))
                    self._records.pop(write.uuid, None)
            elif isinstance(write, RunNoted):
                self._run_changed(write)
            else:
                for sink in self._sinks:
                    _pass_on(write, sink)
        if ended:
            for sink in self._sinks:
                sink.jobs_ended(ended)

    def _run_changed(self, write: RunNoted) -> None:
        from joblens.model.runs.run import RunEnded, RunStarted

        if not isinstance(write.event.fact, RunStarted | RunEnded):
            return
        try:
            run = self.store.find_run(write.event.run_uuid)
            workflow = self.store.find_workflow(run.workflow_uuid)
        except JoblensError:
            return  # in the journal
        for sink in self._sinks:
            sink.run_changed(workflow, run)

    def _known(self, uuid: str) -> Record | None:
        """Returns the record of a job, from the store if another process queued or started it."""
        try:
            return self._records.get(uuid) or self.store.find(uuid)
        except JoblensError:
            return None  # in the journal: its replay does not mirror it

    def _started(self, write: JobStarted) -> None:
        known = self._known(write.uuid)
        if known is None:
            return
        before = known.attempt if write.uuid in self._records else None
        record = Record(status=Status.RUNNING, job=known.job, attempt=write.attempt, number=known.number)
        self._records[write.uuid] = record
        if before is not None and replace(before, provenance=write.attempt.provenance) == write.attempt:
            return  # repeated with its environment, or for a store that was recreated
        for sink in self._sinks:
            sink.job_started(record)


def _pass_on(write: Write, sink: Sink) -> None:
    if isinstance(write, SamplesTaken):
        sink.samples_taken(write.uuid, write.samples)
    elif isinstance(write, DetailsTaken):
        sink.details_taken(write.uuid, write.details)
    elif isinstance(write, ProvenanceSeen):
        sink.provenance_seen(write.digest, write.provenance)


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
