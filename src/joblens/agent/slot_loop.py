"""Looks after slots: the next jobs are handed to a slot before the record of the last one is put together,
and records go to the store in batches."""

import os
import select
import time
from collections import deque
from queue import SimpleQueue
from typing import Any

from msgspec import Struct

from joblens.agent.session import Kit
from joblens.agent.slot import Finished, Slot, SlotJob
from joblens.agent.slot_records import ended_record
from joblens.engine.job_life import EndCause
from joblens.model.errors import JoblensError
from joblens.model.job import Accounting, Attempt, Record
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.probes.host import HostProbe

_BATCH = 48
_FLUSH_EVERY_S = 0.05
_IDLE_S = 1.0
_LONG_S = 0.1  # no job waits behind one that has run for this long
_STOP_AGAIN_S = 0.1
_ANSWER_PATIENCE_S = 3.0
_HOST_EVERY_S = 0.1


class SlotPlan(Struct, frozen=True, kw_only=True):
    """How slots are made."""

    width: int
    logs_dir: str  # each job's output goes to a folder in it, when it prints something
    output_max_bytes: int
    accounting: Accounting = Accounting.AUTO


class SlotLoop:
    """`drive` runs on a thread of its own. Others feed it, ask it to stop, and read `ended`: records that are
    in the store for good, or the error that ended it."""

    def __init__(self, kit: Kit, plan: SlotPlan) -> None:
        self.ended: SimpleQueue[list[Record] | BaseException] = SimpleQueue()
        self._kit = kit
        self._plan = plan
        self._fed: deque[SlotJob] = deque()  # not sent to any slot
        self._is_hungry = True  # somebody could take a job and there was none
        self._is_all_fed = self._is_stopping = self._is_urgent = False
        self._asked_to_end: frozenset[str] = frozenset()
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._slots: dict[int, Slot] = {}  # by their sockets
        self._attempts: dict[str, Attempt] = {}
        self._host = HostProbe()
        self._host_reading: dict[str, Any] = {}
        self._host_read_at_s = 0.0
        self._tick_host = HostProbe()  # the sampler's own
        self._ended_jobs: list[tuple[SlotJob, Finished]] = []  # of which no record is made yet
        self._batch: list[Write] = []
        self._batch_records: list[Record] = []
        self._flushed_at_s = 0.0
        self._on_their_way: deque[tuple[int, list[Record]]] = deque()  # (ticket, records)

    # ---- from other threads ----------------------------------------------------------------------

    def feed(self, slot_job: SlotJob) -> None:
        self._fed.append(slot_job)
        if self._is_hungry:
            self._wake()

    def feed_no_more(self) -> None:
        self._is_all_fed = True
        self._wake()

    def stop(self, *, at_once: bool) -> None:
        self._is_stopping = True
        self._is_urgent |= at_once
        self._wake()

    def take_samples(self) -> None:
        """Of jobs that have run for a whole interval."""
        for slot in list(self._slots.values()):
            taken = slot.take_sample(self._tick_host)
            if taken is not None:
                job, index, sample = taken
                self._kit.recorder.put([SamplesTaken(job.uuid, index, (sample,))])

    def heed_cancel_requests(self) -> None:
        """Asked here, so that looking costs the jobs nothing."""
        try:
            asked = self._kit.recorder.read(lambda store: store.cancel_requests())
        except JoblensError:
            return  # the store cannot be asked now
        self._asked_to_end = frozenset(asked)
        if asked:
            self._wake()

    def close(self) -> None:
        """`drive` has returned, or was never begun."""
        os.close(self._wakeup)
        self._host.close()
        self._tick_host.close()

    def _wake(self) -> None:
        os.eventfd_write(self._wakeup, 1)

    # ---- the thread ------------------------------------------------------------------------------

    def drive(self) -> None:
        try:
            try:
                self._run()
            finally:
                self._stop()
        except BaseException as error:  # noqa: BLE001 - whoever waits for records gets it
            self.ended.put(error)

    def _run(self) -> None:
        while not self._is_stopping and not (self._is_all_fed and not self._fed and not self._busy()):
            self._fill_all()
            self._take_answers(self._wait_s())
            if self._asked_to_end:
                self._end_cancelled()
            self._free_waiting()
            self._flush_if_due()
            self._hand_over()
        if not self._is_stopping:
            self._flush()
            self._kit.recorder.wait_until_applied()
            self._hand_over()

    def _wait_s(self) -> float:
        """A job that has begun has to be written, one that was written told, one that waits freed."""
        has_more = self._batch or self._ended_jobs or self._on_their_way or self._asked_to_end
        return _FLUSH_EVERY_S if has_more or self._has_waiting() else _IDLE_S

    def _take_answers(self, wait_s: float) -> None:
        for descriptor, _ in self._poll.poll(wait_s * 1000):
            if descriptor == self._wakeup:
                os.eventfd_read(self._wakeup)
            else:
                self._take_answer(self._slots[descriptor])

    def _busy(self) -> bool:
        return any(slot.is_busy for slot in self._slots.values())

    # ---- jobs to slots ---------------------------------------------------------------------------

    def _fill_all(self) -> None:
        """One job to run for each slot, and only then those that follow: they start in their order."""
        if not self._is_hungry:
            return  # every slot had its fill when it last had room
        self._is_hungry = False
        for slot in self._slots.values():
            if slot.current is None:
                self._fill(slot)
        while self._fed and len(self._slots) < self._plan.width and not self._is_stopping:
            self._fill(self._add_slot())
        for slot in self._slots.values():
            self._fill(slot)
        if len(self._slots) < self._plan.width:
            self._is_hungry = True
            if self._fed:
                self._wake()  # it came while nobody was told to say so

    def _add_slot(self) -> Slot:
        plan = self._plan
        slot = Slot(self._kit, plan.accounting, plan.logs_dir, plan.output_max_bytes)
        self._slots[slot.socket] = slot
        self._poll.register(slot.socket, select.POLLIN)
        return slot

    def _fill(self, slot: Slot) -> None:
        room = slot.room
        if not room or self._is_stopping:
            return
        slot_jobs = self._next(min(room, 1 + len(self._fed) // len(self._slots)))
        if not slot_jobs and slot.current is None:
            slot_jobs = self._take_from_others()
        if slot_jobs:
            slot.send(slot_jobs)
            if slot.current is None:
                self._begin(slot, slot_jobs[0])

    def _next(self, count: int) -> list[SlotJob]:
        if len(self._fed) < count:
            self._is_hungry = True  # from now on feeding wakes
        return [self._fed.popleft() for _ in range(min(count, len(self._fed)))]

    def _take_from_others(self) -> list[SlotJob]:
        """A job that waits behind one that is still running."""
        for slot in self._slots.values():
            slot_job = slot.take_back()
            if slot_job is not None:
                return [slot_job]
        return []

    def _has_waiting(self) -> bool:
        return len(self._slots) > 1 and any(slot.jobs_ahead for slot in self._slots.values())

    def _free_waiting(self) -> None:
        """Short jobs follow each other without a pause; behind a long one none has to wait."""
        if not self._has_waiting():
            return
        long_ago_ns = time.monotonic_ns() - int(_LONG_S * 1e9)
        for slot in self._slots.values():
            if slot.jobs_ahead and slot.current is not None and slot.running_since_ns < long_ago_ns:
                self._take_all_back(slot)

    def _take_all_back(self, slot: Slot) -> None:
        while (slot_job := slot.take_back()) is not None:
            self._fed.appendleft(slot_job)
            self._is_hungry = True  # another slot may have nothing to do

    def _end_cancelled(self) -> None:
        for slot in list(self._slots.values()):
            if slot.current is not None and slot.current.job.uuid in self._asked_to_end:
                self._take_all_back(slot)
                slot.stop()

    # ---- answers ---------------------------------------------------------------------------------

    def _take_answer(self, slot: Slot) -> None:
        message = slot.receive()
        if message is not None and message[0] == "skipped":
            given_back = slot.skipped(message[1])
            if given_back is not None:
                self._fed.appendleft(given_back)
                self._is_hungry = True
        else:
            self._one_done(slot, message)
        if not slot.is_spent:
            self._fill(slot)

    def _one_done(self, slot: Slot, message: tuple[Any, ...] | None) -> None:
        slot_job, finished = slot.finish(message, self._host_now())
        if not finished.is_clean:
            self._fed.extendleft(reversed(slot.fetch_given_back()))
            self._is_hungry = True
        elif not slot.is_spent:
            following = slot.follow_on()
            if following is not None:
                self._begin(slot, following, finished.ended_ns)
        self._ended_jobs.append((slot_job, finished))
        if slot.is_spent:
            self._retire(slot)

    def _begin(self, slot: Slot, slot_job: SlotJob, started_ns: int | None = None) -> None:
        attempt = slot.begin(slot_job, self._host_now(), started_ns)
        self._attempts[slot_job.job.uuid] = attempt
        # In the store within `_FLUSH_EVERY_S` of its start; a job that has ended by then is written once.
        self._batch += (JobQueued(slot_job.job), JobStarted(slot_job.job.uuid, attempt))

    def _host_now(self) -> dict[str, Any]:
        """The machine as a whole, looked at often enough for jobs of milliseconds."""
        now_s = time.monotonic()
        if now_s - self._host_read_at_s > _HOST_EVERY_S:
            self._host_reading, self._host_read_at_s = self._host.read(), now_s
        return self._host_reading

    def _retire(self, slot: Slot) -> None:
        """The jobs that wait in it go to another slot; one that its launcher had begun goes with it."""
        self._take_all_back(slot)
        while (begun := slot.follow_on()) is not None:
            self._begin(slot, begun)
            self._ended_jobs.append(slot.finish(None, self._host_now()))
        self._drop_slot(slot)
        self._is_hungry = True  # there is room for a new one

    def _drop_slot(self, slot: Slot) -> None:
        self._poll.unregister(slot.socket)
        del self._slots[slot.socket]
        slot.close()

    def _put_records_together(self) -> None:
        """All at once: one after the other, between jobs that push each other out of the processor's caches,
        they would take twice the time."""
        ended, self._ended_jobs = self._ended_jobs, []
        now_us = self._kit.clock.now_us()
        for slot_job, finished in ended:
            attempt = self._attempts.pop(slot_job.job.uuid)
            record = ended_record(slot_job, attempt, finished, now_us)
            self._write(record, finished, is_attempt_new=record.attempt is not attempt)
            self._batch_records.append(record)

    def _write(self, record: Record, finished: Finished, *, is_attempt_new: bool) -> None:
        assert record.outcome is not None
        uuid, samples = record.job.uuid, finished.samples
        if len(samples) == 2:
            self._batch.append(SamplesTaken(uuid, 0, tuple(samples)))
        elif samples:
            # Those in between were written while it ran.
            ends = ((0, samples[0]), (finished.sample_count - 1, samples[-1]))
            self._batch.extend(SamplesTaken(uuid, place, (one,)) for place, one in ends)
        if record.attempt is not None and is_attempt_new:
            self._batch.append(JobStarted(uuid, record.attempt))
        self._batch.append(JobEnded(uuid, record.outcome))

    # ---- the end ---------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Nothing runs any more when all went well. Else what runs is ended as a cancelled job is."""
        self._is_stopping = True
        try:
            deadline_s = time.monotonic() + self._longest_grace_s() + _ANSWER_PATIENCE_S
            while self._busy() and time.monotonic() < deadline_s:
                if self._is_urgent:
                    deadline_s = min(deadline_s, time.monotonic() + _ANSWER_PATIENCE_S)
                for slot in self._slots.values():
                    self._take_all_back(slot)
                    slot.stop(at_once=self._is_urgent)
                self._take_answers(_STOP_AGAIN_S)
            self._give_up_unanswered()
            self._flush()
            self._kit.recorder.wait_until_applied()
        finally:
            for slot in list(self._slots.values()):
                self._drop_slot(slot)

    def _longest_grace_s(self) -> float:
        running = [slot.current.job.grace_s for slot in self._slots.values() if slot.current is not None]
        return max(running, default=0.0)

    def _give_up_unanswered(self) -> None:
        """They end when their slot is dropped; how is not known any more."""
        for slot in self._slots.values():
            slot_job = slot.current
            if slot_job is not None:
                now_us = self._kit.clock.now_us()
                started_at_us = self._attempts[slot_job.job.uuid].started_at_us
                ended = Finished(
                    status=None,
                    cause=EndCause.CANCELLED,
                    duration_s=max(0, now_us - started_at_us) / 1e6,
                    ended_at_us=now_us,
                )
                self._ended_jobs.append((slot_job, ended))

    # ---- to the store ----------------------------------------------------------------------------

    def _flush_if_due(self) -> None:
        if len(self._ended_jobs) >= _BATCH or (
            (self._batch or self._ended_jobs) and time.monotonic() - self._flushed_at_s > _FLUSH_EVERY_S
        ):
            self._flush()

    def _flush(self) -> None:
        self._put_records_together()
        if not self._batch:
            return
        ticket = self._kit.recorder.put(self._batch)
        self._on_their_way.append((ticket, self._batch_records))
        self._batch, self._batch_records = [], []
        self._flushed_at_s = time.monotonic()

    def _hand_over(self) -> None:
        while self._on_their_way and self._on_their_way[0][0] <= self._kit.recorder.applied:
            records = self._on_their_way.popleft()[1]
            if records:
                self.ended.put(records)
