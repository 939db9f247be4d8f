"""Jobs as the server shows them: lists, one job with its parts, samples, statistics and advice."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from joblens.analysis.numbers.downsampling import Series
from joblens.analysis.numbers.rates import mean_cpu_percent, unreclaimable_bytes
from joblens.analysis.sizing.rightsizing import GroupAdvice
from joblens.app.jobs.queries import find, provenance_of
from joblens.app.jobs.requests import instant_of
from joblens.app.jobs.series import DEFAULT_FIELDS, series
from joblens.app.server.access import Principal
from joblens.app.server.runs import find_run
from joblens.app.wiring.agent_context import find_or_none
from joblens.model.access import Scope
from joblens.model.errors import AmbiguousJob, InputError, UnknownJob
from joblens.model.history import BENCH_TAG, Annotation, HistoryQuery, SortKey, Statistics
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Finding, Job, Record, Status, is_of_workflow
from joblens.model.jobs.sample import Sample
from joblens.ports.store import QueueStore

_TEXT = r"^[^\x00-\x1f\x7f]*$"
Instant = Annotated[str, Meta(max_length=40, pattern=_TEXT)]  # a time, or an age such as 2h
Word = Annotated[str, Meta(min_length=1, max_length=200, pattern=_TEXT)]
Part = Annotated[str, Meta(max_length=200, pattern=_TEXT)]
Cursor = Annotated[str, Meta(max_length=500, pattern=r"^[A-Za-z0-9_-]+$")]
_ADVICE_FROM = 20_000  # most jobs that advice is based on


class JobFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of `joblens history`. A repeated filter matches any of its values; of tags all."""

    status: tuple[Status, ...] = ()
    name: tuple[Word, ...] = ()  # exact, or with * and ?
    name_contains: Part = ""
    tool: tuple[Word, ...] = ()
    tag: tuple[Word, ...] = ()
    user: Word | None = None
    host: tuple[Word, ...] = ()
    run: Word | None = None
    id: Word | None = None  # the id that the caller gave
    finding: tuple[Word, ...] = ()
    since: Instant | None = None
    until: Instant | None = None
    bench: bool = False  # include runs of `joblens bench`


class JobList(JobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sort: SortKey = SortKey.STARTED
    ascending: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Cursor | None = None


class RunningList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    cursor: Cursor | None = None


class PartList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    after: Annotated[int, Meta(ge=0, le=2**62)] = 0  # how many to skip


_ALL = PartList()


class JobPage(Struct, frozen=True, kw_only=True):
    items: tuple[Record, ...]
    next: str | None = None  # the cursor of the next page; None: this is the last one


class JobSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of a table of jobs. None: not known, or not yet."""

    number: int
    uuid: str
    name: str
    status: Status
    command: str = ""
    user: str = ""
    host: str = ""
    tool: str = ""
    queue: str = ""
    run: str = ""  # uuid of a workflow's run
    tags: tuple[str, ...] = ()
    started_at_us: int | None = None
    ended_at_us: int | None = None
    created_at_us: int
    duration_s: float | None = None
    cpu_s: float | None = None  # of a running job so far
    cpu_percent: float | None = None  # mean; 100 is one core
    memory_peak_bytes: int | None = None
    memory_bytes: int | None = None  # of a running job: in use now
    memory_limit_bytes: int | None = None
    cpus: float | None = None
    exit_code: int | None = None
    why: str = ""  # the first finding of a job that failed, or its reason
    findings: tuple[str, ...] = ()  # codes


class UseSoFar(Struct, frozen=True, kw_only=True, array_like=True):
    """Resource use of a running job at its last sample."""

    cpu_s: float | None
    memory_bytes: int | None  # that cannot be reclaimed


class JobSummaries(Struct, frozen=True, kw_only=True):
    items: tuple[JobSummary, ...]
    next: str | None = None  # the cursor of the next page; None: this is the last one


class JobCount(Struct, frozen=True, kw_only=True):
    count: int


class IndexedSample(Struct, frozen=True, kw_only=True):
    index: int
    sample: Sample


class SamplePage(Struct, frozen=True, kw_only=True):
    items: tuple[IndexedSample, ...]
    next: int | None = None  # for `after`; None: there are no more now


class Findings(Struct, frozen=True, kw_only=True):
    items: tuple[Finding, ...]


class FindingOfJob(Struct, frozen=True, kw_only=True):
    job_uuid: str
    number: int | None
    name: str
    status: Status
    finding: Finding


class FindingPage(Struct, frozen=True, kw_only=True):
    items: tuple[FindingOfJob, ...]
    next: str | None = None


class Attempts(Struct, frozen=True, kw_only=True):
    items: tuple[Record, ...]
    next: int | None = None  # for `after`; None: this is the end


class Annotations(Struct, frozen=True, kw_only=True):
    items: tuple[Annotation, ...]
    next: int | None = None


class AdviceQuery(PartList, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: tuple[Word, ...] = ()


class JobAdvice(Struct, frozen=True, kw_only=True):
    groups: tuple[GroupAdvice, ...]  # by name; without the measurements of each job
    jobs: int  # that it is based on
    next: int | None = None  # for `after` of the next request


def job_query(store: QueueStore, caller: Principal, filters: JobFilter) -> HistoryQuery:
    """Raises InputError, UnknownRun, or AccessDenied for jobs of others."""
    now_us = time.time_ns() // 1000
    query = HistoryQuery(
        statuses=filters.status,
        names=filters.name,
        name_contains=filters.name_contains,
        tools=filters.tool,
        tags=filters.tag,
        user=filters.user,
        hosts=filters.host,
        external_id=filters.id,
        findings=filters.finding,
        run_uuid=None if filters.run is None else find_run(store, caller, filters.run).uuid,
        since_us=instant_of("parameter 'since'", filters.since, now_us),
        until_us=instant_of("parameter 'until'", filters.until, now_us),
        without_tag="" if filters.bench or BENCH_TAG in filters.tag else BENCH_TAG,
    )
    return caller.visible(query)


def list_jobs(store: QueueStore, caller: Principal, listing: JobList) -> JobPage:
    query = replace(
        job_query(store, caller, listing),
        sort=listing.sort,
        ascending=listing.ascending,
        limit=listing.limit,
        after=listing.cursor,
    )
    page = store.page(query)
    return JobPage(items=page.records, next=page.next)


def list_summaries(store: QueueStore, caller: Principal, listing: JobList) -> JobSummaries:
    page = list_jobs(store, caller, listing)
    return JobSummaries(items=summaries_of(store, page.items), next=page.next)


def summaries_of(store: QueueStore, records: Sequence[Record]) -> tuple[JobSummary, ...]:
    """Running jobs have the numbers of their last samples, which are read at once."""
    running = [record.job.uuid for record in records if record.status is Status.RUNNING]
    used = use_so_far(store, running)
    return tuple(
        replace(summary, cpu_s=found.cpu_s, memory_bytes=found.memory_bytes)
        if (found := used.get(summary.uuid)) is not None
        else summary
        for summary in map(summary_of, records)
    )


def use_so_far(store: QueueStore, uuids: Sequence[str]) -> dict[str, UseSoFar]:
    """Returns the usage of running jobs with samples, by uuid."""
    found = store.tails(dict.fromkeys(uuids, -1), 1) if uuids else {}
    return {uuid: _use_of(taken[-1][1]) for uuid, taken in found.items() if taken}


def _use_of(sample: Sample) -> UseSoFar:
    cpu_usec = sample.cpu_total_usec
    return UseSoFar(
        cpu_s=None if cpu_usec is None else cpu_usec / 1e6, memory_bytes=unreclaimable_bytes(sample)
    )


def summary_of(record: Record) -> JobSummary:
    job, attempt, outcome = record.job, record.attempt, record.outcome
    usage = None if outcome is None else outcome.usage
    cpu_usec = None if usage is None else usage.cpu_total_usec
    findings = () if outcome is None else outcome.findings
    why = findings[0].text if findings and record.status.is_failure else ""
    return JobSummary(
        number=record.number or 0,
        uuid=job.uuid,
        name=job.name,
        status=record.status,
        command=" ".join(job.argv)[:200],
        user=job.user,
        host="" if attempt is None else attempt.owner.host,
        tool=job.tool,
        queue=job.queue,
        run=run_of(job),
        tags=job.tags,
        started_at_us=None if attempt is None else attempt.started_at_us,
        ended_at_us=None if outcome is None else outcome.ended_at_us,
        created_at_us=job.created_at_us,
        duration_s=None if outcome is None else outcome.duration_s,
        cpu_s=None if cpu_usec is None else cpu_usec / 1e6,
        cpu_percent=None if outcome is None else mean_cpu_percent(outcome),
        memory_peak_bytes=None if usage is None else usage.memory_peak_bytes,
        memory_limit_bytes=job.requirements.memory_bytes,
        cpus=job.requirements.cpus,
        exit_code=None if outcome is None else outcome.exit_code,
        why=why or ("" if outcome is None or not record.status.is_failure else outcome.reason),
        findings=tuple(each.code for each in findings),
    )


def run_of(job: Job) -> str:
    """Returns the uuid of its workflow's run; '' without one."""
    return job.run.run_uuid if job.run is not None and is_of_workflow(job) else ""


def count_jobs(store: QueueStore, caller: Principal, filters: JobFilter) -> JobCount:
    return JobCount(count=store.count(job_query(store, caller, filters)))


def list_running(store: QueueStore, caller: Principal, query: RunningList) -> JobPage:
    """Returns queued and running jobs, oldest first."""
    unfinished = HistoryQuery(
        statuses=(Status.QUEUED, Status.RUNNING), ascending=True, limit=query.limit, after=query.cursor
    )
    page = store.page(caller.visible(unfinished))
    return JobPage(items=page.records, next=page.next)


def get_job(store: QueueStore, caller: Principal, ident: str) -> Record:
    """Raises UnknownJob, which says so where the job was deleted, or AmbiguousJob."""
    try:
        record = find(store, ident)
        if caller.may_see_user(record.job.user):
            return record
        raise caller.unknown_job(ident)
    except AmbiguousJob as error:
        if caller.scope is Scope.ALL:
            raise
        raise caller.unknown_job(ident) from error  # the message lists jobs of others
    except UnknownJob as error:
        deleted = [each for each in store.tombstones([ident]) if caller.may_see_user(each.user)]
        if not deleted:
            if caller.scope is Scope.ALL:
                raise
            raise caller.unknown_job(ident) from error
        raise UnknownJob(
            f"job {deleted[0].number} ({deleted[0].name}) was deleted by {deleted[0].deleted_by}"
        ) from error


def get_attempts(store: QueueStore, caller: Principal, ident: str, part: PartList = _ALL) -> Attempts:
    """Returns all attempts of a workflow's job, oldest first; of another job itself."""
    record = get_job(store, caller, ident)
    link = record.job.run
    if link is None or link.index < 0:
        return Attempts(items=(record,)[part.after :])
    uuids = [each.job_uuid for each in store.run_results(link.run_uuid) if each.index == link.index]
    end = part.after + part.limit
    found = (find_or_none(store, uuid) for uuid in uuids[part.after : end])
    return Attempts(
        items=tuple(each for each in found if each is not None), next=end if end < len(uuids) else None
    )


def get_samples(store: QueueStore, caller: Principal, ident: str, after: int, limit: int) -> SamplePage:
    uuid = get_job(store, caller, ident).job.uuid
    found = store.samples(uuid, after, limit + 1)
    items = tuple(IndexedSample(index=index, sample=sample) for index, sample in found[:limit])
    return SamplePage(items=items, next=items[-1].index if len(found) > limit else None)


def get_series(
    store: QueueStore,
    caller: Principal,
    ident: str,
    fields: Sequence[str],
    begin_us: int | None,
    end_us: int | None,
    points: int,
) -> Series:
    """Returns the requested columns; no others are decoded."""
    record = get_job(store, caller, ident)
    return series(store, record, fields or DEFAULT_FIELDS, from_us=begin_us, to_us=end_us, points=points)


def get_details(store: QueueStore, caller: Principal, ident: str) -> Details:
    return store.details(get_job(store, caller, ident).job.uuid)


def get_findings(store: QueueStore, caller: Principal, ident: str) -> Findings:
    outcome = get_job(store, caller, ident).outcome
    return Findings(items=() if outcome is None else outcome.findings)


def list_findings(store: QueueStore, caller: Principal, query: JobList) -> FindingPage:
    """Returns findings of the jobs that match; of a `finding` filter only those codes."""
    page = list_jobs(store, caller, query)
    items = tuple(
        FindingOfJob(
            job_uuid=record.job.uuid,
            number=record.number,
            name=record.job.name,
            status=record.status,
            finding=finding,
        )
        for record in page.items
        if record.outcome is not None
        for finding in record.outcome.findings
        if not query.finding or finding.code in query.finding
    )
    return FindingPage(items=items, next=page.next)


def get_provenance(store: QueueStore, caller: Principal, ident: str) -> Provenance:
    """Raises UnknownJob for a job without one."""
    record = get_job(store, caller, ident)
    found = provenance_of(store, record)
    if found is None:
        raise UnknownJob(
            f"job {record.number} has no provenance", hint="it never started, or provenance.enabled was false"
        )
    return found


def get_annotations(store: QueueStore, caller: Principal, ident: str, part: PartList = _ALL) -> Annotations:
    found = store.annotations(get_job(store, caller, ident).job.uuid)
    end = part.after + part.limit
    return Annotations(items=tuple(found[part.after : end]), next=end if end < len(found) else None)


def get_statistics(store: QueueStore, caller: Principal, filters: JobFilter) -> Statistics:
    return store.statistics(job_query(store, caller, filters))


def get_advice(store: QueueStore, caller: Principal, question: AdviceQuery) -> JobAdvice:
    """Returns resource requests that earlier jobs of these names suggest."""
    from joblens.app.reports.rightsizing import size_jobs

    names = question.name
    if not names:
        raise InputError("advice needs the names of jobs", hint="add name=NAME; * and ? match")
    if caller.visible(HistoryQuery()).user is not None:
        query = caller.visible(HistoryQuery(names=names, limit=1, include_unfinished=False))
        if store.count(query) != store.count(replace(query, user=None)):
            raise InputError(
                "jobs of other users have these names too", hint="advice needs a token with the scope 'all'"
            )
    found = size_jobs(store, names, most=_ADVICE_FROM)
    end = question.after + question.limit
    shown = [
        replace(each, group=replace(each.group, observations=()))
        for each in found.groups[question.after : end]
    ]
    return JobAdvice(groups=tuple(shown), jobs=found.jobs, next=end if end < len(found.groups) else None)


def get_snapshot(store: QueueStore, caller: Principal, ident: str) -> dict[str, Any]:
    """Returns the progress of a recipe's job, from its folder. Raises InputError for another job."""
    from joblens.app.recipes.job_directory import job_dir_of, plan_of_record
    from joblens.app.recipes.snapshots import LiveSnapshot

    record = get_job(store, caller, ident)
    folder = job_dir_of(record)
    if folder is None or plan_of_record(record) is None:
        raise InputError(
            f"job {record.number} ran no recipe, or its directory is not on this machine",
            hint="joblens snapshot JOB_DIR",
        )
    live = LiveSnapshot(folder)
    return live.json_dict(live.refresh())
