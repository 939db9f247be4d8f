"""Result of a measurement inside a host program. Works on every operating system."""

from msgspec import Struct

from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Finding, Usage
from joblens.model.jobs.sample import Sample


class Measurement(Struct, frozen=True, kw_only=True):
    """A finished measurement, or the current state of a running one."""

    ended_at_us: int
    duration_s: float
    usage: Usage
    findings: tuple[Finding, ...]
    samples: int
    sampling_interval_s: float
    first_pending: int
    pending: tuple[Sample, ...]  # not yet passed to `on_samples`
    kept: tuple[Sample, ...]  # all samples, or an evenly spaced selection
    details: Details = Details()
    counted_s: float | None = None  # time that counters cover; None: all of `duration_s`
