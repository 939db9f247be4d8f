"""Snapshot of a recipe's job as a JSON document, with tables of partitions and operations made on demand."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from joblens.analysis.recipes.columns import (
    BROKEN,
    DONE,
    RUNNING,
    SAVED,
    UNSEEN,
    ColumnState,
    OperationForm,
    PartitionRows,
    known,
)
from joblens.model.recipes.snapshot import (
    JobSnapshot,
    OperationStatus,
    OperatorProgress,
    PartitionStatus,
    ProcessingStatus,
    StepProgress,
)


class _Names(Struct, frozen=True, kw_only=True):
    """Operators by their state on a partition."""

    completed: tuple[str, ...]
    failed: tuple[str, ...]
    saved: tuple[str, ...]
    current: str | None


class PartitionTable(Mapping[int, PartitionStatus]):
    def __init__(
        self,
        rows: PartitionRows,
        columns: Sequence[ColumnState],
        running: ProcessingStatus,
        waits_after: int | None = None,  # index of an operator
    ) -> None:
        self._rows = rows
        self._columns = [column for column in columns if not column.is_global]
        self._waits_after = next((column for column in self._columns if column.index == waits_after), None)
        together = [column.codes[0] if column.codes else UNSEEN for column in columns if column.is_global]
        self._planned = len(self._columns) + len(together)
        self._done_together = sum(code in (DONE, SAVED) for code in together)
        self._running = running
        self._names_by_codes: dict[bytes, _Names] = {}  # most partitions are in one of a few states

    def __len__(self) -> int:
        return len(self._rows.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._rows.ids))

    def __getitem__(self, partition_id: int) -> PartitionStatus:
        rows, row = self._rows, self._rows.number[partition_id]
        if row >= len(rows.ids):  # came later than the snapshot
            raise KeyError(partition_id)
        names = self._names(bytes([column.codes[row] for column in self._columns]))
        return PartitionStatus(
            partition_id=partition_id,
            status=rows.status(row, self._running),
            sample_count=rows.sample_counts.get(row, self._rows_read(row)),
            creation_start_time=known(rows.creation_starts[row]),
            creation_end_time=known(rows.creation_ends[row]),
            processing_start_time=known(rows.starts[row]),
            processing_end_time=known(rows.ends[row]),
            current_operation=names.current,
            completed_operations=names.completed,
            failed_operations=names.failed,
            checkpointed_operations=names.saved,
            error_message=rows.errors.get(row),
            planned_operations=self._planned,
            completed_together=0 if rows.codes[row] == BROKEN else self._done_together,
            retry_count=rows.retries.get(row, 0),
            is_waiting=self._is_waiting(row),
        )

    def _is_waiting(self, row: int) -> bool:
        is_begun = self._rows.codes[row] == RUNNING and self._running is ProcessingStatus.IN_PROGRESS
        return is_begun and self._waits_after is not None and self._waits_after.codes[row] in (DONE, SAVED)

    def _names(self, codes: bytes) -> _Names:
        names = self._names_by_codes.get(codes)
        if names is None:

            def those_in(*states: int) -> tuple[str, ...]:
                pairs = zip(self._columns, codes, strict=True)
                return tuple(column.name for column, code in pairs if code in states)

            names = self._names_by_codes[codes] = _Names(
                completed=those_in(DONE, SAVED),
                failed=those_in(BROKEN),
                saved=those_in(SAVED),
                current=next(iter(reversed(those_in(RUNNING))), None),
            )
        return names

    def _rows_read(self, row: int) -> int | None:
        """Returns the input of the first operator, if row counts are otherwise unknown."""
        return self._columns[0].rows_in(row) if self._columns else None


class SavedForm(Struct, frozen=True, gc=False):
    """An operation with a saved result, as written."""

    operation_key: str
    operation_name: str
    checkpoint_time: float  # not a number if unknown


class OperationTable(Mapping[str, OperationStatus]):
    """Started operations, by `p<partition>_op<index>_<name>`, or `global_op<index>_<name>`."""

    def __init__(
        self, rows: PartitionRows, columns: Sequence[ColumnState], running: ProcessingStatus
    ) -> None:
        self._rows = rows
        self._columns = columns
        self._running = running
        self._length = sum(len(column.codes) - column.codes.count(UNSEEN) for column in columns)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for key, _column, _row in self._started():
            yield key

    def _started(self) -> Iterator[tuple[str, ColumnState, int]]:
        partial = [column for column in self._columns if not column.is_global]
        for partition_id in sorted(self._rows.ids):
            row = self._rows.number[partition_id]
            for column in partial:
                if row < len(column.codes) and column.codes[row] != UNSEEN:
                    yield f"p{partition_id}_op{column.index}_{column.name}", column, row
        for column in self._columns:
            if column.is_global and column.codes and column.codes[0] != UNSEEN:
                yield f"global_op{column.index}_{column.name}", column, 0

    def __getitem__(self, key: str) -> OperationStatus:
        where, _, rest = key.partition("_op")
        index_text, _, name = rest.partition("_")
        for column in self._columns:
            if str(column.index) == index_text and column.name == name:
                row = self._row_of(where, column)
                if row is not None and row < len(column.codes) and column.codes[row] != UNSEEN:
                    return column.operation(row, self._running)
        raise KeyError(key)

    def _row_of(self, where: str, column: ColumnState) -> int | None:
        if column.is_global:
            return 0 if where == "global" else None
        number = where.removeprefix("p")
        is_number = number.removeprefix("-").isdecimal() and where.startswith("p")
        return self._rows.number.get(int(number)) if is_number else None

    def states_by_partition(self) -> dict[int, bytes]:
        """Returns one byte per partition (UNSEEN, RUNNING, …) in the order of their ids, by the index of the
        operator; a single byte for an operator on all partitions."""
        order = [self._rows.number[partition_id] for partition_id in sorted(self._rows.ids)]
        return {
            column.index: column.codes[:1]
            if column.is_global
            else bytes(column.codes[row] if row < len(column.codes) else UNSEEN for row in order)
            for column in self._columns
        }

    def saved(self) -> Iterator[SavedForm]:
        """Returns operations with saved results."""
        for key, column, row in self._started():
            if column.codes[row] == SAVED:
                yield SavedForm(key, column.name, column.saved_time(row))

    def forms(self) -> Iterator[tuple[str, OperationForm]]:
        """Returns all in order, without searching each."""
        running = self._running
        for key, column, row in self._started():
            yield key, column.form(row, running)


_AT_ONCE = 1000


class JobAbout(Struct, frozen=True, kw_only=True):
    """Facts about the job from its folder."""

    executor_type: str | None = None
    config_file: list[str] | None = None
    work_dir: str | None = None
    resumption_command: str | None = None
    summary_duration: float | None = None
    is_summary_loaded: bool = False
    is_timing_of_summary: bool = False
    is_dag_loaded: bool = False
    event_log_file: str | None = None
    event_log_dir: str | None = None
    checkpoint_dir: str | None = None
    metadata_dir: str | None = None
    backed_up_config_path: str | None = None


def format_duration(seconds: float | None) -> str | None:
    """Returns '4m 31s', as DataJuicer writes durations."""
    if seconds is None:
        return None
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m {rest_s}s"
    return f"{minutes}m {rest_s}s" if minutes else f"{rest_s}s"


class _Pairs:
    """An object with members created on demand."""

    def __init__(self, members: Iterator[tuple[str, Any]]) -> None:
        self.members = members


class _Entries:
    """A list with entries created on demand."""

    def __init__(self, entries: Iterator[Any]) -> None:
        self.entries = entries


def snapshot_form(snapshot: JobSnapshot, about: JobAbout) -> dict[str, Any]:
    form: dict[str, Any] = _whole(_document(snapshot, about))
    return form


def snapshot_json(snapshot: JobSnapshot, about: JobAbout) -> Iterator[bytes]:
    """Returns the same document in pieces, because it may be large."""
    return _pieces(_document(snapshot, about))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(member) for key, member in value.items()}
    if isinstance(value, _Pairs | _Entries):  # as written, so that both are equal
        return msgspec.json.decode(b"".join(_pieces(value)))
    return msgspec.to_builtins(value)


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        before = b"{"
        for key, member in value.items():
            yield before + msgspec.json.encode(key) + b":"
            yield from _pieces(member)
            before = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, _Pairs):
        yield b"{"
        yield from _joined(dict(some) for some in _batches(value.members))
        yield b"}"
    elif isinstance(value, _Entries):
        yield b"["
        yield from _joined(_batches(value.entries))
        yield b"]"
    else:
        yield msgspec.json.encode(value)


def _batches(every: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(itertools.islice(every, _AT_ONCE)):
        yield some


def _joined(batches: Iterator[Any]) -> Iterator[bytes]:
    """Yields the members of all batches, without the brackets around each."""
    before = b""
    for batch in batches:
        yield before + msgspec.json.encode(batch)[1:-1]
        before = b","


def _document(snapshot: JobSnapshot, about: JobAbout) -> dict[str, Any]:
    partitions = ((str(key), _partition(one)) for key, one in snapshot.partition_statuses.items())
    return {
        "job_info": _job_info(snapshot, about),
        "overall_status": snapshot.overall_status.value,
        "overall_progress": {
            "overall_percentage": _percent(snapshot.overall_fraction),
            "partition_percentage": _percent(snapshot.partition_fraction),
            "operation_percentage": _percent(snapshot.operation_fraction),
        },
        "timing": _timing(snapshot, about),
        "progress_summary": _progress_summary(snapshot),
        "checkpointing": _checkpointing(snapshot, about),
        "partition_progress": _Pairs(partitions),
        "operation_progress": _Pairs(_table(snapshot).forms()),
        "resources": _resources(snapshot),
        "file_paths": {
            "event_log_file": about.event_log_file,
            "event_log_dir": about.event_log_dir,
            "checkpoint_dir": about.checkpoint_dir,
            "metadata_dir": about.metadata_dir,
            "backed_up_config_path": about.backed_up_config_path,
        },
        "metadata": {
            "snapshot_generated_at": datetime.fromtimestamp(snapshot.taken_at, UTC).isoformat(),
            "events_analyzed": snapshot.events_analyzed,
            "dag_plan_loaded": about.is_dag_loaded,
            "job_summary_loaded": about.is_summary_loaded,
            "job_summary_used": about.is_summary_loaded,
        },
    }


def _table(snapshot: JobSnapshot) -> OperationTable:
    table = snapshot.operation_statuses
    assert isinstance(table, OperationTable)  # every snapshot is made with one
    return table


def _percent(fraction: float) -> float:
    return fraction * 100


def _job_info(snapshot: JobSnapshot, about: JobAbout) -> dict[str, Any]:
    status = snapshot.overall_status
    return {
        "job_id": snapshot.job_id,
        "executor_type": about.executor_type,
        "status": "running" if status is ProcessingStatus.IN_PROGRESS else status.value,
        "config_file": about.config_file,
        "work_dir": about.work_dir,
        "resumption_command": about.resumption_command,
        "error_message": snapshot.error_message,
    }


def _timing(snapshot: JobSnapshot, about: JobAbout) -> dict[str, Any]:
    return {
        "start_time": snapshot.job_start_time,
        "end_time": snapshot.job_end_time,
        "duration_seconds": snapshot.total_duration,
        "duration_formatted": format_duration(snapshot.total_duration),
        "job_summary_duration": about.summary_duration,
        "timing_source": "job_summary" if about.is_timing_of_summary else "events",
    }


def _progress_summary(snapshot: JobSnapshot) -> dict[str, Any]:
    return {
        "total_partitions": snapshot.total_partitions,
        "completed_partitions": snapshot.completed_partitions,
        "failed_partitions": snapshot.failed_partitions,
        "in_progress_partitions": snapshot.in_progress_partitions,
        "partition_progress_percentage": _percent(snapshot.partition_fraction),
        "total_operations": snapshot.total_operations,
        "completed_operations": snapshot.completed_operations,
        "failed_operations": snapshot.failed_operations,
        "checkpointed_operations": snapshot.checkpointed_operations,
        "operation_progress_percentage": _percent(snapshot.operation_fraction),
    }


def _checkpointing(snapshot: JobSnapshot, about: JobAbout) -> dict[str, Any]:
    total = snapshot.total_operations
    coverage = snapshot.checkpointed_operations / total if total else 0.0
    return {
        "strategy": snapshot.checkpoint_strategy,
        "last_checkpoint_time": snapshot.last_checkpoint_time,
        "checkpointed_operations_count": snapshot.checkpointed_operations,
        "resumable": snapshot.resumable,
        "checkpoint_progress": {
            "percentage": _percent(coverage),
            "checkpointed_operations": _Entries(_table(snapshot).saved()),
            "checkpoint_coverage": coverage,
        },
        "checkpoint_dir": about.checkpoint_dir,
    }


def _partition(partition: PartitionStatus) -> dict[str, Any]:
    return {
        "status": partition.status.value,
        "sample_count": partition.sample_count,
        "creation_start_time": partition.creation_start_time,
        "creation_end_time": partition.creation_end_time,
        "processing_start_time": partition.processing_start_time,
        "processing_end_time": partition.processing_end_time,
        "current_operation": partition.current_operation,
        "completed_operations": list(partition.completed_operations),
        "failed_operations": list(partition.failed_operations),
        "checkpointed_operations": list(partition.checkpointed_operations),
        "error_message": partition.error_message,
        "progress_percentage": _percent(partition.fraction),
    }


def _resources(snapshot: JobSnapshot) -> dict[str, Any]:
    """Adds resources of operators and the work between them, and the certainty of the rest."""
    every: list[OperatorProgress | StepProgress] = [*snapshot.operators, *snapshot.steps]
    cpu = [one.cpu_seconds for one in every if one.cpu_seconds is not None]
    memory = [one.memory_peak_bytes for one in every if one.memory_peak_bytes is not None]
    seconds = snapshot.total_duration
    rows = snapshot.rows_in
    return {
        "cpu_seconds": sum(cpu) if cpu else None,
        "cpu_cores_used": sum(cpu) / seconds if cpu and seconds else None,
        "memory_peak_bytes": max(memory, default=None),
        "input_rows": rows,
        "output_rows": snapshot.rows_out,
        "rows_per_second": rows / seconds if rows is not None and seconds else None,
        "rejected_rows": snapshot.rejected_rows,
        "rejects": [msgspec.to_builtins(one) for one in snapshot.rejects],
        "waiting_partitions": snapshot.waiting_partitions,
        "retries": snapshot.retries,
        "runs": snapshot.runs,
        "eta_seconds": snapshot.eta_seconds,
        "process_id": snapshot.process_id,
        "process_alive": snapshot.is_alive,
        "malformed_lines": snapshot.malformed_lines,
        "operations": [operator_form(one) for one in snapshot.operators],
        "steps": [msgspec.to_builtins(one) for one in snapshot.steps],
    }


def operator_form(one: OperatorProgress) -> dict[str, Any]:
    """Returns an operator's progress over all partitions."""
    return {
        **msgspec.to_builtins(one),
        "keep_rate": one.keep_rate,
        "rows_per_second": one.rows_per_second,
    }
