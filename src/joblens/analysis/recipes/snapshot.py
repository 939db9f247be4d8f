"""Progress of a recipe's job from its events, one at a time, so that watching never rereads the log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.recipes.columns import (
    BROKEN,
    DONE,
    RUNNING,
    SAVED,
    UNSEEN,
    OperatorColumn,
    SeenEvent,
    SeenMetadata,
)
from joblens.analysis.recipes.progress import JobRows, JobRuns, PlannedWork, WorkGrid, job_rows, rejects_in
from joblens.analysis.recipes.snapshot_json import OperationTable, PartitionTable
from joblens.analysis.recipes.time_left import TimeLeft
from joblens.analysis.recipes.usage import StepTotals, step_in
from joblens.model.recipes.recipe import EventType
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus

_NOTHING = SeenMetadata()


class JobFacts(Struct, frozen=True, kw_only=True):
    """Facts about a job besides its events."""

    job_id: str
    is_alive: bool | None = None  # its process; None: unknown
    process_id: int | None = None
    summary: Mapping[str, Any] = {}  # job_summary.json
    checkpoint_strategy: str | None = None  # of the recipe
    has_checkpoints: bool | None = None  # on disk; None: not checked
    is_resumable: bool | None = None  # from its folder; None: from its checkpoints
    is_disk_full: bool = False


class SnapshotFold:
    """State of a job, updated by its events. `planned`: expected work; events may add more."""

    def __init__(self, planned: PlannedWork | None = None) -> None:
        self._planned = planned or PlannedWork(has_absolute_indexes=False)
        self._grid = WorkGrid(self._planned)
        self._rows = self._grid.rows
        self._cell_of = self._grid.cell_of
        # By far the most events: unique operator names need no search.
        self._frequent: dict[str, Callable[[OperatorColumn, int, SeenEvent], None]] = {
            EventType.OP_START.value: self._started,
            EventType.OP_COMPLETE.value: self._completed,
            EventType.CHECKPOINT_SAVE.value: self._saved,
        }
        self._on_job_start = self._job_start
        self._handlers: dict[str, Callable[[SeenEvent], None]] = {
            EventType.OP_START: self._op_start,
            EventType.OP_COMPLETE: self._op_complete,
            EventType.OP_FAILED: self._op_failed,
            EventType.CHECKPOINT_SAVE: self._checkpoint_save,
            EventType.CHECKPOINT_LOAD: self._checkpoint_load,
            EventType.JOB_START: self._on_job_start,
            EventType.JOB_RESTART: self._on_job_start,
            EventType.JOB_COMPLETE: self._job_end,
            EventType.JOB_FAILED: self._job_end,
            EventType.JOB_STOPPED: self._job_end,
            EventType.PARTITION_CREATION_START: self._creation_start,
            EventType.PARTITION_CREATION_COMPLETE: self._creation_complete,
            EventType.PARTITION_START: self._partition_start,
            EventType.PARTITION_RESUME: self._partition_start,
            EventType.PARTITION_RETRY: self._partition_retry,
            EventType.PARTITION_COMPLETE: self._partition_complete,
            EventType.PARTITION_FAILED: self._partition_failed,
            EventType.REPARTITION_COMPLETE: self._all_decided,
            EventType.ROWS_REJECTED: self._rows_rejected,
            EventType.STEP_COMPLETE: self._stepped,
            EventType.EXPORT_START: self._export_start,
            EventType.EXPORT_COMPLETE: self._export_complete,
        }
        self.events_analyzed = 0
        self.malformed_lines = 0
        self.executor_type: str | None = None
        self._runs = JobRuns()
        self._strategy: str | None = None
        self._last_checkpoint: float | None = None
        self._reported_rows = JobRows()
        self._steps = StepTotals()
        self._time_left = TimeLeft(is_parquet=self._planned.is_parquet)
        self._rejected_in_cutting = 0
        self._is_exporting = False
        self._export_path: str | None = None
        self._reported_partitions = 0

    # Reading

    def add(self, event: SeenEvent) -> None:
        self.add_all((event,))

    def add_all(self, events: Sequence[SeenEvent]) -> None:
        handlers, runs = self._handlers, self._runs
        last, on_start = runs.last_event, self._on_job_start
        frequent, alone, number = self._frequent, self._grid.alone, self._rows.number
        for event in events:
            kind = event.event_type
            if kind in frequent:
                column, row = alone.get(event.operation_name), number.get(event.partition_id)
                if column is not None and row is not None:
                    frequent[kind](column, row, event)
                    last = event.timestamp
                    continue
            handle = handlers.get(kind)
            if handle is not None:
                if handle is on_start:  # the only one that asks for the event before it
                    runs.last_event = last
                handle(event)
            last = event.timestamp
        runs.last_event = last
        if events and not runs.count:  # the line of the start event may be damaged
            runs.process_id = events[-1].process_id or runs.process_id
        self.events_analyzed += len(events)

    def add_completion(self, at: float) -> None:
        """Adds the end of a job that writes no events and is known to be complete."""
        self._grid.all_complete(at)

    def add_malformed(self) -> None:
        """Counts a line that is not an event."""
        self.malformed_lines += 1

    # Operators

    def _op_start(self, event: SeenEvent) -> None:
        if not event.operation_name:
            return
        column, row = self._cell_of(event, (0, RUNNING, BROKEN))
        if column.is_global:
            column.start(row, event.timestamp)
        else:
            self._started(column, row, event)

    def _started(self, column: OperatorColumn, row: int, event: SeenEvent) -> None:
        column.start(row, event.timestamp)
        if self._rows.codes[row] == UNSEEN:
            self._rows.start(row, event.timestamp)

    def _op_complete(self, event: SeenEvent) -> None:
        if not event.operation_name:
            return
        column, row = self._cell_of(event, (RUNNING,))
        if column.is_global and not self._planned.has_absolute_indexes and self._rows.ids:
            return  # DataJuicer reports it before; they are done when the job is
        self._completed(column, row, event)

    def _completed(self, column: OperatorColumn, row: int, event: SeenEvent) -> None:
        details = event.metadata or _NOTHING
        column.complete(
            row,
            event.timestamp,
            event.duration if event.duration is not None else details.duration_seconds,
            event.input_rows if event.input_rows is not None else details.input_rows,
            event.output_rows if event.output_rows is not None else details.output_rows,
        )
        if details.resources is not None:
            column.use(details.resources)
        if details.rejected_rows:
            column.rejected[row] = details.rejected_rows

    def _op_failed(self, event: SeenEvent) -> None:
        if not event.operation_name:
            return
        column, row = self._cell_of(event, (RUNNING,))
        column.fail(row, event.timestamp, event.error_message or "")
        if event.metadata is not None and event.metadata.resources is not None:
            column.use(event.metadata.resources)

    def _checkpoint_save(self, event: SeenEvent) -> None:
        if not event.operation_name:
            return
        self._saved(*self._cell_of(event, (DONE,)), event)

    def _saved(self, column: OperatorColumn, row: int, event: SeenEvent) -> None:
        if _is_state(event.checkpoint_path):
            self._grid.came_further(row)
            column.save_until_further(row, event.timestamp)
        else:
            column.save(row, event.timestamp)
        self._last_checkpoint = event.timestamp
        if event.metadata is not None and event.metadata.resources is not None:
            column.use_for_checkpoint(event.metadata.resources)

    def _checkpoint_load(self, event: SeenEvent) -> None:
        """Marks everything up to the checkpoint as done, and everything after it as not started."""
        if event.partition_id is not None and event.operation_idx is not None:
            row = self._grid.row(event.partition_id)
            details = event.metadata or _NOTHING
            is_kept = _is_checkpoint(event.checkpoint_path)
            self._grid.load(row, event.operation_idx, details.rows, is_kept=is_kept)
            if details.rejected_rows is not None:
                self._rows.rejected[row] = details.rejected_rows

    # Partitions

    def _creation_start(self, event: SeenEvent) -> None:
        if event.partition_id is not None:
            self._rows.creation_starts[self._grid.row(event.partition_id)] = event.timestamp

    def _creation_complete(self, event: SeenEvent) -> None:
        self._stepped(event)
        if event.partition_id is None:
            return
        row = self._grid.row(event.partition_id)
        self._rows.creation_ends[row] = event.timestamp
        if event.metadata is not None and event.metadata.sample_count is not None:
            self._rows.sample_counts[row] = event.metadata.sample_count

    def _partition_start(self, event: SeenEvent) -> None:
        if event.partition_id is not None:
            row = self._grid.row(event.partition_id)
            if self._rows.codes[row] == BROKEN:  # retried
                self._rows.retry(row)
                self._grid.forget_unsaved(row)
            self._rows.start(row, event.timestamp)

    def _partition_retry(self, event: SeenEvent) -> None:
        if event.partition_id is not None:
            row = self._grid.row(event.partition_id)
            self._rows.retry(row)
            self._grid.forget_unsaved(row)

    def _partition_complete(self, event: SeenEvent) -> None:
        self._stepped(event)
        if event.partition_id is None:
            return
        row = self._grid.row(event.partition_id)
        self._rows.complete(row, event.timestamp)
        self._grid.came_further(row)
        for column in self._grid.of_partitions():
            column.fold(row)
        details = event.metadata or _NOTHING
        if details.rejected_rows is not None:
            self._rows.rejected[row] = details.rejected_rows
        if details.sample_count is not None:
            self._rows.sample_counts[row] = details.sample_count

    def _partition_failed(self, event: SeenEvent) -> None:
        """Marks the running operator of the failed partition as failed."""
        if event.partition_id is None:
            return
        row = self._grid.row(event.partition_id)
        message = event.error_message or ""
        self._rows.fail(row, event.timestamp, message)
        for column in self._grid.of_partitions():
            if column.codes[row] == RUNNING:
                column.fail(row, event.timestamp, message)

    def _all_decided(self, event: SeenEvent) -> None:
        """Marks a global operator and everything before it as done, including work of an earlier run."""
        if not event.operation_name:
            return
        column, _ = self._cell_of(event, (RUNNING,))
        if not column.is_global:
            return
        if column.codes[0] == RUNNING:
            column.complete(0, event.timestamp, event.duration, event.input_rows, event.output_rows)
        column.load(0, SAVED)
        for earlier in self._grid.of_partitions():
            if earlier.index < column.index:
                self._grid.fold(earlier)

    # The job

    @property
    def process_id(self) -> int | None:
        """Returns the process that started the last run of the job."""
        return self._runs.process_id

    @property
    def last_event_time(self) -> float | None:
        return self._runs.last_event

    def _job_start(self, event: SeenEvent) -> None:
        details = event.metadata or _NOTHING
        if self._runs.start(event, self._grid.done()) and self._runs.count > 1:
            self._grid.let_go()
            self._is_exporting, self._reported_rows = False, JobRows()
            self._runs.done_before = self._grid.done()
        self._time_left.began(details.workers)
        self._strategy = details.checkpoint_strategy or self._strategy
        reported = event.total_partitions or details.total_partitions or details.num_partitions or 0
        self._reported_partitions = max(reported, self._reported_partitions)
        if event.config is not None and event.config.executor_type is not None:
            self.executor_type = event.config.executor_type

    def _job_end(self, event: SeenEvent) -> None:
        self._runs.end = event
        details = event.metadata or _NOTHING
        rows_out = details.rows_out if event.output_rows is None else event.output_rows
        self._reported_rows = JobRows(details.rows_in, rows_out, details.rejected_rows)
        if event.event_type == EventType.JOB_COMPLETE:
            self._grid.all_complete(event.timestamp)
            if self._planned.has_absolute_indexes:
                self._grid.remove_passing_states()
        self._is_exporting = False
        self._export_path = event.output_path or (event.metadata or _NOTHING).output_path

    def _rows_rejected(self, event: SeenEvent) -> None:
        rejected = (event.metadata or _NOTHING).rejected_rows or 0
        if event.partition_id is not None:
            row = self._grid.row(event.partition_id)
            self._rows.rejected[row] = self._rows.rejected.get(row, 0) + rejected
        if event.operation_name is not None:
            column, row = self._cell_of(event, (RUNNING,))
            # The operator's end event has the same rows.
            column.rejected[row] = max(column.rejected.get(row, 0), rejected)
        if event.partition_id is None and event.operation_name is None:
            self._rejected_in_cutting += rejected

    def _stepped(self, event: SeenEvent) -> None:
        step = step_in(event.event_type, event.metadata or _NOTHING)
        if step is not None:
            self._steps.add(*step)
            self._time_left.stepped(step[0], step[1].wall_seconds)

    def _export_start(self, event: SeenEvent) -> None:
        self._is_exporting = True
        self._time_left.export_began(event.timestamp)

    def _export_complete(self, event: SeenEvent) -> None:
        self._is_exporting = False
        self._export_path = event.output_path or self._export_path

    # PlacementEvents

    def snapshot(self, facts: JobFacts, now: float) -> JobSnapshot:
        """Returns the current state. `now`: seconds since 1970."""
        columns = sorted(self._grid.columns.values(), key=lambda column: column.index)
        status = self._runs.status(facts.is_alive, self._rows, str(facts.summary.get("status") or ""))
        running = (
            ProcessingStatus.IN_PROGRESS
            if status is ProcessingStatus.IN_PROGRESS
            else ProcessingStatus.INTERRUPTED
        )
        rows, states = self._rows.frozen(), [column.frozen() for column in columns]
        partitions = max(self._reported_partitions, len(rows.ids))
        total = sum(1 if column.is_global else partitions for column in columns)
        done, saved = self._grid.done(), sum(column.counts[SAVED] for column in columns)
        is_running = status is ProcessingStatus.IN_PROGRESS
        operators = tuple(column.progress(partitions, is_running=is_running) for column in columns)
        came_and_left = job_rows(
            self._reported_rows,
            status,
            operators,
            facts.summary,
            sum(rows.rejected.values()) + self._rejected_in_cutting,
        )
        last = self._grid.waits_after()
        return JobSnapshot(
            job_id=facts.job_id,
            overall_status=status,
            job_start_time=self._runs.first_start,
            job_end_time=self._runs.end_time,
            total_duration=self._runs.seconds(now if is_running else None),
            total_partitions=partitions,
            completed_partitions=rows.counts[DONE],
            failed_partitions=rows.counts[BROKEN],
            in_progress_partitions=rows.counts[RUNNING] if is_running else 0,
            total_operations=total,
            completed_operations=done,
            failed_operations=sum(column.counts[BROKEN] for column in columns),
            checkpointed_operations=saved,
            partition_statuses=PartitionTable(rows, states, running, last.index if last else None),
            operation_statuses=OperationTable(rows, states, running),
            waiting_partitions=self._grid.waiting() if is_running else 0,
            operators=operators,
            steps=self._steps.uses(),
            rows_in=came_and_left.rows_in,
            rows_out=came_and_left.rows_out,
            checkpoint_strategy=self._strategy or facts.checkpoint_strategy,
            last_checkpoint_time=self._last_checkpoint,
            resumable=_is_resumable(status, facts, saved),
            error_message=self._error(status, facts),
            taken_at=now,
            last_event_time=self.last_event_time,
            runs=self._runs.count,
            retries=sum(rows.retries.values()),
            rejected_rows=came_and_left.rejected or 0,
            rejects=rejects_in(facts.summary),
            events_analyzed=self.events_analyzed,
            malformed_lines=self.malformed_lines,
            is_exporting=self._is_exporting and is_running,
            export_path=self._export_path,
            eta_seconds=self._eta(columns, partitions, total, now) if is_running else None,
            is_alive=facts.is_alive,
            process_id=facts.process_id or self.process_id,
        )

    def _eta(
        self, columns: Sequence[OperatorColumn], partitions: int, total: int, now: float
    ) -> float | None:
        live = partitions - self._rows.counts[BROKEN]
        left = self._time_left.estimate(columns, self._rows, live, now)
        return self._runs.time_left(self._grid.done(), total, now) if left is None else left

    def _error(self, status: ProcessingStatus, facts: JobFacts) -> str | None:
        if status is ProcessingStatus.KILLED and facts.is_disk_full:
            return "no space left on the file system of its directory"
        if status not in (ProcessingStatus.FAILED, ProcessingStatus.PARTIAL):
            return None
        reported = self._runs.end.error_message if self._runs.end is not None else None
        first = next(iter(self._rows.errors.values()), None)
        return reported or facts.summary.get("error_message") or first


def _is_checkpoint(path: str | None) -> bool:
    """Returns whether a reused result stays: states between global operators and parts of the export are
    removed at the end."""
    return path is None or path.rpartition("/")[2].startswith("op_")


def _is_state(path: str | None) -> bool:
    """Returns whether it is the state of a partition that waits for others."""
    return path is not None and "/stage_" in path


def _is_resumable(status: ProcessingStatus, facts: JobFacts, saved: int) -> bool:
    if facts.is_resumable and status is not ProcessingStatus.COMPLETED:
        return True
    return saved > 0 and facts.has_checkpoints is not False
