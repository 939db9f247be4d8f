"""What is measured of one job, by whoever looks after it: samples and details to the store, and what they
add up to."""

from collections.abc import Callable, Sequence

from joblens.agent.instruments.details import DetailTaker
from joblens.agent.measuring.meter import JobMeter
from joblens.agent.runtime.recorder import Recorder
from joblens.analysis.numbers.running import RunningSummary
from joblens.model.errors import ProbeError
from joblens.model.jobs.details import Details
from joblens.model.jobs.exit_usage import ExitUsage
from joblens.model.jobs.job import Job
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, SamplesTaken
from joblens.ports.probe import DetailProbe


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
