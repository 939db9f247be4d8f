"""Notifiers of workers: the configured broker, the folder that a worker on this machine watches, or a
worker that is started on demand."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from joblens.agent.runtime.ownership import is_gone
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn, spool_dir, store_name
from joblens.model.clusters.placement import is_for_any_worker
from joblens.model.delivery import WorkerInfo
from joblens.model.errors import BrokerError, MissingExtra, SupervisorError, how_to_install
from joblens.model.jobs.job import Owner, RetryLost
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
    """The worker of this user that is started when there is work and exits when there is none."""

    def __init__(self, settings: Settings, config: str | None) -> None:
        self._settings = settings
        self._config = config

    def notify(self, tickets: Tickets) -> None:
        # It finds them in the store itself.
        if tickets and not any(is_for_any_worker(route) for _, route in tickets):
            return  # all are for workers with a label
        from joblens.app.queue.embedded_worker import wake_worker

        wake_worker(self._settings, self._config)

    def check(self) -> str:
        return "no broker; a worker starts when there is work"

    def close(self) -> None:
        pass


class NoNotifier:
    """Workers cannot be notified from here: they poll the store every few seconds."""

    def notify(self, tickets: Tickets) -> None:
        pass

    def check(self) -> str:
        return "no broker is configured; workers poll the store"

    def close(self) -> None:
        pass


def broker_folder(settings: Settings) -> str:
    """Returns the folder of messages if no broker is named."""
    return os.path.join(spool_dir(store_name(settings)), "broker")


def broker_of(settings: Settings) -> "Broker":
    """Returns the configured broker, or the folder. Raises InputError for an invalid one."""
    from joblens.runners.celery.broker_url import parse_broker

    return parse_broker(settings.queue.broker or "", broker_folder(settings))


def settings_of_run(settings: Settings, options: "RunOptions") -> Settings:
    """Returns settings with the broker and other worker options that are recorded with the run. Raises
    InputError if the broker's password is missing."""
    from msgspec.structs import replace

    from joblens.runners.celery.broker_url import broker_of_run

    queue = settings.queue
    if options.engine == "celery" and options.broker:
        queue = replace(queue, broker=broker_of_run(options.broker, queue.broker))
    if options.retry_lost:
        queue = replace(queue, retry_lost=RetryLost(options.retry_lost))
    return settings if queue is settings.queue else replace(settings, queue=queue)


def with_broker(options: "RunOptions", settings: Settings) -> "RunOptions":
    """Records the effective broker: the run is resumed with it if another one or none is configured."""
    from msgspec.structs import replace

    from joblens.runners.celery.broker_url import recorded_broker

    if options.engine != "celery" or options.broker or not settings.queue.broker:
        return options
    return replace(options, broker=recorded_broker(settings.queue.broker))


class NotifierByLabel:
    """Notifies workers without a label and workers with one, each in their own way."""

    def __init__(self, plain: Notifier, labelled: Notifier) -> None:
        self._plain = plain
        self._labelled = labelled

    def notify(self, tickets: Tickets) -> None:
        plain = [ticket for ticket in tickets if not queue_and_label(ticket[1])[1]]
        labelled = [ticket for ticket in tickets if queue_and_label(ticket[1])[1]]
        if labelled:
            self._labelled.notify(labelled)
        if plain or not tickets:
            self._plain.notify(plain)

    def check(self) -> str:
        return self._plain.check()

    def close(self) -> None:
        self._plain.close()
        self._labelled.close()


def open_notifier(
    settings: Settings, deliveries: Deliveries, config: str | None = None, queues: Iterable[str] = ()
) -> Notifier:
    """Returns the notifier for jobs of these queues. Raises MissingExtra if a broker is configured and
    Celery is not installed."""
    if settings.queue.broker:
        return configured_notifier(settings)
    mine = _own_by_hand(settings, deliveries)
    plain = plain_notifier(settings, deliveries, config, queues, mine)
    labelled = [worker for worker in mine if worker.labels]
    return NotifierByLabel(plain, _notifier_of(labelled, settings)) if labelled else plain


def plain_notifier(
    settings: Settings,
    deliveries: Deliveries,
    config: str | None = None,
    queues: Iterable[str] = (),
    workers: Sequence[WorkerInfo] | None = None,
) -> Notifier:
    """Returns the notifier for workers without a label. `workers`: of this user, if known."""
    if settings.queue.broker:
        return configured_notifier(settings)
    mine = _own_by_hand(settings, deliveries) if workers is None else workers
    plain = [worker for worker in mine if not worker.labels]
    common = {queue for queue in queues if is_for_any_worker(queue)}
    if not plain or not {queue for worker in plain for queue in worker.queues}.issuperset(common):
        return StartedWorker(settings, config)
    return _notifier_of(plain, settings)


def _own_by_hand(settings: Settings, deliveries: Deliveries) -> list[WorkerInfo]:
    """Returns workers that were started by hand and take jobs of this user."""
    by_hand = [worker for worker in living_workers(settings, deliveries) if worker.broker]
    return [worker for worker in by_hand if worker.any_user or worker.user == current_user()]


def _notifier_of(workers: Sequence[WorkerInfo], settings: Settings) -> Notifier:
    folder = broker_of(settings).shown
    if any(worker.broker == folder for worker in workers):
        try:
            return configured_notifier(settings)
        except MissingExtra:
            pass
    return NoNotifier()


def check_broker(settings: Settings) -> None:
    """Checks the broker before anything is queued. Raises InputError for an invalid one, MissingExtra if
    Celery is not installed; does not connect to it."""
    if settings.queue.broker:
        configured_notifier(settings).close()


def check_broker_answers(settings: Settings) -> str:
    """Describes the configured broker; '' if there is none. Raises BrokerError if it does not answer."""
    if not settings.queue.broker:
        return ""
    broker = broker_of(settings)
    if broker.kind == "folder":
        return f"directory at {broker.shown}"  # created at first use
    notifier = configured_notifier(settings)
    try:
        return notifier.check()
    finally:
        notifier.close()


def configured_notifier(settings: Settings) -> Notifier:
    """Returns the notifier of the configured broker, otherwise of the folder. Raises MissingExtra."""
    try:
        from joblens.runners.celery.notifier import CeleryNotifier
    except ImportError as error:
        raise MissingExtra(
            "a broker needs Celery, which is not installed", hint=how_to_install("celery")
        ) from error
    return CeleryNotifier(broker_of(settings))


def living_workers(settings: Settings, deliveries: Deliveries) -> list[WorkerInfo]:
    """Returns workers with a recent heartbeat; on this machine, those whose process exists."""
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
    """The jobs are already in the store: failures here only delay them."""
    try:
        notifier = open_notifier(settings, deliveries, config, {queue for _, queue in tickets})
        try:
            notifier.notify(tickets)
        finally:
            notifier.close()
    except (BrokerError, SupervisorError) as error:
        is_one = len(tickets) == 1
        what = "the job is" if is_one else f"the {len(tickets)} jobs are"
        warn(
            f"{error}; {what} queued anyway, and workers will find {'it' if is_one else 'them'} in the store"
        )
        return
    _warn_without_workers(tickets, settings, deliveries, warn)


def _warn_without_workers(tickets: Tickets, settings: Settings, deliveries: Deliveries, warn: Warn) -> None:
    """Workers with a label are never started automatically, others only without a broker."""
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
    """Called while waiting: wakes a worker that was started for jobs, and restarts it if it died. Others
    poll by themselves. Raises SupervisorError if it cannot be started."""
    if settings.queue.broker:
        return
    backlog = deliveries.backlog()
    if backlog and not any(is_for_any_worker(each.queue) for each in backlog):
        return  # none of it is for workers that are started here
    waiting = {each.queue for each in backlog if each.waiting and is_for_any_worker(each.queue)}
    notifier = plain_notifier(settings, deliveries, config, waiting)
    try:
        if isinstance(notifier, StartedWorker):
            notifier.notify(())
    finally:
        notifier.close()
