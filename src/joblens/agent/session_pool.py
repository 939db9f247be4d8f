"""Several jobs with limits or time-outs of their own, a few at a time, each in groups of its own."""

import time
from collections.abc import Callable, Iterable, Iterator

from joblens.agent.session import JobSession, Kit
from joblens.engine.job_life import EndCause
from joblens.model.errors import JoblensError
from joblens.model.job import Record

_CANCEL_POLL_S = 1.0

StartSession = Callable[[Callable[[JobSession], None]], JobSession]


class SessionPool:
    """`run` takes functions that make a session (given what to call at its end) and yields records in
    the order the jobs end."""

    def __init__(self, kit: Kit, width: int) -> None:
        self._kit = kit
        self._width = width
        self._sessions: dict[str, JobSession] = {}
        self._ended: list[Record] = []
        self._next_look_s = time.monotonic() + _CANCEL_POLL_S

    def session(self, uuid: str) -> JobSession | None:
        return self._sessions.get(uuid)

    def run(self, starters: Iterable[StartSession]) -> Iterator[Record]:
        """Closing the generator, or an exception in whoever uses it, ends the jobs and records that."""
        waiting = iter(starters)
        self._kit.loop.add_timed(self)
        try:
            while True:
                while len(self._sessions) < self._width and (starter := next(waiting, None)) is not None:
                    self._start(starter)
                ended, self._ended = self._ended, []
                yield from ended
                if self._sessions:
                    self._kit.loop.run_until(lambda: bool(self._ended) or not self._sessions)
                elif not ended:
                    return
        finally:
            self._stop()
            self._kit.loop.remove_timed(self)

    def next_wake_s(self) -> float | None:
        return self._next_look_s

    def wake(self) -> None:
        """`joblens cancel` leaves its wish in the store."""
        self._next_look_s = time.monotonic() + _CANCEL_POLL_S
        try:
            asked = self._kit.recorder.read(lambda store: store.cancel_requests())
        except JoblensError:
            return  # the store cannot be asked now
        for uuid in asked:
            session = self._sessions.get(uuid)
            if session is not None and not session.was_asked_to_stop:
                session.ask_stop(EndCause.CANCELLED)

    def _stop(self) -> None:
        """Nothing runs any more when all went well. Else every running job is ended before this returns."""
        while self._sessions:
            for session in list(self._sessions.values()):
                session.ask_stop(EndCause.CANCELLED)
            try:
                self._kit.loop.run_until(lambda: not self._sessions)
            except KeyboardInterrupt:
                continue  # asked again: the next step of ending comes at once

    def _start(self, starter: StartSession) -> None:
        session = starter(self._end)
        self._sessions[session.job.uuid] = session
        try:
            session.start()
        except JoblensError:
            self._end(session)  # the record says why it did not start

    def _end(self, session: JobSession) -> None:
        self._sessions.pop(session.job.uuid, None)
        self._ended.append(session.record)
