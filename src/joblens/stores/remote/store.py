"""The store behind a server, for reading: every question of the ports, in as few requests as possible."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn, TypeVar

from msgspec.structs import asdict, replace

from joblens.model import questions as q
from joblens.model.delivery import Backlog, FormerWorker, Holding, WorkerInfo
from joblens.model.errors import InputError, UnknownJob
from joblens.model.history import Annotation, HistoryQuery, Page, Statistics, TaggedJobs, Tombstone
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample, SampleSeries
from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
from joblens.model.sql import SqlAnswer, SqlLimits
from joblens.model.writes import CancelAsked
from joblens.stores.remote.connection import ServerConnection
from joblens.stores.samples.rows import decode_samples

T = TypeVar("T")

_PAGE = 500  # records of one request, some megabytes

# Typed as Any: `__getattr__` refuses the rest of ports.store.QueueStore, which a type checker cannot see.
_Refusing: Any = object


class RemoteStore(_Refusing):  # type: ignore[misc]
    """Implements ports.store.QueueStore. Changes go through the server's own endpoints, not through writes;
    the methods for writes raise InputError."""

    def __init__(self, server: ServerConnection) -> None:
        self.server = server
        self.url = server.url
        self._host = ""
        self._jobs_of: dict[str, str] = {}  # digest of a provenance -> a job that names it

    def close(self) -> None:
        self.server.close()

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise InputError(
                f"the server {self.url} does not take this change ({name})",
                hint="use the command on the machine with the store, without --server and JOBLENS_SERVER",
            )

        return refuse

    # ---- jobs

    def find(self, ident: str) -> Record:
        return self._seen(self.server.ask("find", q.OneJob(ident), Record))

    def number_of(self, uuid: str) -> int:
        record = self.find(uuid)
        if record.job.uuid != uuid or record.number is None:
            raise UnknownJob(f"no job has the UUID {uuid}")
        return record.number

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        left = query.limit
        after = query.after
        while left is None or left > 0:
            most = _PAGE if left is None else min(_PAGE, left)
            page = self.page(replace(query, limit=most, after=after))
            yield from page.records
            if page.next is None:
                return
            after = page.next
            left = None if left is None else left - len(page.records)

    def page(self, query: HistoryQuery) -> Page:
        page = self.server.ask("page", _bounded(query), Page)
        for record in page.records:
            self._seen(record)
        return page

    def count(self, query: HistoryQuery) -> int:
        return self.server.ask("count", _bounded(query), q.Count).count

    def statistics(self, query: HistoryQuery) -> Statistics:
        return self.server.ask("statistics", _bounded(query), Statistics)

    def tagged(self, prefix: str) -> list[TaggedJobs]:
        return list(self.server.ask("tagged", q.TagPrefix(prefix), q.Tagged).items)

    def running(self, *, user: str | None = None, run: str | None = None) -> list[Record]:
        if user is not None:  # with jobs of which only the start is known, whose user is not
            return self._running({}, q.RunningQuery(user=user, run=run))
        statuses = (Status.QUEUED, Status.RUNNING)
        return list(self.records(HistoryQuery(statuses=statuses, run_uuid=run, ascending=True)))

    def still_running(self, known: Mapping[int, Record], most_queued: int | None = None) -> list[Record]:
        digests = {number: q.digest_of_record(record) for number, record in known.items()}
        found = self._running(known, q.RunningQuery(known=digests)) if known else self.running()
        return found if most_queued is None else list(_first_queued(found, most_queued))

    def _running(self, known: Mapping[int, Record], asked: q.RunningQuery) -> list[Record]:
        found = self.server.ask("running", asked, q.RunningAnswer).items
        return [known[each] if isinstance(each, int) else self._seen(each) for each in found]

    def cancel_requests(self) -> dict[str, CancelAsked]:
        found = self.server.ask("cancel-requests", q.Nothing(), q.CancelRequests).items
        return {each.uuid: each for each in found}

    # ---- samples

    def samples(self, uuid: str, after: int = -1, most: int | None = None) -> list[tuple[int, Sample]]:
        found: list[tuple[int, Sample]] = []
        while most is None or len(found) < most:
            left = None if most is None else most - len(found)
            asked = q.SamplesQuery(uuid=uuid, after=after, most=left)
            part = self.server.ask("samples", asked, q.SampleBlocks)
            found += _samples(part.blocks)
            if not part.has_more:
                break
            after = found[-1][0]
        return found

    def series(self, uuid: str, names: Sequence[str], from_us: int, to_us: int) -> SampleSeries:
        asked = q.SeriesQuery(uuid=uuid, names=tuple(names), from_us=from_us, to_us=to_us)
        return self.server.ask("series", asked, SampleSeries)

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        found: dict[str, list[tuple[int, Sample]]] = {}
        for part in _parts(after.items()):
            asked = q.TailsQuery(after=dict(part), most=min(most, q.MOST_SAMPLES))
            jobs = self.server.ask("tails", asked, q.SampleTails).jobs
            found |= {uuid: _samples(blocks) for uuid, blocks in jobs.items()}
        return found

    def details(self, uuid: str) -> Details:
        return self.server.ask("details", q.OneJob(uuid), Details)

    def provenance(self, digest: str) -> Provenance | None:
        asked = q.ProvenanceQuery(digest=digest, job=self._jobs_of.get(digest, ""))
        return self.server.ask("provenance", asked, q.ProvenanceAnswer).provenance

    def annotations(self, uuid: str) -> list[Annotation]:
        return list(self.server.ask("annotations", q.OneJob(uuid), q.Notes).items)

    def tombstones(self, idents: Sequence[str]) -> list[Tombstone]:
        found: list[Tombstone] = []
        for part in _parts(idents):
            found += self.server.ask("tombstones", q.ManyJobs(part), q.Tombstones).items
        return sorted(found, key=lambda each: -each.deleted_at_us) if len(idents) > q.MOST_JOBS else found

    # ---- runs

    def workflows(self) -> list[Workflow]:
        return list(self.server.ask("workflows", q.Nothing(), q.WorkflowList).items)

    def find_workflow(self, ident: str) -> Workflow:
        return self.server.ask("find-workflow", q.OneRun(ident), Workflow)

    def workflow_of_source(self, source: str, name: str, user: str) -> Workflow | None:
        asked = q.SourceQuery(source=source, name=name, user=user)
        return self.server.ask("workflow-of-source", asked, q.WorkflowAnswer).workflow

    def runs(self, workflow_uuid: str) -> list[Run]:
        return list(self.server.ask("runs", q.OneRun(workflow_uuid), q.RunsAnswer).items)

    def find_run(self, ident: str) -> Run:
        return self.server.ask("find-run", q.OneRun(ident), Run)

    def run_events(self, run_uuid: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        found: list[tuple[int, RunEvent]] = []
        while True:
            part = self.server.ask("run-events", q.EventsQuery(run=run_uuid, after=after), q.EventPart)
            found += part.items
            if not part.has_more:
                return found
            after = found[-1][0]

    def run_results(self, run_uuid: str) -> list[JobResult]:
        return list(self.server.ask("run-results", q.OneRun(run_uuid), q.Results).items)

    # ---- queue

    def holdings(self, *, near: WorkerInfo | None = None, of: Collection[str] | None = None) -> list[Holding]:
        if near is not None:
            raise InputError("a server does not take claims of workers", hint="workers use the store itself")
        if of is None:
            return list(self.server.ask("holdings", q.HoldingsQuery(), q.Holdings).items)
        found: list[Holding] = []
        for part in _parts(of):
            found += self.server.ask("holdings", q.HoldingsQuery(of=part), q.Holdings).items
        return found

    def workers(self, *, host: str | None = None) -> list[WorkerInfo]:
        return list(self.server.ask("workers", q.WorkersQuery(host=host), q.WorkerList).items)

    def backlog(self) -> list[Backlog]:
        return list(self.server.ask("backlog", q.Nothing(), q.BacklogList).items)

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        found: dict[str, Status] = {}
        for part in _parts(uuids):
            found |= self.server.ask("states", q.ManyJobs(part), q.States).states
        return found

    def former_workers(self, uuids: Sequence[str]) -> dict[str, FormerWorker]:
        found: dict[str, FormerWorker] = {}
        for part in _parts(uuids):
            found |= self.server.ask("former-workers", q.ManyJobs(part), q.FormerWorkers).workers
        return found

    def now_us(self) -> int:
        return self.server.ask("now", q.Nothing(), q.Clock).now_us

    def sql(self, text: str, limits: SqlLimits, *, only_user: str | None = None) -> SqlAnswer:
        asked = q.SqlQuery(text=text, limits=limits, only_user=only_user)
        return self.server.ask("sql", asked, SqlAnswer)

    # ---- the server's machine, and changes

    def queue_health(self) -> dict[str, Any]:
        """Returns what `joblens health --json` prints on the server's machine."""
        return self.server.ask("queue-health", q.Nothing(), q.QueueHealth).health

    def is_driven(self, run: Run) -> bool:
        found = self.server.ask("driven", q.OneRun(run.uuid), q.Driven)
        self._host = found.host
        return found.is_driven

    def host(self) -> str:
        """Returns the name of the server's machine, known since `is_driven` was asked."""
        return self._host

    def recover(self) -> None:
        """Has the server record the end of jobs whose owner has died."""
        self.server.ask("recover", q.Nothing(), q.Done)

    def cancel_jobs(self, uuids: Iterable[str]) -> None:
        for part in _parts(uuids):
            self.server.ask("cancel", q.CancelJobs(uuids=part), q.Done)

    def cancel_jobs_of_run(self, run: Run, indexes: Sequence[int]) -> None:
        self.server.ask("cancel", q.CancelJobs(run=run.uuid, indexes=tuple(indexes)), q.Done)

    def delete(self, uuids: Iterable[str], workflows: Sequence[str] = ()) -> None:
        for part in _parts(uuids):
            self.server.ask("delete", q.DeleteJobs(uuids=part), q.Done)
        if workflows:
            self.server.ask("delete", q.DeleteJobs(workflows=tuple(workflows)), q.Done)

    def _seen(self, record: Record) -> Record:
        if record.attempt is not None and record.attempt.provenance:
            self._jobs_of[record.attempt.provenance] = record.job.uuid
        return record


def _bounded(query: HistoryQuery) -> q.JobQuery:
    return query if isinstance(query, q.JobQuery) else q.JobQuery(**asdict(query))


def _first_queued(records: Iterable[Record], most: int) -> Iterator[Record]:
    """Yields jobs; of each user's queued ones the first."""
    waiting: dict[str, int] = {}
    for record in records:
        user = record.job.user
        if record.status is Status.QUEUED:
            waiting[user] = waiting.get(user, 0) + 1
            if waiting[user] > most:
                continue
        yield record


def _samples(blocks: Iterable[q.SampleBlock]) -> list[tuple[int, Sample]]:
    return [
        (block.first + index, sample)
        for block in blocks
        for index, sample in enumerate(decode_samples(block.data))
    ]


def _parts(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Yields as many at a time as one question takes."""
    rest = iter(items)
    while part := tuple(islice(rest, q.MOST_JOBS)):
        yield part
