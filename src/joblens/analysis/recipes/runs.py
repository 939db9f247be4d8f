"""The runs of one recipe's job: it may be killed, stopped and gone on with any number of times."""

from joblens.analysis.recipes.columns import BROKEN, DONE
from joblens.analysis.recipes.partitions import PartitionRows
from joblens.analysis.recipes.seen import SeenEvent
from joblens.model.recipes.event import EventType
from joblens.model.recipes.snapshot import ProcessingStatus

_STATUS_WORDS = {
    "completed": ProcessingStatus.COMPLETED,
    "complete": ProcessingStatus.COMPLETED,
    "partial": ProcessingStatus.PARTIAL,
    "failed": ProcessingStatus.FAILED,
    "stopped": ProcessingStatus.STOPPED,
    "interrupted": ProcessingStatus.STOPPED,
}


class JobRuns:
    def __init__(self) -> None:
        self.count = 0
        self.first_start: float | None = None
        self.last_event: float | None = None
        self.process_id: int | None = None
        self.end: SeenEvent | None = None
        self.done_before = 0  # operations that this run did not have to do
        self._start: float | None = None  # of this run
        self._seconds_before = 0.0

    def start(self, event: SeenEvent, done: int) -> bool:
        """Whether a new run begins: some systems tell of one start twice."""
        is_same = (
            self._start is not None
            and self.end is None
            and event.event_type == EventType.JOB_START
            and event.process_id == self.process_id
        )
        self.process_id = event.process_id
        if is_same:
            return False
        self._seconds_before += self._seconds_of_run()
        self.count += 1
        self._start = event.timestamp
        self.first_start = event.timestamp if self.first_start is None else self.first_start
        self.end = None
        self.done_before = done
        return True

    def _seconds_of_run(self, until: float | None = None) -> float:
        until = self.last_event if until is None else until
        return 0.0 if self._start is None or until is None else max(0.0, until - self._start)

    @property
    def end_time(self) -> float | None:
        """None for a run that goes on, and for one that never told that it ended."""
        return None if self.end is None else self.end.timestamp

    def seconds(self, until: float | None) -> float | None:
        """Of all runs; the last one up to `until`, or to the last it told."""
        return None if self._start is None else self._seconds_before + self._seconds_of_run(until)

    def time_left(self, done: int, total: int, now: float) -> float | None:
        """As fast as this run has been so far."""
        in_this_run = done - self.done_before
        if in_this_run <= 0 or not total or self._start is None:
            return None
        return max(0.0, now - self._start) / in_this_run * (total - done)

    def status(self, is_alive: bool | None, rows: PartitionRows, summary_word: str) -> ProcessingStatus:  # noqa: FBT001
        """The end that was told counts most, then whether the process lives, then what its summary says."""
        if self.end is not None:
            return self._told_end(self.end, rows)
        if is_alive:
            return ProcessingStatus.IN_PROGRESS
        if self.last_event is None and is_alive is None:
            return _STATUS_WORDS.get(summary_word, ProcessingStatus.NOT_STARTED)
        if summary_word in _STATUS_WORDS:
            return _STATUS_WORDS[summary_word]
        if is_alive is None:
            is_begun = self._start is not None
            return ProcessingStatus.IN_PROGRESS if is_begun else ProcessingStatus.NOT_STARTED
        return ProcessingStatus.FAILED if rows.counts[BROKEN] else ProcessingStatus.KILLED

    def _told_end(self, end: SeenEvent, rows: PartitionRows) -> ProcessingStatus:
        if end.event_type == EventType.JOB_STOPPED:
            return ProcessingStatus.STOPPED
        word = _STATUS_WORDS.get(end.status or "")
        if word in (ProcessingStatus.PARTIAL, ProcessingStatus.FAILED, ProcessingStatus.STOPPED):
            return word
        if end.event_type == EventType.JOB_FAILED:
            return ProcessingStatus.FAILED
        if not rows.counts[BROKEN]:
            return ProcessingStatus.COMPLETED
        return ProcessingStatus.PARTIAL if rows.counts[DONE] else ProcessingStatus.FAILED
