"""Python API for workflows: `joblens.run_workflow`."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from msgspec import Struct

from joblens.agent.runs.signals import HostSignals
from joblens.analysis.runs.status import run_label
from joblens.app.driving.checks import RunRequest
from joblens.app.driving.driver import RunOutcome
from joblens.app.driving.events import EventView, JobSkipped, RunEnded, RunEvent, RunStarted
from joblens.app.driving.start import Runs
from joblens.app.driving.summary import ending_document
from joblens.app.driving.sweep import workflow_without_file
from joblens.app.jobs.api import Result
from joblens.app.jobs.requests import (
    count_of,
    current_dir,
    mapping_of,
    memory_of,
    seconds_of,
    texts_of,
)
from joblens.app.queue.notifiers import with_broker
from joblens.app.runs.specs import hide_secrets
from joblens.app.runs.tables import result_rows
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.drivers import AGENT_ANSWER_S, StoreConnection, open_store_to_read
from joblens.app.wiring.machine import parse_gpus
from joblens.app.wiring.settings import load_settings
from joblens.app.workflows.loader import LoadedSpec, load_document, load_spec
from joblens.model.errors import InputError, JoblensError
from joblens.model.jobs.probe_choice import chosen_probes
from joblens.model.runs.run import RunOptions, Workflow
from joblens.model.settings import Settings
from joblens.ports.store import Store

OnEvent = Callable[[RunEvent], None]

_ENGINES = ("local", "celery", "ray", "slurm")


class WorkflowJob(Struct, frozen=True, kw_only=True):
    """A job of an ended run, with its last attempt."""

    name: str
    status: str  # completed, failed, canceled, terminated, disabled, …
    reason: str = ""  # why it did not succeed
    attempts: int = 0
    job_id: int | None = None  # of its record; None: it did not run
    job_uuid: str | None = None
    returncode: int | None = None
    duration_s: float | None = None


class RunResult:
    """A run that has ended."""

    def __init__(
        self, driven: RunOutcome, jobs: tuple[WorkflowJob, ...], form: dict[str, Any], settings: Settings
    ) -> None:
        self._driven = driven
        self._form = form
        self._settings = settings
        self.jobs = jobs

    @property
    def run_id(self) -> str:
        """Such as "3.1", for `joblens results` and other commands."""
        return run_label(self._driven.run)

    @property
    def run_uuid(self) -> str:
        return self._driven.run.uuid

    @property
    def status(self) -> str:
        """completed, failed or stopped."""
        return self._driven.status.value

    @property
    def ok(self) -> bool:
        return self.status == "completed"

    @property
    def duration_s(self) -> float:
        return self._driven.wall_s

    def result(self, name: str) -> Result:
        """Returns the last attempt of a job, with its usage, samples and output. Raises InputError for a job
        that did not run."""
        uuid = next((job.job_uuid for job in self.jobs if job.name == name), None)
        if uuid is None:
            raise InputError(f"no job '{name}' ran in run {self.run_id}")
        with closing(open_store_to_read(self._settings, OwnLog(self._settings.logs).warn)) as store:
            return Result(store.find(uuid), self._settings)

    def as_dict(self) -> dict[str, Any]:
        """The document of `joblens run FILE --json`."""
        return self._form

    def __repr__(self) -> str:
        return f"<RunResult {self.run_id} {self.status} {self.duration_s:.3f} s>"


class RunFailed(JoblensError):
    """The run did not succeed."""

    def __init__(self, result: RunResult) -> None:
        failed = [job for job in result.jobs if job.status in ("failed", "terminated", "pending_failed")]
        why = f": {failed[0].name}: {failed[0].reason or failed[0].status}" if failed else ""
        super().__init__(f"run {result.run_id} {result.status}{why}")
        self.result = result


def run_workflow(  # noqa: PLR0913 - the keywords are the interface
    workflow: "str | os.PathLike[str] | Mapping[str, Any]",
    *,
    engine: str = "local",
    on_event: OnEvent | None = None,
    params: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    cpus: float | None = None,
    memory: str | int | None = None,
    gpus: str | int | None = None,
    time: str | float | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    until: Sequence[str] = (),
    output_dir: "str | os.PathLike[str]" = "output",
    cwd: "str | os.PathLike[str] | None" = None,
    enforce: bool = True,
    monitor: bool = True,
    probes: str | None = None,
    address: str = "",
    queue: str = "",
    check: bool = False,
    store: str | None = None,
) -> RunResult:
    """Runs a workflow to its end, like `joblens run FILE`. `workflow` is the path of a file, or a dict
    with the keys of one; runs of dicts with the same name belong to one workflow. `jobs`, `cpus`,
    `memory`, `gpus` and `time` limit what the jobs may use together.

    `on_event` is called with each event, in the thread that called `run_workflow`. An exception in it is
    a warning, and the run continues. Raises SpecError or another InputError before anything has started,
    and with `check` RunFailed for anything but success.

    Works in any thread and does not change signal handlers. An exception such as KeyboardInterrupt stops
    the jobs first and is raised again; `joblens resume` continues the run.
    """
    if engine not in _ENGINES:
        raise InputError(f"engine='{engine}'", hint=f"one of {', '.join(_ENGINES)}")
    if probes is not None:
        chosen_probes(probes)
    overrides = {name: value for name, value in (("store.url", store), ("queue.name", queue)) if value}
    settings = load_settings(overrides=overrides).settings
    options = RunOptions(
        output_dir=os.fspath(output_dir),
        cwd=current_dir() if cwd is None else os.path.abspath(cwd),
        most_jobs=count_of("jobs", jobs),
        cpus=_positive("cpus", cpus),
        memory_bytes=_positive("memory", memory_of("memory", memory)),
        gpus=parse_gpus(str(gpus)) if gpus is not None else None,
        time_s=_positive("time", seconds_of("time", time)),
        only=texts_of("only", only),
        skip=texts_of("skip", skip),
        until=texts_of("until", until),
        parameters=mapping_of("params", params),
        enforce=enforce,
        monitor=monitor,
        probes=probes,
        interrupt="kill",
        engine=engine,
        address=address,
        queue=queue,
    )
    result = _WorkflowCall(settings, on_event).run(workflow, with_broker(options, settings))
    if check and not result.ok:
        raise RunFailed(result)
    return result


T = TypeVar("T", int, float)


def _positive(name: str, value: T | None) -> T | None:
    if value is not None and not value > 0:
        raise InputError(f"{name}={value}: must be more than 0")
    return value


class _WorkflowCall:
    """Drives on its own thread and delivers events on the caller's: an exception there, such as
    KeyboardInterrupt, never hits the driver."""

    def __init__(self, settings: Settings, on_event: OnEvent | None) -> None:
        self._settings = settings
        self._on_event = on_event
        self._log = OwnLog(settings.logs)
        self._signals = HostSignals()
        self._events: queue.SimpleQueue[RunEvent | None] = queue.SimpleQueue()  # None: the driver has ended
        self._skipped: set[str] = set()
        self._driven: RunOutcome | None = None
        self._error: BaseException | None = None

    def run(self, workflow: Any, options: RunOptions) -> RunResult:
        loaded = _load(workflow, options)
        options = hide_secrets(loaded, options)
        for warning in loaded.warnings_for(options.engine):
            self._log.warn(warning)
        with closing(StoreConnection(self._settings, self._log.warn, AGENT_ANSWER_S)) as connection:
            runs = Runs(self._settings, None, connection, self._log.warn, lambda: self._log)
            home = _home_of(workflow, loaded, connection.if_exists())
            run = runs.prepare(RunRequest(loaded=loaded, options=options, workflow=home))
            plan = loaded.plan
            self._deliver(
                RunStarted(run_id=run_label(run), run_uuid=run.uuid, workflow=plan.name, jobs=len(plan.jobs))
            )

            def drive() -> None:
                try:
                    self._driven = runs.drive(
                        run,
                        plan,
                        make_view=lambda _run, plan, _offer: EventView(plan, self._events.put),
                        signals=self._signals,
                    )
                except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                    self._error = error
                finally:
                    self._events.put(None)

            threading.Thread(target=drive, name="joblens-run", daemon=True).start()
            interruption = self._deliver_until_end()
            if self._driven is None:
                assert self._error is not None
                raise self._error
            result = self._result(self._driven, connection.to_read())
        for job in result.jobs:  # jobs whose dependencies failed are still blocked
            if not job.attempts and job.name not in self._skipped:
                self._deliver(JobSkipped(job=job.name, reason=job.reason))
        ended = RunEnded(run_id=result.run_id, status=result.status, duration_s=result.duration_s)
        self._deliver(ended)
        if interruption is not None:
            raise interruption
        return result

    def _deliver_until_end(self) -> BaseException | None:
        """Returns the exception that interrupted the caller, once the jobs have ended."""
        interruption: BaseException | None = None
        while True:
            try:
                event = self._events.get()
                if event is None:
                    return interruption
                self._deliver(event)
            except BaseException as error:  # noqa: BLE001 - raised again when the jobs have ended
                interruption = interruption or error
                self._signals.send(signal.SIGINT)

    def _deliver(self, event: RunEvent) -> None:
        if isinstance(event, JobSkipped):
            self._skipped.add(event.job)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - the run does not depend on it
            self._log.warn(f"on_event failed for {type(event).__name__}: {error!r}")

    def _result(self, driven: RunOutcome, store: Store) -> RunResult:
        jobs = tuple(
            WorkflowJob(
                name=row.name,
                status=row.state.label,
                reason=row.why,
                attempts=row.attempts,
                job_id=row.job_id,
                job_uuid=row.job_uuid,
                returncode=row.return_code,
                duration_s=row.duration_s,
            )
            for row in result_rows(store, store.find_run(driven.run.uuid))
        )
        return RunResult(driven, jobs, ending_document(store, driven), self._settings)


def _load(workflow: Any, options: RunOptions) -> LoadedSpec:
    if isinstance(workflow, Mapping):
        return load_document(workflow, options.parameters, options.cwd)
    if not isinstance(workflow, str | os.PathLike):
        raise InputError(f"workflow {workflow!r}: expected the path of a file, or a dict")
    return load_spec(os.fspath(workflow), options.parameters)


def _home_of(workflow: Any, loaded: LoadedSpec, store: Store | None) -> Workflow | str:
    """Returns the workflow that the run belongs to, or the file to create it from."""
    if not isinstance(workflow, Mapping):
        return os.path.abspath(loaded.path)
    known = None if store is None else workflow_without_file(store, loaded.plan.name)
    return known or ""
