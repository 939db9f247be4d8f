"""Columns of operator and partition states of a recipe's job, filled from its decoded events."""

from array import array
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from joblens.model.recipes.snapshot import OperationStatus, OperatorProgress, ProcessingStatus

# Values out of bounds: the line was damaged.
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Moment = Annotated[float, Meta(ge=0, le=1e11)]


class UsedResources(Struct, frozen=True, gc=False):
    wall_seconds: Moment | None = None
    cpu_seconds: Moment | None = None
    memory_peak_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None


class SeenMetadata(Struct, frozen=True, gc=False):
    duration_seconds: Moment | None = None
    input_rows: Count | None = None
    output_rows: Count | None = None
    sample_count: Count | None = None
    checkpoint_strategy: str | None = None
    num_partitions: Count | None = None
    total_partitions: Count | None = None
    rejected_rows: Count | None = None
    rows: Count | None = None  # of a saved result
    rows_in: Count | None = None  # of the whole job
    rows_out: Count | None = None
    workers: Count | None = None
    output_path: str | None = None
    resources: UsedResources | None = None
    export: UsedResources | None = None  # of a partition
    step: str | None = None


class SeenConfig(Struct, frozen=True, gc=False):
    executor_type: str | None = None


class SeenEvent(Struct, frozen=True, gc=False):
    event_type: str
    timestamp: Moment
    partition_id: Count | None = None
    operation_name: str | None = None
    operation_idx: Count | None = None
    metadata: SeenMetadata | None = None
    duration: Moment | None = None
    input_rows: Count | None = None
    output_rows: Count | None = None
    total_partitions: Count | None = None
    process_id: Count | None = None
    status: str | None = None
    error_message: str | None = None
    output_path: str | None = None
    checkpoint_path: str | None = None
    retry_count: Count | None = None
    config: SeenConfig | None = None


UNSEEN, RUNNING, DONE, SAVED, BROKEN = range(5)
UNKNOWN_TIME = float("nan")
_UNKNOWN_ROWS = -1

STATUS_OF_CODE = (
    ProcessingStatus.NOT_STARTED,
    ProcessingStatus.IN_PROGRESS,
    ProcessingStatus.COMPLETED,
    ProcessingStatus.CHECKPOINTED,
    ProcessingStatus.FAILED,
)


class OperationForm(Struct, frozen=True, gc=False):
    """`OperationStatus` as written; an unknown time is not a number."""

    operation_name: str
    operation_idx: int
    status: ProcessingStatus
    start_time: float
    end_time: float
    duration: float
    input_rows: int | None
    output_rows: int | None
    checkpoint_time: float
    error_message: str | None
    progress_percentage: float


class _Times(Struct, frozen=True, gc=False):
    """State of an operator on a partition whose result may still be reused."""

    start: float
    end: float
    duration: float
    saved_at: float
    input_rows: int
    output_rows: int
    rejected: int | None
    is_saved: bool


class _States:
    """State of each row, and how many rows are in each state, except untouched ones."""

    def __init__(self) -> None:
        self.codes = bytearray()
        self.counts = [0, 0, 0, 0, 0]

    def _turn(self, row: int, code: int) -> None:
        self.counts[self.codes[row]] -= 1
        self.counts[code] += 1
        self.codes[row] = code


class OperatorColumn(_States):
    """One operator: a row per partition, or a single one for a global operator.

    Totals are updated with each change, so that reading them is cheap.
    """

    def __init__(self, index: int, name: str, *, is_global: bool) -> None:
        super().__init__()
        self.index = index
        self.name = name
        self.is_global = is_global
        self.starts = array("d")
        self.ends = array("d")
        self.durations = array("d")
        self.saved_at = array("d")
        self.input_rows = array("q")
        self.output_rows = array("q")
        self.errors: dict[int, str] = {}
        self._input_sum = self._output_sum = self._known_inputs = self._known_outputs = 0
        self._duration_sum = 0.0
        self._checkpoint_seconds = 0.0
        self._aside: dict[int, _Times] = {}
        self._passing: set[int] = set()  # rows saved until their partition has advanced
        self.rejected: dict[int, int] = {}  # rows of a partition that it could not work on
        self._cpu_seconds: float | None = None
        self._memory_peak_bytes: int | None = None
        self._read_bytes: int | None = None
        self._written_bytes: int | None = None

    def grow(self, rows: int) -> None:
        """Grows to at least `rows`, and by a factor, so that few steps lead to many rows."""
        if rows <= len(self.codes):
            return
        more = max(rows, 2 * len(self.codes)) - len(self.codes)
        self.codes.extend(bytes(more))
        for times in (self.starts, self.ends, self.durations, self.saved_at):
            times.extend([UNKNOWN_TIME] * more)
        for numbers in (self.input_rows, self.output_rows):
            numbers.extend([_UNKNOWN_ROWS] * more)

    def start(self, row: int, at: float) -> None:
        if self.codes[row] != UNSEEN:
            self.forget(row)
        if self._aside:
            self._aside.pop(row, None)  # it is repeated
        if self._passing:
            self._passing.discard(row)
        self.counts[RUNNING] += 1
        self.codes[row] = RUNNING
        self.starts[row] = at

    def complete(
        self, row: int, at: float, duration: float | None, input_rows: int | None, output_rows: int | None
    ) -> None:
        code = self.codes[row]
        if self._aside:
            self._aside.pop(row, None)
        if code >= DONE:  # a second time, without a start in between
            before = self._times_of(row)
            self.forget(row)
            self.starts[row] = before.start
            if duration is None and before.duration >= 0:  # reported again; its duration is unchanged
                at, duration = before.end, before.duration
            code = UNSEEN
        self.counts[code] -= 1
        self.counts[DONE] += 1
        self.codes[row] = DONE
        self.ends[row] = at
        if duration is None:
            duration = at - self.starts[row]
        self._know_duration(row, duration)
        self.know_rows(row, input_rows, output_rows)

    def _know_duration(self, row: int, duration: float) -> None:
        if duration == duration:  # noqa: PLR0124 - False for an unknown start
            self.durations[row] = duration
            self._duration_sum += duration

    def know_rows(self, row: int, input_rows: int | None, output_rows: int | None) -> None:
        """Sets row counts that are not known yet."""
        if input_rows is not None and self.input_rows[row] < 0:
            self.input_rows[row] = input_rows
            self._input_sum += input_rows
            self._known_inputs += 1
        if output_rows is not None and self.output_rows[row] < 0:
            self.output_rows[row] = output_rows
            self._output_sum += output_rows
            self._known_outputs += 1

    def save(self, row: int, at: float) -> None:
        self.counts[self.codes[row]] -= 1
        self.counts[SAVED] += 1
        self.codes[row] = SAVED
        self.saved_at[row] = at

    def save_until_further(self, row: int, at: float) -> None:
        if self.codes[row] != SAVED:
            self._passing.add(row)
        self.save(row, at)

    def came_further(self, row: int) -> None:
        if row in self._passing:
            self._passing.remove(row)
            self.unsave(row)

    def load(self, row: int, code: int) -> None:
        """Marks it as done, known from a saved result of it or of a later operator."""
        previous = self._aside.pop(row, None)
        if previous is not None and previous.is_saved:
            code = SAVED
        if self.codes[row] < code or self.codes[row] == BROKEN:
            self._turn(row, code)
            self.errors.pop(row, None)
        if previous is not None:
            self.starts[row], self.ends[row], self.saved_at[row] = (
                previous.start,
                previous.end,
                previous.saved_at,
            )
            if previous.rejected is not None:
                self.rejected[row] = previous.rejected
            self._know_duration(row, previous.duration)
            self.know_rows(row, _counted(previous.input_rows), _counted(previous.output_rows))

    def unsave(self, row: int) -> None:
        """Marks its saved result as removed."""
        if self.codes[row] == SAVED:
            self._turn(row, DONE)

    def fold(self, row: int) -> None:
        """Marks it as done, known from a later operator."""
        if self.codes[row] in (UNSEEN, RUNNING):
            self.load(row, DONE)

    def set_aside(self, row: int) -> None:
        """Marks it to be repeated, unless its result still exists."""
        if self.codes[row] in (DONE, SAVED):
            self._aside[row] = self._times_of(row)
        self.forget(row)

    def _times_of(self, row: int) -> _Times:
        return _Times(
            self.starts[row],
            self.ends[row],
            self.durations[row],
            self.saved_at[row],
            self.input_rows[row],
            self.output_rows[row],
            self.rejected.get(row),
            self.codes[row] == SAVED,
        )

    def fail(self, row: int, at: float, message: str) -> None:
        started_at = self.starts[row]
        self.forget(row)
        self._turn(row, BROKEN)
        self.starts[row] = started_at
        self.ends[row] = at
        self.errors[row] = message

    def forget(self, row: int) -> None:
        """Resets a row as if it had never run: its result is gone."""
        if self.codes[row] == UNSEEN:
            return
        self._turn(row, UNSEEN)
        if self.durations[row] >= 0:
            self._duration_sum -= self.durations[row]
        if self.input_rows[row] >= 0:
            self._input_sum -= self.input_rows[row]
            self._known_inputs -= 1
        if self.output_rows[row] >= 0:
            self._output_sum -= self.output_rows[row]
            self._known_outputs -= 1
        self.starts[row] = self.ends[row] = self.durations[row] = self.saved_at[row] = UNKNOWN_TIME
        self.input_rows[row] = self.output_rows[row] = _UNKNOWN_ROWS
        self.errors.pop(row, None)
        self.rejected.pop(row, None)

    def use(self, used: UsedResources) -> None:
        """Adds usage; that of an attempt counts even if its result is discarded."""
        if used.cpu_seconds is not None:
            self._cpu_seconds = (self._cpu_seconds or 0.0) + used.cpu_seconds
        if used.memory_peak_bytes is not None:
            self._memory_peak_bytes = max(self._memory_peak_bytes or 0, used.memory_peak_bytes)
        if used.read_bytes is not None:
            self._read_bytes = (self._read_bytes or 0) + used.read_bytes
        if used.written_bytes is not None:
            self._written_bytes = (self._written_bytes or 0) + used.written_bytes

    def use_for_checkpoint(self, used: UsedResources) -> None:
        """Adds the cost of saving an operator's result, including time."""
        self.use(used)
        self._checkpoint_seconds += used.wall_seconds or 0.0

    def progress(self, partitions: int, *, is_running: bool) -> OperatorProgress:
        """Returns the progress of the operator. A sum with an unknown part is None."""
        done = self.counts[DONE] + self.counts[SAVED]
        return OperatorProgress(
            operation_idx=self.index,
            operation_name=self.name,
            planned=1 if self.is_global else partitions,
            completed=done,
            in_progress=self.counts[RUNNING] if is_running else 0,
            failed=self.counts[BROKEN],
            checkpointed=self.counts[SAVED],
            input_rows=self._input_sum if done and self._known_inputs >= done else None,
            output_rows=self._output_sum if done and self._known_outputs >= done else None,
            rejected_rows=sum(self.rejected.values()),
            duration_seconds=max(0.0, self._duration_sum) + self._checkpoint_seconds,
            cpu_seconds=self._cpu_seconds,
            memory_peak_bytes=self._memory_peak_bytes,
            read_bytes=self._read_bytes,
            written_bytes=self._written_bytes,
            is_global=self.is_global,
        )

    def frozen(self) -> "ColumnState":
        return ColumnState(self)


class ColumnState:
    """A column as it was at one moment."""

    def __init__(self, column: OperatorColumn) -> None:
        self.index = column.index
        self.name = column.name
        self.is_global = column.is_global
        self.codes = bytes(column.codes)
        self._starts = column.starts[:]
        self._ends = column.ends[:]
        self._durations = column.durations[:]
        self._saved_at = column.saved_at[:]
        self._input_rows = column.input_rows[:]
        self._output_rows = column.output_rows[:]
        self._errors = dict(column.errors)

    def saved_time(self, row: int) -> float:
        return self._saved_at[row]

    def form(self, row: int, running: ProcessingStatus) -> OperationForm:
        """Returns an operation for writing; unknown times are null."""
        code, rows_in, rows_out = self.codes[row], self._input_rows[row], self._output_rows[row]
        return OperationForm(
            self.name,
            self.index,
            running if code == RUNNING else STATUS_OF_CODE[code],
            self._starts[row],
            self._ends[row],
            self._durations[row],
            rows_in if rows_in >= 0 else None,
            rows_out if rows_out >= 0 else None,
            self._saved_at[row],
            self._errors.get(row) if self._errors else None,
            100.0 if code in (DONE, SAVED) else 0.0,
        )

    def rows_in(self, row: int) -> int | None:
        return _counted(self._input_rows[row])

    def operation(self, row: int, running: ProcessingStatus) -> OperationStatus:
        """Returns an operation. `running`: state of one that was started and has not ended."""
        code = self.codes[row]
        return OperationStatus(
            operation_name=self.name,
            operation_idx=self.index,
            status=running if code == RUNNING else STATUS_OF_CODE[code],
            start_time=known(self._starts[row]),
            end_time=known(self._ends[row]),
            duration=known(self._durations[row]),
            input_rows=_counted(self._input_rows[row]),
            output_rows=_counted(self._output_rows[row]),
            checkpoint_time=known(self._saved_at[row]),
            error_message=self._errors.get(row),
            progress_percentage=100.0 if code in (DONE, SAVED) else 0.0,
        )


def known(time_s: float) -> float | None:
    return time_s if time_s == time_s else None  # noqa: PLR0124 - the one number that is not itself


def _counted(rows: int) -> int | None:
    return rows if rows >= 0 else None


def last_saved(columns: Sequence[OperatorColumn], row: int) -> int:
    """Returns the index of the last operator with a saved result for that partition; -1: none."""
    return max((column.index for column in columns if column.codes[row] == SAVED), default=-1)


class PartitionRows(_States):
    """States of partitions. `number`: the row of each partition, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = array("q")
        self.number: dict[int | None, int] = {}  # of None there is none
        self.creation_starts = array("d")
        self.creation_ends = array("d")
        self.starts = array("d")
        self.ends = array("d")
        self.sample_counts: dict[int, int] = {}
        self.errors: dict[int, str] = {}
        self.retries: dict[int, int] = {}
        self.rejected: dict[int, int] = {}

    def add(self, partition_id: int) -> int:
        row = self.number[partition_id] = len(self.ids)
        self.ids.append(partition_id)
        self.codes.append(UNSEEN)
        self.counts[UNSEEN] += 1
        for times in (self.creation_starts, self.creation_ends, self.starts, self.ends):
            times.append(UNKNOWN_TIME)
        return row

    def start(self, row: int, at: float) -> None:
        """Starts a partition. The first start counts, also if the partition is resumed."""
        if self.codes[row] != RUNNING:
            self._turn(row, RUNNING)
            self.errors.pop(row, None)
        if self.starts[row] != self.starts[row]:  # never started before
            self.starts[row] = at
        self.ends[row] = UNKNOWN_TIME

    def complete(self, row: int, at: float) -> None:
        self._turn(row, DONE)
        self.errors.pop(row, None)
        self.ends[row] = at

    def fail(self, row: int, at: float, message: str) -> None:
        self._turn(row, BROKEN)
        self.ends[row] = at
        self.errors[row] = message

    def retry(self, row: int) -> None:
        self.retries[row] = self.retries.get(row, 0) + 1
        self.reset(row)

    def reset(self, row: int) -> None:
        self._turn(row, UNSEEN)
        self.errors.pop(row, None)
        self.rejected.pop(row, None)
        self.ends[row] = UNKNOWN_TIME

    def frozen(self) -> "PartitionRows":
        """Returns a copy of the current state; `number` is shared, because rows are only added."""
        copy = PartitionRows()
        copy.ids, copy.number = self.ids[:], self.number
        copy.codes, copy.counts = bytearray(self.codes), list(self.counts)
        copy.creation_starts, copy.creation_ends = self.creation_starts[:], self.creation_ends[:]
        copy.starts, copy.ends = self.starts[:], self.ends[:]
        copy.sample_counts, copy.errors = dict(self.sample_counts), dict(self.errors)
        copy.retries, copy.rejected = dict(self.retries), dict(self.rejected)
        return copy

    def status(self, row: int, running: ProcessingStatus) -> ProcessingStatus:
        code = self.codes[row]
        return running if code == RUNNING else STATUS_OF_CODE[code]
