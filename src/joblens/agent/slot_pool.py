"""Many jobs, a few at a time, at the rate of bare spawning: the next job is handed to a slot before the
record of the last one is put together, and records go to the store in batches."""

import os
import select
import time
from collections import deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from joblens.agent.launch import LaunchPlan, start_error
from joblens.agent.outcome import Ending, not_started, verdict
from joblens.agent.session import Kit
from joblens.agent.slot import Finished, Slot, SlotJob
from joblens.analysis.findings import findings_for
from joblens.analysis.profile import detailed_profile
from joblens.analysis.usage import total_usage
from joblens.engine.job_life import EndCause
from joblens.model.job import Attempt, Outcome, Record, Status
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.probes.host import HostProbe

_QUEUE_AHEAD = 256
_BATCH = 48
_FLUSH_EVERY_S = 0.05


class SlotPool:
    """`run` yields each record once it is in the store for good, in the order the jobs ended."""

    def __init__(self, kit: Kit, logs_dir: str, width: int) -> None:
        self._kit = kit
        self._logs_dir = logs_dir
        self._width = width
        self._host = HostProbe()
        self._poll = select.poll()
        self._slots: dict[int, Slot] = {}
        self._made = 0
        self._attempts: dict[str, Attempt] = {}
        self._batch: list[Write] = []
        self._batch_records: list[Record] = []
        self._flushed_at_s = 0.0
        self._on_their_way: deque[tuple[int, list[Record]]] = deque()  # (ticket, records)

    def run(self, jobs: Iterable[SlotJob]) -> Iterator[Record]:
        queue = self._queued(iter(jobs))
        try:
            for _ in range(self._width):
                self._start_next(self._add_slot(), queue)
            while self._busy():
                for descriptor, _ in self._poll.poll(_FLUSH_EVERY_S * 1000):
                    self._one_done(self._slots[descriptor], queue)
                self._flush_if_due()
                yield from self._stored()
            self._flush()
            self._kit.recorder.wait_until_applied()
            yield from self._stored()
        finally:
            for slot in self._slots.values():
                slot.close()
            self._host.close()

    def take_samples(self) -> None:
        """On the sampler's thread: jobs that have run for a whole interval."""
        for slot in list(self._slots.values()):
            taken = slot.take_sample(self._host)
            if taken is not None:
                job, index, sample = taken
                self._kit.recorder.put([SamplesTaken(job.uuid, index, (sample,))])

    def _queued(self, jobs: Iterator[SlotJob]) -> Iterator[SlotJob]:
        """Jobs are in the store before they are started, a handful at a time."""
        while True:
            ahead = [slot_job for _, slot_job in zip(range(_QUEUE_AHEAD), jobs, strict=False)]
            if not ahead:
                return
            self._kit.recorder.put([JobQueued(slot_job.job) for slot_job in ahead])
            yield from ahead

    def _add_slot(self) -> Slot:
        slot = Slot(self._made, self._kit.accountant, self._kit, self._logs_dir)
        self._made += 1
        self._slots[slot.socket] = slot
        self._poll.register(slot.socket, select.POLLIN)
        return slot

    def _start_next(self, slot: Slot, queue: Iterator[SlotJob]) -> None:
        slot_job = next(queue, None)
        if slot_job is None:
            return
        attempt = slot.start(slot_job)
        self._attempts[slot_job.job.uuid] = attempt
        self._batch.append(JobStarted(slot_job.job.uuid, attempt))

    def _busy(self) -> bool:
        return any(slot.current is not None for slot in self._slots.values())

    def _one_done(self, slot: Slot, queue: Iterator[SlotJob]) -> None:
        slot_job, finished = slot.finish(self._host)
        if slot.is_spent:
            self._poll.unregister(slot.socket)
            del self._slots[slot.socket]
            slot.close()
            fresh = self._add_slot()
        else:
            fresh = slot
        self._start_next(fresh, queue)
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
        self._batch.append(JobEnded(record.job.uuid, record.outcome))
        self._batch_records.append(record)

    def _record(self, slot_job: SlotJob, attempt: Attempt, finished: Finished, slot: Slot) -> Record:
        job = slot_job.job
        if finished.error is not None:
            number, stage, name = finished.error
            plan = LaunchPlan(argv=slot_job.argv, env={}, cwd=job.cwd)
            error = start_error(int(number), str(stage), str(name), plan)
            outcome = not_started(job, error, self._kit.clock.now_us())
            return Record(status=outcome.status, job=job, outcome=outcome)
        outcome = self._outcome(Record(status=Status.RUNNING, job=job, attempt=attempt), finished, slot)
        if finished.stdout_bytes or finished.stderr_bytes:
            attempt = replace(attempt, logs_dir=os.path.join(self._logs_dir, job.uuid))
            self._batch.append(JobStarted(job.uuid, attempt))
        return Record(status=outcome.status, job=job, attempt=attempt, outcome=outcome)

    def _outcome(self, record: Record, finished: Finished, slot: Slot) -> Outcome:
        assert record.attempt is not None
        sources, unknown = slot.sources()
        usage = total_usage(
            finished.samples,
            finished.reaped,
            accounting=record.attempt.accounting,
            sources=sources,
            unknown=unknown,
        )
        ending = Ending(
            wait_status=finished.status,
            cause=EndCause.NONE,
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
