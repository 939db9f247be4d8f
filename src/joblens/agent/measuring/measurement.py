"""Measurement of one job: samples and details to the store, and limits that no kernel enforces.

Memory is what cannot be reclaimed, as everywhere. No limit of the address space stands in for it: programs
reserve far more than they use, and one that is refused memory ends in its own way instead of being killed.
"""

from collections.abc import Callable, Sequence

from joblens.agent.instruments.table import DetailTaker
from joblens.agent.measuring.meter import JobMeter
from joblens.agent.runtime.recorder import Recorder
from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import ExitUsage, Job
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, SamplesTaken
from joblens.ports.probe import DetailProbe

CALM_S = 0.1  # between looks
CLOSE_S = 0.05  # where the next one may already come too late
_CLOSE_PART = 0.5  # of its limit


class LimitWatch:
    """One job's. `interval_s` is how soon it should be looked at again."""

    def __init__(self, memory_bytes: int | None = None, pids: int | None = None) -> None:
        self.interval_s = CALM_S
        self._memory_bytes = memory_bytes
        self._pids = pids

    def __bool__(self) -> bool:
        return self._memory_bytes is not None or self._pids is not None

    def judge(self, sample: Sample) -> EndCause | None:
        """What it has to be ended for."""
        used = unreclaimable_bytes(sample)
        if used is not None and self._memory_bytes is not None:
            if used > self._memory_bytes:
                return EndCause.MEMORY_LIMIT
            self.interval_s = CLOSE_S if used > _CLOSE_PART * self._memory_bytes else CALM_S
        if self._pids is not None and (sample.threads or 0) > self._pids:
            return EndCause.PIDS_LIMIT
        return None


class Measurement:
    """`take` and `look` are called on the sampler's thread, `finish` when that has let go of the job."""

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        meter: JobMeter,
        details: Sequence[DetailProbe] = (),
        on_sample: Callable[[Sample], None] | None = None,
        next_index: int = 0,
    ) -> None:
        self.meter = meter
        self.summary = RunningSummary()
        self._job = job
        self._recorder = recorder
        self._details = DetailTaker(job.uuid, details, self._put_details)
        self._on_sample = on_sample
        self._next_index = next_index

    @property
    def details(self) -> Details:
        """As last seen."""
        return self._details.latest

    def take(self, reaped: ExitUsage) -> Sample | None:
        """A sample that is kept. None: the group has just vanished."""
        sample = self._read(reaped)
        if sample is not None:
            self._keep(sample)
            self._details.tick()
        return sample

    def look(self, reaped: ExitUsage) -> Sample | None:
        """One that is not kept, but may have seen a peak."""
        try:
            sample = self.meter.look(reaped)
        except ProbeError:
            return None
        self.summary.add_unstored(sample)
        return sample

    def finish(self, reaped: ExitUsage, *, goes_on: bool = False) -> Sample | None:
        """The last sample, while the groups are still there. None: they are not. `goes_on`: what was
        measured does, and nobody looks any more."""
        last = self._read(reaped, final=True, goes_on=goes_on)
        if last is not None:
            self._keep(last)
            self._details.tick(final=True)
        return last

    def close(self) -> None:
        self.meter.close()
        self._details.close()

    def _read(self, reaped: ExitUsage, *, final: bool = False, goes_on: bool = False) -> Sample | None:
        try:
            return self.meter.sample(reaped, final=final, goes_on=goes_on)
        except ProbeError:
            return None

    def _keep(self, sample: Sample) -> None:
        if not self._job.monitor:
            self.summary.add_unstored(sample)  # the first and the last look give the totals
            return
        self.summary.add(sample)
        self._recorder.put([SamplesTaken(self._job.uuid, self._next_index, (sample,))], can_wait=True)
        self._next_index += 1
        if self._on_sample is not None:
            self._on_sample(sample)

    def _put_details(self, writes: list[DetailsTaken]) -> None:
        self._recorder.put(writes, can_wait=True)
