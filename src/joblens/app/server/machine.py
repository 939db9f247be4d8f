"""The server's machine: its socket, tools, workers and queues, health, jobs without an owner."""

import os
import threading
import time
from collections.abc import Iterable
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

import joblens
from joblens.app.queue.notifiers import living_workers, remind_workers
from joblens.app.queue.recovery import recover_dead_owners
from joblens.app.queue.tools import list_tools
from joblens.app.server.access import Principal
from joblens.app.server.jobs import Part
from joblens.app.wiring.drivers import Warn, spool_dir, store_name
from joblens.model.access import Scope
from joblens.model.delivery import Backlog, WorkerInfo
from joblens.model.errors import SupervisorError
from joblens.model.settings import Settings
from joblens.model.tool import ToolStanding
from joblens.ports.store import QueueStore

_RECOVER_EVERY_S = 1.0
N = TypeVar("N", ToolStanding, WorkerInfo)


class NamePage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    after: Part = ""  # name of the last one of the page before


class Tools(Struct, frozen=True, kw_only=True):
    items: tuple[ToolStanding, ...]
    next: str | None = None  # for `after`; None: this is the end


class Workers(Struct, frozen=True, kw_only=True):
    items: tuple[WorkerInfo, ...]
    backlog: tuple[Backlog, ...]
    next: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    status: str  # healthy
    version: str
    store_now_us: int


def socket_path(settings: Settings) -> str:
    """Returns the path that `serve` listens on and that commands of the same user connect to."""
    return settings.server.socket or os.path.join(spool_dir(store_name(settings)), "server.sock")


def get_tools(page: NamePage) -> Tools:
    found, _ = list_tools()
    items, following = _page(found, page)
    return Tools(items=items, next=following)


def get_workers(store: QueueStore, caller: Principal, settings: Settings, page: NamePage) -> Workers:
    """Returns workers, and queues for callers that see all jobs: queues count jobs of all users."""
    workers = [each for each in living_workers(settings, store) if caller.may_see_user(each.user)]
    items, following = _page(workers, page)
    backlog = store.backlog() if caller.scope is Scope.ALL else ()
    return Workers(items=items, backlog=tuple(backlog), next=following)


def _page(found: Iterable[N], page: NamePage) -> tuple[tuple[N, ...], str | None]:
    """By name, so that those that come and go meanwhile move no other."""
    following = sorted((each for each in found if each.name > page.after), key=lambda each: each.name)
    items = tuple(following[: page.limit])
    return items, items[-1].name if len(following) > page.limit else None


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
