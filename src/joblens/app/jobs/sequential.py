"""Jobs one after the other on one set of threads: nothing of ours starts or ends between two of them, so that
the surroundings of all are the same."""

from contextlib import suppress
from types import TracebackType
from typing import Self

from joblens.agent.session.context import watch_name
from joblens.agent.session.session_pool import SessionPool
from joblens.app.jobs.preparation import PreparedJob
from joblens.app.jobs.results import Result
from joblens.app.jobs.retention import apply_retention
from joblens.app.jobs.session_starting import session_starter
from joblens.app.wiring.drivers import Warn
from joblens.app.wiring.owning import OwnLog, close_context, open_context
from joblens.model.errors import JoblensError
from joblens.model.settings import Settings


class SequentialRunner:
    """`with SequentialRunner(settings) as jobs: jobs.run(prepared)`. What a job prints goes to its files."""

    def __init__(self, settings: Settings, warn: Warn | None = None) -> None:
        self._settings = settings
        self._log = OwnLog(settings.logs)
        self._pool: SessionPool | None = None
        self._context = open_context(settings, self._take_sample, warn=warn or self._log.warn)

    def run(self, prepared: PreparedJob) -> Result:
        """An exception while it runs (KeyboardInterrupt) ends the job first, and is recorded."""
        self._pool = SessionPool(self._context, 1)
        (record,) = self._pool.run([session_starter(prepared, self._context, self._settings)])
        self._log.ended(record)
        return Result(record, self._settings)

    def _take_sample(self, name: str) -> None:
        uuid = name.removeprefix(watch_name(""))
        session = self._pool.session(uuid) if self._pool is not None else None
        if session is not None and name == uuid:
            session.take_sample()
        elif session is not None:
            session.watch_limits()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            clock = self._context.clock
            with suppress(JoblensError):  # how the jobs ended stands
                self._context.recorder.read(
                    lambda store: apply_retention(store, self._settings, clock.now_us())
                )
        finally:
            close_context(self._context)
