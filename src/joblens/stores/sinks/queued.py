"""Queue in front of a slow sink: its own thread feeds it, so that no receiver delays a job or the store."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample

if TYPE_CHECKING:
    from joblens.model.runs.run import Run, Workflow
    from joblens.ports.store import Sink

_MOST_EVENTS = 20_000
_MOST_SAMPLES = 2_000  # beyond that many events, samples are dropped: starts and ends matter more


class QueuedSink:
    """Implements ports.store.Sink. `make` is called on the thread, at the first event: its imports delay no
    job. Events that do not fit into the queue are dropped, with one warning."""

    def __init__(
        self, name: str, make: "Callable[[], Sink]", warn: Callable[[str], None], flush_s: float
    ) -> None:
        self._name = name
        self._make = make
        self._warn = warn
        self._flush_s = flush_s
        self._events: queue.Queue[Callable[[Sink], None] | None] = queue.Queue(_MOST_EVENTS)
        self._thread: threading.Thread | None = None
        self._has_warned = False

    def job_started(self, record: Record) -> None:
        self._put(lambda sink: sink.job_started(record))

    def samples_taken(self, uuid: str, samples: Sequence[Sample]) -> None:
        if self._events.qsize() < _MOST_SAMPLES:
            self._put(lambda sink: sink.samples_taken(uuid, samples))

    def details_taken(self, uuid: str, details: Details) -> None:
        self._put(lambda sink: sink.details_taken(uuid, details))

    def jobs_ended(self, records: Sequence[Record]) -> None:
        self._put(lambda sink: sink.jobs_ended(records))

    def provenance_seen(self, digest: str, provenance: Provenance) -> None:
        self._put(lambda sink: sink.provenance_seen(digest, provenance))

    def run_changed(self, workflow: "Workflow", run: "Run") -> None:
        self._put(lambda sink: sink.run_changed(workflow, run))

    def close(self) -> None:
        """Waits `flush_s` at most for what is queued."""
        thread = self._thread
        if thread is None:
            return
        deadline = time.monotonic() + self._flush_s
        with contextlib.suppress(queue.Full):
            self._events.put(None, timeout=self._flush_s)
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            self.warn_once(f"the receiver took longer than {self._flush_s:g}s; some events are missing there")

    def _put(self, event: "Callable[[Sink], None]") -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"joblens-{self._name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                self.warn_once("no thread could be started; events are missing there")
                return
            self._thread = thread
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self.warn_once("the receiver is too slow; events are missing there")

    def _run(self) -> None:
        try:
            sink = self._make()
        except Exception as error:  # noqa: BLE001 - jobs do not depend on it
            self.warn_once(str(error))
            while self._events.get() is not None:
                pass
            return
        while (event := self._events.get()) is not None:
            self._try(lambda event=event: event(sink))  # type: ignore[misc]
        self._try(sink.close)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - jobs do not depend on it
            self.warn_once(f"{error}; events are missing there")

    def warn_once(self, text: str) -> None:
        """From any thread."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"{self._name}: {text}")
