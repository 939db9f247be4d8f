"""Endpoints of tables: the Overview, lists of jobs in short form, and changes of many jobs at once."""

from joblens.app.server import jobs, live, overview
from joblens.app.server.bulk import BulkChange, BulkResult, change_all
from joblens.model.access import Role
from joblens.web.endpoints import Endpoint, with_query
from joblens.web.job_api import changer

ENDPOINTS = (
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
