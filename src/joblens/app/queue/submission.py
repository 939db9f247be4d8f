"""Submission to a queue: a record and a ticket in the store, both or neither, and notification of workers."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.clusters.notification import Tickets
from joblens.app.jobs.preparation import PreparedJob, SubmitEnvironment, prepare
from joblens.app.jobs.requests import Request
from joblens.app.queue.notifiers import (
    call_workers,
    check_broker,
    living_workers,
    open_notifier,
    remind_workers,
)
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn, open_deliveries, warn_in_python
from joblens.model.delivery import Order, Ticket, ToolPrograms
from joblens.model.errors import InputError, StoreError
from joblens.model.jobs.job import Job, Record, RetryLost
from joblens.model.jobs.trace import TRACE_VARIABLE, trace_variables
from joblens.model.settings import Settings
from joblens.model.values.labels import route_of
from joblens.model.writes import CancelAsked, JobQueued, TicketMade, Write
from joblens.ports.store import Deliveries, QueueStore
from joblens.ports.workers import Notifier
from joblens.runners.celery.broker_url import check_queue


class QueueRequest(Struct, frozen=True, kw_only=True):
    """A requested job for a queue. Has secrets: never stored as it is."""

    request: Request
    queue: str = ""  # '': from the settings
    label: str = ""  # label of the workers that may run it
    retry_lost: RetryLost | None = None
    artifacts: tuple[str, ...] = ()
    files: dict[str, str] = {}
    programs: ToolPrograms | None = None  # to be found by the worker
    own_folder: bool = False  # the worker creates a folder for it
    after: int | None = None  # index of the request that has to succeed first


def open_queue_store(settings: Settings, warn: Warn = warn_in_python) -> QueueStore:
    """Opens the store without a journal: a job in a journal is not queued."""
    return open_deliveries(settings, warn)  # type: ignore[return-value]  # the store itself


def enqueue(
    requests: Sequence[QueueRequest], settings: Settings, config: str | None, warn: Warn
) -> list[Record]:
    """Queues all of them or none, in one transaction. An unavailable broker costs a warning and some
    seconds."""
    if not requests:
        return []
    check_broker(settings)
    made = make_tickets(requests, settings)
    writes: list[Write] = [write for job, ticket in made for write in (JobQueued(job), TicketMade(ticket))]
    try:
        with closing(open_queue_store(settings, warn)) as store:
            store.apply(writes)
            records = [store.find(job.uuid) for job, _ in made]
            ready = [(ticket.uuid, ticket.queue) for _, ticket in made if not ticket.after]
            call_workers(ready, settings, store, config, warn)
            _warn_of_logout(len(made), settings, warn)
    except StoreError as error:
        what = "the job" if len(made) == 1 else f"the {len(made)} jobs"
        raise StoreError(f"{what} cannot be queued: {error}", hint=error.hint) from error
    return records


def _warn_of_logout(jobs: int, settings: Settings, warn: Warn) -> None:
    """Warns that a logout ends the jobs. Without a broker, a worker of this user and machine runs them."""
    if not settings.queue.broker:
        from joblens.app.queue.embedded_worker import worker_lock
        from joblens.app.wiring.background_process import warn_of_logout

        warn_of_logout(worker_lock(settings), "this job" if jobs == 1 else "these jobs", warn)


def make_tickets(requests: Sequence[QueueRequest], settings: Settings) -> list[tuple[Job, Ticket]]:
    """Raises InputError for invalid values, before anything is written."""
    here = _environment(settings)
    made: list[tuple[Job, Ticket]] = []
    for each in requests:
        prepared = prepare(each.request, settings, here)
        after = "" if each.after is None else made[each.after][0].uuid
        made.append(_ticket(each, prepared, settings, after))
    return made


def _environment(settings: Settings) -> SubmitEnvironment:
    """A queued job has the environment of its worker and its own variables; of this process only the trace,
    which the job's span belongs to."""
    trace = os.environ.get(TRACE_VARIABLE) if settings.otel.enabled else None
    return SubmitEnvironment.here({TRACE_VARIABLE: trace} if trace else {})


def _ticket(
    request: QueueRequest, prepared: PreparedJob, settings: Settings, after: str
) -> tuple[Job, Ticket]:
    queue = route_of(check_queue(request.queue or settings.queue.name), request.label)
    cwd = "" if request.own_folder else prepared.cwd
    job = replace(
        prepared.job,
        queue=queue,
        label=request.label,
        cwd="" if request.own_folder else prepared.job.cwd,
        artifacts=request.artifacts,
        background=False,
        created_by=None,  # it belongs to the holder of its ticket
    )
    env = dict(request.request.env)  # a container gets nothing else; others also have their worker's
    if settings.otel.enabled:
        env |= trace_variables(job)
    order = Order(
        argv=prepared.argv,
        env=env,
        cwd=cwd,
        files=request.files,
        notify=prepared.notify,
        programs=request.programs,
        secrets=prepared.secrets.shown,
    )
    ticket = Ticket(
        uuid=job.uuid,
        queue=queue,
        label=request.label,
        order=order,
        retry_lost=settings.queue.retry_lost if request.retry_lost is None else request.retry_lost,
        most_deliveries=settings.queue.most_deliveries,
        after=after,
    )
    return job, ticket


# ---- cancelling -------------------------------------------------------------------------------------------


def cancel_queued(
    records: Sequence[Record], store: QueueStore, settings: Settings, config: str | None, *, by: str = ""
) -> int:
    """Cancels all or none; returns how many had not ended. A waiting job has ended when this returns; a
    running one is asked to stop, and ends soon. Raises InputError for a job of another user."""
    user = by or current_user()
    unfinished = [record for record in records if not record.status.is_final]
    for record in unfinished:
        refuse_others_job(record, user)
    held = []
    # The last first: workers take the oldest, and should not get what is about to be cancelled.
    for uuid in (record.job.uuid for record in reversed(unfinished)):
        if store.withdraw(uuid):
            store.release_after(uuid)
        else:
            held.append(uuid)
    if held:
        now_us = time.time_ns() // 1000
        store.apply([CancelAsked(uuid, now_us, user) for uuid in held])
        remind_workers(settings, store, config)
    return len(unfinished)


def refuse_others_job(record: Record, user: str) -> None:
    owner = record.job.user
    if owner and owner != user:
        raise InputError(
            f"job {record.number or record.job.uuid} belongs to {owner}, not to {user}",
            hint=f"ask {owner} to cancel it",
        )


class WorkerCaller:
    """Notifies workers of a run's jobs, on the calling thread."""

    def __init__(self, settings: Settings, config: str | None, warn: Warn) -> None:
        self._settings = settings
        self._config = config
        self._warn = warn
        self._store: QueueStore | None = None
        self._notifier: Notifier | None = None  # of a configured broker: connected once

    def notify(self, tickets: Tickets) -> None:
        notifier = self._notifier or open_notifier(self._settings, self._open(), self._config)
        if self._settings.queue.broker:
            self._notifier = notifier
            notifier.notify(tickets)
            return
        with closing(notifier):  # workers come and go: recipients are determined each time
            notifier.notify(tickets)

    def remind(self) -> None:
        remind_workers(self._settings, self._open(), self._config)

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.close()
        if self._store is not None:
            self._store.close()

    def _open(self) -> QueueStore:
        if self._store is None:
            self._store = open_queue_store(self._settings, self._warn)
        return self._store


def served_routes(settings: Settings) -> Callable[[Deliveries], frozenset[str]]:
    """Returns the routes that present workers serve."""

    def routes(deliveries: Deliveries) -> frozenset[str]:
        workers = living_workers(settings, deliveries)
        return frozenset(
            route
            for worker in workers
            if worker.any_user or worker.user == current_user()
            for route in worker.routes
        )

    return routes
