"""Coordinator of a recipe's job: decides the next tasks; the only writer of the event log."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from joblens.data.base import manifests
from joblens.data.base.job_folder import JobFolder, is_stage_file
from joblens.data.base.messages import Assemble, CutFile, Decide, Ended, RunStage, Task, event
from joblens.data.executor import job_summary
from joblens.data.executor.job_summary import JobEnd, write_mapping
from joblens.data.executor.task_runner import FailedTask, Pool, TaskResult, TaskRunner
from joblens.data.files.cutting import partitions_with_pieces
from joblens.data.files.export import Export
from joblens.data.files.input_stamps import changed_since
from joblens.data.files.rejects import describe_reject, joined_reasons
from joblens.data.partition.checkpoints import FinishedPart, RejectsSoFar
from joblens.data.partition.tracing import put_traces_together
from joblens.data.partition.work import CutManifest
from joblens.data.partition.worker_context import WorkerContext
from joblens.files.atomic import write_atomically
from joblens.model.errors import BadRow, JobCannotGoOn
from joblens.model.jobs.details import RejectReason
from joblens.model.recipes.recipe import (
    EventType,
    Partition,
    RecipeEvent,
    RecipePlan,
    Slice,
    Stage,
    most_rejects,
)
from joblens.plan.recipes.stages import dag_document

_Kind = TypeVar("_Kind")
Log = Callable[[Sequence[RecipeEvent]], None]


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of a finished job: its files and their origin."""

    origin: str
    export: Export
    sizes: dict[str, int]
    rows_in: int
    rejected_rows: int
    partitions: int = 0
    rejects: tuple[RejectReason, ...] = ()


class Rejects:
    """Counts of rejected rows so far, by partition."""

    def __init__(self, limit: str) -> None:
        self._limit = limit
        self.in_cutting = 0
        self._reasons_in_cutting: list[tuple[RejectReason, ...]] = []
        self._of_partitions: dict[int, tuple[RejectsSoFar, int]] = {}  # with the number of readable rows

    def add_cut(self, cut: CutManifest) -> None:
        self.in_cutting += cut.rejected
        self._reasons_in_cutting.append(cut.reasons)

    def set_partition(self, partition_id: int, result: Mapping[str, Any]) -> None:
        """Sets the counts of a partition over all stages so far."""
        rejects = msgspec.convert(result["rejects"], RejectsSoFar)
        self._of_partitions[partition_id] = (rejects, int(result["source_rows"]))

    def count(self) -> int:
        return self.in_cutting + sum(rejects.count for rejects, _ in self._of_partitions.values())

    def reasons(self) -> tuple[RejectReason, ...]:
        tallies = [rejects.reasons for rejects, _ in self._of_partitions.values()]
        return joined_reasons([*self._reasons_in_cutting, *tallies])

    def check(self, folder: str, *, are_all_read: bool) -> None:
        """Raises JobCannotGoOn if more rows were rejected than the recipe allows. A percentage is checked
        once all rows are read."""
        if not self._limit or (self._limit.endswith("%") and not are_all_read):
            return
        total = self._rows()
        if self.count() > most_rejects(self._limit, total):
            of_all = f" of {total:,}" if are_all_read else ""
            raise JobCannotGoOn(
                f"{self.count():,}{of_all} rows were rejected, more than max_rejects ({self._limit}) allows; "
                f"most of them: {describe_reject(self.reasons()[0])}",
                hint=f"the rows are in {folder}; resume with a higher --max-rejects to accept them",
            )

    def _rows(self) -> int:
        """Counts all rows, including unreadable ones, as are all that were rejected while splitting."""
        of_partitions = self._of_partitions.values()
        return self.in_cutting + sum(rejects.unread + rows for rejects, rows in of_partitions)


class Coordinator:
    """Decides which tasks to run next. A resumed job requests the same tasks as a new one: workers check
    manifests and return at once if a task has a verified result."""

    def __init__(
        self, context: WorkerContext, pool: Pool, log: Log, stop_signal: Callable[[], int | None]
    ) -> None:
        self._context = context
        self._plan: RecipePlan = context.plan
        self._folder: JobFolder = context.folder
        self._log = log
        settings = context.plan.recipe.partition
        self._tasks = TaskRunner(
            pool,
            log,
            stop_signal,
            max_retries=settings.max_retries,
            max_parallel=settings.max_concurrent_partitions,
        )
        self._partitions: tuple[Partition, ...] = context.plan.partitions
        self._failed: dict[int, FailedTask] = {}
        self._finished: dict[int, FinishedPart] = {}
        self._rejects = Rejects(context.plan.recipe.max_rejects)
        self._export: Export | None = None
        self._earlier_result: ExportManifest | None = None

    def run(self, *, is_resumed: bool) -> JobEnd:
        """Runs the job to its end. Raises Stopped and any error that ends the job."""
        before = whole_export(self._plan, self._folder)
        if before is not None:
            self._export, self._earlier_result = before.export, before
            self._remove_temporary_files()
            return JobEnd(status="completed", export_paths=before.export.paths, rows_out=before.export.rows)
        self._check_inputs()
        if self._plan.uncut:
            self._partitions = self._cut()
        self._save_dag(is_resumed=is_resumed)
        write_mapping(self._folder.dataset_mapping, self._plan, self._partitions, {}, {})
        for stage in self._plan.stages:
            self._run_stage(stage)
            if stage.closing is not None:
                self._decide(stage)
        self._check_inputs()
        self._check_export_has_rows()
        self._assemble()
        return self._end()

    # Steps

    def _cut(self) -> tuple[Partition, ...]:
        """Splits files that cannot be read from the middle; returns all partitions in dataset order."""
        tasks = [CutFile(f"cut-{number}", number, whole) for number, whole in enumerate(self._plan.uncut)]
        results = self._tasks.run(tasks, _must_succeed)
        pieces: list[Slice] = []
        for task in tasks:
            cut = _result(results[task.id], CutManifest)
            pieces += cut.pieces
            self._rejects.add_cut(cut)
        return partitions_with_pieces(self._plan, pieces)

    def _run_stage(self, stage: Stage) -> None:
        remaining = [each for each in self._partitions if each.id not in self._failed]
        # A failed partition may succeed when the job is resumed; then everything is decided again.
        may_forget = not self._failed
        tasks = [
            RunStage(f"stage-{stage.index}-{each.id}", each, stage.index, may_forget=may_forget)
            for each in remaining
        ]
        results = self._tasks.run(tasks, self._partition_ended)
        if stage.closing is None:
            for task in tasks:
                result = results[task.id]
                if isinstance(result, Ended):
                    self._finished[task.partition.id] = _result(result, FinishedPart)
        if self._failed:
            self._check_inputs()  # changed inputs may be the cause
        if self._partitions and len(self._failed) == len(self._partitions):
            first = next(iter(self._failed.values()))
            raise JobCannotGoOn(f"all partitions failed: {first.error_message}")
        self._rejects.check(self._folder.rejects, are_all_read=True)

    def _partition_ended(self, task: Task, result: TaskResult) -> None:
        assert isinstance(task, RunStage)
        if isinstance(result, Ended):
            self._rejects.set_partition(task.partition.id, result.result)
            self._rejects.check(self._folder.rejects, are_all_read=False)
            return
        self._failed[task.partition.id] = result
        self._log([job_summary.partition_failed(task.partition.id, result)])
        if result.error_type == "BadRow":
            raise BadRow(result.error_message)
        if self._plan.recipe.is_strict:
            raise JobCannotGoOn(result.error_message)

    def _decide(self, stage: Stage) -> None:
        ids = tuple(each.id for each in self._partitions if each.id not in self._failed)
        self._tasks.run([Decide(f"decide-{stage.index}", stage.index, ids)], _must_succeed)

    def _assemble(self) -> None:
        ids = tuple(sorted(self._finished))
        path = self._plan.recipe.export_path
        self._log([event(EventType.EXPORT_START, output_path=path, total_partitions=len(ids))])
        began = time.monotonic()
        task = Assemble("assemble", ids, keep_parts=bool(self._failed))
        self._export = _result(self._tasks.run([task], _must_succeed)[task.id], Export)
        self._log(
            [
                event(
                    EventType.EXPORT_COMPLETE,
                    output_path=path,
                    output_rows=self._export.rows,
                    duration=round(time.monotonic() - began, 6),
                    metadata={
                        "paths": list(self._export.paths[:1000]),
                        "size_bytes": self._export.size_bytes,
                    },
                )
            ]
        )

    def _end(self) -> JobEnd:
        export = self._export
        assert export is not None
        if self._plan.recipe.trace:
            put_traces_together(self._folder, self._plan.recipe)
        write_mapping(
            self._folder.final_mapping,
            self._plan,
            self._partitions,
            self._finished,
            self._failed,
            self._rejects.in_cutting,
        )
        if self._failed:
            ids = ", ".join(str(each) for each in sorted(self._failed)[:10])
            first = self._failed[min(self._failed)]
            return JobEnd(
                status="partial",
                error_message=f"{len(self._failed)} of {len(self._partitions)} partitions failed ({ids}): "
                f"{first.error_message}",
                export_paths=export.paths,
                rows_out=export.rows,
                exit_code=1,
            )
        counts = self.counts()
        manifest = ExportManifest(
            origin=_origin(self._plan),
            export=export,
            sizes={path: os.path.getsize(path) for path in export.paths},
            rows_in=counts["rows_in"],
            rejected_rows=counts["rejected_rows"],
            partitions=len(self._partitions),
            rejects=self._rejects.reasons(),
        )
        manifests.write_manifest(self._folder.export_manifest, manifest)
        self._remove_temporary_files()
        return JobEnd(status="completed", export_paths=export.paths, rows_out=export.rows)

    # Checks and records

    def _check_inputs(self) -> None:
        """Refuses changed inputs: rows from before and after a change must not end up in one export."""
        changes = changed_since(self._plan.inputs)
        if changes:
            more = f" (and {len(changes) - 3} more)" if len(changes) > 3 else ""
            raise JobCannotGoOn(
                f"the data has changed since the job was planned: {'; '.join(changes[:3])}{more}",
                hint="restore it and resume the job, or start again with --start-over",
            )

    def _check_export_has_rows(self) -> None:
        """Refuses to replace an earlier export by an empty one if rows were rejected."""
        rejected = self._rejects.count()
        if rejected and not any(each.part.rows for each in self._finished.values()):
            first = describe_reject(self._rejects.reasons()[0])
            raise JobCannotGoOn(
                f"no rows left to export: {rejected} were rejected ({first}; "
                f"all of them in {self._folder.rejects}). {self._plan.recipe.export_path} was not written"
            )

    def _save_dag(self, *, is_resumed: bool) -> None:
        if is_resumed and os.path.exists(self._folder.dag_plan):
            self._log([event(EventType.DAG_EXECUTION_PLAN_LOADED, output_path=self._folder.dag_plan)])
            return
        calls = self._plan.recipe.process
        kinds = [self._context.kind(call.index) for call in calls]
        self._log([job_summary.dag_build_start(kinds)])
        began = time.monotonic()
        document = dag_document(calls, kinds, [each.id for each in self._partitions], time.time())
        write_atomically(self._folder.dag_plan, msgspec.json.encode(document))
        self._log(job_summary.dag_built(document, time.monotonic() - began, self._folder.dag_plan))

    def counts(self) -> dict[str, Any]:
        before = self._earlier_result
        if before is not None:
            return {
                "total_partitions": before.partitions,
                "completed_partitions": before.partitions,
                "failed_partitions": [],
                "rows_in": before.rows_in,
                "rows_out": before.export.rows,
                "rejected_rows": before.rejected_rows,
                "rejects": msgspec.to_builtins(before.rejects),
            }
        done = self._finished.values()
        is_all = self._export is not None or 0 < len(self._partitions) == len(self._finished)
        return {
            "total_partitions": len(self._partitions),
            "completed_partitions": len(self._finished),
            "failed_partitions": sorted(self._failed),
            "rows_in": sum(each.source_rows for each in done),
            "rows_out": self._export.rows if self._export else None,
            # waiting partitions have rejected rows too
            "rejected_rows": self._rejects.count() if is_all else None,
            "rejects": msgspec.to_builtins(self._rejects.reasons()),
        }

    def _remove_temporary_files(self) -> None:
        """Removes files that only an unfinished job needs. Keeps the checkpoints, without the states of
        waiting partitions."""
        shutil.rmtree(self._folder.partitions, ignore_errors=True)
        os.mkdir(self._folder.partitions, 0o700)
        for partition in os.listdir(self._folder.checkpoints):
            folder = os.path.join(self._folder.checkpoints, partition)
            with contextlib.suppress(NotADirectoryError):
                for name in os.listdir(folder):
                    if is_stage_file(name):
                        os.unlink(os.path.join(folder, name))


def _must_succeed(_task: Task, result: TaskResult) -> None:
    if isinstance(result, FailedTask):
        raise (BadRow if result.error_type == "BadRow" else JobCannotGoOn)(result.error_message)


def _result(result: TaskResult, kind: type[_Kind]) -> _Kind:
    assert isinstance(result, Ended)
    return msgspec.convert(result.result, kind)


def whole_export(plan: RecipePlan, folder: JobFolder) -> ExportManifest | None:
    """Returns the job's export if its files are unchanged."""
    manifest = manifests.read_manifest(folder.export_manifest, ExportManifest)
    if manifest is None or manifest.origin != _origin(plan):
        return None
    are_there = all(
        os.path.exists(path) and os.path.getsize(path) == size for path, size in manifest.sizes.items()
    )
    return manifest if are_there else None


def _origin(plan: RecipePlan) -> str:
    inputs = [(file.path, file.size, file.digest) for file in plan.inputs]
    made_of = (inputs, plan.recipe.process, plan.recipe.export_path)
    return manifests.digest_of(msgspec.json.encode(made_of, order="deterministic"))
