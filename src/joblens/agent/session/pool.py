"""Pool of sessions: several jobs with limits or time-outs of their own, a few at a time."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from joblens.agent.session.context import AgentContext
from joblens.agent.session.session import JobSession
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import LaunchError
from joblens.model.jobs.job import Record

_CANCEL_POLL_S = 1.0

StartSession = Callable[[Callable[[JobSession], None]], JobSession]


class SessionPool:
    """`run` takes functions that make a session (given what to call at its end) and yields records in
    the order the jobs end.

    The sessions live on a thread of their own: an interrupt of the program, which Python may raise between
    any two instructions of its main thread, then never tears one apart."""

    def __init__(self, context: AgentContext, width: int) -> None:
        self._context = context
        self._width = width
        self._sessions: dict[str, JobSession] = {}
        self._ended: SimpleQueue[Record | BaseException] = SimpleQueue()
        self._next_look_s = time.monotonic() + _CANCEL_POLL_S
        self._is_closing = False

    def run(self, starters: Iterable[StartSession]) -> Iterator[Record]:
        """Closing the generator, or an exception in whoever uses it, ends the jobs and records that."""
        thread = threading.Thread(target=self._drive, name="joblens-sessions", daemon=True)
        thread.start()
        under_way = 0
        try:
            for starter in starters:
                while under_way >= self._width or not self._ended.empty():
                    yield self._next()
                    under_way -= 1
                self._context.loop.call(partial(self._start, starter))
                under_way += 1
            while under_way:
                yield self._next()
                under_way -= 1
        finally:
            self._close(thread)

    def _next(self) -> Record:
        ended = self._ended.get()
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _close(self, thread: threading.Thread) -> None:
        """Nothing runs any more when all went well. Else every running job is ended before this returns."""
        while thread.is_alive():
            try:
                self._context.loop.call(self._stop)
                thread.join()
            except KeyboardInterrupt:
                continue  # asked again: the next step of ending comes at once

    # ---- on the thread -------------------------------------------------------------------------------

    def _drive(self) -> None:
        self._context.loop.add_timed(self)
        try:
            self._context.loop.run_until(lambda: self._is_closing and not self._sessions)
        except BaseException as error:  # noqa: BLE001 - whoever waits for records gets it
            for session in self._sessions.values():  # nobody looks after them any more
                with suppress(Exception):
                    session.kill_now()
            self._ended.put(error)
        finally:
            self._context.loop.remove_timed(self)

    def next_wake_s(self) -> float | None:
        return self._next_look_s

    def wake(self) -> None:
        self._next_look_s = time.monotonic() + _CANCEL_POLL_S
        self._context.recorder.poll_cancels(self._heed_cancels, self._context.loop.call)

    def _heed_cancels(self, asked: Iterable[str]) -> None:
        for uuid in asked:
            session = self._sessions.get(uuid)
            if session is not None and not session.was_asked_to_stop:
                session.ask_stop(EndCause.CANCELLED)

    def _stop(self) -> None:
        self._is_closing = True
        for session in list(self._sessions.values()):
            session.ask_stop(EndCause.CANCELLED)

    def _start(self, starter: StartSession) -> None:
        if self._is_closing:
            return
        try:
            session = starter(self._end)
        except OSError as error:
            refusal = LaunchError(f"the job could not be started: {error}")
            refusal.__cause__ = error
            self._ended.put(refusal)
            return
        self._sessions[session.job.uuid] = session
        try:
            session.start()
        except BaseException:
            del self._sessions[session.job.uuid]
            raise

    def _end(self, session: JobSession) -> None:
        self._sessions.pop(session.job.uuid, None)
        self._ended.put(session.record)
