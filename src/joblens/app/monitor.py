"""Monitoring from inside a Python program: what happens between a start and a stop is a job, with a record
like any other."""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from joblens.agent.in_process import Measurement
from joblens.agent.window import Window
from joblens.analysis.history_form import to_history_record
from joblens.analysis.profile import detailed_profile
from joblens.analysis.statistics import summary_form
from joblens.app.host_program import HostConnection, private_dir, shared_meter
from joblens.app.job_tracker import CODES, REASONS, JobTracker, log_end, logger, parse_status, verdict_on
from joblens.app.plain_values import plain_params, plain_text
from joblens.app.sample_rows import Samples
from joblens.model.errors import InputError, UnknownJob
from joblens.model.history import HistoryQuery
from joblens.model.ids import new_uuid
from joblens.model.job import Attempt, Job, Outcome, Record, Status
from joblens.model.secrets import redact_params, redact_text

DEFAULT_INTERVAL_S = 0.5
_NEVER_S = 10.0 * 365 * 86400  # only the first and the last sample


class _Active(Struct):
    job: Job
    attempt: Attempt
    window: Window


class JobMonitor:
    """Safe to use from any number of threads. With `log_dir` the store and jobs_history.jsonl are in that
    directory, else where the configuration says. `interval` is the time between samples in seconds."""

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
        """Measure this process, and what it starts from now on, as the job `task_id`. -> the job's UUID."""
        task_id = plain_text(task_id)
        if not task_id:
            raise InputError("task_id is empty", hint="give the job an id of your own, such as my-task-123")
        if task_id in self._active:
            logger.warning("Job %s was started again before it was stopped", task_id)
            self.stop_monitoring(task_id, Status.ERROR, error="started again before it was stopped")
        self._connection.open()
        shown = redact_params(plain_params(params))
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
        )
        logger.info("Starting job %s: tool=%s, script=%s, params=%s", task_id, job.tool, job.script, shown)
        attempt = self._attempt(job.created_at_us)
        self._connection.started(Record(status=Status.RUNNING, job=job, attempt=attempt))
        # Last, so that writing the record down is not measured.
        window = shared_meter().begin(
            job.interval_s if self.enable_profiling else _NEVER_S,
            lambda first, samples: self._connection.sampled(job.uuid, first, samples),
        )
        with self._lock:
            self._active[task_id] = _Active(job, attempt, window)
        return job.uuid

    def stop_monitoring(
        self,
        task_id: str,
        status: str,
        returncode: int | None = 0,
        error: str | None = None,
        result: Any = None,
    ) -> dict[str, Any]:
        """End the job and return its record; {} for a job that is not being monitored."""
        verdict = parse_status(status)
        with self._lock:
            active = self._active.pop(plain_text(task_id), None)
        if active is None:
            logger.warning("Job %s is not being monitored", task_id)
            return {}
        measured = shared_meter().end(active.window)
        outcome = Outcome(
            status=verdict,
            ended_at_us=measured.ended_at_us,
            duration_s=measured.duration_s,
            exit_code=returncode,
            reason=REASONS[verdict],
            error=None if error is None else redact_text(plain_text(error)),
            has_result=result is not None,
            usage=measured.usage,
            profile=self._profile(measured),
            findings=measured.findings,
            samples=measured.samples,
            sampling_interval_s=measured.sampling_interval_s,
        )
        record = Record(status=verdict, job=active.job, attempt=active.attempt, outcome=outcome)
        log_end(task_id, outcome)
        return to_history_record(self._connection.ended(record, measured.first_pending, measured.pending))

    @contextlib.contextmanager
    def track_job(
        self, task_id: str, tool: str, script: str, params: Mapping[str, Any] | None = None, **more: Any
    ) -> Iterator[JobTracker]:
        """The block is the job. Success unless the tracker was told otherwise or an exception leaves it:
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
        """Jobs that have ended, newest first."""
        if limit is not None and limit < 0:
            raise InputError(f"limit {limit}: expected a number of jobs, 0 or more")
        query = HistoryQuery(limit=limit, include_unfinished=False)
        self._connection.settle()
        return self._connection.read(
            lambda store: [to_history_record(record) for record in store.records(query)]
        )

    def get_job_stats(self, task_id: str) -> dict[str, Any] | None:
        """The newest job with that id (or that UUID, or a unique part of one); None when there is none."""
        self._connection.settle()
        try:
            return self._connection.read(lambda store: to_history_record(store.find(plain_text(task_id))))
        except UnknownJob:
            return None

    def get_summary_statistics(self) -> dict[str, Any]:
        self._connection.settle()
        return self._connection.read(lambda store: summary_form(store.statistics(HistoryQuery())))

    def samples(self, task_id: str) -> Samples:
        """Every sample of a job so far."""
        return self._connection.read(lambda store: Samples.of(store, plain_text(task_id)))

    def close(self) -> None:
        """Give the store back; using the monitor again opens it again."""
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
        )

    def _profile(self, measured: Measurement) -> dict[str, Any] | None:
        if not self.enable_profiling:
            return None
        profile = detailed_profile(measured.kept, measured.usage, measured.duration_s)
        return profile | {"samples_collected": measured.samples}


_global: list[JobMonitor] = []
_making_global = threading.Lock()
_monitors: "weakref.WeakSet[JobMonitor]" = weakref.WeakSet()


def get_monitor() -> JobMonitor:
    """One monitor for the whole program, with the default store."""
    with _making_global:
        if not _global:
            _global.append(JobMonitor())
        return _global[0]


def _current_dir() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed under the host program


def _forget_parents_jobs() -> None:
    global _making_global  # noqa: PLW0603  (the lock may be held by a thread that is not in this process)
    _making_global = threading.Lock()
    for monitor in list(_monitors):
        monitor._forget_jobs()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_parents_jobs)
