"""Operator run on one partition, with rows on which it fails isolated."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from joblens.data.base.operator import Filter, GlobalOperator, Mapper, Operator, RowErrors
from joblens.data.base.reasons import OF_AN_OPERATOR, reason_with_line
from joblens.data.files.partition_rows import origins_of
from joblens.data.files.rejects import Reject, describe_reject_position
from joblens.data.partition.report import RejectsOfPartition
from joblens.data.partition.tracing import Tracer
from joblens.data.partition.worker_context import WorkerContext
from joblens.data.rows.batch import LINE, STATS_PREFIX, joined_batches, whole_rows
from joblens.data.rows.partition import PartitionState, mapped_in_pieces, stats_in_pieces
from joblens.data.rows.ranges import as_compared
from joblens.model.errors import BadRow, BrokenOperator
from joblens.model.recipes.recipe import OperatorCall, Partition

# With fewer rows, failures do not prove that an operator is broken.
_ENOUGH_ROWS = 20
_NEARLY_ALL = 0.9


class Worked(Struct, frozen=True, eq=False):
    result: Any  # of the remaining rows; None: there are none
    reasons: dict[int, str]  # of the failed rows, by index in the batch


def work_on(
    batch: Any,
    function: Callable[[Any], Any],
    join: Callable[[Sequence[Any]], Any],
    not_of_rows: tuple[type[BaseException], ...] = (MemoryError,),
) -> Worked:
    """Applies `work` and finds bad rows by bisection: few of them among many cost little. `join` merges the
    results of pieces. Errors in `not_of_rows` are raised: they are not about a row."""
    try:
        return Worked(function(batch), {})
    except RowErrors as error:
        return _without(batch, error.reasons, function, join, not_of_rows)
    except not_of_rows:
        raise
    except OF_AN_OPERATOR as error:  # any error is attributed to a row of the batch
        if batch.num_rows <= 1:
            return Worked(None, {0: reason_with_line(error)} if batch.num_rows else {})
        half = batch.num_rows // 2
        one = work_on(batch.slice(0, half), function, join, not_of_rows)
        other = work_on(batch.slice(half), function, join, not_of_rows)
        reasons = one.reasons | {half + index: reason for index, reason in other.reasons.items()}
        results = [piece.result for piece in (one, other) if piece.result is not None]
        return Worked(join(results) if results else None, reasons)


def _without(
    batch: Any,
    bad: dict[int, str],
    function: Callable[[Any], Any],
    join: Any,
    not_of_rows: tuple[type[BaseException], ...],
) -> Worked:
    indexes = np.delete(np.arange(batch.num_rows), sorted(bad))
    if not len(indexes):
        return Worked(None, bad)
    again = work_on(batch.take(pa.array(indexes)), function, join, not_of_rows)
    return Worked(again.result, bad | {int(indexes[index]): text for index, text in again.reasons.items()})


def check_operator(name: str, rows: int, reasons: dict[int, str]) -> None:
    """Raises BrokenOperator if nearly all rows failed. `reasons`: of the failed rows among `rows`."""
    if rows < _ENOUGH_ROWS or len(reasons) < _NEARLY_ALL * rows:
        return
    kinds = Counter(reason.partition(":")[0] for reason in reasons.values())
    kind, count = kinds.most_common(1)[0]
    if count >= _NEARLY_ALL * rows:
        example = next(reason for reason in reasons.values() if reason.partition(":")[0] == kind)
        raise BrokenOperator(f"{name} failed on {count} of {rows} rows: {example}")


def first_bad(batch: Any, function: Callable[[Any], Any], error: BaseException) -> int | None:
    """Returns the index of the first row that fails, after all failed together; None: each row succeeds
    alone."""
    if isinstance(error, RowErrors):
        return min(error.reasons, default=None)
    first, end = 0, batch.num_rows
    while end - first > 1:
        half = (first + end) // 2
        if _fails(function, batch.slice(first, half - first)):
            end = half
        else:
            first = half
    return first if end > first and _fails(function, batch.slice(first, 1)) else None


def _fails(function: Callable[[Any], Any], batch: Any) -> bool:
    try:
        function(batch)
    except OF_AN_OPERATOR:
        return True
    return False


def reason_at(index: int | None, error: BaseException) -> str:
    if isinstance(error, RowErrors) and index is not None:
        return error.reasons[index]
    return reason_with_line(error)


def keeping(count: int, bad: dict[int, str]) -> Any:
    """Returns a mask without the failed rows."""
    mask = np.ones(count, dtype=bool)
    mask[list(bad)] = False
    return mask


def joined_stats(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in pieces[0]}


class OperatorRun:
    """Runs an operator on the state; rows that fail are removed with their reason."""

    def __init__(
        self,
        context: WorkerContext,
        partition: Partition,
        rejects: RejectsOfPartition,
        *,
        is_last_try: bool = True,
    ) -> None:
        self._context = context
        self._recipe = context.plan.recipe
        self._partition = partition
        self._rejects = rejects
        # A missing disk or service may be back at the next try. If it is
        # not, or the error is about a file of one row, rows are rejected.
        self._not_of_rows = (MemoryError,) if is_last_try else (MemoryError, OSError)
        self.tracer = Tracer(context.folder, partition.id, context.plan.recipe)

    def work(self, state: PartitionState, operator: Operator, call: OperatorCall) -> int:
        """Returns the number of rejected rows."""
        if isinstance(operator, Mapper):
            return self._map(state, operator, call)
        assert isinstance(operator, Filter)
        return self._filter(state, operator, call)

    def _map(self, state: PartitionState, operator: Mapper, call: OperatorCall) -> int:
        def mapped(piece: Any) -> Any:
            result = operator.map(piece)
            if result.num_rows != piece.num_rows:
                raise ValueError(f"{call.name} returned {result.num_rows} rows for {piece.num_rows}")
            return result

        worked = self._worked(state, call, mapped_in_pieces(mapped), joined_batches)
        self._reject(state, worked.reasons, call)
        if worked.result is not None:
            before = state.with_lines() if self.tracer.is_on else None
            changed = state.replace(worked.result)
            self.tracer.mapped(call, before, state, changed)
        return len(worked.reasons)

    def _filter(self, state: PartitionState, operator: Filter, call: OperatorCall) -> int:
        worked = self._stats(state, operator, call)
        self._reject(state, worked.reasons, call)
        if worked.result is None:
            return len(worked.reasons)
        stats = as_compared(worked.result) if self._context.is_built_in(call.index) else worked.result
        if self._recipe.keep_stats:
            for name, values in stats.items():
                state.add_column(STATS_PREFIX + name, values)
        keep = np.asarray(operator.keep(stats))
        self.tracer.filtered(call, state, keep, stats)
        state.drop(keep)
        return len(worked.reasons)

    def _stats(self, state: PartitionState, operator: Filter, call: OperatorCall) -> Worked:
        if state.alive is not None and self._context.is_built_in(call.index):
            # Processing dropped rows is harmless and saves copying the others.
            try:
                return Worked(stats_in_pieces(operator.stats)(state.batch), {})
            except Exception:  # noqa: BLE001, S110 - those rows may be why: again without them
                pass
        stats = stats_in_pieces(operator.stats)
        return self._worked(state, call, stats, joined_stats)

    def signatures(self, state: PartitionState, operator: GlobalOperator, call: OperatorCall) -> Any:
        worked = self._worked(state, call, operator.signatures, joined_batches)
        self._reject(state, worked.reasons, call)
        if worked.result is None:
            return operator.signatures(self._batch(state, call).slice(0, 0))
        return worked.result

    def _batch(self, state: PartitionState, call: OperatorCall) -> Any:
        """Returns whole rows for user operators, and only the needed columns for built-in ones."""
        state.compact()
        is_ours = self._context.is_built_in(call.index)
        sees_columns = is_ours and not self._context.operator(call.index).sees_whole_rows
        return state.batch if sees_columns else state.with_lines()

    def _worked(
        self, state: PartitionState, call: OperatorCall, function: Callable[[Any], Any], join: Any
    ) -> Worked:
        batch = self._batch(state, call)
        if self._recipe.skip_op_error and not self._recipe.is_strict:
            worked = work_on(batch, function, join, self._not_of_rows)
            check_operator(call.name, batch.num_rows, worked.reasons)
            return worked
        try:
            return Worked(function(batch), {})
        except MemoryError:
            raise
        except OF_AN_OPERATOR as error:
            raise self._bad_row(state, call, first_bad(batch, function, error), error) from error

    def _bad_row(
        self, state: PartitionState, call: OperatorCall, index: int | None, error: BaseException
    ) -> BadRow:
        """Builds the error that ends a strict job, from its first bad row."""
        reason = reason_at(index, error)
        if index is None:
            return BadRow(f"{call.name}: {reason}")
        origin = self._origins([int(state.ids[index])])[0]
        return BadRow(
            describe_reject_position(msgspec.structs.replace(origin, operator=call.name, reason=reason))
        )

    def _origins(self, ids: list[int]) -> list[Reject]:
        plan = self._context.plan
        return origins_of(self._partition, plan.columns, ids, plan.needed)

    def _reject(self, state: PartitionState, reasons: dict[int, str], call: OperatorCall) -> None:
        """Removes the rows and records where they came from."""
        if not reasons:
            return
        indexes = sorted(reasons)
        ids = [int(state.ids[index]) for index in indexes]
        origins = self._origins(ids)
        rows = state.with_lines().take(pa.array(indexes))
        rejects = [
            msgspec.structs.replace(
                origin, operator=call.name, reason=reasons[index], row=_reject_row(rows, number)
            )
            for number, (index, origin) in enumerate(zip(indexes, origins, strict=True))
        ]
        self._rejects.add(rejects, call)
        state.drop(keeping(len(state.ids), reasons))
        state.compact()


def _reject_row(rows: Any, number: int) -> Any:
    if LINE in rows.schema.names:
        return bytes(rows.column(LINE)[number].as_py())
    return whole_rows(rows.slice(number, 1))[0]
