"""Watch of jobs on a queue until they have ended."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.runs.status import TaskGroupRow
from joblens.app.jobs.queries import Note
from joblens.app.queue.notifiers import remind_workers
from joblens.app.queue.submission import QueueRequest, enqueue
from joblens.app.queue.task_results import (
    Expected,
    allocation_of_waiting,
    expected_of,
    status_form,
    workflow_form,
)
from joblens.app.runs.lookup import find_job_or_run
from joblens.app.wiring.drivers import Warn
from joblens.model.errors import StoreError, UnknownJob, UnknownRun, UnknownWorkflow
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Run, RunStatus
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.values.labels import queue_and_label, unserved_words
from joblens.ports.store import QueueStore, Store

WORKFLOW_PREFIX = "wf-"
WORKFLOW_TAG = "workflow="  # tag with the id of the workflow that a job was submitted with
NAME_TAG = "workflow_name="  # tag with the name of that workflow

_FIRST_POLL_S = 0.02
_LONGEST_POLL_S = 0.3
_REMIND_EVERY_S = 2.0
_STORE_TIMEOUT_S = 120.0
_EARLIER = 50  # jobs of a tool that are read to estimate the next one
_SPARE_SAMPLES = 20

Recover = Callable[[], None]

_HEARTBEAT_S = 60.0  # a worker without a heartbeat for this long does not count


def new_workflow_id() -> str:
    return f"{WORKFLOW_PREFIX}{new_uuid().replace('-', '')[:12]}"


def reminder(settings: Settings, store: QueueStore, config: str | None) -> Recover:
    return lambda: remind_workers(settings, store, config)


class SubmittedTasks(Struct, frozen=True):
    workflow_id: str
    uuids: tuple[str, ...]


def submit_together(
    requests: Sequence[QueueRequest],
    settings: Settings,
    config: str | None,
    warn: Warn,
    *,
    sequential: bool,
    workflow_id: str = "",
    name: str = "",
) -> SubmittedTasks:
    """Submits them as one workflow, all or none: each has its tag, and in a sequence each follows the one
    before."""
    workflow_id = workflow_id or new_workflow_id()
    tags = (*((f"{NAME_TAG}{name}",) if name else ()), f"{WORKFLOW_TAG}{workflow_id}")
    tagged = [
        replace(
            each,
            request=replace(each.request, tags=(*each.request.tags, *tags)),
            after=number - 1 if sequential and number else None,
        )
        for number, each in enumerate(requests)
    ]
    records = enqueue(tagged, settings, config, warn)
    return SubmittedTasks(workflow_id, tuple(record.job.uuid for record in records))


def states_until_final(
    store: QueueStore,
    uuids: Sequence[str],
    recover: Recover,
    poll_s: float | None = None,
    deadline: float | None = None,
) -> Iterator[dict[str, Status]]:
    """Yields their states repeatedly; in the last, all have ended. Waits for an unavailable store, but
    not beyond the deadline (monotonic): the jobs continue without it."""
    pause_s = _FIRST_POLL_S
    reminded_at = answered_at = time.monotonic()
    while True:
        try:
            states = store.states(uuids)
            answered_at = time.monotonic()
            _refuse_missing(states, uuids)
            yield states
            if all(states[uuid].is_final for uuid in uuids):
                return
            if time.monotonic() - reminded_at >= _REMIND_EVERY_S:
                recover()
                reminded_at = time.monotonic()
        except StoreError:
            give_up_at = answered_at + _STORE_TIMEOUT_S
            if time.monotonic() > (give_up_at if deadline is None else min(give_up_at, deadline)):
                raise
            pause_s = _LONGEST_POLL_S
        time.sleep(poll_s or pause_s)
        pause_s = min(_LONGEST_POLL_S, pause_s * 1.3)


def _refuse_missing(states: Mapping[str, Status], uuids: Sequence[str]) -> None:
    missing = [uuid for uuid in uuids if uuid not in states]
    if missing:
        raise UnknownJob(f"job {missing[0]} was removed from the store")


class TaskGroup(Struct, frozen=True):
    """The tasks of one workflow, in their order."""

    workflow_id: str
    records: tuple[Record, ...]

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(record.job.uuid for record in self.records)

    @property
    def is_over(self) -> bool:
        return all(record.status.is_final for record in self.records)


def find_group(store: Store, ident: str) -> TaskGroup | None:
    """Returns the workflow with that id, or None."""
    ident = ident.strip()
    if not ident.startswith(WORKFLOW_PREFIX):
        return None
    found = store.records(HistoryQuery(tags=(f"{WORKFLOW_TAG}{ident}",)))
    in_order = sorted(found, key=lambda record: record.number or 0)
    return TaskGroup(ident, tuple(in_order)) if in_order else None


def find_tasks(store: Store, ident: str) -> list[Record]:
    """Returns all jobs of a workflow's id, in their order; otherwise the one that `ident` names. Raises
    UnknownJob, AmbiguousJob or UnknownWorkflow."""
    group = find_group(store, ident)
    if group is not None:
        return list(group.records)
    try:
        return [store.find(ident.strip().removeprefix("job:"))]
    except UnknownJob:
        if ident.startswith(WORKFLOW_PREFIX):
            raise unknown_workflow(ident) from None
        raise


def find_any(
    store: Store, ident: str, note: Note | None = None, *, is_to_change: bool = False
) -> Record | Run | TaskGroup:
    """Like `find_job_or_run`, for commands that also take workflows of submit-workflow."""
    group = find_group(store, ident)
    if group is not None:
        return group
    try:
        return find_job_or_run(store, ident, note, is_to_change=is_to_change)
    except UnknownRun:
        if ident.startswith(WORKFLOW_PREFIX):
            raise unknown_workflow(ident) from None
        raise


def has_ended(found: Record | Run | TaskGroup) -> bool:
    if isinstance(found, TaskGroup):
        return found.is_over
    if isinstance(found, Record):
        return found.status.is_final
    return found.status not in (RunStatus.CREATED, RunStatus.RUNNING)


def wait_for_group(
    store: QueueStore, group: TaskGroup, timeout_s: float | None, recover: Recover
) -> TaskGroup:
    """Returns it when all have ended, or at the time-out."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for _ in states_until_final(store, group.uuids, recover, None, deadline):
        if deadline is not None and time.monotonic() >= deadline:
            break
    return TaskGroup(group.workflow_id, tuple(store.find(uuid) for uuid in group.uuids))


def unknown_workflow(ident: str) -> UnknownWorkflow:
    return UnknownWorkflow(f"no workflow has the ID '{ident}'", hint="`joblens workflows` lists them")


def workflow_of(records: Sequence[Record]) -> str | None:
    """Returns the id of the workflow that all of them were submitted with."""
    ids = {workflow_id_of(record) for record in records}
    return ids.pop() if len(ids) == 1 else None


def workflow_id_of(record: Record) -> str | None:
    found = _tag_value(WORKFLOW_TAG, record)
    return found if found.startswith(WORKFLOW_PREFIX) else None


def _tag_value(key: str, record: Record) -> str:
    """The last tag of that key is joblens' own; others may come from the task."""
    tags = (tag for tag in reversed(record.job.tags) if tag.startswith(key))
    return next(tags, "").removeprefix(key)


def task_group_rows(store: Store) -> list[TaskGroupRow]:
    """Returns workflows of submit-workflow and TaskPipeline, newest first."""
    return [
        TaskGroupRow(
            workflow_id=each.tag.removeprefix(WORKFLOW_TAG),
            name=_tag_value(NAME_TAG, store.find(each.one_of_them)),
            began_at_us=each.began_at_us,
            by_status=each.by_status,
        )
        for each in store.tagged(WORKFLOW_TAG + WORKFLOW_PREFIX)
    ]


def _unserved_label(store: QueueStore, record: Record) -> dict[str, str]:
    """Returns the label that a job waits for, if no recent worker serves it."""
    route = record.job.queue
    if not queue_and_label(route)[1]:
        return {}
    heartbeat_us = store.now_us() - round(_HEARTBEAT_S * 1e6)
    if any(route in worker.routes for worker in store.workers() if worker.seen_at_us >= heartbeat_us):
        return {}
    return {"waits_for": unserved_words(route)}


def task_status(
    store: QueueStore, record: Record, holders: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`holders`: which worker has which job, if known."""
    now_us = time.time_ns() // 1000
    if record.status is Status.QUEUED and record.job.queue:
        former = store.former_workers([record.job.uuid]).get(record.job.uuid)
        lost_worker = "" if former is None else former.name
        waits_at = allocation_of_waiting(store, record)
        form = status_form(record, now_us=now_us, lost_worker=lost_worker, waits_at=waits_at)
        return {**form, **_unserved_label(store, record)}
    if record.status is not Status.RUNNING:
        return status_form(record, now_us=now_us)
    return status_form(
        record,
        now_us=now_us,
        expected=expected_time(store, record),
        newest=newest_sample(store, record),
        worker=(_holders(store) if holders is None else holders).get(record.job.uuid, ""),
    )


def _holders(store: QueueStore) -> dict[str, str]:
    """Returns which worker has which job."""
    return {holding.uuid: holding.worker for holding in store.holdings()}


def workflow_status(store: QueueStore, uuids: Sequence[str]) -> dict[str, Any]:
    records = [store.find(uuid) for uuid in uuids]
    holders = _holders(store) if any(record.status is Status.RUNNING for record in records) else {}
    form = workflow_form([task_status(store, record, holders) for record in records])
    return {"workflow_id": workflow_of(records), **form}


def expected_time(store: Store, record: Record) -> Expected | None:
    query = HistoryQuery(tools=(record.job.tool,), statuses=(Status.SUCCESS,), limit=_EARLIER)
    return expected_of(record, list(store.records(query)))


def newest_sample(store: Store, record: Record) -> Sample | None:
    """Samples are evenly spaced, so the last ones can be read without the others."""
    attempt = record.attempt
    if attempt is None or not record.job.monitor:
        return None
    elapsed_s = time.time() - attempt.started_at_us / 1e6
    near_end = int(elapsed_s / record.job.interval_s) - _SPARE_SAMPLES
    found = store.samples(record.job.uuid, after=max(-1, near_end))
    if not found and near_end >= 0:
        found = store.samples(record.job.uuid)
    return found[-1][1] if found else None
