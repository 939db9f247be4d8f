"""What follows the end of background jobs, on a thread of its own: a notification may take a minute, and
neither the other jobs nor what is recorded about them should wait for it."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from joblens.app.after_job import after_job
from joblens.app.drivers import open_store
from joblens.model.job import Record
from joblens.model.settings import Settings
from joblens.ports.store import Store


class AfterJobs:
    def __init__(self, settings: Settings, log: Callable[[str], None]) -> None:
        self._settings = settings
        self._log = log
        self._ended: SimpleQueue[Record | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, record: Record) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="joblens-after-jobs")
            self._thread.start()
        self._ended.put(record)

    def close(self) -> None:
        """Returns when all that was put is done."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread.join()

    def _run(self) -> None:
        store: Store | None = None
        while (record := self._ended.get()) is not None:
            store = store or open_store(self._settings, self._log)
            after_job(record, store, self._settings, self._log)
        if store is not None:
            store.close()
