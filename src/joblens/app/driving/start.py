"""Runs from request to end: validate, create, drive or detach. All commands and `joblens.run_workflow`
use it, with one connection to the store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from joblens.agent.runs.signals import RunSignals
from joblens.agent.runtime.ownership import RunLock
from joblens.app.driving.checks import CheckedRun, RunRequest, checked_run, make_output_folder
from joblens.app.driving.detaching import detach_run
from joblens.app.driving.driver import MakeView, RunOutcome, drive
from joblens.app.runs.records import create_run
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.drivers import StoreConnection, Warn
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run
from joblens.model.settings import Settings


class Runs:
    def __init__(
        self,
        settings: Settings,
        config: str | None,
        connection: StoreConnection,
        warn: Warn,
        open_log: Callable[[], OwnLog],
    ) -> None:
        """`open_log` is called when a run is driven: a refused run gets no log file."""
        self._settings = settings
        self._config = config
        self._connection = connection
        self._warn = warn
        self._open_log = open_log

    @contextmanager
    def validated(self, request: RunRequest, warn: Warn | None = None) -> Iterator[CheckedRun]:
        """Writes nothing; the engine is open within it. Raises InputError (PlanError, RunIsDriven) for an
        impossible run, PlacingError for a cluster that does not answer."""
        store = self._connection.if_exists()
        with checked_run(request, self._settings, self._config, store, warn or self._warn) as checked:
            yield checked

    def prepare(self, request: RunRequest) -> Run:
        """Validates, then creates the run or returns the one to resume. The driver repeats the warnings
        of the engine, so they are not shown here."""
        with self.validated(request, warn=lambda _text: None):
            pass
        make_output_folder(request.options)
        if request.workflow is None:
            assert request.resumed is not None
            return replace(request.resumed, options=request.options)
        again = request.again
        return create_run(
            self._connection.to_write().direct(),
            request.workflow,
            request.loaded,
            request.options,
            self._settings,
            base=again.base if again is not None else None,
            again=again.indexes if again is not None else None,
            kept_from=again.kept_from if again is not None else {},
            spawned=again.spawned if again is not None else (),
        )

    def drive(
        self,
        run: Run,
        plan: Plan,
        *,
        make_view: MakeView | None = None,
        lock: RunLock | None = None,
        signals: RunSignals | None = None,
    ) -> RunOutcome:
        """Drives the run to its end. `lock`: lock of this run, if already taken. `signals`: None for
        those of this process."""
        return drive(
            run,
            plan,
            self._settings,
            make_view=make_view,
            log=self._open_log(),
            lock=lock,
            config=self._config,
            store=self._connection.journaled,
            signals=signals,
        )

    def detach(self, run: Run, notify: str | None = None, warn: Warn | None = None) -> None:
        """Starts a process that drives the run; returns once it does."""
        detach_run(run, self._settings, self._config, notify, warn or self._warn)
