"""A recipe's job carried out: its executor runs as a measured job, and is shown while it goes on."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.kit import Kit, watch_name
from joblens.agent.launch import LaunchPlan
from joblens.agent.output import OutputFiles
from joblens.agent.session import JobSession
from joblens.agent.session_pool import SessionPool
from joblens.analysis.recipe_operators import operator_table
from joblens.app.drivers import store_path
from joblens.app.jobs import PreparedJob, prepare
from joblens.app.owning import OwnLog, close_kit, open_kit
from joblens.app.places import logs_dir
from joblens.app.recipe_jobs import PlannedJob, make_job
from joblens.app.requests import Request
from joblens.app.retention import apply_retention
from joblens.app.snapshots import LiveSnapshot
from joblens.model.details import Details
from joblens.model.job import Record, Status
from joblens.model.job_snapshot import JobSnapshot, ProcessingStatus
from joblens.model.recipe import RecipePlan
from joblens.model.settings import Settings
from joblens.model.writes import DetailsTaken

TOOL = "recipe"
_TICK_S = 0.1


class ProgressView(Protocol):
    def tick(self, snapshot: Callable[[], JobSnapshot]) -> None:
        """The moment to draw; whoever draws asks for a snapshot."""

    def close(self) -> None:
        """There is nothing more to draw."""


class EndedRecipe(Struct, frozen=True):
    plan: RecipePlan
    record: Record
    snapshot: JobSnapshot
    was_interrupted: bool = False


def carry_out(job: PlannedJob, settings: Settings, view: ProgressView | None = None) -> EndedRecipe:
    """To its end; an interrupt ends the job first, so that it can be gone on with. Raises RecipeError when
    the job's folder cannot be made."""
    make_job(job)
    return _Executing(job, settings, view).run()


class _Executing:
    """The session lives on a thread of the pool; so does what is drawn."""

    def __init__(self, job: PlannedJob, settings: Settings, view: ProgressView | None) -> None:
        self._plan = job.plan
        self._settings = settings
        self._view = view
        self._log = OwnLog(settings.logs)
        self._live = LiveSnapshot(job.plan.job_dir)
        self._session: JobSession | None = None
        self._next_tick_s = time.monotonic() + _TICK_S
        self._pool: SessionPool | None = None

    def run(self) -> EndedRecipe:
        prepared = prepare(executor_request(self._plan), self._settings)
        kit = open_kit(self._settings, self._take_sample, warn=self._log.warn)
        try:
            self._pool = SessionPool(kit, 1)
            was_interrupted = self._wait(self._pool, kit, prepared)
            assert self._session is not None
            snapshot = _over(self._live.refresh(), self._session.record)
            if self._view is not None:
                self._view.close()
            self._remember(kit, snapshot)
            self._log.ended(self._session.record)
            return EndedRecipe(self._plan, self._session.record, snapshot, was_interrupted)
        finally:
            close_kit(kit)

    def _wait(self, pool: SessionPool, kit: Kit, prepared: PreparedJob) -> bool:
        """-> whether somebody did not want to wait for its end."""
        if self._view is not None:
            kit.loop.add_timed(self)
        try:
            with _ended_by_signals():
                for _ in pool.run([self._starter(prepared, kit)]):
                    pass
        except KeyboardInterrupt:
            return True  # the pool has ended the job before it let that through
        finally:
            kit.loop.remove_timed(self)
        return False

    def _starter(
        self, prepared: PreparedJob, kit: Kit
    ) -> Callable[[Callable[[JobSession], None]], JobSession]:
        base = self._settings.output.dir or logs_dir(store_path(self._settings))

        def start(on_end: Callable[[JobSession], None]) -> JobSession:
            output = OutputFiles(os.path.join(base, prepared.job.uuid), self._settings.output.max_size)
            plan = LaunchPlan(
                argv=prepared.argv,
                env=prepared.env,
                cwd=prepared.cwd,
                stdio=("/dev/null", output.stdout.path, output.stderr.path),
                new_session=True,  # Ctrl-C is for us: the job is then asked to stop, and stops in order
            )
            self._session = JobSession(prepared.job, plan, kit, output=output, on_end=on_end)
            return self._session

        self._log.started(prepared.job)
        return start

    def _take_sample(self, name: str) -> None:
        session = self._session
        if session is None:
            return
        if name == watch_name(session.job.uuid):
            session.watch_limits()
        else:
            session.take_sample()

    def _remember(self, kit: Kit, snapshot: JobSnapshot) -> None:
        assert self._session is not None
        table = operator_table(snapshot, self._plan, kit.clock.now_us())
        kit.recorder.write([DetailsTaken(self._session.job.uuid, Details(operators=table))])
        kit.recorder.read(lambda store: apply_retention(store, self._settings, kit.clock.now_us()))

    # ---- while it goes on, on the pool's thread ----------------------------------------------------------

    def next_wake_s(self) -> float | None:
        return self._next_tick_s

    def wake(self) -> None:
        self._next_tick_s = time.monotonic() + _TICK_S
        if self._view is None or self._session is None or self._session.is_over:
            return
        try:
            self._view.tick(self._live.refresh)
        except Exception as error:  # noqa: BLE001 - what cannot be shown never ends a job
            view, self._view = self._view, None
            with suppress(Exception):
                view.close()
            self._log.warn(f"the job goes on, but cannot be shown: {error}")


def _over(snapshot: JobSnapshot, record: Record) -> JobSnapshot:
    """An executor that could not even begin has left no word about it in the job's folder."""
    if snapshot.overall_status not in (ProcessingStatus.NOT_STARTED, ProcessingStatus.IN_PROGRESS):
        return snapshot
    was_stopped = record.status is Status.CANCELLED
    status = ProcessingStatus.STOPPED if was_stopped else ProcessingStatus.FAILED
    return replace(snapshot, overall_status=status)


def executor_request(plan: RecipePlan) -> Request:
    recipe = plan.recipe
    return Request(
        # -P: no file that happens to lie in the current folder is taken for a module
        argv=(sys.executable, "-P", "-m", "joblens.data", plan.job_dir),
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


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the job as Ctrl-C does. In a thread of somebody's program signals are theirs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, _interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
