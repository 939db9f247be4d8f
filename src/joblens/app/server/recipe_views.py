"""A recipe's job as its page shows it: operators by partition, rows, rejects with examples, checkpoints.

The event log is read once for all clients; each request reads only events since."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.recipes.columns import BROKEN, DONE, RUNNING, SAVED, UNSEEN
from joblens.analysis.recipes.snapshot_json import OperationTable
from joblens.app.recipes.job_directory import job_dir_of, plan_of_record
from joblens.app.recipes.snapshots import LiveSnapshot
from joblens.app.server.access import Principal
from joblens.app.server.jobs import get_job
from joblens.data.base.job_folder import JobFolder
from joblens.data.files.rejects import RejectExample, examples_for, read_rejects
from joblens.model.errors import InputError
from joblens.model.jobs.details import OperatorTable, RejectReason
from joblens.model.jobs.job import Record
from joblens.model.recipes.recipe import RecipePlan
from joblens.model.recipes.snapshot import JobSnapshot, OperatorProgress, ProcessingStatus
from joblens.ports.store import QueueStore

_MOST_CELLS = 1000  # of a row of the grid
_MOST_FAILED = 50  # partitions whose errors are listed
_REJECT_BYTES = 4 << 20
_EXAMPLES = 3
_MOST_KNOWN = 16  # jobs whose logs are open
_LOUDEST = (BROKEN, RUNNING, UNSEEN, DONE, SAVED)
_SIGNS = {UNSEEN: ".", RUNNING: "r", DONE: "d", SAVED: "s", BROKEN: "f"}


class RecipeOperator(Struct, frozen=True, kw_only=True):
    """`cells`: a sign per cell of the grid: . not started, r running, d done, s saved, f failed."""

    index: int
    name: str
    is_global: bool
    cells: str  # '': not known
    planned: int
    completed: int
    in_progress: int
    failed: int
    checkpointed: int
    input_rows: int | None
    output_rows: int | None
    rejected_rows: int
    keep_rate: float | None
    rows_per_second: float | None  # of one worker
    duration_s: float
    cpu_s: float | None
    memory_peak_bytes: int | None


class RecipeRejects(Struct, frozen=True, kw_only=True):
    operator: str  # '': the rows could not be read
    reason: str
    rows: int
    examples: tuple[RejectExample, ...]


class FailedPartition(Struct, frozen=True, kw_only=True):
    partition: int
    operator: str
    error: str


class RecipeCheckpoints(Struct, frozen=True, kw_only=True):
    strategy: str | None
    operations: int
    last_at_us: int | None
    is_resumable: bool
    resume: str  # command; '': nothing to resume


class RecipePage(Struct, frozen=True, kw_only=True):
    number: int
    name: str
    status: str
    is_live: bool  # it has not ended
    is_from_folder: bool  # False: its folder is not here; only totals are known
    job_dir: str
    export_path: str | None
    at_us: int
    started_at_us: int | None
    ended_at_us: int | None
    duration_s: float | None
    eta_s: float | None
    fraction: float | None
    partitions: int
    partitions_per_cell: int
    completed_partitions: int
    failed_partitions: int
    waiting_partitions: int
    rows_in: int | None
    rows_out: int | None
    rejected_rows: int | None
    rows_per_second: float | None
    runs: int
    retries: int
    error: str
    operators: tuple[RecipeOperator, ...]
    failed: tuple[FailedPartition, ...]
    rejects: tuple[RecipeRejects, ...]
    are_rejects_all: bool  # False: counts are of those that were read
    checkpoints: RecipeCheckpoints


class RecipeViews:
    """Logs of recipes' jobs that clients read. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[threading.Lock, LiveSnapshot]] = OrderedDict()

    def get_page(self, store: QueueStore, caller: Principal, ident: str) -> RecipePage:
        """Raises InputError for a job that ran no recipe."""
        record = get_job(store, caller, ident)
        folder = job_dir_of(record)
        if folder is None:
            raise InputError(f"job {record.number} ran no recipe", hint="open the page of the job")
        plan = plan_of_record(record)
        if plan is None:
            return _from_record(store, record, folder)
        lock, live = self._live(record.job.uuid, folder)
        with lock:
            snapshot = live.refresh()
            resume = live.about(snapshot).resumption_command or ""
        return _page(record, folder, plan, snapshot, resume)

    def _live(self, uuid: str, folder: str) -> tuple[threading.Lock, LiveSnapshot]:
        with self._lock:
            known = self._known.pop(uuid, None) or (threading.Lock(), LiveSnapshot(folder))
            self._known[uuid] = known
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
            return known


def _page(record: Record, folder: str, plan: RecipePlan, snapshot: JobSnapshot, resume: str) -> RecipePage:
    table = snapshot.operation_statuses
    assert isinstance(table, OperationTable)
    states = table.states_by_partition()
    per_cell = max(1, -(-max(map(len, states.values()), default=0) // _MOST_CELLS))
    can_resume = snapshot.resumable and snapshot.overall_status is not ProcessingStatus.COMPLETED
    rejects, is_all = _rejects(snapshot, JobFolder.of_plan(plan).rejects)
    status = snapshot.overall_status
    # The job's own time, as `joblens show` has it, unless it was resumed: then it is that of the last run.
    is_whole = record.outcome is not None and snapshot.runs <= 1
    seconds = record.outcome.duration_s if record.outcome and is_whole else snapshot.total_duration
    rows = snapshot.rows_in
    return RecipePage(
        number=record.number or 0,
        name=record.job.name,
        status=status.value,
        is_live=not record.status.is_final,
        is_from_folder=True,
        job_dir=folder,
        export_path=snapshot.export_path,
        at_us=round(snapshot.taken_at * 1e6),
        started_at_us=_us(snapshot.job_start_time),
        ended_at_us=_us(snapshot.job_end_time),
        duration_s=seconds,
        eta_s=snapshot.eta_seconds,
        fraction=snapshot.overall_fraction,
        partitions=snapshot.total_partitions,
        partitions_per_cell=per_cell,
        completed_partitions=snapshot.completed_partitions,
        failed_partitions=snapshot.failed_partitions,
        waiting_partitions=snapshot.waiting_partitions,
        rows_in=rows,
        rows_out=snapshot.rows_out,
        rejected_rows=snapshot.rejected_rows,
        rows_per_second=rows / seconds if rows is not None and seconds else None,
        runs=snapshot.runs,
        retries=snapshot.retries,
        error=snapshot.error_message or "",
        operators=tuple(
            _operator(each, _cells(states.get(each.operation_idx, b""), per_cell))
            for each in snapshot.operators
        ),
        failed=_failed(snapshot),
        rejects=rejects,
        are_rejects_all=is_all,
        checkpoints=RecipeCheckpoints(
            strategy=snapshot.checkpoint_strategy,
            operations=snapshot.checkpointed_operations,
            last_at_us=_us(snapshot.last_checkpoint_time),
            is_resumable=can_resume,
            resume=resume if can_resume else "",
        ),
    )


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _cells(states: bytes, per_cell: int) -> str:
    """Several partitions share a cell where there are many: the state that matters most is shown."""
    if per_cell == 1:
        return "".join(_SIGNS[each] for each in states)
    parts = (states[first : first + per_cell] for first in range(0, len(states), per_cell))
    return "".join(_SIGNS[next(code for code in _LOUDEST if code in part)] for part in parts)


def _operator(found: OperatorProgress, cells: str) -> RecipeOperator:
    return RecipeOperator(
        index=found.operation_idx,
        name=found.operation_name,
        is_global=found.is_global,
        cells=cells,
        planned=found.planned,
        completed=found.completed,
        in_progress=found.in_progress,
        failed=found.failed,
        checkpointed=found.checkpointed,
        input_rows=found.input_rows,
        output_rows=found.output_rows,
        rejected_rows=found.rejected_rows,
        keep_rate=found.keep_rate,
        rows_per_second=found.rows_per_second,
        duration_s=found.duration_seconds,
        cpu_s=found.cpu_seconds,
        memory_peak_bytes=found.memory_peak_bytes,
    )


def _failed(snapshot: JobSnapshot) -> tuple[FailedPartition, ...]:
    if not snapshot.failed_partitions:
        return ()
    found = []
    for partition in snapshot.partition_statuses.values():
        if partition.status is ProcessingStatus.FAILED:
            operator = ", ".join(partition.failed_operations)
            error = partition.error_message or ""
            found.append(
                FailedPartition(partition=partition.partition_id, operator=operator, error=error[:1000])
            )
            if len(found) == _MOST_FAILED:
                break
    return tuple(found)


def _rejects(snapshot: JobSnapshot, folder: str) -> tuple[tuple[RecipeRejects, ...], bool]:
    """While the job runs, the rejects files are counted; at its end its summary has all."""
    if not snapshot.rejected_rows:
        return (), True
    found = read_rejects(folder, most_bytes=_REJECT_BYTES, examples=_EXAMPLES)
    reasons: Sequence[RejectReason] = snapshot.rejects or found.reasons
    return (
        tuple(
            RecipeRejects(operator=each.operator, reason=each.reason, rows=each.rows, examples=examples)
            for each, examples in zip(reasons, examples_for(reasons, found), strict=True)
        ),
        bool(snapshot.rejects) or found.is_all,
    )


def _from_record(store: QueueStore, record: Record, folder: str) -> RecipePage:
    """Totals that the store has, where the folder is gone or on another machine."""
    table: OperatorTable | None = store.details(record.job.uuid).operators
    outcome, attempt = record.outcome, record.attempt
    operators = () if table is None else table.operators
    facts: dict[str, Any] = {"rows_in": None, "rows_out": None}
    if operators:
        facts = {"rows_in": operators[0].rows_in, "rows_out": operators[-1].rows_out}
    return RecipePage(
        number=record.number or 0,
        name=record.job.name,
        status=record.status.value,
        is_live=not record.status.is_final,
        is_from_folder=False,
        job_dir=folder,
        export_path=None,
        at_us=store.now_us(),
        started_at_us=None if attempt is None else attempt.started_at_us,
        ended_at_us=None if outcome is None else outcome.ended_at_us,
        duration_s=None if outcome is None else outcome.duration_s,
        eta_s=None,
        fraction=None,
        partitions=0 if table is None else table.partitions,
        partitions_per_cell=1,
        completed_partitions=0,
        failed_partitions=0,
        waiting_partitions=0,
        **facts,
        rejected_rows=sum(each.rejected for each in operators) if operators else None,
        rows_per_second=None,
        runs=0 if table is None else table.runs,
        retries=0,
        error="" if outcome is None else outcome.error or "",
        operators=tuple(
            RecipeOperator(
                index=each.index,
                name=each.name,
                is_global=False,
                cells="",
                planned=each.partitions,
                completed=each.partitions,
                in_progress=0,
                failed=0,
                checkpointed=0,
                input_rows=each.rows_in,
                output_rows=each.rows_out,
                rejected_rows=each.rejected,
                keep_rate=each.rows_out / each.rows_in
                if each.rows_in and each.rows_out is not None
                else None,
                rows_per_second=each.rows_in / each.wall_s if each.rows_in and each.wall_s else None,
                duration_s=each.wall_s,
                cpu_s=None if each.cpu_usec is None else each.cpu_usec / 1e6,
                memory_peak_bytes=each.memory_peak_bytes,
            )
            for each in operators
        ),
        failed=(),
        rejects=tuple(
            RecipeRejects(operator=each.operator, reason=each.reason, rows=each.rows, examples=())
            for each in (() if table is None else table.rejects)
        ),
        are_rejects_all=True,
        checkpoints=RecipeCheckpoints(
            strategy=None, operations=0, last_at_us=None, is_resumable=False, resume=""
        ),
    )
