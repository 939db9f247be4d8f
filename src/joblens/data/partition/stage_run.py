"""Runs the operators of one stage on one partition, on a worker."""

import os
import time
from typing import Any

import msgspec

from joblens.data.base import manifests
from joblens.data.base.messages import Emit, RunStage
from joblens.data.base.op_usage import Meter
from joblens.data.base.operator import GlobalOperator
from joblens.data.files.export import part_ending, write_pieces
from joblens.data.files.partition_rows import read_partition
from joblens.data.files.rejects import Reject, describe_reject_position, line_of
from joblens.data.files.shards import is_there
from joblens.data.partition import checkpoints, restoring
from joblens.data.partition.checkpoints import (
    DeltaManifest,
    FinishedPart,
    PartitionLife,
    StageManifest,
)
from joblens.data.partition.operator_run import OperatorRun
from joblens.data.partition.report import PartitionReport, RejectsOfPartition
from joblens.data.partition.restoring import Met, Restored
from joblens.data.partition.worker_context import WorkerContext
from joblens.data.rows.partition import PartitionState
from joblens.files.private import make_private_folder
from joblens.model.errors import BadRow, JoblensError
from joblens.model.recipes.recipe import OperatorCall, Step


class StageRun:
    """Manifests say which work is done; they are trusted only after their files were read again and
    verified."""

    def __init__(self, context: WorkerContext, task: RunStage, emit: Emit) -> None:
        self._context = context
        self._task = task
        self._emit = emit
        self._plan = context.plan
        self._folder = context.folder
        self._partition = task.partition
        self._id = task.partition.id
        self._stage = context.plan.stages[task.stage]
        self._report = PartitionReport(context, task.partition, task.attempt, emit)
        self._rejects = RejectsOfPartition(context.folder, task.partition.id, self._report)
        self._unread: list[Reject] = []  # unreadable rows
        is_last_try = task.attempt >= context.plan.recipe.partition.max_retries
        self._operators = OperatorRun(context, task.partition, self._rejects, is_last_try=is_last_try)
        self._life = PartitionLife(started_at=time.time(), retries=task.attempt)

    def run(self) -> dict[str, Any]:
        if self._stage.closing is None:
            done: StageManifest | FinishedPart = self._to_export()
        else:
            done = self._to_meeting(self._stage.closing)
        result: dict[str, Any] = msgspec.to_builtins(done)
        return result

    # Ends of a stage

    def _to_meeting(self, closing: int) -> StageManifest:
        origin, meter = self._origin(), Meter()
        done = restoring.stage_end(self._folder, self._id, self._stage)
        if done and done.origin == origin and restoring.is_stage_whole(self._plan, self._folder, done):
            self._forget()
            if self._stage.end > self._stage.first:
                whole = self._folder.stage_whole(self._id, self._stage.index)
                if not os.path.exists(whole):  # it has advanced
                    whole = self._folder.stage_manifest(self._id, self._stage.index)
                last = self._plan.recipe.process[self._stage.end - 1]
                self._report.resumed(last, whole, done.rows, done.rejects.count)
            self._report.stepped(Step.READING, meter.usage())
            return done
        state = self._through_operators()
        call, operator = self._plan.recipe.process[closing], self._context.operator(closing)
        assert isinstance(operator, GlobalOperator)
        meter = Meter()
        signatures = self._operators.signatures(state, operator, call)
        manifest = StageManifest(
            partition_id=self._id,
            stage=self._stage.index,
            origin=origin,
            source_rows=state.source_rows,
            rows=state.count,
            changed=tuple(sorted(state.changed_columns)),
            signatures=checkpoints.write_batch(self._folder.signatures(self._id, closing), signatures),
            whole=checkpoints.write_batches(
                self._folder.stage_whole(self._id, self._stage.index), checkpoints.whole_batches(state)
            ),
            rejects=self._rejects.keep_all(self._folder.stage_rejects(self._id, self._stage.index)),
            life=self._life,
        )
        self._rejects.publish()
        # Cost of these files is charged to the global operator.
        manifest = msgspec.structs.replace(manifest, usage=meter.usage().as_metadata())
        manifests.write_manifest(self._folder.stage_manifest(self._id, self._stage.index), manifest)
        self._forget()
        self._rejects.report()
        if self._stage.end > self._stage.first:
            path = self._folder.stage_whole(self._id, self._stage.index)
            last = self._plan.recipe.process[self._stage.end - 1]
            self._report.waits(last, path, manifest.whole.size_bytes, manifest.rows)
        return manifest

    def _to_export(self) -> FinishedPart:
        origin, meter = self._origin(), Meter()
        path = self._folder.export_part_manifest(self._id)
        done = manifests.read_manifest(path, FinishedPart)
        if done is not None and done.origin == origin and is_there(done.part, self._folder.moved):
            self._forget()
            if self._stage.end > self._stage.first:
                last = self._plan.recipe.process[self._stage.end - 1]
                self._report.resumed(last, done.part.path, done.part.rows, done.rejects.count)
            self._report.stepped(Step.READING, meter.usage())
            self._report.completed(done, None)
            return done
        state = self._through_operators()
        meter = Meter()
        part_path = self._folder.export_part(self._id, part_ending(self._plan.recipe))
        finished = FinishedPart(
            partition_id=self._id,
            origin=origin,
            source_rows=state.source_rows,
            part=write_pieces(state.pieces(), self._plan, part_path, state.changed_columns),
            rejects=self._rejects.keep_all(self._folder.stage_rejects(self._id, self._stage.index)),
            life=msgspec.structs.replace(self._life, ended_at=time.time()),
        )
        self._rejects.publish()
        manifests.write_manifest(path, finished)
        self._forget()
        self._rejects.report()
        self._report.completed(finished, meter.usage())
        return finished

    def _origin(self) -> str:
        """Returns the identity of the stage's start, without reading it."""
        if self._stage.index == 0:
            return self._context.origin_of(self._partition)
        return restoring.mask_of(self._plan, self._folder, self._id, self._stage).next_chain

    def _forget(self) -> None:
        """Removes the state that this stage started from, once its end is kept."""
        if self._task.may_forget and self._stage.index:
            restoring.forget_whole(self._folder, self._id, self._plan.stages[self._stage.index - 1])

    # Start of a stage

    def _through_operators(self) -> PartitionState:
        make_private_folder(self._folder.checkpoints_of(self._id))
        restoring.remove_leftovers(self._folder.checkpoints_of(self._id))
        if self._stage.index == 0:
            found = self._read_source()  # reports itself
            meter = Meter()
        else:
            meter = Meter()
            found = self._load_whole()
        found = restoring.newest_in_stage(self._plan, self._folder, self._id, self._stage, found)
        if self._stage.index or found.loaded is not None:
            self._report.stepped(Step.READING, meter.usage())
        self._rejects.begin(found.rejects)
        if found.loaded is None:
            self._rejects.read(self._unread)
        state = found.state
        if found.loaded is not None:
            call = self._plan.recipe.process[found.after]
            path = self._folder.checkpoint(self._id, call.index, call.name)
            self._report.resumed(call, path, state.count, len(found.rejects))
        elif self._stage.index == 0:
            self._report.started(state.count)
        for index in range(found.after + 1, self._stage.end):
            self._through_operator(state, self._plan.recipe.process[index])
            if index in self._context.checkpoint_after:
                calls = self._plan.recipe.process[found.after + 1 : index + 1]
                self._checkpoint(state, calls)
                found.after = index
        return state

    def _read_source(self) -> Restored:
        self._report.reading()
        meter = Meter()
        bad: list[Reject] = []
        rows = read_partition(self._partition, self._plan.columns, bad.append, self._plan.needed)
        if bad and self._plan.recipe.is_strict:
            raise BadRow(describe_reject_position(bad[0]))
        chain = checkpoints.source_chain(rows)
        self._life = msgspec.structs.replace(self._life, checksum=chain)
        self._report.read(rows.count, chain, meter.usage())
        state = PartitionState(rows, source_rows=rows.count, chain=chain)
        self._unread = bad
        return Restored(state, -1, [line_of(reject) for reject in bad])

    def _load_whole(self) -> Restored:
        met = restoring.met_before(self._plan, self._folder, self._id, self._stage) or self._meet_again()
        life = met.manifest.life
        self._life = msgspec.structs.replace(life, retries=life.retries + self._life.retries)
        if self._operators.tracer.is_on:
            call = self._plan.recipe.process[self._stage.first - 1]
            self._operators.tracer.filtered(call, met.all_rows(), met.keep, {})
        state = met.kept_rows()
        if met.mask.first_number is not None:
            operator = self._context.operator(self._stage.first - 1)
            assert isinstance(operator, GlobalOperator)
            operator.number(state, met.mask.first_number)
            state.saved(met.mask.next_chain)
        return Restored(state, self._stage.first - 1, met.rejects)

    def _meet_again(self) -> Met:
        """Returns the state before the stage; the partition had advanced, but its result was lost or decided
        again."""
        before = msgspec.structs.replace(self._task, stage=self._stage.index - 1, may_forget=False)
        StageRun(self._context, before, self._emit).run()
        met = restoring.met_before(self._plan, self._folder, self._id, self._stage)
        if met is None:
            raise JoblensError(
                f"partition {self._id}: the state before operator {self._stage.first} is missing"
            )
        return met

    # Operators and checkpoints

    def _through_operator(self, state: PartitionState, call: OperatorCall) -> None:
        operator = self._context.operator(call.index)
        rows_in = state.count
        self._report.op_started(call, operator, rows_in)
        meter = Meter()
        try:
            rejected = self._operators.work(state, operator, call)
        except BaseException as error:
            self._report.op_failed(call, rows_in, error)
            raise
        self._report.op_completed(call, rows_in, state.count, rejected, meter.usage())

    def _checkpoint(self, state: PartitionState, calls: tuple[OperatorCall, ...]) -> None:
        """Writes a checkpoint of the changes of these operators."""
        meter = Meter()
        call = calls[-1]
        path = self._folder.checkpoint(self._id, call.index, call.name)
        file = checkpoints.keep_bytes(path, checkpoints.serialized(checkpoints.delta_of(state)))
        manifest = DeltaManifest(
            partition_id=self._id,
            index=call.index,
            base=state.chain,
            chain=checkpoints.next_chain(state.chain, calls, file),
            source_rows=state.source_rows,
            rows=state.count,
            columns=state.column_names,
            file=file,
            rejects=self._rejects.keep_unsaved(
                self._folder.checkpoint_rejects(self._id, call.index, call.name)
            ),
        )
        manifest_path = self._folder.checkpoint_manifest(self._id, call.index, call.name)
        manifests.write_manifest(manifest_path, manifest)
        state.saved(manifest.chain)
        self._rejects.report()
        self._report.saved(call, path, file.size_bytes, manifest.rows, meter.usage())
