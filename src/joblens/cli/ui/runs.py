"""Views of a run in progress: drawn in place on a terminal, as plain lines elsewhere.

The driver reports events (`agent.runs.view`); the usage of running jobs is read from the store.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from joblens.analysis.formats.history import where_it_ran
from joblens.app.jobs.live import FIRST_RATE_S, LiveTails
from joblens.app.runs.records import driven_before_s, earlier_durations, enabled_indices
from joblens.cli.ui.screen import RunScreen
from joblens.engine.progress.progress import JobFailure, ProgressTracker, RunProgress
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.clusters.slurm import CANCELLED_REASON, WALLTIME_REASON
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState, Run, RunStatus
from joblens.model.values.units import format_bytes, format_duration
from joblens.plan.workflows.graph import Graph
from joblens.ports.store import Store
from joblens.views.jobs.summary import ending
from joblens.views.runs.live import (
    end_line,
    failure_line,
    failure_text,
    note_line,
    render_run_live,
    summary_line,
)
from joblens.views.text.charts import last_known, points
from joblens.views.text.style import Palette, clean_lines, fit

_DRAW_EVERY_S = 0.25
_POLL_EVERY_S = 0.4
_SHARE = 0.02  # share of the driver's time for drawing: very large runs are drawn less often
_MAX_SAMPLED_JOBS = 40  # reading samples of a thousand running jobs would cost more than it shows
_SUMMARY_EVERY_S = 10.0
_SUMMARY_STEPS = 10
_FIRST_ENDS = 50  # after this many ends of jobs, only failures and summaries are reported

Usage = Mapping[str, tuple[float | None, int | None]]


def tracker_for(run: Run, plan: Plan, store: Store, offer: RunCapacity) -> ProgressTracker:
    """Its clock is the time that the run was driven, as in all tables."""
    before_s = driven_before_s(store, run)
    tracker = ProgressTracker(
        plan,
        Graph(plan).stages(),
        offer,
        earlier_durations(store, run, plan),
        run=f"{run.workflow_number}.{run.number}" if run.number else run.uuid[:8],
        began_at_us=_now_us() - round(before_s * 1e6),
    )
    enabled = enabled_indices(plan, run.options)
    if enabled is not None:
        for index in range(len(plan.jobs)):
            if index not in enabled:
                tracker.state_changed(index, JobState.DISABLED, tracker.began_at_us)
    return tracker


def failure_of(index: int, attempt: int, record: Record) -> JobFailure:
    outcome = record.outcome
    reason, last_line = record.status.value, ""
    if outcome is not None:
        how = ending(outcome)
        reason = how or outcome.status.value
        requirements = record.job.requirements
        if outcome.reason in (CANCELLED_REASON, WALLTIME_REASON):
            reason = outcome.error or reason
        elif outcome.status is Status.TIMEOUT:
            limit = (
                "" if requirements.timeout_s is None else f" after {format_duration(requirements.timeout_s)}"
            )
            reason = f"timed out{limit}"
        elif outcome.reason == "out-of-memory" and requirements.memory_bytes is not None:
            reason += f" at {format_bytes(requirements.memory_bytes)}"
        elif outcome.status is Status.CANCELLED and outcome.reason != "not-started":
            reason = "cancelled"
        elif outcome.reason == "not-started" and outcome.error:
            reason = outcome.error
        written = [line for line in clean_lines(outcome.stderr_tail) if line.strip()]
        # For a job that did not start, the log has only the reason.
        last_line = written[-1] if written and outcome.reason != "not-started" else ""
    return JobFailure(
        index=index,
        name=record.job.name,
        attempt=attempt,
        reason=reason,
        last_line=last_line,
        number=record.number,
    )


def _retry_in(why: str) -> str:
    """Returns 'retrying with 80.0 MiB (1 of 3)' from 'out of memory; retrying with 80.0 MiB (1 of 3)'."""
    _, found, rest = why.partition("retrying")
    return f"retrying{rest}" if found else "retrying"


class _Following(ABC):
    """Common part of both kinds of view."""

    def __init__(self, tracker: ProgressTracker, plan: Plan, store: Store) -> None:
        self.tracker = tracker
        self._tails = LiveTails(store, 3)
        self._usage: Usage = {}
        self._store = store
        self._where: dict[str, str] = {}  # of running jobs; '': all jobs of the run are on this machine
        self._names = [job.name for job in plan.jobs]
        # Reported with the job's next state, which shows whether it is retried and has its output files.
        self._pending_failures: dict[int, JobFailure] = {}
        self._pending_successes: dict[int, tuple[int, Record]] = {}
        self._lost: dict[int, int] = {}  # attempts of each job that were lost with their workers

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        before = self.tracker.state_of(index)
        self.tracker.state_changed(index, state, _now_us())
        failure = self._pending_failures.pop(index, None)
        attempt, record = self._pending_successes.pop(index, (1, None))
        if record is not None and state is JobState.COMPLETED:
            self.succeeded(index, attempt, record)
        elif failure is not None and state is not JobState.COMPLETED:
            self._report(failure, state, why)
        elif record is not None or (
            state is JobState.FAILED and before is not state and index not in self.tracker.failures
        ):
            # It exited with 0, but output files are missing.
            number = None if record is None else record.number
            name = self._names[index]
            reason = why.partition("; retrying")[0]
            failure = JobFailure(index=index, name=name, attempt=attempt, reason=reason, number=number)
            self._report(failure, state, why)

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        self._names += [job.name for job in jobs]
        self.tracker.add_jobs(jobs)

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self._report_retried(index)
        self.tracker.attempt_began(index, attempt, job_uuid, at_us)

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        self._report_retried(index)
        # earlier ones were lost with their workers
        if record.attempt is not None and record.attempt.number > 1:
            self._lost[index] = self._lost.get(index, 0) + record.attempt.number - 1
        attempt += self._lost.get(index, 0)
        if record.status is Status.SUCCESS:
            self.tracker.attempt_succeeded(index, record.outcome.duration_s if record.outcome else 0.0)
            self._pending_successes[index] = (attempt, record)
        else:
            if record.status is Status.CANCELLED:
                self.tracker.attempt_cancelled(index)
            self._pending_failures[index] = failure_of(index, attempt, record)

    def _report(self, failure: JobFailure, state: JobState, why: str = "") -> None:
        if not state.is_final:
            failure = replace(failure, retry=_retry_in(why))
        self.tracker.attempt_failed(failure)
        self.failed(failure)

    def _report_retried(self, index: int) -> None:
        """Reports a failure whose next attempt was seen before any other state of the job."""
        failure = self._pending_failures.pop(index, None)
        if failure is not None:
            self._report(failure, JobState.READY)

    def _report_rest(self) -> None:
        for index, failure in list(self._pending_failures.items()):
            self._report(failure, JobState.FAILED)
            del self._pending_failures[index]
        for index, (attempt, record) in self._pending_successes.items():
            self.succeeded(index, attempt, record)
        self._pending_successes.clear()

    def progress(self) -> RunProgress:
        """Returns the progress, with the usage that `read_usage` read last."""
        progress = self.tracker.progress(_now_us(), self._usage)
        if not any(self._where.values()):
            return progress
        running = tuple(replace(job, where=self._where.get(job.job_uuid, "")) for job in progress.running)
        return replace(progress, running=running)

    def _read_where(self, uuids: Sequence[str]) -> None:
        """Jobs of a run are all here or all elsewhere: the first one decides."""
        if self._where and not any(self._where.values()):
            return
        for uuid in uuids:
            if uuid not in self._where:
                self._where[uuid] = where_it_ran(self._store.find(uuid)).describe()

    def read_usage(self, *, with_rates: bool = False) -> None:
        """`with_rates`: reads a second time, a moment later, if a job has only one reading."""
        self._usage, has_all = self._current_usage()
        if with_rates and not has_all:
            time.sleep(FIRST_RATE_S)
            self._usage, _ = self._current_usage()

    def _current_usage(self) -> tuple[Usage, bool]:
        running = [uuid for _, uuid in self.tracker.running_jobs()[:_MAX_SAMPLED_JOBS]]
        try:
            tails = self._tails.tails_of(running)
            self._read_where(running)
        except JoblensError:
            return {}, True  # the run continues without usage
        usage = {}
        for job_uuid, samples in tails.items():
            curve = points(samples)
            if len(curve) > 1:  # one sample gives no rate
                usage[job_uuid] = (
                    last_known(point.cpu_percent for point in curve),
                    last_known(point.memory_bytes for point in curve),
                )
        return usage, len(usage) == len(running)

    @abstractmethod
    def succeeded(self, index: int, attempt: int, record: Record) -> None: ...

    @abstractmethod
    def failed(self, failure: JobFailure) -> None: ...


class LiveView(_Following):
    """View on a terminal."""

    def __init__(
        self, tracker: ProgressTracker, plan: Plan, store: Store, descriptor: int, paint: Palette
    ) -> None:
        super().__init__(tracker, plan, store)
        self._screen = RunScreen(descriptor)
        self._paint = paint
        self._polled_at_s = self._draw_at_s = float("-inf")

    def succeeded(self, index: int, attempt: int, record: Record) -> None:
        pass  # shown by the bars

    def failed(self, failure: JobFailure) -> None:
        width = self._screen.size.columns
        self._screen.say(self._paint.paint(fit(failure_text(failure), width), "red"))

    def note(self, text: str) -> None:
        self.tracker.message = text

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s < self._draw_at_s:
            return
        if now_s - self._polled_at_s >= _POLL_EVERY_S:
            self._polled_at_s = now_s
            self.read_usage()
        self._draw()
        took_s = time.monotonic() - now_s
        self._draw_at_s = now_s + max(_DRAW_EVERY_S, took_s / _SHARE)

    def close(self, status: RunStatus) -> None:
        self._report_rest()
        self.tracker.status = status
        if status is not RunStatus.STOPPED:
            self.tracker.message = ""  # messages of a running run; that of a stopped one says why
        self.read_usage()
        self._draw()
        self._screen.leave()
        self._tails.close()

    def leave(self) -> None:
        """Stops drawing; the run continues."""
        self._screen.leave()

    def _draw(self) -> None:
        size = self._screen.size
        # The last line stays free: writing into it would make some terminals scroll.
        progress = replace(self.progress(), failures=())  # already shown above
        lines = render_run_live(
            progress, width=size.columns - 1, height=max(2, size.lines - 1), paint=self._paint
        )
        self._screen.draw(lines)


class LineView(_Following):
    """View without a terminal: a line per ended job while there are few, per failure, and a summary every
    ten seconds or tenth of the run."""

    def __init__(self, tracker: ProgressTracker, plan: Plan, store: Store, descriptor: int | None) -> None:
        super().__init__(tracker, plan, store)
        self._descriptor = descriptor  # None: only counts
        self._ends = 0
        self._summed_at_s = time.monotonic()
        self._step = 0

    def succeeded(self, index: int, attempt: int, record: Record) -> None:
        self._ends += 1
        if self._ends <= _FIRST_ENDS and record.outcome is not None:
            self._write(end_line(self._names[index], self._elapsed_s(), record.outcome.duration_s, attempt))

    def failed(self, failure: JobFailure) -> None:
        self._write(failure_line(failure, self._elapsed_s()))

    def note(self, text: str) -> None:
        self._write(note_line(text, self._elapsed_s()))

    def tick(self) -> None:
        now_s = time.monotonic()
        finished, total = self.tracker.finished()
        step = _SUMMARY_STEPS * finished // max(1, total)
        few = total <= _FIRST_ENDS  # every end is reported: a summary at each tenth would double the lines
        if now_s - self._summed_at_s >= _SUMMARY_EVERY_S or (step > self._step and not few):
            self._summed_at_s = now_s
            self._write(summary_line(self.progress()))
        self._step = max(step, self._step)

    def close(self, status: RunStatus) -> None:
        self._report_rest()
        self.tracker.status = status
        self._write(f"{summary_line(self.progress())}: run {status.value}")
        self._tails.close()

    def leave(self) -> None:
        pass

    def _elapsed_s(self) -> float:
        return self.tracker.elapsed_s(_now_us())

    def _write(self, line: str) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, f"{line}\n".encode(errors="replace"))
        except OSError:
            pass  # the reader is gone; the run continues


def view_for(
    run: Run,
    plan: Plan,
    store: Store,
    offer: RunCapacity,
    *,
    descriptor: int,
    color: bool,
    is_silent: bool = False,
) -> LiveView | LineView:
    """Returns the view that fits `descriptor`. `is_silent`: it only counts."""
    tracker = tracker_for(run, plan, store, offer)
    if is_silent:
        return LineView(tracker, plan, store, None)
    if os.isatty(descriptor) and os.environ.get("TERM", "dumb") != "dumb":
        return LiveView(tracker, plan, store, descriptor, Palette(is_on=color))
    return LineView(tracker, plan, store, descriptor)


def _now_us() -> int:
    return time.time_ns() // 1000
