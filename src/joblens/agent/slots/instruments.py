"""Instruments of a slot's job beyond the slot's groups. Opened with the first sample: most jobs of a slot end
before it, and opening would cost more than they use."""

from typing import Any

from joblens.agent.instruments.table import DetailTaker, InstrumentSet, OtherProbes, Watched
from joblens.agent.measuring.meter import COUNTERS
from joblens.agent.measuring.outcome import Origins
from joblens.agent.measuring.readings import NO_SAMPLES
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.groups import SlotHome
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.model.jobs.probe_choice import INSTRUMENTS

_OF_THE_SLOT = ("network",)  # counted for the slot's group, like its CPU time
# Group of numbers -> why they are unknown for a job without a sample.
UNSAMPLED = {
    group: NO_SAMPLES
    for name, instrument in INSTRUMENTS.items()
    if name not in _OF_THE_SLOT
    for group in instrument.groups
}


class SlotInstruments:
    """Instruments of one job. Used by the sampler's thread, under the slot's lock."""

    def __init__(self, job: Job, context: AgentContext, home: SlotHome) -> None:
        watched = Watched(
            job=job,
            main_pid=None,
            kind=home.kind if home.groups else "",
            groups=home.paths,
            pids=home.job_pids,
            has_new_processes=True,
        )
        opened: InstrumentSet = context.instruments.open(watched, excluded=_OF_THE_SLOT)
        self._others = OtherProbes(opened.probes)
        self._details = DetailTaker(
            job.uuid, opened.details, lambda writes: context.recorder.put(writes, can_wait=True)
        )
        reading = self._others.read()
        self._base = {name: value for name, value in reading.items() if name in COUNTERS}

    def read(self) -> dict[str, Any]:
        """Returns sample fields; counters since they were first read."""
        reading = self._others.read()
        for name in COUNTERS.intersection(reading):
            reading[name] = max(0, reading[name] - self._base.setdefault(name, reading[name]))
        return reading

    def end(self) -> Details:
        """Returns the details as last read."""
        return self._details.end()

    def read_details(self) -> None:
        self._details.tick()

    def add_origins(self, origins: Origins) -> Origins:
        """Adds the origins of these numbers. Groups are the better source: these numbers cover the time from
        the first sample to the last."""
        sources, unknown, _ = self._others.origins()
        known = {name: why for name, why in origins.unknown.items() if name not in UNSAMPLED}
        return Origins(
            {**sources, **origins.sources},
            {**unknown, **known},
            {*origins.lower_bounds, *sources},
        )

    def close(self) -> None:
        self._others.close()
        self._details.close()
