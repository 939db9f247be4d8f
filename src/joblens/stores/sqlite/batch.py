"""A batch of writes, gathered by job. Pure: what it means for the store is decided in `writer`."""

from collections.abc import Iterable

from joblens.model.details import Details
from joblens.model.job import Attempt, Job, Outcome, Status
from joblens.model.sample import Sample
from joblens.model.writes import (
    CancelAsked,
    DetailsTaken,
    JobQueued,
    JobStarted,
    RunCreated,
    RunNoted,
    SamplesTaken,
    TicketMade,
    WorkflowCreated,
    Write,
)


class JobChange:
    """All that one batch says about one job."""

    __slots__ = ("attempt", "details", "job", "outcome", "samples", "uuid")

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.job: Job | None = None
        self.attempt: Attempt | None = None
        self.outcome: Outcome | None = None
        self.samples: dict[int, Sample] = {}
        self.details: Details | None = None


def may_replace(known: Status, new: Status) -> bool:
    """An outcome stands once written; only `lost` gives way, to what truly happened."""
    return not known.is_final or (known is Status.LOST and new is not Status.LOST)


def cancel_requests(writes: Iterable[Write]) -> list[CancelAsked]:
    return [write for write in writes if isinstance(write, CancelAsked)]


def run_writes(writes: Iterable[Write]) -> list[WorkflowCreated | RunCreated | RunNoted]:
    return [write for write in writes if isinstance(write, (WorkflowCreated, RunCreated, RunNoted))]


def gather(writes: Iterable[Write]) -> dict[str, JobChange]:
    changes: dict[str, JobChange] = {}
    for write in writes:
        if isinstance(write, (CancelAsked, TicketMade, WorkflowCreated, RunCreated, RunNoted)):
            continue
        uuid = write.job.uuid if isinstance(write, JobQueued) else write.uuid
        change = changes.get(uuid)
        if change is None:
            change = changes[uuid] = JobChange(uuid)
        if isinstance(write, JobQueued):
            change.job = change.job or write.job
        elif isinstance(write, JobStarted):
            if change.attempt is None or write.attempt.number >= change.attempt.number:
                change.attempt = write.attempt
        elif isinstance(write, SamplesTaken):
            for index, sample in enumerate(write.samples, write.first):
                change.samples.setdefault(index, sample)
        elif isinstance(write, DetailsTaken):
            change.details = (change.details or Details()).updated(write.details)
        elif change.outcome is None or may_replace(change.outcome.status, write.outcome.status):
            change.outcome = write.outcome
    return changes
