"""What follows the end of background jobs, on a thread of its own: a notification may take a minute, and
neither the other jobs nor what is recorded about them should wait for it."""

import threading
from contextlib import suppress
from queue import SimpleQueue

from joblens.agent.runtime.payload import Payload
from joblens.app.jobs.after_job import Notice, after_job, notice_from_record
from joblens.app.wiring.drivers import open_store
from joblens.app.wiring.owning import OwnLog
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record
from joblens.model.settings import Settings
from joblens.ports.store import Store


class AfterJobs:
    def __init__(self, settings: Settings, log: OwnLog) -> None:
        self._settings = settings
        self._log = log
        self._ended: SimpleQueue[tuple[Record, Notice | None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, record: Record, payload: Payload | None) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="joblens-after-jobs")
            thread.start()
            self._thread = thread
        notice = Notice(payload.notify, payload.env, payload.cwd) if payload else notice_from_record(record)
        self._ended.put((record, notice))

    def close(self) -> None:
        """Returns when all that was put is done."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread.join()

    def _run(self) -> None:
        store: Store | None = None
        while (ended := self._ended.get()) is not None:
            record, notice = ended
            self._log.ended(record)
            store = store or open_store(self._settings, self._log.warn)
            if record.number is None:
                with suppress(JoblensError):  # it waits in the journal and has no number yet
                    record = store.find(record.job.uuid)
            after_job(record, store, self._settings, self._log.warn, notice)
        if store is not None:
            store.close()
