"""Tells workers of a queue about jobs of a run, and learns which workers there are."""

from collections.abc import Callable
from contextlib import closing

from joblens.agent.clusters.calling import Tickets
from joblens.app.queue.notifiers import living_workers, open_bell, remind_workers
from joblens.app.queue.queueing import QueueStore, open_queue_store
from joblens.app.wiring.drivers import Warn
from joblens.app.wiring.owning import current_user
from joblens.model.settings import Settings
from joblens.ports.broker import Notifier
from joblens.ports.deliveries import Deliveries


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
