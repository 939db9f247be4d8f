"""Writes: facts as values that a store applies and a journal holds while the store is unavailable.

Writes are idempotent, so a journal can be replayed safely. For a queued job, only writes under its current
fencing token count.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

import joblens
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Attempt, Job, Outcome
from joblens.model.jobs.sample import Sample

if TYPE_CHECKING:
    import joblens.model.access
    import joblens.model.delivery
    import joblens.model.history
    import joblens.model.runs.run


class JobQueued(Struct, frozen=True, tag="queued"):
    job: Job


class JobStarted(Struct, frozen=True, tag="started"):
    uuid: str
    attempt: Attempt
    fence: int = 0  # fencing token of the claim (model.delivery), here and below; 0: none


class SamplesTaken(Struct, frozen=True, tag="samples"):
    """Consecutive samples of one job; the first has index `first`. (uuid, index) is the identity."""

    uuid: str
    first: int
    samples: tuple[Sample, ...]
    fence: int = 0


class DetailsTaken(Struct, frozen=True, tag="details"):
    """Current details of a job besides its samples; None leaves a part unchanged."""

    uuid: str
    details: Details
    fence: int = 0


class JobEnded(Struct, frozen=True, tag="ended"):
    """Ignored if the job has already ended, unless it was `lost` and this is its true outcome."""

    uuid: str
    outcome: Outcome
    fence: int = 0


class CancelAsked(Struct, frozen=True, tag="cancel"):
    """A user asked to cancel the job. Its owner sees this at its next tick, on any machine."""

    uuid: str
    asked_at_us: int
    by: str = ""


class TicketMade(Struct, frozen=True, tag="ticket"):
    """Written with the JobQueued of a job for workers; ignored if the job has ended or has a ticket."""

    ticket: "joblens.model.delivery.Ticket"


class ProvenanceSeen(Struct, frozen=True, tag="provenance"):
    """Environment of jobs, identified by its digest; ignored if the digest exists."""

    digest: str
    provenance: Provenance


# Types of tickets, runs, notes and audit entries are named by their modules, which most processes never load:
# import those before decoding writes.


class WorkflowCreated(Struct, frozen=True, tag="workflow"):
    """Identified by its uuid; the store assigns the next number."""

    workflow: "joblens.model.runs.run.Workflow"


class RunCreated(Struct, frozen=True, tag="run"):
    """Identified by its uuid; the store assigns the next number within its workflow."""

    run: "joblens.model.runs.run.Run"


class RunNoted(Struct, frozen=True, tag="run-event"):
    event: "joblens.model.runs.run.RunEvent"


class JobAnnotated(Struct, frozen=True, tag="annotation"):
    """A note about a job, identified by its own uuid; ignored if the job is not in the store."""

    annotation: "joblens.model.history.Annotation"


class AuditNoted(Struct, frozen=True, tag="audit"):
    """Identified by its uuid."""

    entry: "joblens.model.access.AuditEntry"


Write = (
    JobQueued
    | TicketMade
    | JobStarted
    | SamplesTaken
    | DetailsTaken
    | JobEnded
    | CancelAsked
    | ProvenanceSeen
    | JobAnnotated
    | AuditNoted
    | WorkflowCreated
    | RunCreated
    | RunNoted
)
