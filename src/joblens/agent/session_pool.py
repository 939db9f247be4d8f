"""Several jobs with limits or time-outs of their own, a few at a time, each in groups of its own."""

from collections.abc import Callable, Iterable, Iterator

from joblens.agent.session import JobSession, Kit
from joblens.model.errors import JoblensError
from joblens.model.job import Record

StartSession = Callable[[Callable[[JobSession], None]], JobSession]


class SessionPool:
    """`run` takes functions that make a session (given what to call at its end) and yields records in
    the order the jobs end."""

    def __init__(self, kit: Kit, width: int) -> None:
        self._kit = kit
        self._width = width
        self._sessions: dict[str, JobSession] = {}
        self._ended: list[Record] = []

    def session(self, uuid: str) -> JobSession | None:
        return self._sessions.get(uuid)

    def run(self, starters: Iterable[StartSession]) -> Iterator[Record]:
        waiting = iter(starters)
        while True:
            while len(self._sessions) < self._width and (starter := next(waiting, None)) is not None:
                self._start(starter)
            ended, self._ended = self._ended, []
            yield from ended
            if not self._sessions:
                if not ended:
                    return
                continue
            self._kit.loop.run_until(lambda: bool(self._ended) or not self._sessions)

    def stop(self, ask: Callable[[JobSession], None]) -> None:
        """Used when the caller gives up: every running job is ended before this returns."""
        for session in list(self._sessions.values()):
            ask(session)
        self._kit.loop.run_until(lambda: not self._sessions)

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
