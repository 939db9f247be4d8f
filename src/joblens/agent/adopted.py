"""A job that an earlier owner started: measured on until its launcher says how it went."""

import signal
from collections.abc import Callable

from msgspec.structs import replace

from joblens.agent.groups import JobGroups
from joblens.agent.meter import JobMeter
from joblens.agent.recovery import Recovery, end_processes, is_alive
from joblens.agent.session import Kit
from joblens.engine.job_life import EndCause
from joblens.model.errors import JoblensError, ProbeError
from joblens.model.exit_usage import ExitUsage
from joblens.model.job import Record
from joblens.model.writes import JobStarted, SamplesTaken


class AdoptedJob:
    """Nobody can wait for the job any more but its launcher, so this looks every tick whether it is done."""

    def __init__(
        self, record: Record, kit: Kit, recovery: Recovery, on_end: Callable[["AdoptedJob"], None]
    ) -> None:
        assert record.attempt is not None
        attempt = replace(record.attempt, owner=kit.owner)
        self.record = replace(record, attempt=attempt)
        self.job = record.job
        self._kit = kit
        self._recovery = recovery
        self._on_end = on_end
        self._groups: JobGroups | None = None
        if attempt.groups:
            try:
                self._groups = JobGroups.open(attempt.accounting, attempt.groups)
            except JoblensError:
                self._groups = None
        self._meter: JobMeter = kit.accountant.meter(self._groups, attempt.launcher_pid or 0)
        self._meter.resume(attempt.base, attempt.started_mono_ns or 0)
        stored = kit.recorder.read(lambda store: store.samples(record.job.uuid))
        self._next_index = stored[-1][0] + 1 if stored else 0
        self.was_asked_to_stop = False
        self.is_over = False
        kit.recorder.write([JobStarted(self.job.uuid, attempt)])
        kit.sampler.add(self.job.uuid, self.job.interval_s)

    def take_sample(self) -> None:
        """On the sampler's thread."""
        attempt = self.record.attempt
        assert attempt is not None
        if not is_alive(attempt.launcher_pid, attempt.launcher_start_ticks):
            self._kit.loop.call(self._settle)
            return
        try:
            sample = self._meter.sample(ExitUsage())
        except ProbeError:
            return
        self._kit.recorder.put([SamplesTaken(self.job.uuid, self._next_index, (sample,))])
        self._next_index += 1

    def watch_limits(self) -> None:
        """Limits of adopted jobs are left to the kernel."""

    def ask_stop(self, cause: EndCause, number: int = signal.SIGTERM) -> None:
        self.was_asked_to_stop = True
        end_processes(self.record, self._groups)

    def _settle(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._kit.sampler.remove(self.job.uuid)
        self._meter.close()
        uuid = self.job.uuid
        samples = self._kit.recorder.read(lambda store: store.samples(uuid))
        self._kit.recorder.write(self._recovery.settle(self.record, samples))
        self._recovery.forget(uuid)
        self._on_end(self)
