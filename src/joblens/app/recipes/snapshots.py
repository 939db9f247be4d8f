"""Where a recipe's job stands: once, or again and again while it runs."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from joblens.analysis.recipes.snapshot import JobFacts, SnapshotFold
from joblens.analysis.recipes.snapshot_form import JobAbout, snapshot_form, snapshot_json
from joblens.app.recipes.event_tail import EventTail
from joblens.app.recipes.job_directory import JobDirectory, told_if_unreadable
from joblens.app.recipes.job_process import JobProcess, live_process, process_of_executor
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus


class LiveSnapshot:
    """Each look reads only what was written since the one before."""

    def __init__(self, job_dir: str) -> None:
        self._summary: dict[str, Any] = {}
        with told_if_unreadable():
            self.directory = JobDirectory(job_dir)
            self._begin()

    def _begin(self) -> None:
        self._knows_partitions = self.directory.knows_partitions()
        self._fold = SnapshotFold(self.directory.planned())
        self._tails: dict[str, EventTail] = {}

    def refresh(self) -> JobSnapshot:
        """Raises InputError when the job's files may not be read."""
        with told_if_unreadable():
            return self._look()

    def _look(self) -> JobSnapshot:
        is_cut = not self._knows_partitions and self.directory.knows_partitions()
        if is_cut or any(tail.is_replaced() for tail in self._tails.values()):
            self._begin()
        process = self._process()  # before its last words are read, so that none are missed
        self._read_events(is_over=process.is_alive is False)
        if process.is_alive is None:  # its events may tell now which process it is
            process = self._process()
            self._read_events(is_over=process.is_alive is False)
        self._summary = self.directory.read_summary()
        now = time.time()
        if self._fold.events_analyzed == 0 and self._summary.get("status") == "completed":
            self._fold.add_completion(now)  # events may be switched off
        snapshot = self._fold.snapshot(self._facts(process), now)
        torn = sum(tail.has_torn_end for tail in self._tails.values())
        snapshot = msgspec.structs.replace(snapshot, malformed_lines=snapshot.malformed_lines + torn)
        return _with_summary_times(snapshot, self._summary)

    def _read_events(self, *, is_over: bool) -> None:
        files = self.directory.event_files()
        if self._tails and list(self._tails) != files[: len(self._tails)]:
            self._begin()
        for path in files:
            tail = self._tails.setdefault(path, EventTail(path))
            tail.has_torn_end = False
            tail.feed(self._fold)
            if is_over or path != files[-1]:
                tail.feed_rest(self._fold)

    def is_over(self, snapshot: JobSnapshot) -> bool:
        """Whether nothing more will happen: not while the job runs, or is planned and may yet be started."""
        if snapshot.overall_status is ProcessingStatus.NOT_STARTED:
            return not self.directory.is_planned()
        return snapshot.overall_status is not ProcessingStatus.IN_PROGRESS

    def process(self) -> JobProcess:
        """Of the job, as far as its events are read."""
        with told_if_unreadable():
            if not self._tails:
                self._read_events(is_over=False)
            return self._process()

    def _process(self) -> JobProcess:
        by_lock = process_of_executor(self.directory.folder)
        if by_lock is not None:
            return by_lock
        return live_process(self._fold.process_id, self._fold.last_event_time)

    def _facts(self, process: JobProcess) -> JobFacts:
        return JobFacts(
            job_id=self.directory.job_id,
            is_alive=process.is_alive,
            process_id=process.process_id,
            summary=self._summary,
            checkpoint_strategy=self.directory.checkpoint_strategy(),
            has_checkpoints=self.directory.has_checkpoints(),
            can_be_gone_on_with=self.directory.plan is not None or None,
            is_disk_full=process.is_alive is False and self.directory.is_disk_full(),
        )

    def about(self, snapshot: JobSnapshot) -> JobAbout:
        about = self.directory.about(self._summary, self._fold.executor_type)
        is_of_summary = (
            snapshot.total_duration is not None and about.summary_duration == snapshot.total_duration
        )
        return msgspec.structs.replace(about, is_timing_of_summary=is_of_summary)

    def json_dict(self, snapshot: JobSnapshot) -> dict[str, Any]:
        return snapshot_form(snapshot, self.about(snapshot))

    def json_pieces(self, snapshot: JobSnapshot) -> Iterator[bytes]:
        return snapshot_json(snapshot, self.about(snapshot))


def _with_summary_times(snapshot: JobSnapshot, summary: dict[str, Any]) -> JobSnapshot:
    """The summary's times hold where it has them: a job has begun before its first event. Of a job that was
    gone on with only joblens tells how long it worked; others count the time between the runs, too."""
    numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    start, duration = numbers.get("start_time"), numbers.get("duration")
    if snapshot.overall_status in (ProcessingStatus.IN_PROGRESS, ProcessingStatus.KILLED):
        is_killed = snapshot.overall_status is ProcessingStatus.KILLED
        until = snapshot.last_event_time if is_killed else snapshot.taken_at
        began, before = numbers.get("run_start_time"), numbers.get("earlier_duration")
        if start is None or until is None or began is None or before is None:
            return snapshot
        duration = before + max(0.0, until - began)
        return msgspec.structs.replace(snapshot, job_start_time=start, total_duration=duration)
    end = numbers.get("end_time")
    is_whole = snapshot.runs <= 1 or "run_duration" in numbers
    if start is None or end is None or duration is None or not is_whole:
        return snapshot
    return msgspec.structs.replace(snapshot, job_start_time=start, job_end_time=end, total_duration=duration)


class ProcessingSnapshotAnalyzer:
    """The same under the names that scripts for DataJuicer use."""

    def __init__(self, work_dir: str) -> None:
        self._live = LiveSnapshot(str(work_dir))

    def generate_snapshot(self) -> JobSnapshot:
        return self._live.refresh()

    def to_json_dict(self, snapshot: JobSnapshot) -> dict[str, Any]:
        return self._live.json_dict(snapshot)


def create_snapshot(job_dir: str) -> JobSnapshot:
    """Where the job in that folder stands now."""
    return LiveSnapshot(str(job_dir)).refresh()
