"""Views of a run in progress: drawn in place on a terminal, as plain lines anywhere else.

The driver reports what happens (`agent.runs.view`); the usage of running jobs is read from the store."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from joblens.analysis.formats.history import where_it_ran
from joblens.app.jobs.live import FIRST_RATE_S, LiveTails
from joblens.app.runs.records import driven_before_s, earlier_durations, enabled_places
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
_LOOK_EVERY_S = 0.4
_SHARE = 0.02  # of its driver's time that drawing may take: pictures of very large runs come less often
_JOBS_LOOKED_AT = 40  # reading the samples of all of a thousand running jobs would cost more than it shows
_SUMMARY_EVERY_S = 10.0
_SUMMARY_STEPS = 10
_FIRST_ENDS = 50  # after so many ends of jobs only failures and summaries are told one by one

Usage = Mapping[str, tuple[float | None, int | None]]


def tracker_for(run: Run, plan: Plan, store: Store, offer: RunCapacity) -> ProgressTracker:
    """Its clock tells how long the run was driven, the same as all tables do."""
    before_s = driven_before_s(store, run)
    tracker = ProgressTracker(
        plan,
        Graph(plan).stages(),
        offer,
        earlier_durations(store, run, plan),
        run=f"{run.workflow_number}.{run.number}" if run.number else run.uuid[:8],
        began_at_us=_now_us() - round(before_s * 1e6),
    )
    enabled = enabled_places(plan, run.options)
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
        asked = record.job.requirements
        if outcome.reason in (CANCELLED_REASON, WALLTIME_REASON):
            reason = outcome.error or reason
        elif outcome.status is Status.TIMEOUT:
            limit = "" if asked.timeout_s is None else f" after {format_duration(asked.timeout_s)}"
            reason = f"timed out{limit}"
        elif outcome.reason == "out-of-memory" and asked.memory_bytes is not None:
            reason += f" at {format_bytes(asked.memory_bytes)}"
        elif outcome.status is Status.CANCELLED and outcome.reason != "not-started":
            reason = "was ended"
        elif outcome.reason == "not-started" and outcome.error:
            reason = outcome.error
        written = [line for line in clean_lines(outcome.stderr_tail) if line.strip()]
        # Of a job that did not start the log has the reason alone.
        last_line = written[-1] if written and outcome.reason != "not-started" else ""
    return JobFailure(
        index=index,
        name=record.job.name,
        attempt=attempt,
        reason=reason,
        last_line=last_line,
        number=record.number,
    )


class _Following(ABC):
    """The common part of both kinds of view."""

    def __init__(self, tracker: ProgressTracker, plan: Plan, store: Store) -> None:
        self.tracker = tracker
        self._tails = LiveTails(store, 3)
        self._usage: Usage = {}
        self._store = store
        self._where: dict[str, str] = {}  # of running jobs; '' of all jobs of a run on this machine
        self._names = [job.name for job in plan.jobs]
        # Whether it is tried again, and whether its output files are there, is known with its next state.
        self._untold: dict[int, JobFailure] = {}
        self._untold_successes: dict[int, tuple[int, Record]] = {}
        self._lost: dict[int, int] = {}  # attempts of each job that were lost with their workers

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        before = self.tracker.state_of(index)
        self.tracker.state_changed(index, state, _now_us())
        failure = self._untold.pop(index, None)
        attempt, record = self._untold_successes.pop(index, (1, None))
        if record is not None and state is JobState.COMPLETED:
            self.succeeded(index, attempt, record)
        elif failure is not None and state is not JobState.COMPLETED:
            self._tell(failure, state)
        elif record is not None or (
            state is JobState.FAILED and before is not state and index not in self.tracker.failures
        ):
            # it succeeded and all the same it did not: outputs that are missing
            number = None if record is None else record.number
            name = self._names[index]
            self._tell(JobFailure(index=index, name=name, attempt=attempt, reason=why, number=number), state)

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        self._names += [job.name for job in jobs]
        self.tracker.add_jobs(jobs)

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self.tracker.attempt_began(index, attempt, job_uuid, at_us)

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        if record.attempt is not None and record.attempt.number > 1:  # others were lost with their workers
            self._lost[index] = self._lost.get(index, 0) + record.attempt.number - 1
        attempt += self._lost.get(index, 0)
        if record.status is Status.SUCCESS:
            self.tracker.attempt_succeeded(index, record.outcome.duration_s if record.outcome else 0.0)
            self._untold_successes[index] = (attempt, record)
        else:
            self._untold[index] = failure_of(index, attempt, record)

    def _tell(self, failure: JobFailure, state: JobState) -> None:
        told = replace(failure, is_tried_again=not state.is_final)
        self.tracker.attempt_failed(told)
        self.failed(told)

    def _tell_rest(self) -> None:
        for index, failure in list(self._untold.items()):
            self._tell(failure, JobState.FAILED)
            del self._untold[index]
        for index, (attempt, record) in self._untold_successes.items():
            self.succeeded(index, attempt, record)
        self._untold_successes.clear()

    def progress(self) -> RunProgress:
        """With what running jobs used when `read_usage` was last called."""
        progress = self.tracker.progress(_now_us(), self._usage)
        if not any(self._where.values()):
            return progress
        running = tuple(replace(job, where=self._where.get(job.job_uuid, "")) for job in progress.running)
        return replace(progress, running=running)

    def _read_where(self, uuids: Sequence[str]) -> None:
        """Jobs of a run are all here or all elsewhere: the first one tells."""
        if self._where and not any(self._where.values()):
            return
        for uuid in uuids:
            if uuid not in self._where:
                self._where[uuid] = where_it_ran(self._store.find(uuid)).describe()

    def read_usage(self, *, with_rates: bool = False) -> None:
        """`with_rates`: reads a second time, a moment later, where one reading is all there is of a job."""
        self._usage, has_all = self._current_usage()
        if with_rates and not has_all:
            time.sleep(FIRST_RATE_S)
            self._usage, _ = self._current_usage()

    def _current_usage(self) -> tuple[Usage, bool]:
        running = [uuid for _, uuid in self.tracker.running_jobs()[:_JOBS_LOOKED_AT]]
        try:
            tails = self._tails.look_at_jobs(running)
            self._read_where(running)
        except JoblensError:
            return {}, True  # usage is not shown then; the run goes on
        usage = {}
        for job_uuid, samples in tails.items():
            curve = points(samples)
            if len(curve) > 1:  # the first values of a job say nothing
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
    """On a terminal."""

    def __init__(
        self, tracker: ProgressTracker, plan: Plan, store: Store, descriptor: int, paint: Palette
    ) -> None:
        super().__init__(tracker, plan, store)
        self._screen = RunScreen(descriptor)
        self._paint = paint
        self._looked_at_s = self._draw_at_s = float("-inf")

    def succeeded(self, index: int, attempt: int, record: Record) -> None:
        pass  # the bars say so

    def failed(self, failure: JobFailure) -> None:
        width = self._screen.size.columns
        self._screen.say(self._paint.paint(fit(failure_text(failure), width), "red"))

    def note(self, text: str) -> None:
        self.tracker.message = text

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s < self._draw_at_s:
            return
        if now_s - self._looked_at_s >= _LOOK_EVERY_S:
            self._looked_at_s = now_s
            self.read_usage()
        self._draw()
        took_s = time.monotonic() - now_s
        self._draw_at_s = now_s + max(_DRAW_EVERY_S, took_s / _SHARE)

    def close(self, status: RunStatus) -> None:
        self._tell_rest()
        self.tracker.status = status
        if status is not RunStatus.STOPPED:
            self.tracker.message = ""  # what was so while it ran; of one that was stopped it says why
        self.read_usage()
        self._draw()
        self._screen.leave()
        self._tails.close()

    def leave(self) -> None:
        """The run goes on without being looked at."""
        self._screen.leave()

    def _draw(self) -> None:
        size = self._screen.size
        # the last line stays free: writing into it would make some terminals scroll
        progress = replace(self.progress(), failures=())  # they stand above already
        lines = render_run_live(
            progress, width=size.columns - 1, height=max(2, size.lines - 1), paint=self._paint
        )
        self._screen.draw(lines)


class LineView(_Following):
    """Where nothing can be drawn in place: a line for each end of a job as long as there are few, for every
    failure, and a summary every ten seconds or tenth of the way."""

    def __init__(self, tracker: ProgressTracker, plan: Plan, store: Store, descriptor: int | None) -> None:
        super().__init__(tracker, plan, store)
        self._descriptor = descriptor  # None: it only keeps count
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
        settled, total = self.tracker.settled()
        step = _SUMMARY_STEPS * settled // max(1, total)
        few = total <= _FIRST_ENDS  # every end is told: a summary at each tenth would be one a line
        if now_s - self._summed_at_s >= _SUMMARY_EVERY_S or (step > self._step and not few):
            self._summed_at_s = now_s
            self._write(summary_line(self.progress()))
        self._step = max(step, self._step)

    def close(self, status: RunStatus) -> None:
        self._tell_rest()
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
            pass  # whoever read it has gone; the run goes on


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
    """The view that fits what `descriptor` is. `is_silent`: it only keeps count."""
    tracker = tracker_for(run, plan, store, offer)
    if is_silent:
        return LineView(tracker, plan, store, None)
    if os.isatty(descriptor) and os.environ.get("TERM", "dumb") != "dumb":
        return LiveView(tracker, plan, store, descriptor, Palette(is_on=color))
    return LineView(tracker, plan, store, descriptor)


def _now_us() -> int:
    return time.time_ns() // 1000
