"""Endpoints for commands and clients that use a server in place of a store, one per question."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import joblens
from joblens.app.queue.health import queue_health
from joblens.app.runs.control import LocalDrivers
from joblens.app.server.changes import Changer, SubmitJob
from joblens.app.server.machine import Recoveries
from joblens.app.server.questions import Answering
from joblens.model import questions as q
from joblens.model.access import Role
from joblens.model.errors import IncompatibleServer
from joblens.model.history import Page, Statistics
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import SampleSeries
from joblens.model.runs.run import Run, Workflow
from joblens.model.sql import SqlAnswer
from joblens.web.endpoints import Call, Endpoint, Reply
from joblens.web.job_api import KEY_HEADER, KEY_MEANING, changer

_HEADERS = {q.API_HEADER: str(q.API_VERSION), q.VERSION_HEADER: joblens.__version__}
_recoveries = Recoveries()


def _check_version(headers: Mapping[str, str]) -> None:
    """Raises IncompatibleServer for a client whose questions have another version. Only those of joblens name
    it."""
    version = headers.get(q.API_HEADER, str(q.API_VERSION))
    if version != str(q.API_VERSION):
        raise IncompatibleServer(
            f"this server answers questions of version {q.API_VERSION}, and the client asks those of version "
            f"{version[:20]}",
            hint=f"the server has joblens {joblens.__version__}: use the same version",
        )


def _question(
    name: str,
    summary: str,
    answer: Callable[[Call], Any],
    returns: Any,
    body: type[Struct] = q.Nothing,
    role: Role = Role.READER,
    headers: dict[str, str] | None = None,
    *,
    is_slow: bool = False,
) -> Endpoint:
    return Endpoint(
        f"POST /store/{name}",
        "store" + "".join(word.capitalize() for word in name.split("-")),
        summary,
        lambda call: Reply(value=answer(call), headers=_HEADERS),
        returns,
        body=body,
        role=role,
        headers=headers or {},
        is_slow=is_slow,
        section="store",
        check=_check_version,
    )


def _asking(method: Callable[[Answering, Any], Any]) -> Callable[[Call], Any]:
    return lambda call: method(Answering(call.store, call.principal), call.body)


def _changing(method: Callable[[Changer, Any], Any]) -> Callable[[Call], Any]:
    return lambda call: method(changer(call), call.body)


def _driven(call: Call) -> q.Driven:
    run = Answering(call.store, call.principal).find_run(call.body)
    drivers = LocalDrivers(call.server.settings)
    return q.Driven(drivers.is_driven(run), drivers.host())


def _queue_health(call: Call) -> q.QueueHealth:
    call.principal.require_all("workers and queues")
    return q.QueueHealth(queue_health(call.server.settings))


def _recover(call: Call) -> q.Done:
    server = call.server
    return q.Done(int(_recoveries.recover(call.store, server.settings, server.config, server.warn)))


def _submit(call: Call) -> Record:
    """An Idempotency-Key makes it safe to send again."""
    record, _ = changer(call).submit_whole(call.body, call.headers.get(KEY_HEADER))
    return record


ENDPOINTS = (
    _question("find", "One job.", _asking(Answering.find), Record, q.OneJob),
    _question("page", "Jobs that match, up to 1,000 at a time.", _asking(Answering.page), Page, q.JobQuery),
    _question("count", "How many jobs match.", _asking(Answering.count), q.Count, q.JobQuery, is_slow=True),
    _question(
        "statistics",
        "Totals and percentiles.",
        _asking(Answering.statistics),
        Statistics,
        q.JobQuery,
        is_slow=True,
    ),
    _question("tagged", "Jobs by tag.", _asking(Answering.tagged), q.Tagged, q.TagPrefix, is_slow=True),
    _question(
        "running",
        "Queued and running jobs that the client does not have yet.",
        _asking(Answering.running),
        q.RunningAnswer,
        q.RunningQuery,
    ),
    _question("cancel-requests", "Cancel requests.", _asking(Answering.cancel_requests), q.CancelRequests),
    _question(
        "samples", "Samples of a job, in blocks.", _asking(Answering.samples), q.SampleBlocks, q.SamplesQuery
    ),
    _question(
        "series", "Some numbers of the samples.", _asking(Answering.series), SampleSeries, q.SeriesQuery
    ),
    _question(
        "tails", "The last samples of many jobs.", _asking(Answering.tails), q.SampleTails, q.TailsQuery
    ),
    _question("details", "GPUs, threads and more.", _asking(Answering.details), Details, q.OneJob),
    _question(
        "provenance",
        "Code, programs and packages of a digest.",
        _asking(Answering.provenance),
        q.ProvenanceAnswer,
        q.ProvenanceQuery,
    ),
    _question("annotations", "Notes about a job.", _asking(Answering.annotations), q.Notes, q.OneJob),
    _question("tombstones", "Deleted jobs.", _asking(Answering.tombstones), q.Tombstones, q.ManyJobs),
    _question("workflows", "All workflows.", _asking(Answering.workflows), q.WorkflowList),
    _question("find-workflow", "One workflow.", _asking(Answering.find_workflow), Workflow, q.OneRun),
    _question(
        "workflow-of-source",
        "The workflow of a file.",
        _asking(Answering.workflow_of_source),
        q.WorkflowAnswer,
        q.SourceQuery,
    ),
    _question("runs", "Runs of a workflow.", _asking(Answering.runs), q.RunsAnswer, q.OneRun),
    _question("find-run", "One run.", _asking(Answering.find_run), Run, q.OneRun),
    _question("run-events", "Events of a run.", _asking(Answering.run_events), q.EventPart, q.EventsQuery),
    _question("run-results", "Every attempt of a run.", _asking(Answering.run_results), q.Results, q.OneRun),
    _question("holdings", "Claims of workers.", _asking(Answering.holdings), q.Holdings, q.HoldingsQuery),
    _question("workers", "Workers.", _asking(Answering.workers), q.WorkerList, q.WorkersQuery),
    _question("backlog", "Queues.", _asking(Answering.backlog), q.BacklogList),
    _question("states", "Status of many jobs.", _asking(Answering.states), q.States, q.ManyJobs),
    _question(
        "former-workers",
        "Workers that lost their jobs.",
        _asking(Answering.former_workers),
        q.FormerWorkers,
        q.ManyJobs,
    ),
    _question("now", "The store's clock.", _asking(Answering.now), q.Clock),
    replace(
        _question(
            "sql", "A query over the views of docs/sql.md.", _asking(Answering.sql), SqlAnswer, q.SqlQuery
        ),
        is_query=True,
    ),
    _question(
        "queue-health",
        "Whether the store, the broker and the workers of the server work.",
        _queue_health,
        q.QueueHealth,
        is_slow=True,
    ),
    _question("driven", "Whether a process drives a run.", _driven, q.Driven, q.OneRun),
    _question("recover", "Record the end of jobs whose owner has died.", _recover, q.Done),
    _question(
        "submit",
        "Run a command in the background, with all options of `joblens submit`.",
        _submit,
        Record,
        SubmitJob,
        Role.OPERATOR,
        KEY_MEANING,
    ),
    _question(
        "cancel",
        "Cancel many jobs.",
        _changing(Changer.cancel_jobs),
        q.Done,
        q.CancelJobs,
        Role.OPERATOR,
        is_slow=True,
    ),
    _question(
        "delete",
        "Delete many jobs, and workflows without other jobs. This cannot be undone.",
        _changing(Changer.delete_jobs),
        q.Done,
        q.DeleteJobs,
        Role.ADMIN,
        is_slow=True,
    ),
)
