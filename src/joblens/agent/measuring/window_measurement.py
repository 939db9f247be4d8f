"""What a measurement inside a host program came to. No kernel is needed to know this."""

from msgspec import Struct

from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Finding, Usage
from joblens.model.jobs.sample import Sample


class Measurement(Struct, frozen=True, kw_only=True):
    """A window that has ended, or as it stands."""

    ended_at_us: int
    duration_s: float
    usage: Usage
    findings: tuple[Finding, ...]
    samples: int
    sampling_interval_s: float
    first_pending: int
    pending: tuple[Sample, ...]  # not yet handed to `on_samples`
    kept: tuple[Sample, ...]  # all of them, or evenly thinned out where they are very many
    details: Details = Details()
    counted_s: float | None = None  # over which counters were counted; None: over all of `duration_s`
