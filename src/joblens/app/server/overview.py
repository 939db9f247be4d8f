"""The Overview beside running jobs: failures with their reasons, totals of days, queues and workers."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from joblens.app.server.access import Principal, TimedCache
from joblens.app.server.jobs import run_of
from joblens.model.access import Scope
from joblens.model.delivery import Backlog
from joblens.model.history import BENCH_TAG, HistoryQuery, SortKey
from joblens.model.jobs.job import Record, Status
from joblens.model.sql import SqlLimits
from joblens.model.values.ids import short
from joblens.ports.store import QueueStore

FAILURES = (Status.FAILED, Status.TIMEOUT, Status.ERROR, Status.LOST)
_FAILURES_SHOWN = 20
_MOST_PAGES = 10  # of failures that are looked through
_FAILURES_US = 7 * 86_400_000_000
_DAY_US = 86_400_000_000
_DAYS = 8  # today and the week before it
_DAYS_AGE_S = 30.0
_BATCH = 1000  # jobs in one query
# An attempt that was retried: the last attempt says whether the job failed.
_WAS_RETRIED = """run_index >= 0 AND EXISTS (SELECT 1 FROM jobs AS later
WHERE later.run_uuid = jobs.run_uuid AND later.run_index = jobs.run_index
AND later.run_attempt > jobs.run_attempt AND later.status <> 'cancelled')"""
# Only numbers that are computed here are put in. All days are compared up to the same time of day.
_TOTALS = """SELECT (began_at_us - {first}) / {day} AS day,
CASE WHEN status IN ('failed', 'timeout', 'error', 'lost') AND NOT ({retried}) THEN 1 ELSE 0 END
AS has_failed,
count(*) AS jobs, sum(cpu_s) AS cpu_s, sum(duration_s) AS duration_s
FROM jobs
WHERE began_at_us >= {first} AND began_at_us <= {now} AND (began_at_us - {first}) % {day} <= {passed}
AND NOT EXISTS (SELECT 1 FROM tags WHERE job_number = number AND tag = '{tag}') GROUP BY 1, 2"""


class OverviewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    midnight_us: Annotated[int, Meta(ge=0, le=2**62)] | None = None  # where today began for the reader


class Failure(Struct, frozen=True, kw_only=True):
    number: int
    uuid: str
    name: str
    status: Status
    ended_at_us: int
    reason: str  # in a sentence
    advice: str  # what to do; '': nothing is known
    line: str  # to paste into a terminal
    run: str  # uuid; '': of no run


class WorkerSummary(Struct, frozen=True, kw_only=True):
    name: str
    host: str
    running: int
    concurrency: int
    queues: tuple[str, ...]
    seen_at_us: int


class DayTotals(Struct, frozen=True, kw_only=True):
    """Jobs that started within a day. A retried attempt has not failed."""

    begins_at_us: int
    jobs: int = 0
    failed: int = 0
    cpu_s: float = 0.0
    duration_s: float = 0.0


class Days(Struct, frozen=True, kw_only=True):
    today: DayTotals
    before: tuple[DayTotals, ...]  # the seven days before, up to the same time of day, newest first


class Overview(Struct, frozen=True, kw_only=True):
    failures: tuple[Failure, ...]  # of the last week, newest first; none that was retried
    workers: tuple[WorkerSummary, ...]
    backlog: tuple[Backlog, ...]
    days: Days | None  # None: without `midnight_us`


def get_overview(
    store: QueueStore, caller: Principal, days: "DayCounts", midnight_us: int | None
) -> Overview:
    now_us = store.now_us()
    return Overview(
        failures=tuple(map(failure_of, _failed(store, caller, now_us - _FAILURES_US))),
        workers=tuple(
            convert(each, WorkerSummary, from_attributes=True)
            for each in store.workers()
            if caller.may_see_user(each.user)
        ),
        backlog=tuple(store.backlog()) if caller.scope is Scope.ALL else (),
        days=None if midnight_us is None else days.answer(store, caller, midnight_us),
    )


def _failed(store: QueueStore, caller: Principal, since_us: int) -> list[Record]:
    """Returns the newest jobs that failed and were not retried."""
    query = HistoryQuery(
        statuses=FAILURES,
        since_us=since_us,
        limit=_FAILURES_SHOWN,
        without_tag=BENCH_TAG,
        sort=SortKey.STARTED,
    )
    found: list[Record] = []
    for _ in range(_MOST_PAGES):
        page = store.page(caller.visible(query))
        retried = retried_of(store, page.records)
        found += [one for one in page.records if one.outcome is not None and one.number not in retried]
        if page.next is None or len(found) >= _FAILURES_SHOWN:
            break
        query = replace(query, after=page.next)
    return found[:_FAILURES_SHOWN]


def retried_of(store: QueueStore, records: Sequence[Record]) -> set[int]:
    """Returns the numbers of failed attempts that were retried."""
    numbers = [
        str(record.number)
        for record in records
        if record.status in FAILURES and record.job.run is not None and record.job.run.index >= 0
    ]
    found: set[int] = set()
    for first in range(0, len(numbers), _BATCH):
        listed = ", ".join(numbers[first : first + _BATCH])
        text = f"SELECT number FROM jobs WHERE number IN ({listed}) AND {_WAS_RETRIED}"  # noqa: S608 - numbers
        limits = SqlLimits(rows=_BATCH, seconds=20.0, is_trusted=True)
        found |= {int(number) for (number,) in store.sql(text, limits).rows}
    return found


def failure_of(record: Record) -> Failure:
    outcome, job = record.outcome, record.job
    assert outcome is not None
    why = outcome.findings[0] if outcome.findings else None  # they begin with the most important one
    reason = why.text if why is not None else outcome.error or outcome.reason or record.status.value
    return Failure(
        number=record.number or 0,
        uuid=job.uuid,
        name=job.name or " ".join(job.argv)[:100],
        status=record.status,
        ended_at_us=outcome.ended_at_us,
        reason=reason,
        advice="" if why is None else why.advice,
        line=_line(record, "" if why is None else why.advice),
        run=run_of(job),
    )


def _line(record: Record, advice: str) -> str:
    """Returns the command that helps next: the one in the advice, else one that shows everything."""
    _, found, command = advice.rpartition("joblens ")
    if found:
        return f"joblens {command.partition(';')[0].strip()}"
    return f"joblens show {short(record.job.uuid)}"


class DayCounts:
    """Totals of days, from one query that is repeated at most twice per minute. Thread-safe."""

    def __init__(self) -> None:
        self._answers: TimedCache[tuple[str | None, int], Days] = TimedCache(_DAYS_AGE_S)

    def answer(self, store: QueueStore, caller: Principal, midnight_us: int) -> Days:
        user = caller.only_user
        return self._answers.get((user, midnight_us), lambda: _days(store, user, midnight_us))


def _days(store: QueueStore, user: str | None, midnight_us: int) -> Days:
    now_us = store.now_us()
    midnight_us = min(midnight_us, now_us)
    passed_us = min(now_us - midnight_us, _DAY_US)
    first_us = midnight_us - (_DAYS - 1) * _DAY_US
    text = _TOTALS.format(
        first=first_us, now=now_us, day=_DAY_US, passed=passed_us, retried=_WAS_RETRIED, tag=BENCH_TAG
    )
    totals = [DayTotals(begins_at_us=first_us + day * _DAY_US) for day in range(_DAYS)]
    for day, has_failed, jobs, cpu_s, duration_s in store.sql(
        text, SqlLimits(seconds=20.0, is_trusted=True), only_user=user
    ).rows:
        if 0 <= int(day) < _DAYS:
            before = totals[int(day)]
            totals[int(day)] = DayTotals(
                begins_at_us=before.begins_at_us,
                jobs=before.jobs + int(jobs),
                failed=before.failed + (int(jobs) if has_failed else 0),
                cpu_s=before.cpu_s + float(cpu_s or 0.0),
                duration_s=before.duration_s + float(duration_s or 0.0),
            )
    return Days(today=totals[-1], before=tuple(reversed(totals[:-1])))
