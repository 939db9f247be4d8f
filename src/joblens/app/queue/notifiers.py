"""Who tells workers that there is work: a broker that is configured, the folder that a worker on this machine
listens at, or nobody but a worker that is started for it."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from joblens.agent.runtime.ownership import is_gone
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn, spool_dir, store_name
from joblens.model.clusters.placement import is_for_any_worker
from joblens.model.delivery import RetryLost, WorkerInfo
from joblens.model.errors import BrokerError, MissingExtra, SupervisorError, how_to_install
from joblens.model.jobs.job import Owner
from joblens.model.settings import Settings
from joblens.model.values.labels import queue_and_label, unserved_words
from joblens.ports.store import Deliveries
from joblens.ports.workers import Notifier
from joblens.probes.host.machine_load import read_host

if TYPE_CHECKING:
    from joblens.model.runs.run import RunOptions
    from joblens.runners.celery.broker_url import Broker

Tickets = Sequence[tuple[str, str]]  # (uuid, queue) of each


class StartedWorker:
    """The worker of this user that is started when there is work and ends when there is none."""

    def __init__(self, settings: Settings, config: str | None) -> None:
        self._settings = settings
        self._config = config

    def ring(self, tickets: Tickets) -> None:
        # it finds them in the store itself
        if tickets and not any(is_for_any_worker(route) for _, route in tickets):
            return  # all are for workers with a label
        from joblens.app.queue.embedded_worker import wake_worker

        wake_worker(self._settings, self._config)

    def check(self) -> str:
        return "no broker; a worker starts when there is work"

    def close(self) -> None:
        pass


class NoBell:
    """There are workers, but no way to call them from here: they look into the store every few seconds."""

    def ring(self, tickets: Tickets) -> None:
        pass

    def check(self) -> str:
        return "no broker is configured; workers poll the store"

    def close(self) -> None:
        pass


def broker_folder(settings: Settings) -> str:
    """Where messages lie when no broker is named."""
    return os.path.join(spool_dir(store_name(settings)), "broker")


def broker_of(settings: Settings) -> "Broker":
    """The one that is configured, or the folder. Raises InputError for one that cannot be understood."""
    from joblens.runners.celery.broker_url import parse_broker

    return parse_broker(settings.queue.broker or "", broker_folder(settings))


def settings_of_run(settings: Settings, options: "RunOptions") -> Settings:
    """With the broker and the other choices about workers that are recorded with the run. Raises InputError
    where the broker's password is missing."""
    from msgspec.structs import replace

    from joblens.runners.celery.broker_url import broker_of_run

    queue = settings.queue
    if options.engine == "celery" and options.broker:
        queue = replace(queue, broker=broker_of_run(options.broker, queue.broker))
    if options.retry_lost:
        queue = replace(queue, retry_lost=RetryLost(options.retry_lost))
    return settings if queue is settings.queue else replace(settings, queue=queue)


def with_broker(options: "RunOptions", settings: Settings) -> "RunOptions":
    """Records the broker in effect: the run is resumed with it where another one or none is configured."""
    from msgspec.structs import replace

    from joblens.runners.celery.broker_url import recorded_broker

    if options.engine != "celery" or options.broker or not settings.queue.broker:
        return options
    return replace(options, broker=recorded_broker(settings.queue.broker))


class BellByLabel:
    """Calls workers without a label and workers with one, each in their own way."""

    def __init__(self, plain: Notifier, labelled: Notifier) -> None:
        self._plain = plain
        self._labelled = labelled

    def ring(self, tickets: Tickets) -> None:
        plain = [ticket for ticket in tickets if not queue_and_label(ticket[1])[1]]
        labelled = [ticket for ticket in tickets if queue_and_label(ticket[1])[1]]
        if labelled:
            self._labelled.ring(labelled)
        if plain or not tickets:
            self._plain.ring(plain)

    def check(self) -> str:
        return self._plain.check()

    def close(self) -> None:
        self._plain.close()
        self._labelled.close()


def open_bell(
    settings: Settings, deliveries: Deliveries, config: str | None = None, queues: Iterable[str] = ()
) -> Notifier:
    """For jobs of these queues. Raises MissingExtra where a broker is configured and Celery is not
    installed."""
    if settings.queue.broker:
        return configured_bell(settings)
    mine = _own_by_hand(settings, deliveries)
    plain = plain_bell(settings, deliveries, config, queues, mine)
    labelled = [worker for worker in mine if worker.labels]
    return BellByLabel(plain, _bell_of(labelled, settings)) if labelled else plain


def plain_bell(
    settings: Settings,
    deliveries: Deliveries,
    config: str | None = None,
    queues: Iterable[str] = (),
    workers: Sequence[WorkerInfo] | None = None,
) -> Notifier:
    """The same for workers without a label. `workers`: of this user, where they are known."""
    if settings.queue.broker:
        return configured_bell(settings)
    mine = _own_by_hand(settings, deliveries) if workers is None else workers
    plain = [worker for worker in mine if not worker.labels]
    wanted = {queue for queue in queues if is_for_any_worker(queue)}
    if not plain or not {queue for worker in plain for queue in worker.queues}.issuperset(wanted):
        return StartedWorker(settings, config)
    return _bell_of(plain, settings)


def _own_by_hand(settings: Settings, deliveries: Deliveries) -> list[WorkerInfo]:
    """Workers that were started by hand and take jobs of this user."""
    by_hand = [worker for worker in living_workers(settings, deliveries) if worker.broker]
    return [worker for worker in by_hand if worker.any_user or worker.user == current_user()]


def _bell_of(workers: Sequence[WorkerInfo], settings: Settings) -> Notifier:
    folder = broker_of(settings).shown
    if any(worker.broker == folder for worker in workers):
        try:
            return configured_bell(settings)
        except MissingExtra:
            pass
    return NoBell()


def check_broker(settings: Settings) -> None:
    """Before anything is queued. Raises InputError for a broker that cannot be understood, MissingExtra where
    Celery is not installed; whether it answers is not asked."""
    if settings.queue.broker:
        configured_bell(settings).close()


def check_broker_answers(settings: Settings) -> str:
    """Describes the configured broker; '' when there is none. Raises BrokerError when it does not answer."""
    if not settings.queue.broker:
        return ""
    broker = broker_of(settings)
    if broker.kind == "folder":
        return f"folder at {broker.shown}"  # it is made when it is used
    bell = configured_bell(settings)
    try:
        return bell.check()
    finally:
        bell.close()


def configured_bell(settings: Settings) -> Notifier:
    """Of the broker that is named, or else of the folder. Raises MissingExtra."""
    try:
        from joblens.runners.celery.notifier import CeleryBell
    except ImportError as error:
        raise MissingExtra(
            "a broker needs Celery, which is not installed", hint=how_to_install("celery")
        ) from error
    return CeleryBell(broker_of(settings))


def living_workers(settings: Settings, deliveries: Deliveries) -> list[WorkerInfo]:
    """Heard of within a lease, and of this machine's those whose process is there."""
    host, now_us = read_host(), deliveries.now_us()
    return [
        worker
        for worker in deliveries.workers()
        if now_us - worker.seen_at_us <= settings.queue.lease * 1e6
        and not is_gone(Owner(worker.host, worker.pid, worker.start_ticks, worker.boot_id), host)
    ]


def call_workers(
    tickets: Tickets, settings: Settings, deliveries: Deliveries, config: str | None, warn: Warn
) -> None:
    """The jobs are in the store already: what goes wrong here only delays them."""
    try:
        bell = open_bell(settings, deliveries, config, {queue for _, queue in tickets})
        try:
            bell.ring(tickets)
        finally:
            bell.close()
    except (BrokerError, SupervisorError) as error:
        is_one = len(tickets) == 1
        what = "the job is" if is_one else f"the {len(tickets)} jobs are"
        warn(
            f"{error}; {what} queued anyway, and workers will find {'it' if is_one else 'them'} in the store"
        )
        return
    _warn_without_workers(tickets, settings, deliveries, warn)


def _warn_without_workers(tickets: Tickets, settings: Settings, deliveries: Deliveries, warn: Warn) -> None:
    """Workers with a label are never started by themselves, others only where there is no broker."""
    broker = settings.queue.broker
    if not broker and all(is_for_any_worker(route) for _, route in tickets):
        return
    served = {route for worker in living_workers(settings, deliveries) for route in worker.routes}
    missing = sorted({route for _, route in tickets} - served)
    queues = [route for route in missing if is_for_any_worker(route)]
    option = f" --broker {broker_of(settings).shown}" if broker else ""
    if queues and broker:
        warn(f"no worker serves the queue {', '.join(queues)}: start one with joblens worker{option}")
    for route in missing:
        if queue_and_label(route)[1]:
            warn(f"{unserved_words(route)}{option}")


def remind_workers(settings: Settings, deliveries: Deliveries, config: str | None = None) -> None:
    """While somebody waits: a worker that is started for jobs looks now, and is started again when it died.
    Others look by themselves. Raises SupervisorError when it cannot be started."""
    if settings.queue.broker:
        return
    backlog = deliveries.backlog()
    if backlog and not any(is_for_any_worker(each.queue) for each in backlog):
        return  # none of it is for workers that are started here
    waiting = {each.queue for each in backlog if each.waiting and is_for_any_worker(each.queue)}
    bell = plain_bell(settings, deliveries, config, waiting)
    try:
        if isinstance(bell, StartedWorker):
            bell.ring(())
    finally:
        bell.close()
