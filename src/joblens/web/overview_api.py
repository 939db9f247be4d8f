"""Endpoints of tables: the Overview, lists of jobs in short form, and changes of many jobs at once."""

from joblens.app.server import jobs, live, overview
from joblens.app.server.bulk import BulkChange, BulkResult, change_all
from joblens.model.access import Role
from joblens.web.endpoints import Endpoint
from joblens.web.job_api import changer

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/live",
        name="getLive",
        summary="Queued and running jobs with their newest numbers; with `since` only changes.",
        answer=lambda call: call.server.live.answer(call.store, call.principal, call.query),
        returns=live.LiveAnswer,
        query=live.LiveQuery,
    ),
    Endpoint(
        method="GET",
        path="/overview",
        name="getOverview",
        is_slow=True,
        summary="Failures of the last week with their reasons, workers, queues, and totals of eight days.",
        answer=lambda call: overview.get_overview(
            call.store, call.principal, call.server.days, call.query.midnight_us
        ),
        returns=overview.Overview,
        query=overview.OverviewQuery,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/summaries",
        name="listSummaries",
        summary="As GET /jobs, with one small row per job instead of its record.",
        answer=lambda call: jobs.list_summaries(call.store, call.principal, call.query),
        returns=jobs.JobSummaries,
        query=jobs.JobList,
    ),
    Endpoint(
        method="GET",
        path="/count",
        name="countJobs",
        is_slow=True,
        summary="How many jobs match.",
        answer=lambda call: jobs.count_jobs(call.store, call.principal, call.query),
        returns=jobs.JobCount,
        query=jobs.JobFilter,
    ),
    Endpoint(
        method="POST",
        path="/bulk",
        name="changeJobs",
        is_slow=True,
        summary="Cancel, rerun, tag or delete up to 1000 jobs; those that cannot be changed are named.",
        answer=lambda call: change_all(changer(call), call.body),
        returns=BulkResult,
        body=BulkChange,
        role=Role.OPERATOR,
    ),
)
