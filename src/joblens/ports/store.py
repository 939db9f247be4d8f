"""Store: records, runs and samples, delivery of queued jobs to workers, what a server asks, and sinks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from joblens.model.access import ApiToken, AuditEntry, AuditQuery, IdempotentRequest
from joblens.model.clusters.placement import NodeCapacity
from joblens.model.delivery import (
    Backlog,
    Claim,
    FormerWorker,
    Holding,
    Renewal,
    TicketQuery,
    TicketStanding,
    WorkerInfo,
)
from joblens.model.history import (
    Annotation,
    HistoryQuery,
    Page,
    PruneReport,
    Statistics,
    StoreCheck,
    TaggedJobs,
    Tombstone,
)
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample, SampleSeries
from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
from joblens.model.sql import SqlAnswer, SqlLimits
from joblens.model.writes import CancelAsked, Write


class Store(Protocol):
    """Records, runs and samples. Every method may raise StoreError (with what and where); nothing is then
    half-written."""

    url: str

    def apply(self, writes: Sequence[Write]) -> None:
        """Applies all writes or none, in order. Idempotent. Returns when they are on disk if one of them is
        an outcome."""
        ...

    def close(self) -> None: ...

    # ---- reading -----------------------------------------------------------------------------------------

    def find(self, ident: str) -> Record:
        """By UUID, unique UUID prefix, caller's own id (the newest) or number.
        Raises UnknownJob, or AmbiguousJob with the candidates in its message."""
        ...

    def number_of(self, uuid: str) -> int:
        """Raises UnknownJob."""
        ...

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        """Newest first unless the query sorts otherwise."""
        ...

    def page(self, query: HistoryQuery) -> Page:
        """One part of the list of at most `query.limit` records, and where the next part begins. Jobs that
        start, end or are deleted between two parts make no other job appear twice or not at all.
        Raises InputError for a cursor (`query.after`) that is none, or of a list in another order."""
        ...

    def count(self, query: HistoryQuery) -> int:
        """Counts the jobs that match, whatever the limit and the cursor."""
        ...

    def tagged(self, prefix: str) -> list[TaggedJobs]:
        """How the jobs of every tag stand that begins so, newest first."""
        ...

    def running(self, *, user: str | None = None, run: str | None = None) -> list[Record]:
        """Queued and running jobs, oldest first: of everybody, or of one user (with those of whom it is not
        known yet), or of one run (its uuid)."""
        ...

    def still_running(self, known: Mapping[int, Record], most_queued: int | None = None) -> list[Record]:
        """As `running`, for repeated calls: unchanged ones of the `known` (by number) are not read.
        Of each user's queued jobs only the first `most_queued`."""
        ...

    def cancel_requests(self) -> dict[str, CancelAsked]:
        """Of jobs that have not ended, by uuid. Asked at every tick, so it must be cheap."""
        ...

    def samples(self, uuid: str, after: int = -1, most: int | None = None) -> list[tuple[int, Sample]]:
        """(index, sample) with index > after, in order, none missing, none twice; the first `most` of them.
        The others are not decoded."""
        ...

    def series(self, uuid: str, names: Sequence[str], from_us: int, to_us: int) -> SampleSeries:
        """Some columns (of SAMPLE_COLUMNS) of samples in a span of time, with one sample before it, if there
        is any, for rates. Only these columns are decoded."""
        ...

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        """The same of many jobs at once (uuid -> after), of each the last `most`; in one question where the
        store is on another machine. Jobs without such samples are missing."""
        ...

    def details(self, uuid: str) -> Details:
        """Returns the details of a job beside its samples; empty where none were read."""
        ...

    def provenance(self, digest: str) -> Provenance | None:
        """Returns the environment of jobs whose attempts name that digest; None: not in this store."""
        ...

    def workflows(self) -> list[Workflow]:
        """Newest first."""
        ...

    def find_workflow(self, ident: str) -> Workflow:
        """By number, UUID, unique UUID prefix, or name (the newest); 'workflow:' may stand before it.
        Raises UnknownWorkflow, or AmbiguousRun with the candidates in its message."""
        ...

    def workflow_of_source(self, source: str, name: str, user: str) -> Workflow | None:
        """The newest one that came from that file under that name."""
        ...

    def runs(self, workflow_uuid: str) -> list[Run]:
        """Oldest first, with status, times and owner from their events, and without `spec_text`."""
        ...

    def find_run(self, ident: str) -> Run:
        """By run UUID or unique prefix of it, 'WORKFLOW.N' where WORKFLOW is a workflow's number or name, or
        what find_workflow takes: then its newest run. Raises UnknownRun or AmbiguousRun."""
        ...

    def run_events(self, run_uuid: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        """(sequence number, event) in the order they were applied, those above `after`."""
        ...

    def run_results(self, run_uuid: str) -> list[JobResult]:
        """Every attempt of the run's jobs, by index and attempt; running ones too."""
        ...

    def statistics(self, query: HistoryQuery) -> Statistics: ...

    # ---- upkeep ------------------------------------------------------------------------------------------

    def prune(self, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
        """Drop samples (never records) of ended jobs: older than `before_us`, then oldest first
        until all sample data fits in `max_bytes`. The report names the jobs whose logs may go too."""
        ...

    def check(self) -> StoreCheck: ...

    def backup(self, path: str) -> None: ...

    def vacuum(self) -> None: ...


class Deliveries(Protocol):
    """Every method may raise StoreError; nothing is then half-done, and nothing of it is journalled: a
    worker that cannot reach the store gets no work. All times are by the store's own clock.

    A ticket is *waiting* when its job is queued, no worker holds it, and the job it comes after (if any) has
    succeeded. Claiming adds one to the job's fence. Ending a job (JobEnded with the right fence) removes its
    ticket; the fence stays."""

    def claim(
        self,
        worker: WorkerInfo,
        uuids: Sequence[str],
        lease_s: float,
        *,
        capacity: NodeCapacity | None = None,
    ) -> list[Claim]:
        """Claims those of `uuids` that are waiting and that the worker may take (its user's, unless
        `any_user`; with one of its labels, or without one where it has none). `capacity`: together they take
        no more than that; others may claim the rest. A job takes its requirements, of slots and of time only
        where those are counted."""
        ...

    def claim_waiting(
        self,
        worker: WorkerInfo,
        most: int,
        lease_s: float,
        *,
        older_than_s: float = 0.0,
        capacity: NodeCapacity | None = None,
    ) -> list[Claim]:
        """The oldest waiting ones of the worker's queues and labels, whose message may have been lost. Claims
        by several workers at once never wait for each other and never get the same ticket. `capacity` as
        above; behind those that do not fit, it reads as many as is cheap."""
        ...

    def renew(self, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
        """`held`: uuid -> fence. Also announces the worker. Called a few times in each lease."""
        ...

    def give_back(self, worker: str, held: Mapping[str, int]) -> None:
        """Others may take them at once, and it counts for nothing. Of one that had begun the worker is noted
        (`former_workers`)."""
        ...

    def holdings(self, *, near: WorkerInfo | None = None, of: Collection[str] | None = None) -> list[Holding]:
        """Returns every ticket that a worker holds. `near`: only its own, those of workers of its host, and
        those whose lease has expired, which it has to check, whatever the number of workers. `of`: only those
        of these jobs."""
        ...

    def take_back(self, uuid: str, fence: int) -> Status | None:
        """Takes a job from a worker that is gone. Under the same fence it is requeued, without samples
        and details of the lost attempt, or ended as `lost` (`retry_lost: never`, or delivered too often; its
        true outcome may still come under the same fence). Returns the job's status now; None: it was no
        longer held under that fence, and nothing was done."""
        ...

    def release_after(self, uuid: str) -> list[tuple[str, str]]:
        """Returns (uuid, queue) of the jobs that waited for this ended job and may start now. If it did not
        succeed, they and their dependents are cancelled instead (reason 'blocked')."""
        ...

    def released_by(self, uuids: Sequence[str]) -> list[tuple[str, str]]:
        """The same for many jobs that have ended under their fences. It only reads: their ends have decided
        which jobs follow."""
        ...

    def withdraw(self, uuid: str) -> bool:
        """Ends a waiting job as cancelled; False when a worker holds it or it has ended."""
        ...

    def workers(self, *, host: str | None = None) -> list[WorkerInfo]:
        """Returns workers that reported in the last hour, the latest first; `host`: only of that one."""
        ...

    def forget_worker(self, name: str) -> None: ...

    def backlog(self) -> list[Backlog]: ...

    def tickets(self, query: TicketQuery) -> list[TicketStanding]:
        """One page of the tickets that wait or are held."""
        ...

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        """Of many jobs at once, cheaply. Unknown ones are missing."""
        ...

    def former_workers(self, uuids: Sequence[str]) -> dict[str, FormerWorker]:
        """Of those that wait again because their worker was lost, or gave them back after they had begun."""
        ...

    def now_us(self) -> int:
        """The store's clock."""
        ...


class ServerStore(Protocol):
    """Tokens, audit log, idempotency keys, curation and SQL, as a server needs them. Every method may raise
    StoreError. Audit entries and notes are written with `apply`, together with the change they are about."""

    # ---- tokens ------------------------------------------------------------------------------------------

    def add_token(self, token: ApiToken) -> None:
        """Ignored if its id exists."""
        ...

    def tokens(self) -> list[ApiToken]:
        """Newest first, revoked and expired ones too."""
        ...

    def token_of_hash(self, digest: str) -> ApiToken | None: ...

    def token_used(self, token_id: str, at_us: int) -> None:
        """Never moves the time back."""
        ...

    def revoke_token(self, token_id: str, at_us: int) -> bool:
        """False: there is no such token, or it was revoked before."""
        ...

    def expire_token(self, token_id: str, at_us: int) -> bool:
        """Sets the time after which it is refused. False: there is no such token, or it was revoked."""
        ...

    # ---- audit log ---------------------------------------------------------------------------------------

    def audit_entries(self, query: AuditQuery) -> list[AuditEntry]: ...

    # ---- idempotency keys --------------------------------------------------------------------------------

    def remember_request(self, request: IdempotentRequest) -> IdempotentRequest:
        """Stores it, unless the user has one under that key that has not expired at `request.at_us`.
        Returns the one that is stored now: of several at once, all get the same. Removes expired ones."""
        ...

    def find_request(self, user: str, key: str, now_us: int) -> IdempotentRequest | None: ...

    # ---- changes of jobs by people -----------------------------------------------------------------------

    def change_tags(self, uuids: Sequence[str], *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Returns the uuids of jobs whose tags changed; unknown jobs are skipped."""
        ...

    def delete_jobs(self, uuids: Sequence[str], *, by: str, at_us: int) -> list[Tombstone]:
        """Removes records, samples, details, notes and tags of jobs that have ended, corrects the statistics,
        leaves tombstones and writes audit entries; unknown and unfinished jobs are skipped. Also removes
        environments (provenance) that no other job names."""
        ...

    def delete_workflow(self, uuid: str) -> bool:
        """Removes a workflow with its runs and their events. False: it still has jobs, nothing is done."""
        ...

    def annotations(self, uuid: str) -> list[Annotation]:
        """Of a job, oldest first."""
        ...

    def tombstones(self, idents: Sequence[str]) -> list[Tombstone]:
        """Of deleted jobs, by uuid, number or own id; newest deletion first."""
        ...

    # ---- queries by people -------------------------------------------------------------------------------

    def sql(self, text: str, limits: SqlLimits, *, only_user: str | None = None) -> SqlAnswer:
        """One query over the views of model.sql; nothing else can be read, and nothing changed. `only_user`:
        sees that user's rows. Raises InputError for text that is no such query, or that takes too long."""
        ...


class QueueStore(Store, Deliveries, ServerStore, Protocol):
    """The whole interface of a store, which every driver provides."""


class Sink(Protocol):
    """A sink that fails warns once and never disturbs the job or the store."""

    def job_started(self, record: Record) -> None: ...

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None: ...

    def details_taken(self, uuid: str, details: Details) -> None: ...

    def jobs_ended(self, records: Sequence[Record]) -> None: ...

    def provenance_seen(self, digest: str, provenance: Provenance) -> None: ...

    def run_changed(self, workflow: Workflow, run: Run) -> None:
        """A run of a workflow was started or ended by this process; its status says which."""
        ...

    def close(self) -> None: ...
