"""Questions that commands ask a server in place of a store; `POST /api/v1/store/NAME` answers each.

The client (`stores.remote`) and the server (`app.server.questions`) share these types. Many jobs are asked
about at once, and long answers are split into parts, so that no command needs one request per row."""

import hashlib
from typing import Annotated, Any

from msgspec import Meta, Struct, field, json

from joblens.model.delivery import Backlog, FormerWorker, Holding, WorkerInfo
from joblens.model.history import Annotation, HistoryQuery, TaggedJobs, Tombstone
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
from joblens.model.sql import SqlLimits
from joblens.model.writes import CancelAsked

# Raised when a question or an answer gets another meaning; added fields and questions do not count.
API_VERSION = 1
API_HEADER = "x-joblens-api"
VERSION_HEADER = "x-joblens-version"

MOST_RECORDS = 1000  # of one answer
MOST_SAMPLES = 20_000
MOST_EVENTS = 10_000
MOST_JOBS = 1000  # of one question

_Text = Annotated[str, Meta(max_length=4096)]
_Ident = Annotated[str, Meta(max_length=1000)]
_Position = Annotated[int, Meta(ge=-1, le=2**62)]
_Instant = Annotated[int, Meta(ge=-(2**62), le=2**62)]
_Idents = Annotated[tuple[_Ident, ...], Meta(max_length=MOST_JOBS)]
_Words = Annotated[tuple[_Text, ...], Meta(max_length=200)]


def digest_of_record(record: Record) -> str:
    return hashlib.blake2b(json.encode(record), digest_size=12).hexdigest()


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a question without parameters."""


class JobQuery(HistoryQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HistoryQuery within bounds. Unknown fields are refused: a filter of a newer client that is ignored
    would return everything."""

    limit: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    tools: _Words = ()
    tags: _Words = ()
    without_tag: _Text = ""
    names: _Words = ()
    since_us: _Instant | None = None
    until_us: _Instant | None = None
    user: _Text | None = None
    external_id: _Text | None = None
    run_uuid: _Text | None = None
    cluster_job: _Text | None = None
    name_contains: _Text = ""
    hosts: _Words = ()
    findings: _Words = ()
    after: _Text | None = None


class OneJob(Struct, frozen=True, forbid_unknown_fields=True):
    """A job by number, UUID, prefix or own id; some questions require the whole UUID."""

    ident: _Ident


class ManyJobs(Struct, frozen=True, forbid_unknown_fields=True):
    uuids: _Idents


class TagPrefix(Struct, frozen=True, forbid_unknown_fields=True):
    prefix: _Text


class RunningQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`known`: number -> digest of records that the client has; unchanged ones are not sent again."""

    user: _Text | None = None
    run: _Text | None = None
    known: dict[int, str] = field(default_factory=dict)


class SamplesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uuid: _Ident
    after: _Position = -1
    most: Annotated[int, Meta(ge=0, le=2**62)] | None = None


class SeriesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uuid: _Ident
    names: _Words
    from_us: _Instant
    to_us: _Instant


class TailsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[dict[_Ident, _Position], Meta(max_length=MOST_JOBS)]
    most: Annotated[int, Meta(ge=1, le=MOST_SAMPLES)]


class ProvenanceQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`job`: the UUID of a job that names the digest; with the scope `own` it is required."""

    digest: _Text
    job: _Ident = ""


class SourceQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: _Text
    name: _Text
    user: _Text


class OneRun(Struct, frozen=True, forbid_unknown_fields=True):
    """A run or workflow as `find_run` and `find_workflow` take it; some questions require the UUID."""

    ident: _Ident


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run: _Ident
    after: _Position = 0


class HoldingsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    of: _Idents | None = None


class WorkersQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: _Text | None = None


class SqlQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=1_000_000)]
    limits: SqlLimits = SqlLimits()
    only_user: _Text | None = None  # sees that user's rows; None: all that the caller may see


class CancelJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs by UUID; or jobs of a run by their index in its plan, also those that have not started."""

    uuids: _Idents = ()
    run: _Ident = ""
    indexes: Annotated[tuple[Annotated[int, Meta(ge=0, le=2**31)], ...], Meta(max_length=MOST_JOBS)] = ()


class DeleteJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs by UUID, and workflows (by UUID) without other jobs."""

    uuids: _Idents = ()
    workflows: _Idents = ()


# ---- answers


class Count(Struct, frozen=True):
    count: int


class Tagged(Struct, frozen=True):
    items: tuple[TaggedJobs, ...]


class RunningAnswer(Struct, frozen=True):
    """In order; a number stands for a record that the client has."""

    items: tuple[int | Record, ...]


class CancelRequests(Struct, frozen=True):
    items: tuple[CancelAsked, ...]


class SampleBlock(Struct, frozen=True):
    """Consecutive samples from index `first`, in the format of the store (docs/format.md), as base64."""

    first: int
    data: bytes


class SampleBlocks(Struct, frozen=True, kw_only=True):
    blocks: tuple[SampleBlock, ...]
    has_more: bool = False


class SampleTails(Struct, frozen=True):
    jobs: dict[str, tuple[SampleBlock, ...]]


class ProvenanceAnswer(Struct, frozen=True):
    provenance: Provenance | None


class WorkflowList(Struct, frozen=True):
    items: tuple[Workflow, ...]


class WorkflowAnswer(Struct, frozen=True):
    workflow: Workflow | None


class RunsAnswer(Struct, frozen=True):
    items: tuple[Run, ...]


class EventPart(Struct, frozen=True, kw_only=True):
    items: tuple[tuple[int, RunEvent], ...]
    has_more: bool = False


class Results(Struct, frozen=True):
    items: tuple[JobResult, ...]


class Holdings(Struct, frozen=True):
    items: tuple[Holding, ...]


class WorkerList(Struct, frozen=True):
    items: tuple[WorkerInfo, ...]


class BacklogList(Struct, frozen=True):
    items: tuple[Backlog, ...]


class States(Struct, frozen=True):
    states: dict[str, Status]


class FormerWorkers(Struct, frozen=True):
    workers: dict[str, FormerWorker]


class Clock(Struct, frozen=True):
    now_us: int


class QueueHealth(Struct, frozen=True):
    health: dict[str, Any]  # as `joblens health --json` prints it


class Notes(Struct, frozen=True):
    items: tuple[Annotation, ...]


class Tombstones(Struct, frozen=True):
    items: tuple[Tombstone, ...]


class Driven(Struct, frozen=True):
    is_driven: bool  # a process on the server's machine drives the run
    host: str  # the name of that machine


class Done(Struct, frozen=True):
    """The change was made."""

    changed: int  # how many jobs and workflows
