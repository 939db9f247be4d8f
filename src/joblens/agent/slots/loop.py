"""Slot loop: sends jobs to slots and batches of records to the store. A slot gets its next jobs before the
record of the last one is complete."""

import os
import select
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from joblens.agent.launcher.slot_ledger import SlotLedger
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.records import ended_record, unanswered_end
from joblens.agent.slots.slot import Finished, Slot, SlotJob
from joblens.model.jobs.job import Accounting, Attempt, Record
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.probes.host.machine_load import HostProbe

_BATCH = 48
_FLUSH_EVERY_S, _FLUSH_QUIET_S = 0.05, 0.005  # while jobs run, and when none has ended for that long
_IDLE_S = 1.0
_LONG_S = 0.1  # no job waits behind one that has run for this long
_STOP_AGAIN_S = 0.1
_ANSWER_TIMEOUT_S = 3.0
_HOST_EVERY_S = 0.1
_GATHER_S = 0.002  # for answers of tiny jobs: waking up for each costs more than reading it
_ENOUGH_AHEAD = 4  # jobs that a launcher can begin meanwhile
_MOST_ROUNDS = 8  # of answers, before their events are passed on
_NO_SHAPE = object()


class SlotPlan(Struct, frozen=True, kw_only=True):
    """Size, folders and accounting of slots."""

    width: int
    logs_dir: str  # each job's output, if any, goes to a folder in it
    output_max_bytes: int
    accounting: Accounting = Accounting.AUTO
    env: dict[str, str] = {}  # added to the owner's environment


class SlotListener:
    """Receives the events of a slot loop, on its thread; every method returns soon."""

    def begun(self, slot_job: SlotJob, attempt: Attempt) -> None:
        """The job runs."""

    def finished(self, slot_job: SlotJob, finished: Finished) -> None:
        """The job ended; `recorded` follows."""

    def withdrawn(self, slot_job: SlotJob) -> None:
        """The job was cancelled before it started, and never runs."""

    def recorded(self, records: list[Record]) -> None:
        """The records are safe in the store."""

    def notify(self) -> None:
        """No more events come for a while: pass them on now."""

    def failed(self, error: BaseException) -> None:
        """The slots are gone, and their jobs were killed."""


class SlotLoop:
    """`drive` runs on a thread of its own; other methods are called on others. `listener` gets its events.
    `capacity`: number of jobs per shape that may run at once, changed by its owner. Jobs beyond that wait
    behind those of their shape. Without it, the plan's width is the limit."""

    def __init__(
        self,
        context: AgentContext,
        plan: SlotPlan,
        listener: SlotListener,
        *,
        capacity: "Counter[Any] | None" = None,
    ) -> None:
        self._context = context
        self._plan = plan
        self._listener = listener
        self._capacity = capacity
        self._unsent: defaultdict[Any, deque[SlotJob]] = defaultdict(deque)  # by shape; not sent to any slot
        self._running: Counter[Any] = Counter()  # by shape
        self._needs_jobs = True  # a slot could take a job and there was none
        self._is_feed_ended = self._is_stopping = self._is_urgent = False
        self._cancel_requests: frozenset[str] = frozenset()
        self._to_stop: dict[str, bool] = {}  # uuid -> at once?
        self._wake_lock = threading.Lock()
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._ledger = SlotLedger(context.spool_dir, context.owner, context.clock)
        self._slots: dict[int, Slot] = {}  # by their sockets
        self._attempts: dict[str, Attempt] = {}
        self._host = HostProbe()
        self._host_reading: dict[str, Any] = {}
        self._host_read_at_s = 0.0
        self._tick_host = HostProbe()  # of the sampler
        self._ended_jobs: list[tuple[SlotJob, Finished]] = []  # their records are not built yet
        self._batch: list[Write] = []
        self._batch_records: list[Record] = []
        self._flushed_at_s = 0.0
        self._unconfirmed: deque[tuple[int, list[Record]]] = deque()  # (ticket, records)

    # ---- from other threads ----------------------------------------------------------------------

    def feed(self, slot_job: SlotJob) -> None:
        self._unsent[slot_job.shape].append(slot_job)
        if self._needs_jobs:
            self._wake()

    def feed_all(self, slot_jobs: Iterable[SlotJob]) -> None:
        """Starts jobs whose capacity was set before."""
        for slot_job in slot_jobs:
            self._unsent[slot_job.shape].append(slot_job)
        self._needs_jobs = True
        self._wake()

    def end(self, uuid: str, *, at_once: bool) -> None:
        """Sends TERM, and KILL after its grace time or at once. A job that has not begun is withdrawn."""
        self._to_stop[uuid] = at_once
        self._wake()

    def end_feed(self) -> None:
        self._is_feed_ended = True
        self._wake()

    def stop(self, *, at_once: bool) -> None:
        self._is_stopping = True
        self._is_urgent |= at_once
        self._wake()

    def take_samples(self) -> None:
        """Samples jobs that have run for a whole interval."""
        for slot in list(self._slots.values()):
            taken = slot.take_sample(self._tick_host)
            if taken is not None:
                job, index, sample = taken
                self._context.recorder.put([SamplesTaken(job.uuid, index, (sample,))])

    def poll_cancel_requests(self) -> None:
        """Polls on the recorder's thread, at no cost for the jobs."""
        self._context.recorder.poll_cancels(self._on_cancel_requests)

    def _on_cancel_requests(self, uuids: Iterable[str]) -> None:
        self._cancel_requests = frozenset(uuids)
        if self._cancel_requests:
            self._wake()

    def close(self) -> None:
        """Call it after `drive` has returned, or if it was never started."""
        with self._wake_lock:  # the recorder's thread may be using it
            descriptor, self._wakeup = self._wakeup, -1
            os.close(descriptor)
        self._ledger.close(self._context.recorder.unwritten)
        self._host.close()
        self._tick_host.close()

    def _wake(self) -> None:
        with self._wake_lock:
            if self._wakeup >= 0:
                os.eventfd_write(self._wakeup, 1)

    # ---- the thread ------------------------------------------------------------------------------

    def drive(self) -> None:
        try:
            try:
                self._run()
            finally:
                self._stop()
        except BaseException as error:  # noqa: BLE001 - the listener gets it
            self._listener.failed(error)

    def _run(self) -> None:
        while not self._is_stopping and not (
            self._is_feed_ended and not self._has_unsent() and not self._busy()
        ):
            self._fill_all()
            self._take_answers(self._wait_s())
            if self._cancel_requests or self._to_stop:
                self._end_cancelled()
            self._free_waiting()
            self._flush_if_due()
            self._report_recorded()
        if not self._is_stopping:
            self._flush()
            self._context.recorder.wait_until_applied()
            self._report_recorded()

    def _wait_s(self) -> float:
        """Returns the time until something is due: writing, reporting, or freeing jobs that wait."""
        has_more = (
            self._batch or self._ended_jobs or self._unconfirmed or self._cancel_requests or self._to_stop
        )
        often_s = _FLUSH_EVERY_S if self._busy() else _FLUSH_QUIET_S
        return often_s if has_more or self._has_waiting() else _IDLE_S

    def _take_answers(self, wait_s: float) -> None:
        self._listener.notify()
        if self._slots and all(slot.jobs_ahead >= _ENOUGH_AHEAD for slot in self._slots.values()):
            time.sleep(_GATHER_S)
        ready = self._poll.poll(wait_s * 1000)
        self._is_quiet = not ready and not self._busy()
        for _ in range(_MOST_ROUNDS):
            for descriptor, _ in ready:
                if descriptor == self._wakeup:
                    os.eventfd_read(self._wakeup)
                else:
                    self._take_answer(self._slots[descriptor])
            ready = self._poll.poll(0)
            if not ready:
                return

    def _busy(self) -> bool:
        return any(slot.is_busy for slot in self._slots.values())

    def _has_unsent(self) -> bool:
        return any(list(self._unsent.values()))

    # ---- jobs to slots ---------------------------------------------------------------------------

    def _fill_all(self) -> None:
        """Sends one job to each free slot, then jobs that follow them, in their order."""
        if not self._needs_jobs:
            return  # every slot was full, or there was no job
        self._needs_jobs = False
        for slot in self._slots.values():
            if slot.current is None:
                self._fill(slot)
        while self._startable_shape() is not _NO_SHAPE and not self._is_stopping:
            self._fill(self._add_slot())
        for slot in self._slots.values():
            self._fill(slot)
        if self._capacity is not None or len(self._slots) < self._plan.width:
            self._needs_jobs = True
            if self._startable_shape() is not _NO_SHAPE:
                self._wake()  # it was fed before feeding wakes this thread

    def _free_capacity(self, shape: Any) -> int:
        if self._capacity is None:
            return self._plan.width - self._running.total()
        return self._capacity[shape] - self._running[shape]

    def _startable_shape(self) -> Any:
        """Returns a shape of which a job waits and may run now."""
        for shape, waiting in list(self._unsent.items()):
            if waiting and self._free_capacity(shape) > 0:
                return shape
        return _NO_SHAPE

    def _add_slot(self) -> Slot:
        plan = self._plan
        slot = Slot(
            self._context, plan.accounting, plan.logs_dir, plan.output_max_bytes, plan.env, self._ledger
        )
        self._slots[slot.socket] = slot
        self._poll.register(slot.socket, select.POLLIN)
        return slot

    def _fill(self, slot: Slot) -> None:
        free_ahead = slot.free_ahead
        if not free_ahead or self._is_stopping:
            return
        slot_jobs = (
            self._next_to_run() if slot.current is None else self._next_ahead(slot.current.shape, free_ahead)
        )
        if slot_jobs:
            slot.send(slot_jobs)
            if slot.current is None:
                self._begin(slot, slot_jobs[0])

    def _next_to_run(self) -> list[SlotJob]:
        shape = self._startable_shape()
        if shape is not _NO_SHAPE:
            return [self._unsent[shape].popleft()]
        self._needs_jobs = True  # from now on feeding wakes this thread
        return self._take_from_others()

    def _next_ahead(self, shape: Any, free_ahead: int) -> list[SlotJob]:
        """Returns jobs of the same shape that cannot run at once elsewhere."""
        waiting = self._unsent[shape]
        count = len(waiting) - max(0, self._free_capacity(shape))
        wanted = min(free_ahead, 1 + len(waiting) // len(self._slots))
        if count < wanted:
            self._needs_jobs = True
        return [waiting.popleft() for _ in range(min(wanted, count))]

    def _take_from_others(self) -> list[SlotJob]:
        """Returns a job that waits behind a running one, though it may run now."""
        for slot in self._slots.values():
            if slot.jobs_ahead and slot.current is not None and self._free_capacity(slot.current.shape) > 0:
                slot_job = slot.take_back()
                if slot_job is not None:
                    return [slot_job]
        return []

    def _has_waiting(self) -> bool:
        return len(self._slots) > 1 and any(slot.jobs_ahead for slot in self._slots.values())

    def _free_waiting(self) -> None:
        """Takes back jobs that wait behind a long one. Short jobs follow each other without a pause."""
        if not self._has_waiting():
            return
        long_ago_ns = self._context.clock.mono_ns() - int(_LONG_S * 1e9)
        for slot in self._slots.values():
            if slot.jobs_ahead and slot.current is not None and slot.running_since_ns < long_ago_ns:
                self._take_all_back(slot)

    def _take_all_back(self, slot: Slot) -> None:
        while (slot_job := slot.take_back()) is not None:
            self._give_back(slot_job)

    def _give_back(self, slot_job: SlotJob) -> None:
        self._unsent[slot_job.shape].appendleft(slot_job)
        self._needs_jobs = True  # another slot may be free

    def _end_cancelled(self) -> None:
        self._withdraw()
        for slot in list(self._slots.values()):
            current = slot.current
            if current is None:
                continue
            uuid = current.job.uuid
            if uuid in self._cancel_requests or uuid in self._to_stop:
                self._take_all_back(slot)
                slot.stop(at_once=self._to_stop.get(uuid, False))
        for uuid in list(self._to_stop):
            if uuid not in self._attempts and not any(s.has_ahead((uuid,)) for s in self._slots.values()):
                self._to_stop.pop(uuid, None)  # it ended before the request

    def _withdraw(self) -> None:
        """Withdraws jobs to cancel that have not started. A job that its launcher started is stopped."""
        if not self._to_stop:
            return
        for slot in self._slots.values():
            if slot.has_ahead(self._to_stop):
                self._take_all_back(slot)
        for waiting in list(self._unsent.values()):
            for _ in range(len(waiting)):
                slot_job = waiting.popleft()
                if self._to_stop.pop(slot_job.job.uuid, None) is None:
                    waiting.append(slot_job)
                else:
                    self._listener.withdrawn(slot_job)

    # ---- answers ---------------------------------------------------------------------------------

    def _take_answer(self, slot: Slot) -> None:
        message = slot.receive()
        if message is not None and message[0] == "skipped":
            returned = slot.skipped(message[1])
            if returned is not None:
                self._give_back(returned)
        else:
            self._on_done(slot, message)
        if not slot.is_spent:
            self._fill(slot)

    def _on_done(self, slot: Slot, message: tuple[Any, ...] | None) -> None:
        slot_job, finished = slot.finish(message, self._host_now())
        self._on_end(slot_job, finished)
        if not finished.is_clean:
            for returned in reversed(slot.take_skipped()):
                self._give_back(returned)
            self._needs_jobs = True
        elif not slot.is_spent:
            following = slot.next_job()
            if following is not None:
                self._begin(slot, following, finished.ended_ns)
        if slot.is_spent:
            self._retire(slot)

    def _on_end(self, slot_job: SlotJob, finished: Finished) -> None:
        self._running[slot_job.shape] -= 1
        self._to_stop.pop(slot_job.job.uuid, None)
        self._ended_jobs.append((slot_job, finished))
        self._listener.finished(slot_job, finished)

    def _begin(self, slot: Slot, slot_job: SlotJob, started_ns: int | None = None) -> None:
        attempt = slot.begin(slot_job, self._host_now(), started_ns)
        self._running[slot_job.shape] += 1
        self._attempts[slot_job.job.uuid] = attempt
        self._listener.begun(slot_job, attempt)
        # In the store within `_FLUSH_EVERY_S` of its start; a job that has ended by then is written once.
        self._batch += (JobQueued(slot_job.job), JobStarted(slot_job.job.uuid, attempt))

    def _host_now(self) -> dict[str, Any]:
        """Returns numbers of the whole machine, recent enough for jobs of milliseconds."""
        now_s = mono_s(self._context.clock)
        if now_s - self._host_read_at_s > _HOST_EVERY_S:
            self._host_reading, self._host_read_at_s = self._host.read(), now_s
        return self._host_reading

    def _retire(self, slot: Slot) -> None:
        """Closes a slot. Jobs that wait in it go to another slot; a job that its launcher had begun ends with
        it."""
        self._take_all_back(slot)
        while (begun := slot.next_job()) is not None:
            self._begin(slot, begun)
            self._on_end(*slot.finish(None, self._host_now()))
        self._drop_slot(slot)
        self._needs_jobs = True  # a new slot can be started

    def _drop_slot(self, slot: Slot) -> None:
        self._poll.unregister(slot.socket)
        del self._slots[slot.socket]
        slot.close()

    def _build_records(self) -> None:
        """Builds all records at once: between jobs, which evict them from the processor's caches, it would
        take twice the time."""
        ended, self._ended_jobs = self._ended_jobs, []
        now_us = self._context.clock.now_us()
        for slot_job, finished in ended:
            attempt = self._attempts.pop(slot_job.job.uuid)
            secrets = self._context.secrets_of(slot_job.job.uuid)
            record = self._context.complete_record(ended_record(slot_job, attempt, finished, now_us, secrets))
            self._write(record, finished, is_attempt_new=record.attempt is not attempt)
            self._batch_records.append(record)

    def _write(self, record: Record, finished: Finished, *, is_attempt_new: bool) -> None:
        assert record.outcome is not None
        uuid, samples = record.job.uuid, finished.samples
        if len(samples) == 2:
            self._batch.append(SamplesTaken(uuid, 0, tuple(samples)))
        elif samples:
            # Samples in between were written while it ran.
            ends = ((0, samples[0]), (finished.sample_count - 1, samples[-1]))
            self._batch.extend(SamplesTaken(uuid, index, (one,)) for index, one in ends)
        if record.attempt is not None and is_attempt_new:
            self._batch.append(JobStarted(uuid, record.attempt))
        self._batch.append(JobEnded(uuid, record.outcome))

    # ---- the end ---------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Stops the slots. Normally nothing runs; running jobs are cancelled."""
        self._is_stopping = True
        try:
            graces_s = [slot.current.job.grace_s for slot in self._slots.values() if slot.current is not None]
            deadline_s = mono_s(self._context.clock) + max(graces_s, default=0.0) + _ANSWER_TIMEOUT_S
            while self._busy() and mono_s(self._context.clock) < deadline_s:
                if self._is_urgent:
                    deadline_s = min(deadline_s, mono_s(self._context.clock) + _ANSWER_TIMEOUT_S)
                for slot in self._slots.values():
                    self._take_all_back(slot)
                    slot.stop(at_once=self._is_urgent)
                self._take_answers(_STOP_AGAIN_S)
            self._end_unanswered()
            self._flush()
            self._context.recorder.wait_until_applied()
        finally:
            for slot in list(self._slots.values()):
                self._drop_slot(slot)

    def _end_unanswered(self) -> None:
        """Ends jobs whose slot does not answer; their end is unknown."""
        for slot in self._slots.values():
            slot_job = slot.current
            if slot_job is not None:
                attempt = self._attempts[slot_job.job.uuid]
                self._on_end(slot_job, unanswered_end(attempt, self._context.clock.now_us()))

    # ---- to the store ----------------------------------------------------------------------------

    def _flush_if_due(self) -> None:
        is_due = self._is_quiet or mono_s(self._context.clock) - self._flushed_at_s > _FLUSH_EVERY_S
        if len(self._ended_jobs) >= _BATCH or ((self._batch or self._ended_jobs) and is_due):
            self._flush()

    def _flush(self) -> None:
        self._build_records()
        if not self._batch:
            return
        self._unconfirmed.append((self._context.recorder.put(self._batch), self._batch_records))
        self._batch, self._batch_records = [], []
        self._flushed_at_s = mono_s(self._context.clock)

    def _report_recorded(self) -> None:
        while self._unconfirmed and self._unconfirmed[0][0] <= self._context.recorder.applied:
            records = self._unconfirmed.popleft()[1]
            uuids = (record.job.uuid for record in records)
            self._ledger.remove(uuid for uuid in uuids if uuid not in self._context.recorder.unwritten)
            if records:
                self._listener.recorded(records)
