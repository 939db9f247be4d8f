"""Copy of a store into another: from a file to a server, or back.

Every fact has an identity, so existing ones are skipped: an interrupted copy can be repeated, and a later
copy adds new ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, structs

from joblens.app.queue.watch import workflow_id_of
from joblens.app.wiring.drivers import Warn, open_store_directly, store_exists, store_name
from joblens.model.errors import AmbiguousJob, InputError, UnknownJob
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Workflow
from joblens.model.settings import Settings, StoreSettings
from joblens.model.writes import (
    DetailsTaken,
    JobEnded,
    JobQueued,
    JobStarted,
    ProvenanceSeen,
    RunCreated,
    RunNoted,
    SamplesTaken,
    WorkflowCreated,
    Write,
)
from joblens.ports.store import Store

if TYPE_CHECKING:
    from joblens.stores.postgres import PostgresStore
    from joblens.stores.sqlite import SqliteStore

    Known = PostgresStore | SqliteStore

_JOBS_AT_ONCE = 200
_SAMPLES_AT_ONCE = 5000
_EVENTS_AT_ONCE = 1000
_COMPARED = 100

T = TypeVar("T")


class CopyResult(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    jobs: int = 0  # new ones
    samples: int = 0  # of new jobs
    known_jobs: int = 0
    unfinished_jobs: int = 0  # skipped: their owners write to the source
    waiting_jobs: int = 0  # those of them that have not started: their workers read the source
    workflows: int = 0
    runs: int = 0
    task_workflows: int = 0  # of submit-workflow: with copied tasks
    kept_numbers: bool = True


def copy_store(
    source: str,
    target: str,
    settings: Settings,
    warn: Warn,
    start: Callable[[int], Callable[[int], None]] = lambda _total: lambda _done: None,
) -> CopyResult:
    """`start(number of jobs)` returns a function that gets each further number of copied jobs."""
    here, there = _settings_of(source, settings), _settings_of(target, settings)
    if store_name(here) == store_name(there):
        raise InputError(f"{store_name(here)} cannot be copied to itself", hint="give two stores")
    if not store_exists(here):
        raise InputError(
            f"there is no store at {store_name(here)}",
            hint="joblens store path names the one in use: joblens store copy SOURCE TARGET",
        )
    origin = open_store_directly(here, warn)
    try:
        goal = open_store_directly(there, warn)
        try:
            return _StoreCopier(origin, goal).run(start)
        finally:
            goal.close()
    finally:
        origin.close()


def _settings_of(url: str, settings: Settings) -> Settings:
    from joblens.app.wiring.settings import load_settings

    named = load_settings(overrides={"store.url": url}, warn=lambda _: None).settings.store.url
    return structs.replace(settings, store=StoreSettings(url=named))


class _StoreCopier:
    def __init__(self, origin: "Known", goal: "Known") -> None:
        self._origin, self._goal = origin, goal
        self._keeps_numbers = _agree(origin, goal)
        self._jobs, self._samples, self._known, self._unfinished = 0, 0, 0, 0
        self._waiting = 0
        self._copied_provenance: set[str] = {""}
        self._task_workflows: set[str] = set()

    def run(self, start: Callable[[int], Callable[[int], None]]) -> CopyResult:
        advance = start(self._origin.statistics(HistoryQuery()).overall.jobs)
        workflows = self._origin.workflows()[::-1]
        runs = self._copy_workflows(workflows)
        oldest_first = HistoryQuery(ascending=True)
        for part in _parts(self._origin.records(oldest_first), _JOBS_AT_ONCE):
            ended = [record for record in part if record.outcome is not None]
            self._unfinished += len(part) - len(ended)
            self._waiting += sum(record.status is Status.QUEUED for record in part)
            self._task_workflows.update(filter(None, map(workflow_id_of, ended)))
            self._copy_jobs(ended)
            advance(len(ended))
        return CopyResult(
            source=self._origin.url,
            target=self._goal.url,
            jobs=self._jobs,
            samples=self._samples,
            known_jobs=self._known,
            unfinished_jobs=self._unfinished,
            waiting_jobs=self._waiting,
            workflows=len(workflows),
            runs=runs,
            task_workflows=len(self._task_workflows),
            kept_numbers=self._keeps_numbers,
        )

    def _copy_workflows(self, workflows: Sequence[Workflow]) -> int:
        if self._keeps_numbers:
            self._goal.keep_numbers(workflows=workflows)
        count = 0
        for workflow in workflows:
            self._goal.apply([WorkflowCreated(workflow)])
            for listed in self._origin.runs(workflow.uuid):
                run = self._origin.find_run(listed.uuid)  # with its source text
                # Together with its workflow: if the target has that file under another one, it joins
                # that.
                self._goal.apply([WorkflowCreated(workflow), RunCreated(run)])
                events = [RunNoted(event) for _, event in self._origin.run_events(run.uuid)]
                for part in _parts(events, _EVENTS_AT_ONCE):
                    self._goal.apply(part)
                count += 1
        return count

    def _copy_jobs(self, records: Sequence[Record]) -> None:
        states = self._goal.states([record.job.uuid for record in records])
        new = [record for record in records if states.get(record.job.uuid) is not record.status]
        self._known += len(records) - len(new)
        if self._keeps_numbers and new:
            self._goal.keep_numbers(
                [(each.number, each.job.uuid, each.began_at_us) for each in new if each.number is not None]
            )
        waiting: list[Write] = []
        size = 0
        for record in new:
            for write, samples in self._writes(record):
                waiting.append(write)
                size += samples
                if size >= _SAMPLES_AT_ONCE:
                    self._goal.apply(waiting)
                    waiting, size = [], 0
        self._goal.apply(waiting)
        self._jobs += len(new)

    def _writes(self, record: Record) -> Iterator[tuple[Write, int]]:
        """The outcome comes last: a job with an outcome in the target is complete."""
        uuid = record.job.uuid
        yield JobQueued(record.job), 0
        if record.attempt is not None:
            yield from self._provenance(record.attempt.provenance)
            yield JobStarted(uuid, record.attempt), 0
        for piece in _parts(self._origin.samples(uuid), _SAMPLES_AT_ONCE):
            for first, run in _consecutive(piece):
                self._samples += len(run)
                yield SamplesTaken(uuid, first, run), len(run)
        details = self._origin.details(uuid)
        if details != type(details)():
            yield DetailsTaken(uuid, details), 0
        assert record.outcome is not None
        yield JobEnded(uuid, record.outcome), 0

    def _provenance(self, digest: str) -> Iterator[tuple[Write, int]]:
        if digest in self._copied_provenance:
            return
        self._copied_provenance.add(digest)
        if (found := self._origin.provenance(digest)) is not None:
            yield ProvenanceSeen(digest, found), 0


def _consecutive(
    piece: Sequence[tuple[int, Sample]],
) -> Iterator[tuple[int, tuple[Sample, ...]]]:
    """Samples that are missing in the source stay missing."""
    start = 0
    for end in range(1, len(piece) + 1):
        if end == len(piece) or piece[end][0] != piece[end - 1][0] + 1:
            yield piece[start][0], tuple(sample for _, sample in piece[start:end])
            start = end


def _agree(origin: Store, goal: Store) -> bool:
    """The target is empty, or its jobs came from here with the same numbers: an earlier copy continues."""
    for ascending in (True, False):
        for record in goal.records(HistoryQuery(limit=_COMPARED, ascending=ascending)):
            try:
                if origin.find(record.job.uuid).number != record.number:
                    return False
            except (UnknownJob, AmbiguousJob):
                return False
    numbers = {each.uuid: each.number for each in origin.workflows()}
    return all(numbers.get(each.uuid) == each.number for each in goal.workflows())


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    whole = iter(items)
    while part := list(islice(whole, size)):
        yield part
