"""What remembers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck, TaggedJobs
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.provenance import Provenance
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
from joblens.model.writes import CancelAsked, Write


class Store(Protocol):
    """Every method may raise StoreError (with what and where); nothing is then half-written."""

    url: str

    def apply(self, writes: Sequence[Write]) -> None:
        """All or nothing, in order, idempotent; on disk for good before it returns
        when one of them is an outcome."""
        ...

    def find(self, ident: str) -> Record:
        """By UUID, unique UUID prefix, caller's own id (the newest) or number.
        Raises UnknownJob, or AmbiguousJob with the candidates in its message."""
        ...

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        """Newest first unless the query sorts otherwise."""
        ...

    def count(self, query: HistoryQuery) -> int:
        """How many records there are; the limit does not count."""
        ...

    def tagged(self, prefix: str) -> list[TaggedJobs]:
        """How the jobs of every tag stand that begins so, newest first."""
        ...

    def running(self, *, user: str | None = None, run: str | None = None) -> list[Record]:
        """Queued and running jobs, oldest first: of everybody, or of one user (with those of whom it is not
        known yet), or of one run (its uuid)."""
        ...

    def still_running(self, known: Mapping[int, Record]) -> list[Record]:
        """As `running`, for who looks again and again: of `known` ones (by number) that stand as they did
        nothing is read."""
        ...

    def cancel_requests(self) -> dict[str, CancelAsked]:
        """Of jobs that have not ended, by uuid. Asked at every tick, so it must be cheap."""
        ...

    def samples(self, uuid: str, after: int = -1) -> list[tuple[int, Sample]]:
        """(index, sample) with index > after, in order, none missing, none twice."""
        ...

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        """The same of many jobs at once (uuid -> after), of each the last `most`; in one question where the
        store is on another machine. Jobs without such samples are missing."""
        ...

    def details(self, uuid: str) -> Details:
        """What is known of a job beside its samples; an empty one where nothing was looked at."""
        ...

    def provenance(self, digest: str) -> Provenance | None:
        """What jobs ran in whose attempt names that digest; None: it never came here."""
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

    def prune(self, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
        """Drop samples (never records) of ended jobs: older than `before_us`, then oldest first
        until all sample data fits in `max_bytes`. The report names the jobs whose logs may go too."""
        ...

    def check(self) -> StoreCheck: ...

    def backup(self, path: str) -> None: ...

    def vacuum(self) -> None: ...

    def close(self) -> None: ...
