"""Store access of the server: a few threads, each with its own connection, so that no query blocks the event
loop and one slow query does not delay the others."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from joblens.app.wiring.drivers import (
    Warn,
    is_file_store,
    may_write_store,
    open_store_directly,
    open_store_to_read,
    store_name,
)
from joblens.model.errors import JoblensError, StoreVanished
from joblens.model.settings import Settings
from joblens.ports.store import QueueStore

T = TypeVar("T")


class StoreThreads:
    """The only place of the server that opens a store. Without a journal: a change that the store cannot take
    is refused, so that the client knows."""

    def __init__(self, settings: Settings, warn: Warn, threads: int) -> None:
        self._settings = settings
        self._warn = warn
        self._path = store_name(settings) if is_file_store(settings) else ""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="joblens-store")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: list[QueueStore] = []
        self._was_there = False

    async def call(self, function: Callable[[QueueStore], T]) -> T:
        """Runs `function` with a store on a thread. Raises what it raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.call_here, function)

    def call_here(self, function: Callable[[QueueStore], T]) -> T:
        """The same on the thread of the caller."""
        try:
            return function(self._store())
        except StoreVanished:
            self._forget()  # the next call opens the file that is there then
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for store in self._opened:
            _close(store)
        self._opened = []

    def _store(self) -> QueueStore:
        identity = self._identity()
        if getattr(self._local, "identity", None) != identity:
            self._forget()
        store: QueueStore | None = getattr(self._local, "store", None)
        if store is None:
            store = self._open()
            self._local.store, self._local.identity = store, self._identity()
            with self._lock:
                self._opened.append(store)
        return store

    def _open(self) -> QueueStore:
        opened: Any
        if self._path and os.path.exists(self._path) and not may_write_store(self._settings):
            opened = open_store_to_read(self._settings, self._warn)
        else:
            opened = open_store_directly(self._settings, self._warn)
            if self._path:
                opened.upgrade()  # its threads read for long, and copies of an older store are slow
        self._was_there = True
        return opened  # type: ignore[no-any-return]  # every store is both

    def _identity(self) -> tuple[int, int] | None:
        """Which file the store is: SQLite would continue to read one that was removed or replaced."""
        if not self._path:
            return None
        try:
            status = os.stat(self._path)
        except FileNotFoundError as error:
            if not self._was_there:
                return None  # the first call creates it
            raise StoreVanished(
                f"the store {self._path} no longer exists",
                hint="put it back; the server continues when it is there",
            ) from error
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _forget(self) -> None:
        store: QueueStore | None = getattr(self._local, "store", None)
        self._local.store = self._local.identity = None
        if store is not None:
            with self._lock:
                self._opened.remove(store)
            _close(store)


def _close(store: QueueStore) -> None:
    try:
        store.close()
    except JoblensError:
        pass  # it only reads, or the write that failed was reported
