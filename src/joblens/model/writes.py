"""Facts to be remembered, as values: a store applies them, a journal keeps them until it can.

Applying the same write twice changes nothing, so a journal can be replayed safely. Of a job that workers
take in turns, only writes under its present fence count."""

from typing import TYPE_CHECKING

from msgspec import Struct

import joblens
from joblens.model.delivery import Ticket
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Attempt, Job, Outcome
from joblens.model.jobs.sample import Sample

if TYPE_CHECKING:
    import joblens.model.runs.run


class JobQueued(Struct, frozen=True, tag="queued"):
    job: Job


class JobStarted(Struct, frozen=True, tag="started"):
    uuid: str
    attempt: Attempt
    fence: int = 0  # this and below: of the claim it is written under (model.delivery); 0: none


class SamplesTaken(Struct, frozen=True, tag="samples"):
    """Consecutive samples of one job; the first has index `first`. (uuid, index) is the identity."""

    uuid: str
    first: int
    samples: tuple[Sample, ...]
    fence: int = 0


class DetailsTaken(Struct, frozen=True, tag="details"):
    """What is known of a job beside its samples now; parts that are None here stay as they were."""

    uuid: str
    details: Details
    fence: int = 0


class JobEnded(Struct, frozen=True, tag="ended"):
    """Ignored when the job has ended already, unless it was `lost` and this is its true outcome."""

    uuid: str
    outcome: Outcome
    fence: int = 0


class CancelAsked(Struct, frozen=True, tag="cancel"):
    """Someone wants the job to end. Its owner sees this at its next tick, on whatever machine it is."""

    uuid: str
    asked_at_us: int
    by: str = ""


class TicketMade(Struct, frozen=True, tag="ticket"):
    """The job is for a worker. Comes with its JobQueued; ignored when the job has ended or has a ticket."""

    ticket: Ticket


class ProvenanceSeen(Struct, frozen=True, tag="provenance"):
    """What jobs ran in, known by a digest of itself; ignored when it is there already."""

    digest: str
    provenance: Provenance


# Types of runs are named by their module, which most processes never load: import it before decoding these.


class WorkflowCreated(Struct, frozen=True, tag="workflow"):
    """Known by its uuid; the store gives it the next number."""

    workflow: "joblens.model.runs.run.Workflow"


class RunCreated(Struct, frozen=True, tag="run"):
    """Known by its uuid; the store gives it the next number within its workflow."""

    run: "joblens.model.runs.run.Run"


class RunNoted(Struct, frozen=True, tag="run-event"):
    event: "joblens.model.runs.run.RunEvent"


Write = (
    JobQueued
    | TicketMade
    | JobStarted
    | SamplesTaken
    | DetailsTaken
    | JobEnded
    | CancelAsked
    | ProvenanceSeen
    | WorkflowCreated
    | RunCreated
    | RunNoted
)
