"""Endpoints of jobs: records, samples, charts, output, findings, statistics and advice; the Overview, and
changes of many jobs at once."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from joblens.analysis.numbers.downsampling import Series
from joblens.app.server import charts, comparison, jobs, live, overview
from joblens.app.server.bulk import BulkChange, BulkResult, change_all
from joblens.app.server.changes import (
    Changer,
    NoteRequest,
    RerunRequest,
    SubmitRequest,
    TagChange,
)
from joblens.app.server.log_search import LogMatches, SearchQuery, search_log
from joblens.app.server.log_window import LogWindow, WindowPart, read_window
from joblens.model.access import Role
from joblens.model.history import Annotation, Statistics, Tombstone
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record
from joblens.web.endpoints import Call, Endpoint, Reply, of_path, of_path_with_query, with_query

KEY_HEADER = "Idempotency-Key"
KEY_MEANING = {KEY_HEADER: "The same key within a day returns the job of the first request."}
Time = Annotated[int, Meta(ge=0, le=2**62)]


class SampleQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=-1, le=2**62)] = -1
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class SeriesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    begin_us: Time | None = None
    end_us: Time | None = None
    points: Annotated[int, Meta(ge=10, le=10_000)] = 1000


class FieldsQuery(SeriesQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    field: tuple[jobs.Word, ...] = ()  # columns of samples, with /s behind a counter its rate


class EarlierQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=20)] = 5
    points: Annotated[int, Meta(ge=10, le=2000)] = 200


class WindowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: Time | None = None  # position; None: the end, or forward the start
    part: WindowPart = WindowPart.BACKWARD
    limit: Annotated[int, Meta(ge=1, le=2000)] = 400  # lines


class CompareQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: tuple[jobs.Word, ...] = ()
    run: tuple[jobs.Word, ...] = ()
    points: Annotated[int, Meta(ge=10, le=2000)] = 300


def changer(call: Call) -> Changer:
    server = call.server
    return Changer(call.store, call.principal, server.settings, server.config, server.warn)


def _submitted(found: tuple[Record, bool]) -> Reply:
    record, is_new = found
    return Reply(value=record, status=201 if is_new else 200)


def _series(call: Call) -> Series:
    query: FieldsQuery = call.query
    return jobs.get_series(
        call.store, call.principal, call.path["job"], query.field, query.begin_us, query.end_us, query.points
    )


def _charts(call: Call) -> charts.JobCharts:
    query: SeriesQuery = call.query
    return charts.get_charts(
        call.store, call.principal, call.path["job"], query.begin_us, query.end_us, query.points
    )


def _earlier(call: Call) -> charts.EarlierRuns:
    query: EarlierQuery = call.query
    return charts.get_earlier(call.store, call.principal, call.path["job"], query.limit, query.points)


def _search(call: Call) -> LogMatches:
    query: SearchQuery = call.query
    return search_log(call.store, call.principal, call.path["job"], call.path["stream"], query)


def _window(call: Call) -> LogWindow:
    query: WindowQuery = call.query
    return read_window(
        call.store,
        call.principal,
        call.path["job"],
        call.path["stream"],
        at=query.at,
        part=query.part,
        limit=query.limit,
    )


def _compare(call: Call) -> comparison.Comparison:
    query: CompareQuery = call.query
    return comparison.compare(call.store, call.principal, query.job, query.run, query.points)


ENDPOINTS = (
    Endpoint(
        "GET /jobs",
        "listJobs",
        "Jobs, newest first, with the filters of `joblens history`.",
        with_query(jobs.list_jobs),
        jobs.JobPage,
        query=jobs.JobList,
    ),
    Endpoint(
        "POST /jobs",
        "submitJob",
        "Run a command in the background.",
        lambda call: _submitted(changer(call).submit(call.body, call.headers.get(KEY_HEADER))),
        Record,
        body=SubmitRequest,
        headers=KEY_MEANING,
        role=Role.OPERATOR,
        status=201,
        also=(200,),
    ),
    Endpoint(
        "GET /running",
        "listRunning",
        "Queued and running jobs, oldest first.",
        with_query(jobs.list_running),
        jobs.JobPage,
        query=jobs.RunningList,
    ),
    Endpoint("GET /jobs/{job}", "getJob", "Everything about one job.", of_path("job", jobs.get_job), Record),
    Endpoint(
        "DELETE /jobs/{job}",
        "deleteJob",
        "Delete a job with its samples, output and notes. This cannot be undone.",
        lambda call: changer(call).delete(call.path["job"]),
        Tombstone,
        role=Role.ADMIN,
    ),
    Endpoint(
        "GET /jobs/{job}/attempts",
        "listAttempts",
        "All attempts of a job of a workflow, oldest first.",
        of_path_with_query("job", jobs.get_attempts),
        jobs.Attempts,
        query=jobs.PartList,
    ),
    Endpoint(
        "GET /jobs/{job}/samples",
        "listSamples",
        "Samples of a job by index: counters as they were read.",
        lambda call: jobs.get_samples(
            call.store, call.principal, call.path["job"], call.query.after, call.query.limit
        ),
        jobs.SamplePage,
        query=SampleQuery,
    ),
    Endpoint(
        "GET /jobs/{job}/series",
        "getSeries",
        "Curves of a job with a given number of points; peaks stay.",
        _series,
        Series,
        query=FieldsQuery,
    ),
    Endpoint(
        "GET /jobs/{job}/details",
        "getDetails",
        "GPUs, threads, endpoints and memory of a job, as far as they were measured.",
        of_path("job", jobs.get_details),
        Details,
    ),
    Endpoint(
        "GET /jobs/{job}/findings",
        "getFindings",
        "Why a job ended, what slowed it down, what it did not use.",
        of_path("job", jobs.get_findings),
        jobs.Findings,
    ),
    Endpoint(
        "GET /jobs/{job}/provenance",
        "getProvenance",
        "Code, programs, packages and machine of a job.",
        of_path("job", jobs.get_provenance),
        Provenance,
    ),
    Endpoint(
        "GET /jobs/{job}/snapshot",
        "getSnapshot",
        "Progress of a recipe's job.",
        of_path("job", jobs.get_snapshot),
        dict[str, Any],
    ),
    Endpoint(
        "GET /jobs/{job}/annotations",
        "listAnnotations",
        "Notes about a job, oldest first.",
        of_path_with_query("job", jobs.get_annotations),
        jobs.Annotations,
        query=jobs.PartList,
    ),
    Endpoint(
        "POST /jobs/{job}/annotations",
        "annotateJob",
        "Attach a note to a job.",
        lambda call: changer(call).annotate(call.path["job"], call.body),
        Annotation,
        body=NoteRequest,
        role=Role.OPERATOR,
        status=201,
    ),
    Endpoint(
        "POST /jobs/{job}/tags",
        "tagJob",
        "Add and remove tags of a job.",
        lambda call: changer(call).tag(call.path["job"], call.body),
        Record,
        body=TagChange,
        role=Role.OPERATOR,
    ),
    Endpoint(
        "POST /jobs/{job}/cancel",
        "cancelJob",
        "Cancel a job. An ended job stays unchanged.",
        lambda call: changer(call).cancel(call.path["job"]),
        Record,
        role=Role.OPERATOR,
        status=202,
    ),
    Endpoint(
        "POST /jobs/{job}/rerun",
        "rerunJob",
        "Run the command of a job again, in the background.",
        lambda call: _submitted(
            changer(call).rerun(call.path["job"], call.body, call.headers.get(KEY_HEADER))
        ),
        Record,
        body=RerunRequest,
        headers=KEY_MEANING,
        role=Role.OPERATOR,
        status=201,
        also=(200,),
    ),
    Endpoint(
        "GET /findings",
        "listFindings",
        "Findings of all jobs that match, newest job first. Pages count jobs.",
        with_query(jobs.list_findings),
        jobs.FindingPage,
        query=jobs.JobList,
    ),
    Endpoint(
        "GET /statistics",
        "getStatistics",
        "Totals and percentiles of ended jobs, overall and by tool.",
        with_query(jobs.get_statistics),
        Statistics,
        query=jobs.JobFilter,
        is_slow=True,
    ),
    Endpoint(
        "GET /advice",
        "getAdvice",
        "Resource requests that earlier jobs of these names suggest.",
        with_query(jobs.get_advice),
        jobs.JobAdvice,
        query=jobs.AdviceQuery,
        is_slow=True,
    ),
    Endpoint(
        "GET /jobs/{job}/charts",
        "getCharts",
        "All curves of a job on one time axis, with limits, markers and why a metric is unknown.",
        _charts,
        charts.JobCharts,
        query=SeriesQuery,
    ),
    Endpoint(
        "GET /jobs/{job}/earlier",
        "getEarlier",
        "Curves of earlier jobs of the same name, newest first.",
        _earlier,
        charts.EarlierRuns,
        query=EarlierQuery,
    ),
    Endpoint(
        "GET /jobs/{job}/advice",
        "getJobAdvice",
        "Resource requests that this job and earlier ones of its name suggest, with a line to paste.",
        of_path("job", charts.get_job_advice),
        charts.OneJobAdvice,
    ),
    Endpoint(
        "GET /jobs/{job}/logs/{stream}/search",
        "searchLog",
        "Positions of a text in the output of a job; `next` continues the search.",
        _search,
        LogMatches,
        query=SearchQuery,
        is_slow=True,
        section="logs",
    ),
    Endpoint(
        "GET /jobs/{job}/logs/{stream}/window",
        "getLogWindow",
        "Lines of the output of a job around a position; `next` continues.",
        _window,
        LogWindow,
        query=WindowQuery,
        section="logs",
    ),
    Endpoint(
        "GET /compare",
        "compare",
        "2 to 50 jobs or runs beside the first: numbers, facts that differ, curves, parameters.",
        _compare,
        comparison.Comparison,
        query=CompareQuery,
        is_slow=True,
    ),
    Endpoint(
        "GET /live",
        "getLive",
        "Queued and running jobs with their newest numbers; with `since` only changes.",
        lambda call: call.server.live.answer(call.store, call.principal, call.query),
        live.LiveAnswer,
        query=live.LiveQuery,
    ),
    Endpoint(
        "GET /overview",
        "getOverview",
        "Failures of the last week with their reasons, workers, queues, and totals of eight days.",
        lambda call: overview.get_overview(
            call.store, call.principal, call.server.days, call.query.midnight_us
        ),
        overview.Overview,
        query=overview.OverviewQuery,
        is_slow=True,
        section="server",
    ),
    Endpoint(
        "GET /summaries",
        "listSummaries",
        "As GET /jobs, with one small row per job instead of its record.",
        with_query(jobs.list_summaries),
        jobs.JobSummaries,
        query=jobs.JobList,
    ),
    Endpoint(
        "GET /count",
        "countJobs",
        "How many jobs match.",
        with_query(jobs.count_jobs),
        jobs.JobCount,
        query=jobs.JobFilter,
        is_slow=True,
    ),
    Endpoint(
        "POST /bulk",
        "changeJobs",
        "Cancel, rerun, tag or delete up to 1000 jobs; those that cannot be changed are named.",
        lambda call: change_all(changer(call), call.body),
        BulkResult,
        body=BulkChange,
        role=Role.OPERATOR,
        is_slow=True,
    ),
)
