"""Many jobs, a few at a time, at the rate of bare spawning: the next job is handed to a slot before the
record of the last one is put together, and records go to the store in batches."""

import select
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.launch import LaunchPlan, start_error
from joblens.agent.outcome import Ending, not_started, verdict
from joblens.agent.session import Kit
from joblens.agent.slot import Finished, Slot, SlotJob
from joblens.analysis.findings import findings_for
from joblens.analysis.profile import detailed_profile
from joblens.analysis.usage import total_usage
from joblens.engine.job_life import EndCause
from joblens.model.errors import JoblensError
from joblens.model.job import Accounting, Attempt, Job, Outcome, Record, Status
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.probes.host import HostProbe

_QUEUE_AHEAD = 16
_BATCH = 48
_FLUSH_EVERY_S = 0.05
_STOP_AGAIN_S = 0.1
_ANSWER_PATIENCE_S = 3.0
_HOST_EVERY_S = 0.1


class SlotPlan(Struct, frozen=True, kw_only=True):
    """How slots are made."""

    width: int
    logs_dir: str  # each job's output goes to a folder in it, when it prints something
    output_max_bytes: int
    accounting: Accounting = Accounting.AUTO


class SlotPool:
    """`run` yields each record once it is in the store for good, in the order the jobs ended."""

    def __init__(self, kit: Kit, plan: SlotPlan) -> None:
        self._kit = kit
        self._plan = plan
        self._host = HostProbe()
        self._host_reading: dict[str, Any] = {}
        self._host_read_at_s = 0.0
        self._tick_host = HostProbe()  # the sampler's own
        self._poll = select.poll()
        self._slots: dict[int, Slot] = {}
        self._attempts: dict[str, Attempt] = {}
        self._ahead: deque[SlotJob] = deque()  # not started
        self._asked_to_end: frozenset[str] = frozenset()
        self._is_stopping = False
        self._batch: list[Write] = []
        self._batch_records: list[Record] = []
        self._flushed_at_s = 0.0
        self._on_their_way: deque[tuple[int, list[Record]]] = deque()  # (ticket, records)

    def run(self, jobs: Iterable[SlotJob]) -> Iterator[Record]:
        """Closing the generator, or an exception in whoever uses it, ends the jobs and records that."""
        waiting = iter(jobs)
        try:
            for _ in range(self._plan.width):
                if self._has_next(waiting):
                    self._fill(self._add_slot(), waiting)
            while self._busy():
                for descriptor, _ in self._poll.poll(_FLUSH_EVERY_S * 1000):
                    self._one_done(self._slots[descriptor], waiting)
                if self._asked_to_end:
                    self._end_cancelled(waiting)
                self._flush_if_due()
                yield from self._stored()
            self._flush()
            self._kit.recorder.wait_until_applied()
            yield from self._stored()
        finally:
            self._stop()

    def take_samples(self) -> None:
        """On the sampler's thread: jobs that have run for a whole interval."""
        for slot in list(self._slots.values()):
            taken = slot.take_sample(self._tick_host)
            if taken is not None:
                job, index, sample = taken
                self._kit.recorder.put([SamplesTaken(job.uuid, index, (sample,))])

    def heed_cancel_requests(self) -> None:
        """On the sampler's thread as well, so that looking costs the jobs nothing."""
        try:
            asked = self._kit.recorder.read(lambda store: store.cancel_requests())
        except JoblensError:
            return  # the store cannot be asked now
        self._asked_to_end = frozenset(asked)
        for slot in list(self._slots.values()) if asked else ():
            slot_job = slot.current
            if slot_job is not None and slot_job.job.uuid in asked:
                slot.ask_stop(slot_job.job.uuid)

    # ---- jobs ------------------------------------------------------------------------------------

    def _has_next(self, jobs: Iterator[SlotJob]) -> bool:
        if not self._ahead:
            self._ahead.extend(slot_job for _, slot_job in zip(range(_QUEUE_AHEAD), jobs, strict=False))
        return bool(self._ahead)

    def _add_slot(self) -> Slot:
        plan = self._plan
        slot = Slot(self._kit, plan.accounting, plan.logs_dir, plan.output_max_bytes)
        self._slots[slot.socket] = slot
        self._poll.register(slot.socket, select.POLLIN)
        return slot

    def _fill(self, slot: Slot, jobs: Iterator[SlotJob]) -> None:
        """Gives the slot what it can take. A slot with nothing to do helps the others."""
        while slot.can_take:
            slot_job = self._next(jobs) or (self._take_from_others() if slot.current is None else None)
            if slot_job is None:
                return
            slot.send(slot_job)
            if slot.current is None:
                self._begin(slot, slot_job)

    def _next(self, jobs: Iterator[SlotJob]) -> SlotJob | None:
        while not self._is_stopping and self._has_next(jobs):
            slot_job = self._ahead.popleft()
            if slot_job.job.uuid not in self._asked_to_end:
                return slot_job
            self._end_unstarted(slot_job.job)
        return None

    def _take_from_others(self) -> SlotJob | None:
        """A job that waits behind one that is still running."""
        for slot in self._slots.values() if not self._is_stopping else ():
            slot_job = slot.take_back()
            if slot_job is not None:
                return slot_job
        return None

    def _end_cancelled(self, jobs: Iterator[SlotJob]) -> None:
        """Jobs that nobody wants any more, among those that were sent ahead."""
        for slot in list(self._slots.values()):
            if slot.waits_for(self._asked_to_end) and (slot_job := slot.take_back()) is not None:
                self._end_unstarted(slot_job.job)
                self._fill(slot, jobs)

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

    def _busy(self) -> bool:
        return any(slot.is_busy for slot in self._slots.values())

    def _one_done(self, slot: Slot, jobs: Iterator[SlotJob]) -> None:
        message = slot.receive()
        if message is not None and message[0] == "skipped":
            given_back = slot.skipped()
            if given_back is not None:
                self._ahead.appendleft(given_back)
            self._fill(slot, jobs)
            return
        slot_job, finished = slot.finish(message, self._host_now())
        if slot.is_spent:
            self._retire(slot, jobs)
        elif finished.is_clean:
            following = slot.follow_on()
            if following is not None:
                self._begin(slot, following, finished.ended_ns)
        self._remember(slot_job, finished, slot)
        if not slot.is_spent:
            self._fill(slot, jobs)

    def _retire(self, slot: Slot, jobs: Iterator[SlotJob]) -> None:
        """The job that waits in it goes to another slot; one that its launcher had begun goes with it."""
        waiting = slot.take_back()
        if waiting is not None:
            self._ahead.appendleft(waiting)
        elif (begun := slot.follow_on()) is not None:
            self._begin(slot, begun)
            self._remember(*slot.finish(None, self._host_now()), slot)
        self._drop_slot(slot)
        if not self._is_stopping and self._has_next(jobs):
            self._fill(self._add_slot(), jobs)

    def _drop_slot(self, slot: Slot) -> None:
        self._poll.unregister(slot.socket)
        del self._slots[slot.socket]
        slot.close()

    def _remember(self, slot_job: SlotJob, finished: Finished, slot: Slot) -> None:
        attempt = self._attempts.pop(slot_job.job.uuid)
        record = self._record(slot_job, attempt, finished, slot)
        assert record.outcome is not None
        if finished.samples:
            # Those in between were written while it ran.
            ends = ((0, finished.samples[0]), (len(finished.samples) - 1, finished.samples[-1]))
            if len(finished.samples) == 2:
                self._batch.append(SamplesTaken(record.job.uuid, 0, tuple(finished.samples)))
            else:
                self._batch.extend(SamplesTaken(record.job.uuid, place, (one,)) for place, one in ends)
        self._ended(record)

    def _ended(self, record: Record) -> None:
        assert record.outcome is not None
        self._batch.append(JobEnded(record.job.uuid, record.outcome))
        self._batch_records.append(record)

    def _end_unstarted(self, job: Job) -> None:
        outcome = Outcome(
            status=Status.CANCELLED,
            ended_at_us=self._kit.clock.now_us(),
            duration_s=0.0,
            reason="cancelled",
            error="ended before it was started",
        )
        self._batch.append(JobQueued(job))
        self._ended(Record(status=outcome.status, job=job, outcome=outcome))

    def _record(self, slot_job: SlotJob, attempt: Attempt, finished: Finished, slot: Slot) -> Record:
        job = slot_job.job
        if finished.error is not None:
            number, stage, name = finished.error
            plan = LaunchPlan(argv=slot_job.argv, env={}, cwd=job.cwd)
            error = start_error(int(number), str(stage), str(name), plan)
            outcome = not_started(job, error, self._kit.clock.now_us())
            return Record(status=outcome.status, job=job, outcome=outcome)
        outcome = self._outcome(Record(status=Status.RUNNING, job=job, attempt=attempt), finished, slot)
        if finished.logs_dir:
            attempt = replace(attempt, logs_dir=finished.logs_dir)
            self._batch.append(JobStarted(job.uuid, attempt))
        return Record(status=outcome.status, job=job, attempt=attempt, outcome=outcome)

    def _outcome(self, record: Record, finished: Finished, slot: Slot) -> Outcome:
        assert record.attempt is not None
        sources, unknown = slot.sources()
        usage = total_usage(
            finished.samples,
            finished.reaped if finished.status is not None else None,
            accounting=record.attempt.accounting,
            sources=sources,
            unknown=unknown,
        )
        ending = Ending(
            wait_status=finished.status,
            cause=finished.cause,
            duration_s=finished.duration_s,
            ended_at_us=finished.ended_at_us,
            leftovers=finished.leftovers,
            reaped=finished.reaped,
        )
        outcome = replace(
            verdict(ending, usage),
            usage=usage,
            samples=len(finished.samples),
            leftovers=finished.leftovers,
            stdout_bytes=finished.stdout_bytes,
            stderr_bytes=finished.stderr_bytes,
        )
        if len(finished.samples) > 2:
            # Below that there is nothing to make a profile of: the totals say it all.
            outcome = replace(outcome, profile=detailed_profile(finished.samples, usage, outcome.duration_s))
        findings = findings_for(replace(record, status=outcome.status, outcome=outcome), finished.samples)
        return replace(outcome, findings=findings) if findings else outcome

    # ---- the end ---------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Nothing runs any more when all went well. Else what runs is ended as a cancelled job is, what waits
        will never start, and the records say so."""
        at_once = False
        self._is_stopping = True
        try:
            self._take_all_back()
            # An interrupt may have cut off the taking of an answer, which then never comes again.
            deadline_s = time.monotonic() + self._longest_grace_s() + _ANSWER_PATIENCE_S
            while self._busy() and time.monotonic() < deadline_s:
                try:
                    self._stop_some(at_once=at_once)
                except KeyboardInterrupt:
                    at_once = True  # asked again while ending: a person means it
                    deadline_s = min(deadline_s, time.monotonic() + _ANSWER_PATIENCE_S)
            self._give_up_unanswered()
            for slot_job in self._ahead:
                self._end_unstarted(slot_job.job)
            self._ahead.clear()
            self._flush()
            self._kit.recorder.wait_until_applied()
        finally:
            for slot in list(self._slots.values()):
                self._drop_slot(slot)
            self._host.close()
            self._tick_host.close()

    def _longest_grace_s(self) -> float:
        running = [slot.current.job.grace_s for slot in self._slots.values() if slot.current is not None]
        return max(running, default=0.0)

    def _give_up_unanswered(self) -> None:
        """They have ended, or are when their slot is dropped; how is not known any more."""
        for slot in self._slots.values():
            slot_job = slot.current
            if slot_job is not None and slot_job.job.uuid in self._attempts:
                started_at_us = self._attempts[slot_job.job.uuid].started_at_us
                now_us = self._kit.clock.now_us()
                ended = Finished(
                    status=None,
                    cause=EndCause.CANCELLED,
                    duration_s=max(0, now_us - started_at_us) / 1e6,
                    ended_at_us=now_us,
                )
                self._remember(slot_job, ended, slot)

    def _take_all_back(self) -> None:
        """What was sent ahead and not begun."""
        for slot in self._slots.values():
            slot_job = slot.take_back()
            if slot_job is not None:
                self._ahead.appendleft(slot_job)

    def _stop_some(self, *, at_once: bool) -> None:
        for slot in self._slots.values():
            if slot.current is not None:
                slot.ask_stop(slot.current.job.uuid, at_once=at_once)
        for descriptor, _ in self._poll.poll(_STOP_AGAIN_S * 1000):
            self._one_done(self._slots[descriptor], iter(()))

    # ---- to the store --------------------------------------------------------------------------

    def _flush_if_due(self) -> None:
        if len(self._batch_records) >= _BATCH or (
            self._batch and time.monotonic() - self._flushed_at_s > _FLUSH_EVERY_S
        ):
            self._flush()

    def _flush(self) -> None:
        if not self._batch:
            return
        ticket = self._kit.recorder.put(self._batch)
        self._on_their_way.append((ticket, self._batch_records))
        self._batch, self._batch_records = [], []
        self._flushed_at_s = time.monotonic()

    def _stored(self) -> Iterator[Record]:
        while self._on_their_way and self._on_their_way[0][0] <= self._kit.recorder.applied:
            yield from self._on_their_way.popleft()[1]
