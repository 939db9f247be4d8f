"""What is known of a job from an earlier life of its run."""

from msgspec import Struct

from joblens.engine.schedule.retries import Failures, Retry
from joblens.model.jobs.job import Requirements
from joblens.model.runs.run import JobState


class Past(Struct, frozen=True, kw_only=True):
    """`state`: a final one, or RUNNING where someone still looks after it. None: see `again`;
    without that it waits for its turn as if it had not been tried."""

    attempt: int
    requirements: Requirements
    failures: Failures = Failures()
    state: JobState | None = None
    again: Retry | None = None
    devices: tuple[str, ...] = ()
    why: str = ""
    is_unwanted: bool = False  # it runs, and someone asked for its end
