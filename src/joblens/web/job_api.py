"""Endpoints of jobs, samples, findings, statistics and advice."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from joblens.analysis.numbers.downsampling import Series
from joblens.app.server import jobs
from joblens.app.server.changes import (
    Changer,
    NoteRequest,
    RerunRequest,
    SubmitRequest,
    TagChange,
)
from joblens.model.access import Role
from joblens.model.history import Annotation, Statistics, Tombstone
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record
from joblens.web.endpoints import Call, Endpoint, Reply

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


def changer(call: Call) -> Changer:
    server = call.server
    return Changer(call.store, call.principal, server.settings, server.config, server.warn)


def _job(call: Call) -> str:
    return call.path["job"]


def _submitted(found: tuple[Record, bool]) -> Reply:
    record, is_new = found
    return Reply(value=record, status=201 if is_new else 200)


def _series(call: Call) -> Series:
    asked: FieldsQuery = call.query
    return jobs.get_series(
        call.store, call.principal, _job(call), asked.field, asked.begin_us, asked.end_us, asked.points
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs",
        name="listJobs",
        summary="Jobs, newest first, with the filters of `joblens history`.",
        answer=lambda call: jobs.list_jobs(call.store, call.principal, call.query),
        returns=jobs.JobPage,
        query=jobs.JobList,
    ),
    Endpoint(
        method="POST",
        path="/jobs",
        name="submitJob",
        summary="Run a command in the background.",
        answer=lambda call: _submitted(changer(call).submit(call.body, call.headers.get(KEY_HEADER))),
        returns=Record,
        body=SubmitRequest,
        headers=KEY_MEANING,
        role=Role.OPERATOR,
        status=201,
        also=(200,),
    ),
    Endpoint(
        method="GET",
        path="/running",
        name="listRunning",
        summary="Queued and running jobs, oldest first.",
        answer=lambda call: jobs.list_running(call.store, call.principal, call.query),
        returns=jobs.JobPage,
        query=jobs.RunningList,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}",
        name="getJob",
        summary="Everything about one job.",
        answer=lambda call: jobs.get_job(call.store, call.principal, _job(call)),
        returns=Record,
    ),
    Endpoint(
        method="DELETE",
        path="/jobs/{job}",
        name="deleteJob",
        summary="Delete a job with its samples, output and notes. This cannot be undone.",
        answer=lambda call: changer(call).delete(_job(call)),
        returns=Tombstone,
        role=Role.ADMIN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/attempts",
        name="listAttempts",
        summary="All attempts of a job of a workflow, oldest first.",
        answer=lambda call: jobs.get_attempts(call.store, call.principal, _job(call), call.query),
        returns=jobs.Attempts,
        query=jobs.PartList,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/samples",
        name="listSamples",
        summary="Samples of a job by index: counters as they were read.",
        answer=lambda call: jobs.get_samples(
            call.store, call.principal, _job(call), call.query.after, call.query.limit
        ),
        returns=jobs.SamplePage,
        query=SampleQuery,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/series",
        name="getSeries",
        summary="Curves of a job with a given number of points; peaks stay.",
        answer=_series,
        returns=Series,
        query=FieldsQuery,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/details",
        name="getDetails",
        summary="GPUs, threads, endpoints and memory of a job, as far as they were measured.",
        answer=lambda call: jobs.get_details(call.store, call.principal, _job(call)),
        returns=Details,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/findings",
        name="getFindings",
        summary="Why a job ended, what slowed it down, what it did not use.",
        answer=lambda call: jobs.get_findings(call.store, call.principal, _job(call)),
        returns=jobs.Findings,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/provenance",
        name="getProvenance",
        summary="Code, programs, packages and machine of a job.",
        answer=lambda call: jobs.get_provenance(call.store, call.principal, _job(call)),
        returns=Provenance,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/snapshot",
        name="getSnapshot",
        summary="Progress of a recipe's job.",
        answer=lambda call: jobs.get_snapshot(call.store, call.principal, _job(call)),
        returns=dict[str, Any],
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/annotations",
        name="listAnnotations",
        summary="Notes about a job, oldest first.",
        answer=lambda call: jobs.get_annotations(call.store, call.principal, _job(call), call.query),
        returns=jobs.Annotations,
        query=jobs.PartList,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job}/annotations",
        name="annotateJob",
        summary="Attach a note to a job.",
        answer=lambda call: changer(call).annotate(_job(call), call.body),
        returns=Annotation,
        body=NoteRequest,
        role=Role.OPERATOR,
        status=201,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job}/tags",
        name="tagJob",
        summary="Add and remove tags of a job.",
        answer=lambda call: changer(call).tag(_job(call), call.body),
        returns=Record,
        body=TagChange,
        role=Role.OPERATOR,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job}/cancel",
        name="cancelJob",
        summary="Cancel a job. An ended job stays unchanged.",
        answer=lambda call: changer(call).cancel(_job(call)),
        returns=Record,
        role=Role.OPERATOR,
        status=202,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job}/rerun",
        name="rerunJob",
        summary="Run the command of a job again, in the background.",
        answer=lambda call: _submitted(
            changer(call).rerun(_job(call), call.body, call.headers.get(KEY_HEADER))
        ),
        returns=Record,
        body=RerunRequest,
        headers=KEY_MEANING,
        role=Role.OPERATOR,
        status=201,
        also=(200,),
    ),
    Endpoint(
        method="GET",
        path="/findings",
        name="listFindings",
        summary="Findings of all jobs that match, newest job first. Pages count jobs.",
        answer=lambda call: jobs.list_findings(call.store, call.principal, call.query),
        returns=jobs.FindingPage,
        query=jobs.JobList,
    ),
    Endpoint(
        method="GET",
        path="/statistics",
        name="getStatistics",
        is_slow=True,
        summary="Totals and percentiles of ended jobs, overall and by tool.",
        answer=lambda call: jobs.get_statistics(call.store, call.principal, call.query),
        returns=Statistics,
        query=jobs.JobFilter,
    ),
    Endpoint(
        method="GET",
        path="/advice",
        name="getAdvice",
        is_slow=True,
        summary="Resource requests that earlier jobs of these names suggest.",
        answer=lambda call: jobs.get_advice(call.store, call.principal, call.query),
        returns=jobs.JobAdvice,
        query=jobs.AdviceQuery,
    ),
)
