"""Submission to a queue: a record and a ticket in the store, both or neither, and notification of workers."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.clusters.notification import Tickets
from joblens.app.jobs.preparation import PreparedJob, SubmitEnvironment, prepare
from joblens.app.jobs.requests import Request
from joblens.app.queue.notifiers import call_workers, check_broker, living_workers, open_bell, remind_workers
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn, open_deliveries, warn_in_python
from joblens.model.delivery import Order, RetryLost, Ticket, ToolPrograms
from joblens.model.errors import InputError, StoreError
from joblens.model.jobs.job import Job, Record
from joblens.model.settings import Settings
from joblens.model.values.labels import route_of
from joblens.model.writes import CancelAsked, JobQueued, TicketMade, Write
from joblens.ports.store import Deliveries, QueueStore
from joblens.ports.workers import Notifier
from joblens.runners.celery.broker_url import check_queue


class QueueRequest(Struct, frozen=True, kw_only=True):
    """A job for a queue, as asked for. Holds secrets: never stored as it is."""

    request: Request
    queue: str = ""  # '': as the settings say
    label: str = ""  # of the workers that may take it
    retry_lost: RetryLost | None = None
    artifacts: tuple[str, ...] = ()
    files: dict[str, str] = {}
    programs: ToolPrograms | None = None  # that the worker is to find
    own_folder: bool = False  # it works in a folder of its own, made by the worker
    after: int | None = None  # place of the one among those asked for together that has to succeed first


def open_queue_store(settings: Settings, warn: Warn = warn_in_python) -> QueueStore:
    """Without a journal: what is not in the store is not queued."""
    return open_deliveries(settings, warn)  # type: ignore[return-value]  # the store itself


def enqueue(
    requests: Sequence[QueueRequest],
    settings: Settings,
    config: str | None = None,
    warn: Warn = warn_in_python,
) -> list[Record]:
    """All of them or none, in one transaction. A broker that is away costs a warning and some seconds."""
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
    """Where no broker is configured a worker of this user and machine takes the jobs."""
    if not settings.queue.broker:
        from joblens.app.queue.embedded_worker import worker_lock
        from joblens.app.wiring.background_process import warn_of_logout

        warn_of_logout(worker_lock(settings), "this job" if jobs == 1 else "these jobs", warn)


def make_tickets(requests: Sequence[QueueRequest], settings: Settings) -> list[tuple[Job, Ticket]]:
    """Raises InputError for what cannot be used, before anything is written."""
    here = surroundings_of_queue()
    made: list[tuple[Job, Ticket]] = []
    for each in requests:
        prepared = prepare(each.request, settings, here)
        after = "" if each.after is None else made[each.after][0].uuid
        made.append(_ticket(each, prepared, settings, after))
    return made


def surroundings_of_queue() -> SubmitEnvironment:
    """A job on a queue has the environment of its worker and what was written for it: nothing of here."""
    return SubmitEnvironment.here({})


def _ticket(asked: QueueRequest, prepared: PreparedJob, settings: Settings, after: str) -> tuple[Job, Ticket]:
    queue = route_of(check_queue(asked.queue or settings.queue.name), asked.label)
    cwd = "" if asked.own_folder else prepared.cwd
    job = replace(
        prepared.job,
        queue=queue,
        label=asked.label,
        cwd="" if asked.own_folder else prepared.job.cwd,
        artifacts=asked.artifacts,
        background=False,
        created_by=None,  # it belongs to whoever holds its ticket
    )
    env = dict(asked.request.env)  # a container gets nothing else; others have their worker's beneath it
    order = Order(
        argv=prepared.argv,
        env=env,
        cwd=cwd,
        files=asked.files,
        notify=prepared.notify,
        programs=asked.programs,
        secrets=prepared.secrets.shown,
    )
    ticket = Ticket(
        uuid=job.uuid,
        queue=queue,
        label=asked.label,
        order=order,
        retry_lost=settings.queue.retry_lost if asked.retry_lost is None else asked.retry_lost,
        most_deliveries=settings.queue.most_deliveries,
        after=after,
    )
    return job, ticket


# ---- ending -----------------------------------------------------------------------------------------------


def cancel_queued(
    record: Record, store: QueueStore, settings: Settings, config: str | None = None, *, by: str = ""
) -> bool:
    """One that waits has ended when this returns; one that a worker has is asked to, and ends soon. False: it
    had ended already. Raises InputError for a job of somebody else."""
    return cancel_all_queued([record], store, settings, config, by=by) == 1


def cancel_all_queued(
    records: Sequence[Record],
    store: QueueStore,
    settings: Settings,
    config: str | None = None,
    *,
    by: str = "",
) -> int:
    """The same of many, all or none of them refused. -> how many had not ended."""
    user = by or current_user()
    left = [record for record in records if not record.status.is_final]
    for record in left:
        refuse_others_job(record, user)
    held = []
    # The last first: workers take the oldest, and are not to get what is about to be withdrawn.
    for uuid in (record.job.uuid for record in reversed(left)):
        if store.withdraw(uuid):
            store.release_after(uuid)
        else:
            held.append(uuid)
    if held:
        now_us = time.time_ns() // 1000
        store.apply([CancelAsked(uuid, now_us, user) for uuid in held])
        remind_workers(settings, store, config)
    return len(left)


def refuse_others_job(record: Record, user: str) -> None:
    owner = record.job.user
    if owner and owner != user:
        raise InputError(
            f"job {record.number or record.job.uuid} belongs to {owner}, not to {user}",
            hint=f"ask {owner} to cancel it",
        )


class WorkerCaller:
    """Tells workers of a run's jobs, on the thread it is used on."""

    def __init__(self, settings: Settings, config: str | None, warn: Warn) -> None:
        self._settings = settings
        self._config = config
        self._warn = warn
        self._store: QueueStore | None = None
        self._bell: Notifier | None = None  # of a broker that is configured: connected once

    def ring(self, tickets: Tickets) -> None:
        bell = self._bell or open_bell(self._settings, self._open(), self._config)
        if self._settings.queue.broker:
            self._bell = bell
            bell.ring(tickets)
            return
        with closing(bell):  # workers come and go: who is to be told is found out each time
            bell.ring(tickets)

    def remind(self) -> None:
        remind_workers(self._settings, self._open(), self._config)

    def close(self) -> None:
        if self._bell is not None:
            self._bell.close()
        if self._store is not None:
            self._store.close()

    def _open(self) -> QueueStore:
        if self._store is None:
            self._store = open_queue_store(self._settings, self._warn)
        return self._store


def served_routes(settings: Settings) -> Callable[[Deliveries], frozenset[str]]:
    """What workers of now take jobs from."""

    def routes(deliveries: Deliveries) -> frozenset[str]:
        workers = living_workers(settings, deliveries)
        return frozenset(
            route
            for worker in workers
            if worker.any_user or worker.user == current_user()
            for route in worker.routes
        )

    return routes
