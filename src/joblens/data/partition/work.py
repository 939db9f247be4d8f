"""Execution of a task in any process: a local worker or one of a cluster."""

import contextlib
import shutil
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from joblens.data.base import manifests
from joblens.data.base.job_folder import JobFolder
from joblens.data.base.manifests import is_piece_whole
from joblens.data.base.messages import (
    Assemble,
    CutFile,
    Decide,
    Emit,
    Ended,
    Failed,
    Happened,
    RunStage,
    Task,
    step_event,
)
from joblens.data.base.op_usage import Meter
from joblens.data.base.process_setup import return_large_blocks
from joblens.data.base.reasons import encodable, message_of, with_location
from joblens.data.files import export as exporting
from joblens.data.files.cutting import cut_file
from joblens.data.files.rejects import Reject, RejectsFile, describe_reject_position
from joblens.data.logging.operator_output import captured_output
from joblens.data.partition import global_operator
from joblens.data.partition.checkpoints import FinishedPart
from joblens.data.partition.report import rows_rejected
from joblens.data.partition.stage_run import StageRun
from joblens.data.partition.worker_context import WorkerContext
from joblens.files.private import make_private_folder
from joblens.model.errors import BadRow, BrokenOperator, InputError, JoblensError
from joblens.model.jobs.details import RejectReason
from joblens.model.recipes.recipe import RecipePlan, Slice, Step

_contexts: dict[str, WorkerContext] = {}  # by job: a process of a cluster may work for several


class CutManifest(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    whole: Slice
    pieces: tuple[Slice, ...]
    rejected: int = 0
    reasons: tuple[RejectReason, ...] = ()


def worker_context(plan: RecipePlan) -> WorkerContext:
    found = _contexts.get(plan.job_dir)
    if found is None or (found.plan is not plan and found.plan != plan):  # a job may start over
        found = _contexts[plan.job_dir] = WorkerContext(plan)
    return found


def run_task(task: Task, plan: RecipePlan, emit: Emit) -> dict[str, Any]:
    """Executes a task and returns its result. Raises any error."""
    # Partitions already run in parallel; threads inside them would compete.
    if pa.cpu_count() != 1:
        pa.set_cpu_count(1)
    return_large_blocks()
    context = worker_context(plan)
    try:
        match task:
            case RunStage():
                with _output_kept(context, task.partition.id):
                    return StageRun(context, task, emit).run()
            case CutFile():
                return _cut(context, task, emit)
            case Decide():
                with _output_kept(context, None):
                    return global_operator.decide(context, task, emit)
            case Assemble():
                return _assemble(context, task, emit)
    finally:
        pa.default_memory_pool().release_unused()


def _output_kept(context: WorkerContext, partition_id: int | None) -> contextlib.AbstractContextManager[None]:
    """Keeps the output of user operators; built-in ones print nothing."""
    if context.is_all_built_in:
        return contextlib.nullcontext()
    return captured_output(context.folder.output_of(partition_id))


def run_reported(task: Task, plan: RecipePlan, send: Callable[[Happened], None]) -> Ended | Failed:
    """Executes a task and returns errors as a message."""
    try:
        return Ended(task.id, run_task(task, plan, lambda event: send(Happened(task.id, event))))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the coordinator decides what comes of it
        return Failed(
            task.id,
            type(error).__name__,
            _message(error, plan) or type(error).__name__,
            encodable(traceback.format_exc()),
            is_final=_is_final(error, plan),
        )


def _message(error: BaseException, plan: RecipePlan) -> str:
    if isinstance(error, OSError):
        return with_location(error, JobFolder.of_plan(plan).written_to(plan.recipe.export_path))
    return message_of(error)


def _is_final(error: BaseException, plan: RecipePlan) -> bool:
    """Returns whether a retry would fail the same way."""
    if isinstance(error, (BadRow, BrokenOperator, InputError)):
        return True
    is_about_operators = not isinstance(error, (OSError, MemoryError, JoblensError, pa.ArrowMemoryError))
    return plan.recipe.is_strict and is_about_operators


def _cut(context: WorkerContext, task: CutFile, emit: Emit) -> dict[str, Any]:
    folder, meter = context.folder, Meter()
    path = folder.cut_manifest(task.number)
    done = manifests.read_manifest(path, CutManifest)
    if done is None or done.whole != task.whole or not all(map(is_piece_whole, done.pieces)):
        pieces_folder = folder.cut_folder(task.number)
        shutil.rmtree(pieces_folder, ignore_errors=True)
        make_private_folder(pieces_folder)
        rejects = RejectsFile(folder.cut_rejects(task.number))
        strict = _Strict() if context.plan.recipe.is_strict else None
        pieces = cut_file(task, context.plan, pieces_folder, strict or rejects)
        rejects.write()
        done = CutManifest(
            number=task.number,
            whole=task.whole,
            pieces=tuple(pieces),
            rejected=rejects.count,
            reasons=rejects.reasons,
        )
        manifests.write_manifest(path, done)
        if rejects.count:
            emit(rows_rejected(rejects.count, rejects.first_reason, rejects.path))
    emit(step_event(Step.CUTTING, meter.usage()))
    result: dict[str, Any] = msgspec.to_builtins(done)
    return result


class _Strict:
    def __call__(self, reject: Reject) -> None:
        raise BadRow(describe_reject_position(reject))


def _assemble(context: WorkerContext, task: Assemble, emit: Emit) -> dict[str, Any]:
    meter = Meter()
    parts = []
    for partition_id in task.partition_ids:
        path = context.folder.export_part_manifest(partition_id)
        finished = manifests.read_manifest(path, FinishedPart)
        if finished is None:
            raise JoblensError(f"partition {partition_id} has no exported part")
        parts.append(finished.part)
    export = exporting.assemble(context.plan, parts, moved=context.folder.moved, keep=task.keep_parts)
    emit(step_event(Step.EXPORTING, meter.usage()))
    result: dict[str, Any] = msgspec.to_builtins(export)
    return result
