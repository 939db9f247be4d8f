"""The server's machine: its socket, tools, workers and queues, health, jobs without an owner."""

import os
import threading
import time

from msgspec import Struct

import joblens
from joblens.app.queue.notifiers import living_workers, remind_workers
from joblens.app.queue.recovery import recover_dead_owners
from joblens.app.queue.tools import list_tools
from joblens.app.server.access import Principal
from joblens.app.wiring.drivers import Warn, spool_dir, store_name
from joblens.model.access import Scope
from joblens.model.delivery import Backlog, WorkerInfo
from joblens.model.errors import SupervisorError
from joblens.model.settings import Settings
from joblens.model.tool import ToolStanding
from joblens.ports.store import QueueStore

_RECOVER_EVERY_S = 1.0


class Tools(Struct, frozen=True, kw_only=True):
    items: tuple[ToolStanding, ...]


class Workers(Struct, frozen=True, kw_only=True):
    items: tuple[WorkerInfo, ...]
    backlog: tuple[Backlog, ...]


class Health(Struct, frozen=True, kw_only=True):
    status: str  # healthy
    version: str
    store_now_us: int


def socket_path(settings: Settings) -> str:
    """Returns the path that `serve` listens on and that commands of the same user connect to."""
    return settings.server.socket or os.path.join(spool_dir(store_name(settings)), "server.sock")


def get_tools() -> Tools:
    found, _ = list_tools()
    return Tools(items=tuple(found))


def get_workers(store: QueueStore, who: Principal, settings: Settings) -> Workers:
    """Queues count jobs of all users, so only those who may see all get them."""
    workers = (each for each in living_workers(settings, store) if who.may_see_user(each.user))
    backlog = store.backlog() if who.scope is Scope.ALL else ()
    return Workers(items=tuple(workers), backlog=tuple(backlog))


def get_health(store: QueueStore) -> Health:
    """Raises StoreError."""
    return Health(status="healthy", version=joblens.__version__, store_now_us=store.now_us())


class Recoveries:
    """Recovers jobs whose owner has died, as every command does that reads a store of its own. However many
    clients ask, it happens at most once per second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done_s: dict[str, float] = {}  # by store

    def recover(self, store: QueueStore, settings: Settings, config: str | None, warn: Warn) -> bool:
        """Returns False if it was done just now."""
        with self._lock:
            if time.monotonic() - self._done_s.get(store.url, 0.0) < _RECOVER_EVERY_S:
                return False
            try:
                recover_dead_owners(store, settings, config, warn)
                remind_workers(settings, store, config)
            except SupervisorError as error:
                warn(str(error))
            self._done_s[store.url] = time.monotonic()
        return True
