"""Execution of a recipe's job: its executor runs as a measured job."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.runtime.loop import Loop
from joblens.agent.session.context import AgentContext
from joblens.agent.session.pool import SessionPool
from joblens.analysis.recipes.usage import operator_table
from joblens.app.jobs.api import session_order
from joblens.app.jobs.epilog import apply_retention
from joblens.app.jobs.preparation import PreparedJob, prepare
from joblens.app.jobs.requests import Request
from joblens.app.recipes.job_directory import TOOL
from joblens.app.recipes.jobs import RecipeJob, make_job
from joblens.app.recipes.snapshots import LiveSnapshot
from joblens.app.wiring.agent_context import OwnLog, close_context, open_context
from joblens.model.errors import JoblensError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Record, Status
from joblens.model.recipes.recipe import RecipePlan
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus
from joblens.model.settings import Settings
from joblens.model.writes import DetailsTaken
from joblens.plan.workflows.plan_document import plan_digest
from joblens.ports.store import Store

_TICK_S = 0.1
_SAME_REQUEST_S = 1.0  # a key that was hit twice; later it is intended: the job is killed
_WITHOUT_END = (ProcessingStatus.NOT_STARTED, ProcessingStatus.IN_PROGRESS, ProcessingStatus.KILLED)


class ProgressView(Protocol):
    def tick(self, snapshot: Callable[[], JobSnapshot]) -> None:
        """Draws; requests a snapshot if necessary."""

    def close(self) -> None:
        """Nothing more is drawn."""


class RecipeOutcome(Struct, frozen=True):
    plan: RecipePlan
    record: Record
    snapshot: JobSnapshot
    signal_number: int | None = None  # signal that stopped it
    export_files: tuple[str, ...] = ()
    can_resume: bool = True  # False: the same row would stop it again
    was_complete: bool = False  # complete before: nothing was done

    @property
    def was_interrupted(self) -> bool:
        return self.signal_number is not None


def execute_job(
    job: RecipeJob,
    settings: Settings,
    view: ProgressView | None,
    on_begin: Callable[[], None] | None,
    store: Store | None,
) -> RecipeOutcome:
    """Runs it to its end; an interrupt stops the job first, so that it can be resumed. Raises RecipeError
    if the job's folder cannot be created; `on_begin` is called when it is. `store`: a connection of the
    caller, which stays open."""
    make_job(job)
    if on_begin is not None:
        on_begin()
    return _RecipeExecution(job, settings, view, store).run()


class _RecipeExecution:
    """The session and the view are on a thread of the pool."""

    def __init__(
        self, job: RecipeJob, settings: Settings, view: ProgressView | None, store: Store | None
    ) -> None:
        self._plan = job.plan
        self._store = store
        self._settings = settings
        self._view = view
        self._log = OwnLog(settings.logs)
        self._live = LiveSnapshot(job.plan.job_dir)
        self._pool: SessionPool | None = None
        self._uuid = ""
        self._next_tick_s = time.monotonic() + _TICK_S
        self._signals = _Signals(self._handle_soon)
        self._is_signal_pending = False
        self._loop: Loop | None = None

    def run(self) -> RecipeOutcome:
        """Signals are handled until it is in the history: nothing is interrupted halfway."""
        with self._signals:
            return self._run()

    def _run(self) -> RecipeOutcome:
        prepared = prepare(executor_request(self._plan), self._settings)
        context = open_context(self._settings, warn=self._log.warn, store=self._store)
        self._loop = context.loop
        try:
            record = self._run_session(context, prepared)
            snapshot = _with_final_status(self._live.refresh(), record)
            self._remember(context, record, snapshot)
            self._log.ended(record)
            number = self._signals.number if snapshot.overall_status is ProcessingStatus.STOPPED else None
            summary = self._live.directory.read_summary()
            return RecipeOutcome(
                self._plan,
                record,
                snapshot,
                number,
                tuple(map(str, summary.get("export_files") or ())),
                can_resume=summary.get("resumption_command", "") is not None,
            )
        finally:
            close_context(context)

    def _run_session(self, context: AgentContext, prepared: PreparedJob) -> Record:
        """Ctrl-C is for this process, not for the job: the job is then asked to stop, and stops in order."""
        pool, self._uuid = SessionPool(context, 1), prepared.job.uuid
        record = Record(status=Status.QUEUED, job=prepared.job)
        order = session_order(prepared, context, self._settings)
        self._log.started(prepared.job)
        context.loop.add_timed(self)
        self._pool = pool
        try:
            for ended in pool.run([order]):
                record = ended
        except KeyboardInterrupt:  # from another handler; the pool has stopped the job before
            self._signals.note(signal.SIGINT)
            record = pool.last_record or record
        finally:
            context.loop.remove_timed(self)
            self._close_view()
        return record

    def _close_view(self) -> None:
        """Restores the terminal, however it ends."""
        view, self._view = self._view, None
        if view is not None:
            with suppress(Exception):
                view.close()

    def _handle_soon(self) -> None:
        """Called in a signal handler: between any two instructions of the main thread."""
        self._is_signal_pending = True
        if self._loop is not None:
            self._loop.call(self._on_cancel_request)

    def _on_cancel_request(self) -> None:
        pool, number = self._pool, self._signals.number
        if not self._is_signal_pending or pool is None or number is None or not pool.host.holds(self._uuid):
            return  # not started yet: the next tick retries
        self._is_signal_pending = False
        pool.host.stop(self._uuid, number)

    def _remember(self, context: AgentContext, record: Record, snapshot: JobSnapshot) -> None:
        table = operator_table(snapshot, self._plan, context.clock.now_us())
        context.recorder.write([DetailsTaken(record.job.uuid, Details(operators=table))])
        with suppress(JoblensError):  # the outcome of the job is known
            context.recorder.read(
                lambda store: apply_retention(store, self._settings, context.clock.now_us())
            )

    # ---- while it runs, on the pool's thread -------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        return self._next_tick_s

    def wake(self) -> None:
        self._next_tick_s = time.monotonic() + _TICK_S
        self._on_cancel_request()
        if self._view is None or self._pool is None or not self._pool.host.holds(self._uuid):
            return
        try:
            self._view.tick(self._live.refresh)
        except Exception as error:  # noqa: BLE001 - a failing view never stops a job
            self._close_view()
            self._log.warn(f"the job continues, but its progress cannot be shown: {error}")


def _with_final_status(snapshot: JobSnapshot, record: Record) -> JobSnapshot:
    """An executor that did not start, or was killed, has written nothing to the job's folder."""
    was_stopped = record.status is Status.CANCELLED
    if snapshot.overall_status is ProcessingStatus.KILLED and not was_stopped:
        return snapshot
    if snapshot.overall_status not in _WITHOUT_END:
        return snapshot
    status = ProcessingStatus.STOPPED if was_stopped else ProcessingStatus.FAILED
    return replace(snapshot, overall_status=status)


def executor_request(plan: RecipePlan) -> Request:
    recipe = plan.recipe
    return Request(
        # -P: no file in the current folder is imported as a module
        argv=(sys.executable, "-P", "-m", "joblens.data", plan.job_dir, plan_digest(plan)),
        name=recipe.name,
        tool=TOOL,
        script=plan.recipe_path,
        external_id=plan.job_id,
        params={
            "recipe": plan.recipe_path,
            "job_dir": plan.job_dir,
            "export_path": recipe.export_path,
            "executor": recipe.executor.value,
            "workers": plan.workers,
        },
    )


class _Signals:
    """SIGINT, SIGTERM and SIGHUP stop the job, unless the program handles them. In a thread, signals
    belong to the program."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self.number: int | None = None  # the first
        self._on_signal = on_signal
        self._last_s = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            usual = (signal.SIG_DFL, signal.default_int_handler)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) in usual:
                    self._before[number] = signal.signal(number, self._take)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def note(self, number: int) -> None:
        if self.number is None:
            self.number = number

    def _take(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.number is None or now_s - self._last_s >= _SAME_REQUEST_S:
            self.note(number)
            self._last_s = now_s
            self._on_signal()
