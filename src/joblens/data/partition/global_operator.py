"""Global operator over all partitions: which rows stay."""

import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import xxhash

from joblens.data.base import manifests
from joblens.data.base.messages import Decide, Emit, event
from joblens.data.base.op_usage import Meter
from joblens.data.base.operator import GlobalOperator, Signatures
from joblens.data.partition import checkpoints, restoring
from joblens.data.partition.checkpoints import MaskOfPart, MasksManifest, StageManifest, VerifiedFile
from joblens.data.partition.report import completion
from joblens.data.partition.worker_context import WorkerContext
from joblens.files.atomic import atomic_file
from joblens.files.private import make_private_folder
from joblens.model.errors import JoblensError
from joblens.model.recipes.recipe import EventType, OperatorCall
from joblens.plan.workflows.plan_document import shown_params


def masks_if_done(context: WorkerContext, closing: int, ends: list[StageManifest]) -> MasksManifest | None:
    """Returns an earlier decision if it was made for these states of the partitions."""
    path = context.folder.masks_manifest(closing)
    manifest = manifests.read_manifest(path, MasksManifest)
    if manifest is None:
        return None
    decided = [(part.partition_id, part.chain) for part in manifest.parts]
    if decided != [(end.partition_id, end.chain) for end in ends]:
        return None
    is_whole = checkpoints.load_verified(context.folder.partitions, manifest.file) is not None
    return manifest if is_whole else None


def decide(context: WorkerContext, task: Decide, emit: Emit) -> dict[str, Any]:
    stage = context.plan.stages[task.stage]
    closing = stage.closing
    assert closing is not None
    ends = _ends(context, task)
    done = masks_if_done(context, closing, ends)
    if done is None:
        done = _Decision(context, closing, ends, emit).take()
    else:
        _report_reuse(context, done, emit)
    result: dict[str, Any] = msgspec.to_builtins(done)
    return result


def _ends(context: WorkerContext, task: Decide) -> list[StageManifest]:
    stage = context.plan.stages[task.stage]
    found = [restoring.stage_end(context.folder, each, stage) for each in task.partition_ids]
    whole = [end for end in found if end is not None]
    if len(whole) != len(found):
        raise JoblensError("a partition's manifest before a global operator is missing")
    return whole


class _Decision:
    def __init__(self, context: WorkerContext, closing: int, ends: list[StageManifest], emit: Emit) -> None:
        self._context = context
        self._folder = context.folder
        self._closing = closing
        self._call = context.plan.recipe.process[closing]
        self._ends = ends
        self._emit = emit
        self._meter = Meter()

    def take(self) -> MasksManifest:
        operator = self._context.operator(self._closing)
        assert isinstance(operator, GlobalOperator)
        self._report_start()
        scratch = self._folder.scratch(self._closing)
        shutil.rmtree(scratch, ignore_errors=True)
        make_private_folder(scratch)
        parts = [self._signatures(end) for end in self._ends]
        masks = operator.decide(parts, budget_bytes=self._context.plan.budget_bytes, scratch=scratch)
        manifest = self._written(masks, operator.first_numbers(parts) or [None] * len(parts))
        manifests.write_manifest(self._folder.masks_manifest(self._closing), manifest)
        self._report(manifest)
        shutil.rmtree(scratch, ignore_errors=True)
        return manifest

    def _written(self, masks: Iterable[Any], numbers: Sequence[int | None]) -> MasksManifest:
        path = self._folder.masks(self._closing)
        found: list[MaskOfPart] = []
        hasher, offset = xxhash.xxh3_128(), 0
        with atomic_file(path) as being_written, open(being_written, "wb") as file:
            for end, mask, number in zip(self._ends, masks, numbers, strict=True):
                bits = np.asarray(mask)
                if len(bits) != end.rows:
                    raise JoblensError(
                        f"{self._call.name} returned a mask of {len(bits):,} rows for partition "
                        f"{end.partition_id}, which has {end.rows:,}"
                    )
                packed = np.packbits(bits).tobytes()
                found.append(_mask_of(end, bits, offset, packed, number))
                file.write(packed)
                hasher.update(packed)
                offset += len(packed)
        saved = VerifiedFile(path=os.path.basename(path), size_bytes=offset, digest=hasher.hexdigest())
        return MasksManifest(index=self._closing, file=saved, parts=tuple(found))

    def _signatures(self, end: StageManifest) -> Signatures:
        folder = self._folder.signatures_dir(self._closing)
        buffer = checkpoints.load_verified(folder, end.signatures)
        if buffer is None:
            raise JoblensError(f"the signatures of partition {end.partition_id} are damaged")
        return Signatures(end.partition_id, end.rows, checkpoints.batch_in(buffer))

    def _report_start(self) -> None:
        rows, partitions = sum(end.rows for end in self._ends), len(self._ends)
        about = _about(self._call)
        node = self._context.node_id(self._call, 0)
        parameters = shown_params(self._call.params)
        args = {**parameters, "dag_node_id": node}
        meta = {"operation_idx": self._closing, "operation_args": parameters, "dag_node_id": node}
        self._emit(event(EventType.REPARTITION_START, **about, input_rows=rows, total_partitions=partitions))
        self._emit(event(EventType.OP_START, **about, input_rows=rows, op_args=args, metadata=meta))

    def _report(self, manifest: MasksManifest) -> None:
        """Sums the cost of the signatures of all partitions."""
        usage = _summed([end.usage for end in self._ends] + [self._meter.usage().as_metadata()])
        rows_in, rows_out = sum(end.rows for end in self._ends), sum(part.kept for part in manifest.parts)
        meta = completion(rows_in, rows_out, 0, usage)
        meta |= {"operation_idx": self._closing, "dag_node_id": self._context.node_id(self._call, 0)}
        about = _about(self._call)
        self._emit(
            event(
                EventType.OP_COMPLETE,
                **about,
                status="success",
                duration=meta["duration_seconds"],
                input_rows=rows_in,
                output_rows=rows_out,
                metadata=meta,
            )
        )
        path = self._folder.masks(self._closing)
        saved = {"checkpoint_path": path, "size_bytes": manifest.file.size_bytes, "rows": rows_out}
        self._emit(event(EventType.CHECKPOINT_SAVE, **about, checkpoint_path=path, metadata=saved))
        self._emit(
            event(
                EventType.REPARTITION_COMPLETE,
                **about,
                duration=round(self._meter.usage().wall_seconds, 6),
                input_rows=rows_in,
                output_rows=rows_out,
                total_partitions=len(self._ends),
            )
        )


def _report_reuse(context: WorkerContext, done: MasksManifest, emit: Emit) -> None:
    """Reports a decision again: the event may have been lost with the process."""
    about = _about(context.plan.recipe.process[done.index])
    path = context.folder.masks(done.index)
    rows_in, rows_out = sum(part.rows for part in done.parts), sum(part.kept for part in done.parts)
    meta = {"was_done_before": True, "input_rows": rows_in, "output_rows": rows_out}
    emit(event(EventType.CHECKPOINT_LOAD, **about, checkpoint_path=path))
    emit(
        event(
            EventType.OP_COMPLETE,
            **about,
            status="success",
            input_rows=rows_in,
            output_rows=rows_out,
            metadata=meta,
        )
    )
    emit(event(EventType.CHECKPOINT_SAVE, **about, checkpoint_path=path, metadata={"was_done_before": True}))


def _about(call: OperatorCall) -> dict[str, Any]:
    return {"operation_name": call.name, "operation_idx": call.index}


def _mask_of(end: StageManifest, bits: Any, offset: int, packed: bytes, number: int | None) -> MaskOfPart:
    return MaskOfPart(
        partition_id=end.partition_id,
        chain=end.chain,
        rows=end.rows,
        kept=int(np.count_nonzero(bits)),
        offset=offset,
        digest=manifests.digest_of(packed),
        first_number=number,
    )


def _summed(usages: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {
        name: round(sum(usage.get(name) or 0 for usage in usages), 6)
        for name in ("wall_seconds", "cpu_seconds", "read_bytes", "written_bytes")
    }
    peaks = [usage["memory_peak_bytes"] for usage in usages if usage.get("memory_peak_bytes")]
    return total | {"memory_peak_bytes": max(peaks) if peaks else None}
