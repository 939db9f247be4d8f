"""Events and rejected rows of one partition."""

import time
import traceback
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from joblens.data.base.job_folder import JobFolder
from joblens.data.base.messages import Emit, event, op_event, step_event
from joblens.data.base.op_usage import Usage
from joblens.data.base.operator import Operator
from joblens.data.base.reasons import encodable, reason_of
from joblens.data.files.rejects import Reject, line_of, reasons_in, unread_in, write_rejects
from joblens.data.partition import checkpoints
from joblens.data.partition.checkpoints import FinishedPart, RejectsSoFar
from joblens.data.partition.worker_context import WorkerContext
from joblens.model.recipes.recipe import EventType, OperatorCall, Partition, RecipeEvent
from joblens.model.values.units import counted
from joblens.plan.workflows.plan_document import shown_params


class PartitionReport:
    def __init__(self, context: WorkerContext, partition: Partition, attempt: int, emit: Emit) -> None:
        self._context = context
        self._partition = partition
        self._id = partition.id
        self._attempt = attempt
        self._emit = emit

    def reading(self) -> None:
        meta = {"file_size_bytes": self._partition.size_bytes}
        self._emit(event(EventType.PARTITION_CREATION_START, partition_id=self._id, partition_meta=meta))

    def read(self, count: int, checksum: str, usage: Usage) -> None:
        first = self._partition.first_row
        meta = {
            "sample_count": count,
            "file_size_bytes": self._partition.size_bytes,
            "checksum": checksum,
            "duration_seconds": round(usage.wall_seconds, 6),
            "original_start_idx": first,
            "original_end_idx": None if first is None else first + count,
            "resources": usage.as_metadata(),
        }
        self._emit(
            event(
                EventType.PARTITION_CREATION_COMPLETE,
                partition_id=self._id,
                partition_meta=meta,
                metadata=meta,
                duration=meta["duration_seconds"],
                output_rows=count,
            )
        )

    def stepped(self, step: str, usage: Usage) -> None:
        """Emits an event outside operators."""
        self._emit(step_event(step, usage, partition_id=self._id))

    def started(self, count: int) -> None:
        self._emit(
            event(
                EventType.PARTITION_START,
                partition_id=self._id,
                input_rows=count,
                retry_count=self._attempt or UNSET,
            )
        )

    def resumed(self, call: OperatorCall, path: str, count: int, rejected: int) -> None:
        """Reports a resumed partition. `rejected`: rows of all operators up to this one, which are not
        reported again one by one."""
        meta = {"checkpoint_path": path, "rows": count, "rejected_rows": rejected}
        self._emit(op_event(EventType.CHECKPOINT_LOAD, self._id, call, checkpoint_path=path, metadata=meta))
        self._emit(
            op_event(
                EventType.PARTITION_RESUME,
                self._id,
                call,
                input_rows=count,
                retry_count=self._attempt or UNSET,
            )
        )

    def op_started(self, call: OperatorCall, operator: Operator, rows_in: int) -> None:
        meta = {
            "operation_idx": call.index,
            "operation_args": shown_params(call.params),
            "start_time": time.time(),
            "operation_class": type(operator).__name__,
            "dag_node_id": self._context.node_id(call, self._id),
        }
        args = {**shown_params(call.params), "dag_node_id": self._context.node_id(call, self._id)}
        self._emit(
            op_event(EventType.OP_START, self._id, call, input_rows=rows_in, op_args=args, metadata=meta)
        )

    def op_failed(self, call: OperatorCall, rows_in: int, error: BaseException) -> None:
        self._emit(
            op_event(
                EventType.OP_FAILED,
                self._id,
                call,
                status="failed",
                error_message=reason_of(error),
                stack_trace=encodable("".join(traceback.format_exception(error))),
                input_rows=rows_in,
                retry_count=self._attempt,
            )
        )

    def op_completed(
        self, call: OperatorCall, rows_in: int, rows_out: int, rejected: int, usage: Usage
    ) -> None:
        meta = completion(rows_in, rows_out, rejected, usage.as_metadata())
        meta |= {"operation_idx": call.index, "dag_node_id": self._context.node_id(call, self._id)}
        self._emit(
            op_event(
                EventType.OP_COMPLETE,
                self._id,
                call,
                status="success",
                duration=meta["duration_seconds"],
                input_rows=rows_in,
                output_rows=rows_out,
                metadata=meta,
            )
        )

    def saved(self, call: OperatorCall, path: str, size_bytes: int, rows: int, usage: Usage) -> None:
        meta = {
            "checkpoint_path": path,
            "size_bytes": size_bytes,
            "rows": rows,
            "resources": usage.as_metadata(),
        }
        self._emit(op_event(EventType.CHECKPOINT_SAVE, self._id, call, checkpoint_path=path, metadata=meta))

    def waits(self, call: OperatorCall, path: str, size_bytes: int, rows: int) -> None:
        """Records that the state after an operator was kept until the partition has advanced. Its cost is
        reported with the operator it waits for."""
        meta = {"checkpoint_path": path, "size_bytes": size_bytes, "rows": rows}
        self._emit(op_event(EventType.CHECKPOINT_SAVE, self._id, call, checkpoint_path=path, metadata=meta))

    def rejected(self, count: int, reason: str, path: str, call: OperatorCall | None = None) -> None:
        """Reports rejected rows; without an operator, unreadable ones."""
        about: dict[str, Any] = {"partition_id": self._id}
        if call is not None:
            about |= {"operation_name": call.name, "operation_idx": call.index}
        self._emit(rows_rejected(count, reason, path, **about))

    def completed(self, finished: FinishedPart, export: Usage | None) -> None:
        """Reports the end; without an export if an earlier run has written it."""
        meta: dict[str, Any] = {
            "sample_count": finished.source_rows,
            "output_bytes": finished.part.size_bytes,
            "checksum": finished.life.checksum,
            "rejected_rows": finished.rejects.count,
        }
        if export is None:
            meta["was_done_before"] = True
        else:
            meta["export"] = export.as_metadata()
        self._emit(
            event(
                EventType.PARTITION_COMPLETE,
                partition_id=self._id,
                status="success",
                input_rows=finished.source_rows,
                output_rows=finished.part.rows,
                output_path=finished.part.path,
                retry_count=self._attempt or UNSET,
                metadata=meta,
            )
        )


def rows_rejected(count: int, reason: str, path: str, **about: Any) -> RecipeEvent:
    return event(
        EventType.ROWS_REJECTED,
        message=f"{counted(count, 'row')} rejected, first reason: {encodable(reason)}",
        metadata={"rejected_rows": count, "reason": encodable(reason), "path": path},
        **about,
    )


def completion(rows_in: int, rows_out: int, rejected: int, usage: dict[str, Any]) -> dict[str, Any]:
    """Returns the metadata of a completed operator."""
    wall = usage["wall_seconds"]
    return {
        "duration_seconds": wall,
        "completion_time": time.time(),
        "input_rows": rows_in,
        "output_rows": rows_out,
        "throughput_rows_per_second": round(rows_in / wall, 3) if wall > 0 else None,
        "reduction_ratio": round(1 - rows_out / rows_in, 6) if rows_in else 0.0,
        "rejected_rows": rejected,
        "resources": usage,
    }


class RejectsOfPartition:
    """Rejected rows of a partition, kept with each checkpoint so that a resumed partition reports each row
    once: events wait until the work is kept. People get the file when the partition is done."""

    def __init__(self, folder: JobFolder, partition_id: int, report: PartitionReport) -> None:
        self._folder = folder
        self._id = partition_id
        self._report = report
        self._lines: list[bytes] = []  # kept lines since the partition was read
        self._unsaved: list[bytes] = []  # since the last checkpoint
        self._unreported: list[tuple[int, str, OperatorCall | None]] = []

    def begin(self, lines: Sequence[bytes]) -> None:
        self._lines, self._unsaved, self._unreported = list(lines), [], []

    def read(self, bad: Sequence[Reject]) -> None:
        """Adds unreadable rows, found again on every read; they count as reported if a checkpoint exists."""
        if bad:
            self._unreported.append((len(bad), bad[0].reason, None))

    def add(self, rejects: Sequence[Reject], call: OperatorCall) -> None:
        self._unsaved += [line_of(reject) for reject in rejects]
        self._unreported.append((len(rejects), rejects[0].reason, call))

    def keep_unsaved(self, path: str) -> RejectsSoFar:
        """Writes the rows since the last checkpoint next to this one."""
        new, self._unsaved = self._unsaved, []
        self._lines += new
        return _kept(path, new)

    def keep_all(self, path: str) -> RejectsSoFar:
        self._lines += self._unsaved
        self._unsaved = []
        return _kept(path, self._lines)

    def report(self) -> None:
        """Returns the counts kept so far."""
        for count, reason, call in self._unreported:
            self._report.rejected(count, reason, self._folder.rejects_of(self._id), call)
        self._unreported = []

    def publish(self) -> None:
        """Replaces the file of an earlier attempt."""
        write_rejects(self._folder.rejects_of(self._id), self._lines)


def _kept(path: str, lines: Sequence[bytes]) -> RejectsSoFar:
    if not lines:
        return RejectsSoFar()
    file = checkpoints.keep_bytes(path, b"".join(lines))
    return RejectsSoFar(count=len(lines), unread=unread_in(lines), file=file, reasons=reasons_in(lines))
