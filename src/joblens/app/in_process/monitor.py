"""JobMonitor: jobs measured inside a Python program between a start and a stop, and their samples.

Ray is never imported here: programs outside it pay nothing for it.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs
from msgspec.structs import replace

from joblens.agent.measuring.window_measurement import Measurement
from joblens.analysis.formats.history import to_history_record
from joblens.analysis.numbers.attribution import with_co2
from joblens.analysis.numbers.profile import METRICS
from joblens.analysis.numbers.statistics import summary_form
from joblens.app.in_process.host_meter import (
    IN_PROCESS_PROBES,
    ProgramWide,
    open_instruments,
    shared_meter,
)
from joblens.app.in_process.host_program import HostConnection, private_dir
from joblens.app.in_process.profiler import profile_of
from joblens.app.jobs.requests import plain_params, plain_text
from joblens.model.errors import InputError, UnknownJob
from joblens.model.history import BENCH_TAG, HistoryQuery
from joblens.model.jobs.job import Attempt, Job, Outcome, Placement, Record, Status
from joblens.model.jobs.probe_choice import chosen_probes
from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample
from joblens.model.redaction.secrets import SecretValues, redact_params, redact_text, secret_values
from joblens.model.values.ids import new_uuid
from joblens.model.values.units import format_instant
from joblens.ports.store import Store

if TYPE_CHECKING:
    from joblens.app.in_process.watched_container import WatchedContainer


class Samples(list[dict[str, Any]]):
    """One dict per sample in time order, every field of docs/metrics.md by name; None: unknown."""

    @classmethod
    def of(cls, store: Store, ident: str) -> "Samples":
        uuid = store.find(ident).job.uuid
        return cls({"index": index, **_plain(sample)} for index, sample in store.samples(uuid))

    def to_arrow(self) -> Any:
        """Returns a pyarrow.Table with one int64 column per field, and `at`, a timestamp; without tables
        by device. Needs the `data` extra."""
        from joblens.stores.sinks.parquet import integer_table

        return integer_table(self, ("index", *SAMPLE_COLUMNS), {"at": "at_us"})


def _plain(sample: Sample) -> dict[str, Any]:
    row = structs.asdict(sample)
    for name in SAMPLE_TABLES:
        if row[name] is not None:
            row[name] = {entry: structs.asdict(numbers) for entry, numbers in row[name].items()}
    return row


def ray_placement() -> Placement | None:
    """Returns the placement of the Ray task or actor of this process; None outside Ray, and in a program
    that only submits to it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    task = context.get_task_id()
    if task is None or context.worker.mode != ray.WORKER_MODE:
        return None
    actor = context.get_actor_id()
    resources = {name: f"{amount:g}" for name, amount in (context.get_assigned_resources() or {}).items()}
    if actor is not None:
        resources["actor"] = actor
    return Placement(engine="ray", job_id=task, node_id=context.get_node_id(), asked=resources)


def is_remote(thing: Any) -> bool:
    """Returns whether `ray.remote` made it."""
    return hasattr(thing, "__ray_metadata__") or type(thing).__module__ == "ray.remote_function"


def measured_remote(thing: Any, decorate: Callable[[Any], Any]) -> Any:
    """Returns it for Ray again, with the inside measured. There is no public API for that, so an
    unsupported version of Ray is reported."""
    metadata = getattr(thing, "__ray_metadata__", None)
    inside = (
        getattr(thing, "_function", None)
        if metadata is None
        else getattr(metadata.modified_class, "__ray_actor_class__", None)
    )
    if inside is None or not hasattr(thing, "_default_options"):
        raise InputError(
            "this version of Ray does not expose the wrapped function",
            hint="write @ray.remote above @joblens.measured",
        )
    options = {name: value for name, value in (thing._default_options or {}).items() if value is not None}  # noqa: SLF001
    remote = sys.modules["ray"].remote
    made = decorate(inside)
    return remote(**options)(made) if options else remote(made)


STATUSES = (Status.SUCCESS, Status.FAILED, Status.TIMEOUT, Status.ERROR)
REASONS = {
    Status.SUCCESS: "exited",
    Status.FAILED: "exited",
    Status.TIMEOUT: "timeout",
    Status.ERROR: "exception",
}
CODES = {Status.SUCCESS: 0, Status.FAILED: 1, Status.TIMEOUT: 124, Status.ERROR: 1}

logger = logging.getLogger("joblens.monitor")


class JobTracker:
    """Result of `track_job`: sets how the job ended if not with success."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.status = Status.SUCCESS
        self.returncode: int | None = None
        self.error: str | None = None
        self.result: Any = None
        self.record: dict[str, Any] = {}  # filled when the block is left

    def set_status(self, status: str, returncode: int | None = None, error: str | None = None) -> None:
        self.status, self.returncode, self.error = parse_status(status), returncode, error

    def set_result(self, result: Any) -> None:
        self.result = result


def parse_status(text: str) -> Status:
    try:
        status = Status(text)
    except ValueError:
        status = Status.LOST
    if status not in STATUSES:
        known = ", ".join(STATUSES)
        raise InputError(f"'{text}' is not a status a job can end with", hint=f"use one of {known}")
    return status


def verdict_on(error: BaseException) -> tuple[Status, int]:
    expired = getattr(sys.modules.get("subprocess"), "TimeoutExpired", TimeoutError)
    if isinstance(error, (TimeoutError, expired)):
        return Status.TIMEOUT, CODES[Status.TIMEOUT]
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return (Status.FAILED if code else Status.SUCCESS), code
    return Status.ERROR, CODES[Status.ERROR]


def log_end(task_id: str, outcome: Outcome) -> None:
    detail = f" - Error: {outcome.error}" if outcome.error else ""
    if outcome.status is Status.SUCCESS:
        cpu_s = (outcome.usage.cpu_total_usec or 0) / 1e6
        logger.info(
            "Job %s completed successfully - Duration: %.2fs, CPU: %.2fs", task_id, outcome.duration_s, cpu_s
        )
    elif outcome.status is Status.TIMEOUT:
        logger.warning("Job %s timed out%s", task_id, detail)
    elif outcome.status is Status.FAILED:
        logger.error(
            "Job %s failed with return code %s - Duration: %.2fs%s",
            task_id,
            outcome.exit_code,
            outcome.duration_s,
            detail,
        )
    else:
        logger.error("Job %s encountered an error - Duration: %.2fs%s", task_id, outcome.duration_s, detail)


DEFAULT_INTERVAL_S = 0.5
_NEVER_S = 10.0 * 365 * 86400  # only the first and the last sample


class _Active(Struct):
    job: Job
    attempt: Attempt
    window: Any
    container: "WatchedContainer | None"
    secrets: SecretValues


class JobMonitor:
    """Safe to use from any number of threads. With `log_dir` the store and jobs_history.jsonl are in that
    directory, otherwise where the configuration says. `interval` is the time between samples in seconds."""

    def __init__(
        self,
        log_dir: "str | os.PathLike[str] | None" = None,
        enable_profiling: bool = True,  # noqa: FBT001, FBT002  (called with it by position as well)
        interval: float | None = None,
    ) -> None:
        if interval is not None and not interval > 0:
            raise InputError(f"interval {interval}: expected seconds, more than 0")
        self.log_dir = None if log_dir is None else private_dir(log_dir)
        self.enable_profiling = enable_profiling
        self._interval_s = interval
        self._connection = HostConnection(self.log_dir, logger.warning)
        self._forget_jobs()
        _monitors.add(self)

    def _forget_jobs(self) -> None:
        self._lock = threading.Lock()
        self._active: dict[str, _Active] = {}

    # -- measuring

    def start_monitoring(
        self,
        task_id: str,
        tool: str,
        script: str,
        params: Mapping[str, Any] | None = None,
        container_name: str | None = None,
        *,
        name: str = "",
        tags: tuple[str, ...] = (),
    ) -> str:
        """Measures this process, and all that it starts from now on, as the job `task_id`. Returns the
        job's UUID. With `container_name` the profile includes that container, which may be started later."""
        task_id = plain_text(task_id)
        if not task_id:
            raise InputError("task_id is empty", hint="give an ID such as my-task-123")
        if task_id in self._active:
            logger.warning("Job %s was started again before it was stopped", task_id)
            self.stop_monitoring(task_id, Status.ERROR, error="started again before it was stopped")
        self._connection.open()
        values = plain_params(params)
        shown, secrets = redact_params(values), secret_values(values)
        job = Job(
            uuid=new_uuid(),
            argv=(),
            created_at_us=time.time_ns() // 1000,
            external_id=task_id,
            name=name or plain_text(script) or plain_text(tool) or task_id,
            tool=plain_text(tool),
            script=plain_text(script),
            params=shown,
            tags=(*tags, f"container={plain_text(container_name)}") if container_name else tags,
            cwd=_current_dir(),
            interval_s=self._interval(),
            user=self._connection.user(),
            probes=self._probes(),
            grid_co2_g_per_kwh=self._connection.settings().energy.grid_co2_g_per_kwh,
        )
        job = replace(secrets.hide_in_job(job), external_id=task_id)
        logger.info("Starting job %s: tool=%s, script=%s, params=%s", task_id, job.tool, job.script, shown)
        attempt = self._attempt(job.created_at_us)
        self._connection.started(Record(status=Status.RUNNING, job=job, attempt=attempt))
        container = None
        if container_name and self.enable_profiling:
            from joblens.app.in_process.watched_container import WatchedContainer

            container = WatchedContainer(plain_text(container_name), job.interval_s, METRICS)
        instruments = open_instruments(job)

        def write(first: int, samples: tuple[Sample, ...]) -> None:
            news = [] if instruments is None else instruments.take_news()
            self._connection.sampled(job.uuid, first, samples, news)

        # Last, so that writing the record is not measured.
        interval_s = job.interval_s if self.enable_profiling else _NEVER_S
        window = shared_meter().begin(interval_s, write, instruments=instruments)
        with self._lock:
            self._active[task_id] = _Active(job, attempt, window, container, secrets)
        return job.uuid

    def stop_monitoring(
        self,
        task_id: str,
        status: str,
        returncode: int | None = 0,
        error: str | None = None,
        result: Any = None,
    ) -> dict[str, Any]:
        """Ends the job and returns its record; {} for a job that is not being monitored."""
        verdict = parse_status(status)
        with self._lock:
            active = self._active.pop(plain_text(task_id), None)
        if active is None:
            logger.warning("Job %s is not being monitored", task_id)
            return {}
        measured = shared_meter().end(active.window)
        usage = with_co2(measured.usage, active.job.grid_co2_g_per_kwh)
        measured = replace(measured, usage=usage)
        outcome = Outcome(
            status=verdict,
            ended_at_us=measured.ended_at_us,
            duration_s=measured.duration_s,
            exit_code=returncode,
            reason=REASONS[verdict],
            error=None if error is None else active.secrets.hide(redact_text(plain_text(error))),
            has_result=result is not None,
            usage=usage,
            profile=self._profile(active, measured, is_over=True),
            findings=measured.findings,
            samples=measured.samples,
            sampling_interval_s=measured.sampling_interval_s,
        )
        record = Record(status=verdict, job=active.job, attempt=active.attempt, outcome=outcome)
        log_end(task_id, outcome)
        return to_history_record(self._connection.ended(record, measured))

    def snapshot(self, task_id: str) -> dict[str, Any]:
        """Returns the profile so far; the job continues. {} for one that is not being monitored."""
        with self._lock:
            active = self._active.get(plain_text(task_id))
        if active is None:
            return {}
        measured = shared_meter().peek(active.window)
        profile = self._profile(active, measured, is_over=False) or {}
        return profile | {"snapshot_time": format_instant(measured.ended_at_us)}

    @contextlib.contextmanager
    def track_job(
        self, task_id: str, tool: str, script: str, params: Mapping[str, Any] | None = None, **more: Any
    ) -> Iterator[JobTracker]:
        """The block is the job. It succeeds unless the tracker says otherwise or an exception leaves it:
        then timeout for a TimeoutError, error for any other; it is raised again."""
        tracker = JobTracker(task_id)
        self.start_monitoring(task_id, tool, script, params, **more)
        try:
            yield tracker
        except BaseException as error:
            verdict, code = verdict_on(error)
            tracker.record = self.stop_monitoring(
                task_id,
                verdict,
                code,
                None if verdict is Status.SUCCESS else f"{type(error).__name__}: {error}",
            )
            raise
        code = tracker.returncode if tracker.returncode is not None else CODES[tracker.status]
        tracker.record = self.stop_monitoring(task_id, tracker.status, code, tracker.error, tracker.result)

    # -- remembering

    def get_job_history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Returns ended jobs, newest first."""
        if limit is not None and limit < 0:
            raise InputError(f"limit {limit}: expected a number of jobs, 0 or more")
        query = HistoryQuery(limit=limit, include_unfinished=False, without_tag=BENCH_TAG)
        self._connection.recover_orphans()
        return self._connection.read(
            lambda store: [to_history_record(record) for record in store.records(query)]
        )

    def get_job_stats(self, task_id: str) -> dict[str, Any] | None:
        """Returns the newest job with that id (or UUID, or a unique part of one); None if there is none."""
        self._connection.recover_orphans()
        try:
            return self._connection.read(lambda store: to_history_record(store.find(plain_text(task_id))))
        except UnknownJob:
            return None

    def get_summary_statistics(self) -> dict[str, Any]:
        query = HistoryQuery(without_tag=BENCH_TAG)
        self._connection.recover_orphans()
        return self._connection.read(lambda store: summary_form(store.statistics(query)))

    def samples(self, task_id: str) -> Samples:
        """Returns every sample of a job so far."""
        return self._connection.read(lambda store: Samples.of(store, plain_text(task_id)))

    def close(self) -> None:
        """Closes the store; using the monitor again reopens it."""
        self._connection.close()

    def _interval(self) -> float:
        if self._interval_s is not None:
            return self._interval_s
        return self._connection.settings().job_metrics.default_sample_rate or DEFAULT_INTERVAL_S

    def _attempt(self, started_at_us: int) -> Attempt:
        host = self._connection.host()
        return Attempt(
            started_at_us=started_at_us,
            owner=self._connection.owner(),
            pid=os.getpid(),
            pid_start_ticks=self._connection.owner().start_ticks,
            accounting="in-process",
            kernel=host.kernel,
            cpu_count=host.cpu_count,
            memory_total_bytes=host.memory_total_bytes,
            placement=ray_placement(),
            provenance=self._connection.provenance_digest(),
        )

    def _probes(self) -> tuple[str, ...]:
        """Returns the instruments beyond the process's own counters."""
        if not self.enable_profiling:
            return ()
        probes = chosen_probes(self._connection.settings().job_metrics.probes)
        return tuple(name for name in IN_PROCESS_PROBES if name in probes)

    def _profile(self, active: _Active, measured: Measurement, *, is_over: bool) -> dict[str, Any] | None:
        container, stats = active.container, {}
        if container is not None:
            stats = container.stats(container.end() if is_over else container.peek())
        if not self.enable_profiling:
            return None
        return profile_of(measured, active.job.interval_s, METRICS, stats)


_monitors = ProgramWide(JobMonitor, JobMonitor._forget_jobs)  # noqa: SLF001


def get_monitor() -> JobMonitor:
    """Returns the monitor of the whole program, with the default store."""
    return _monitors.get()


def _current_dir() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # removed while the host program runs


def samples(task_id: str, *, log_dir: str | None = None) -> Samples:
    """Returns samples of the job with that id, UUID or unique part of one. Raises UnknownJob."""
    if log_dir is None:
        return get_monitor().samples(task_id)
    monitor = JobMonitor(log_dir=log_dir)
    try:
        return monitor.samples(task_id)
    finally:
        monitor.close()
