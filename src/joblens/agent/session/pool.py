"""Session pool: sessions for a program that waits for its jobs."""

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from queue import SimpleQueue

from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionHost, SessionOrder
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Record


class SessionPool:
    """Session host for a program that waits for its jobs.

    It runs on its own thread, because Python may raise an interrupt between any two instructions of the main
    thread, which would leave a session half done."""

    def __init__(self, context: AgentContext, width: int) -> None:
        self.host = SessionHost(context, on_end=self._on_end)
        self.last_record: Record | None = None  # of the job that ended last
        self._context = context
        self._width = width
        self._ended: SimpleQueue[Record | BaseException] = SimpleQueue()
        self._is_closing = False

    def run(self, orders: Iterable[SessionOrder]) -> Iterator[Record]:
        """Yields records in the order the jobs end. Closing the generator, or an exception in its caller,
        stops and records the running jobs."""
        thread = threading.Thread(target=self._drive, name="joblens-sessions", daemon=True)
        thread.start()
        running = 0
        try:
            for order in orders:
                while running >= self._width or not self._ended.empty():
                    yield self._next()
                    running -= 1
                self._context.loop.call(partial(self._start, order))
                running += 1
            while running:
                yield self._next()
                running -= 1
        finally:
            self._close(thread)

    def _next(self) -> Record:
        ended = self._ended.get()
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _close(self, thread: threading.Thread) -> None:
        """Stops all running jobs and waits for their ends."""
        while thread.is_alive():
            try:
                self._context.loop.call(self._stop)
                thread.join()
            except KeyboardInterrupt:
                continue  # interrupted again: escalate to the next signal at once

    # ---- on the thread -------------------------------------------------------------------------------

    def _drive(self) -> None:
        self._context.recorder.add_poll(self.host.poll_cancels)
        try:
            self._context.loop.run_until(lambda: self._is_closing and not self.host)
        except BaseException as error:  # noqa: BLE001 - the caller of `run` gets it
            self.host.close()
            self._ended.put(error)
        finally:
            self._context.recorder.remove_poll(self.host.poll_cancels)

    def _on_end(self, record: Record, _error: JoblensError | None) -> None:
        self.last_record = record
        self._ended.put(record)

    def _stop(self) -> None:
        self._is_closing = True
        self.host.stop_all(EndCause.CANCELLED)

    def _start(self, order: SessionOrder) -> None:
        if self._is_closing:
            return
        try:
            self.host.start(order)
        except LaunchError as error:
            self._ended.put(error)
