"""A run as its page shows it: a quick first answer with the rows that matter most, and the table of all jobs.

The table is computed once for all clients; a client that asks again gets only rows that changed."""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

from joblens.analysis.charts.timeline import Timeline
from joblens.analysis.runs.status import driven_s, run_label, state_of_attempt
from joblens.app.runs.lookup import reused_results
from joblens.app.runs.state import JobStanding, state_of_run
from joblens.app.runs.tables import status_of
from joblens.app.server.access import Principal
from joblens.app.server.jobs import UseSoFar, summary_of, use_so_far
from joblens.app.server.runs import find_run
from joblens.app.workflows.loader import plan_of_run
from joblens.engine.schedule.replay import was_withdrawn
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobResult, JobState, OutputsMissing, Run, RunEvent, RunStarted, RunStatus
from joblens.ports.store import QueueStore
from joblens.probes.host.machine_load import read_host
from joblens.views.graph.run_graph import JobGroups, job_groups
from joblens.views.jobs.summary import ending, with_last_output

T = TypeVar("T")
FIRST_ROWS = 200
_FAILURES = (Status.FAILED, Status.TIMEOUT, Status.ERROR, Status.LOST)
_UNDER_WAY = (Status.RUNNING, Status.QUEUED)
_MOST_REASONS = 1000  # failed jobs whose reason is read from their records
_MOST_JOBS = 250_000  # of all runs that are in memory
_AGE_S = 1.0  # of the table of a running run
_AGE_OF_ENDED_S = 600.0  # jobs of an ended run may be deleted
_MOST_FOLLOWED = 1000  # running jobs whose numbers are read
_MOST_TIMELINES = 8  # of one run
_SHARE = 4  # a table that took long is computed again after that many times as long
WAITING = "waiting"  # jobs without an attempt, before the plan is read


class RunHead(Struct, frozen=True, kw_only=True):
    uuid: str
    label: str  # 3.1
    name: str
    workflow: str  # uuid
    workflow_number: int | None
    description: str
    status: str  # as RunStatus, or interrupted
    jobs: int
    counts: dict[str, int]  # by state; 'waiting': not started
    created_at_us: int
    started_at_us: int | None
    ended_at_us: int | None
    took_s: float | None  # time it was driven
    user: str
    host: str
    engine: str
    base: str | None  # label of the run that it repeats a part of
    cpus: float | None  # offered
    memory_bytes: int | None
    can_cancel: bool
    can_resume: bool
    can_rerun_failed: bool
    position: int  # of its newest event


class RunRowColumns(Struct, frozen=True, kw_only=True):
    """Rows of jobs, column by column: every column has one value per row. None: not known, or not yet."""

    index: list[int]  # in the plan
    name: list[str]
    state: list[int]  # index in RunTable.states
    group: list[int]
    number: list[int | None]  # Job ID of the last attempt
    attempts: list[int]
    began_us: list[int | None]
    duration_s: list[float | None]
    cpu_s: list[float | None]
    memory_bytes: list[int | None]
    why: dict[int, str]  # by index in the plan


class RunTable(Struct, frozen=True, kw_only=True):
    turn: int  # for `since` of the next request
    is_complete: bool  # False: only rows that changed
    at_us: int
    head: RunHead
    states: tuple[str, ...]
    groups: tuple[str, ...]
    rows: RunRowColumns
    so_far: dict[int, UseSoFar]  # of running jobs, by index in the plan; in every answer


class RunPage(Struct, frozen=True, kw_only=True):
    """The first view of a run: failures first, then running jobs, then the newest."""

    at_us: int
    head: RunHead
    states: tuple[str, ...]
    rows: RunRowColumns


class TableQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Annotated[int, Meta(ge=0, le=2**62)] = 0  # `turn` of the answer before; 0: everything


class JobRow(Struct, frozen=True, kw_only=True):
    """A job of a run, as a row of `RunRowColumns`."""

    index: int
    name: str
    state: int
    group: int
    number: int | None = None
    attempts: int = 0
    began_us: int | None = None
    duration_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    why: str


TimelineAt = tuple[int, Timeline | None]  # when it was computed; None: nothing has started
STATES = tuple(state.label for state in JobState)


def get_run_page(store: QueueStore, caller: Principal, ident: str) -> RunPage:
    """Reads no plan: the answer comes fast, whatever the run's size."""
    run = find_run(store, caller, ident)
    attempts = Attempts(store, run)
    records = _first_records(store, run, attempts)
    rows: dict[int, JobRow] = {}
    for record in records:
        link = record.job.run
        if link is not None and link.index >= 0 and link.index not in rows:
            rows[link.index] = _row_of_record(record, link.index, attempts.state(link.index))
    return RunPage(
        at_us=store.now_us(),
        head=_head(store, run, attempts, None),
        states=STATES,
        rows=_columns(list(rows.values())),
    )


class Attempts:
    """Attempts of a run's jobs, with those of earlier runs whose results it keeps."""

    def __init__(self, store: QueueStore, run: Run) -> None:
        reused = reused_results(store, run)
        self.own = store.run_results(run.uuid)
        self.numbered_events = store.run_events(run.uuid)
        self.events: list[RunEvent] = [event for _, event in self.numbered_events]
        self._without_output = {
            (event.fact.index, event.fact.attempt)
            for event in self.events
            if isinstance(event.fact, OutputsMissing)
        }
        self.last: dict[int, JobResult] = {}
        for result in [*(reused.results if reused else ()), *self.own]:
            if result.index >= 0 and not was_withdrawn(result):
                self.last[result.index] = result

    @property
    def position(self) -> int:
        return self.numbered_events[-1][0] if self.numbered_events else 0

    def state(self, index: int) -> JobState:
        last = self.last.get(index)
        if last is None:
            return JobState.PENDING
        if (index, last.attempt) in self._without_output:
            return JobState.FAILED
        return state_of_attempt(last.status)

    def counts(self, jobs: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for status, count in Counter(result.status for result in self.last.values()).items():
            word = state_of_attempt(status).label
            found[word] = found.get(word, 0) + count
        for index, attempt in self._without_output:
            last = self.last.get(index)
            if last is not None and last.attempt == attempt and last.status is Status.SUCCESS:
                found[JobState.COMPLETED.label] -= 1
                found[JobState.FAILED.label] = found.get(JobState.FAILED.label, 0) + 1
        waiting = jobs - len(self.last)
        return {**found, WAITING: waiting} if waiting > 0 else found


def _first_records(store: QueueStore, run: Run, attempts: Attempts) -> list[Record]:
    found: list[Record] = []
    statuses = {result.status for result in attempts.last.values()}
    for states in (_FAILURES, _UNDER_WAY, ()):
        if states and not statuses.intersection(states):
            continue
        query = HistoryQuery(
            run_uuid=run.uuid, statuses=states, limit=FIRST_ROWS - len(found), sort=SortKey.STARTED
        )
        found += store.page(query).records
        if len(found) >= FIRST_ROWS:
            break
    return found


def _head(store: QueueStore, run: Run, attempts: Attempts, counts: dict[str, int] | None) -> RunHead:
    workflow = store.find_workflow(run.workflow_uuid)
    status = status_of(run, read_host())
    selected = run.jobs if run.selected is None else run.selected
    counted = attempts.counts(selected) if counts is None else counts
    starts = [event.fact for event in attempts.events if isinstance(event.fact, RunStarted)]
    failed = any(counted.get(state.label) for state in (JobState.FAILED, JobState.TERMINATED))
    is_driven = status in (RunStatus.RUNNING, RunStatus.CREATED)
    now_us = store.now_us() if status == RunStatus.RUNNING else None
    return RunHead(
        uuid=run.uuid,
        label=run_label(run),
        name=workflow.name,
        workflow=workflow.uuid,
        workflow_number=workflow.number,
        description=workflow.description,
        status=status,
        jobs=run.jobs,
        counts=counted,
        created_at_us=run.created_at_us,
        started_at_us=run.started_at_us,
        ended_at_us=run.ended_at_us,
        took_s=driven_s(attempts.events, attempts.own, now_us),
        user=run.user,
        host=run.host,
        engine=run.options.engine,
        base=None if run.base_run_uuid is None else _label_of(store, run.base_run_uuid),
        cpus=(starts[-1].cpus or None) if starts else None,
        memory_bytes=(starts[-1].memory_bytes or None) if starts else None,
        can_cancel=is_driven,
        can_resume=not run.is_command and not is_driven and status in (RunStatus.STOPPED, "interrupted"),
        can_rerun_failed=not run.is_command and not is_driven and failed,
        position=attempts.position,
    )


def _label_of(store: QueueStore, uuid: str) -> str | None:
    from joblens.model.errors import UnknownRun

    try:
        return run_label(store.find_run(uuid))
    except UnknownRun:
        return None


def _row_of_record(record: Record, index: int, state: JobState) -> JobRow:
    shown = summary_of(record)
    link = record.job.run
    return JobRow(
        index=index,
        name=record.job.name,
        state=int(state),
        group=0,
        number=record.number,
        attempts=1 if link is None else link.attempt,
        began_us=shown.started_at_us,
        duration_s=shown.duration_s,
        cpu_s=shown.cpu_s,
        memory_bytes=shown.memory_peak_bytes,
        why=reason_of(record),
    )


def reason_of(record: Record) -> str:
    """Returns why a job failed: its first finding, or how it ended with its last words."""
    outcome = record.outcome
    if outcome is None or not record.status.is_failure:
        return ""
    return outcome.findings[0].text if outcome.findings else with_last_output(ending(outcome), record)


def _columns(rows: Sequence[JobRow]) -> RunRowColumns:
    names = [name for name in RunRowColumns.__struct_fields__ if name != "why"]
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    return RunRowColumns(**columns, why={row.index: row.why for row in rows if row.why})


class Computed(Generic[T]):
    """A value that was computed from a run, and until when it holds: the longer it took, the longer."""

    def __init__(self, run: Run, value: T, began_s: float) -> None:
        self.value = value
        self._version = _version(run)
        self._at_s = time.monotonic()
        self._cost_s = self._at_s - began_s

    def holds_for(self, run: Run) -> bool:
        is_driven = run.status in (RunStatus.CREATED, RunStatus.RUNNING)
        age_s = max(_AGE_S, _SHARE * self._cost_s) if is_driven else _AGE_OF_ENDED_S
        return self._version == _version(run) and time.monotonic() - self._at_s < age_s


def _version(run: Run) -> tuple[object, ...]:
    return (run.status, run.ended_at_us, run.jobs)


class RunView:
    """One run in memory: its plan, its groups, the rows of its table with the turn of their change, and its
    timelines."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.plan: Plan | None = None
        self.groups: JobGroups | None = None
        self.head: Computed[RunHead] | None = None
        self.rows: list[JobRow] = []
        self.so_far: dict[int, UseSoFar] = {}
        self.changed: list[int] = []
        self.turn = time.time_ns() // 1_000_000  # a server that was started again counts from a higher number
        self.at_us = 0
        self._shape: tuple[int, int] | None = None
        self._timelines: OrderedDict[int | None, Computed[TimelineAt]] = OrderedDict()  # by group

    def read_plan(self, run: Run) -> tuple[Plan, JobGroups]:
        """The plan of a run changes only when jobs are added or requests raised. Call with the lock."""
        shape = (run.jobs, len(run.raised))
        if self.plan is None or self.groups is None or self._shape != shape:
            self.plan = plan_of_run(run)
            self.groups = job_groups(self.plan)
            self._shape = shape
        return self.plan, self.groups

    def refresh(self, store: QueueStore, run: Run) -> None:
        """Computes the rows again if they may have changed. Call with the lock."""
        if self.head is not None and self.head.holds_for(run):
            return
        plan, groups = self.read_plan(run)
        began_s = time.monotonic()
        standing = state_of_run(store, run, plan)
        reasons = _reasons(store, run) if any(job.state >= JobState.FAILED for job in standing.jobs) else {}
        rows = [_row(job, groups.group_of[job.index], reasons) for job in standing.jobs]
        self.turn += 1
        changed = [self.turn] * len(rows)
        for index, (before, after) in enumerate(zip(self.rows, rows, strict=False)):
            if before == after:
                changed[index] = self.changed[index]
        counts: dict[str, int] = {}
        for row in rows:
            counts[STATES[row.state]] = counts.get(STATES[row.state], 0) + 1
        head = _head(store, run, Attempts(store, run), counts)
        self.rows, self.changed, self.at_us = rows, changed, store.now_us()
        self.so_far = _so_far(store, standing.jobs)
        self.head = Computed(run, head, began_s)

    def timeline(self, run: Run, group: int | None, compute: Callable[[], TimelineAt]) -> TimelineAt:
        """Computes the timeline with bars of `group` again if it may have changed. Call with the lock."""
        known = self._timelines.pop(group, None)
        if known is None or not known.holds_for(run):
            began_s = time.monotonic()
            known = Computed(run, compute(), began_s)
        self._timelines[group] = known
        while len(self._timelines) > _MOST_TIMELINES:
            self._timelines.popitem(last=False)
        return known.value

    def table(self, since: int, first_turn: int) -> RunTable:
        assert self.head is not None
        assert self.groups is not None
        is_complete = not first_turn <= since <= self.turn
        rows = (
            self.rows
            if is_complete
            else [row for row, turn in zip(self.rows, self.changed, strict=True) if turn > since]
        )
        return RunTable(
            turn=self.turn,
            is_complete=is_complete,
            at_us=self.at_us,
            head=self.head.value,
            states=STATES,
            groups=self.groups.names,
            rows=_columns(rows),
            so_far=self.so_far,
        )


class RunViews:
    """Runs that clients follow, shared by all of them. Thread-safe; the longest unused leave first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[str, tuple[int, RunView, int]] = OrderedDict()  # jobs, view, first turn

    def get_table(self, store: QueueStore, caller: Principal, ident: str, query: TableQuery) -> RunTable:
        run = find_run(store, caller, ident)
        view, first_turn = self._view(run)
        with view.lock:
            view.refresh(store, run)
            return view.table(query.since, first_turn)

    def of(self, run: Run) -> RunView:
        return self._view(run)[0]

    def _view(self, run: Run) -> tuple[RunView, int]:
        with self._lock:
            known = self._views.pop(run.uuid, None)
            view = RunView() if known is None else known[1]
            first_turn = view.turn if known is None else known[2]
            self._views[run.uuid] = (run.jobs, view, first_turn)
            while len(self._views) > 1 and sum(jobs for jobs, _, _ in self._views.values()) > _MOST_JOBS:
                self._views.popitem(last=False)
            return view, first_turn


def _reasons(store: QueueStore, run: Run) -> dict[int, str]:
    """Returns why jobs failed, by the Job ID of the attempt."""
    query = HistoryQuery(run_uuid=run.uuid, statuses=_FAILURES, limit=_MOST_REASONS, sort=SortKey.STARTED)
    return {
        record.number: reason_of(record) for record in store.page(query).records if record.number is not None
    }


def _so_far(store: QueueStore, jobs: Sequence[JobStanding]) -> dict[int, UseSoFar]:
    running = {
        job.results[-1].job_uuid: job.index for job in jobs if job.state is JobState.RUNNING and job.results
    }
    followed = list(running)[:_MOST_FOLLOWED]
    return {running[uuid]: used for uuid, used in use_so_far(store, followed).items()}


def _row(job: JobStanding, group: int, reasons: dict[int, str]) -> JobRow:
    last = job.results[-1] if job.results else None
    if last is None:
        return JobRow(index=job.index, name=job.name, state=int(job.state), group=group, why=job.why)
    is_failed = job.state in (JobState.FAILED, JobState.TERMINATED, JobState.PENDING_FAILED)
    return JobRow(
        index=job.index,
        name=job.name,
        state=int(job.state),
        group=group,
        number=last.number,
        attempts=sum(each.tries - (each.status is Status.QUEUED) for each in job.results),
        began_us=None if last.is_deleted else last.began_at_us or None,
        duration_s=last.duration_s,
        cpu_s=None if last.cpu_usec is None else last.cpu_usec / 1e6,
        memory_bytes=last.memory_bytes,
        why=(reasons.get(last.number) or job.why) if is_failed else job.why,
    )
