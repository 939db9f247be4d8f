"""One operator on one partition."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter, GlobalOperator, Mapper, Operator
from joblens.data.base.reasons import OF_AN_OPERATOR
from joblens.data.base.rows import LINE, STATS_PREFIX
from joblens.data.files.reading import places_of
from joblens.data.files.rejects import Reject, told_place
from joblens.data.partition.rejects import RejectsOfPartition
from joblens.data.partition.tracing import Tracer
from joblens.data.partition.worker_context import WorkerContext
from joblens.data.rows import bad_rows
from joblens.data.rows.added_fields import whole_rows
from joblens.data.rows.bad_rows import Worked, work_on
from joblens.data.rows.batch_pieces import mapped_in_pieces, stats_in_pieces
from joblens.data.rows.partition import PartitionState
from joblens.data.rows.ranges import as_compared
from joblens.model.errors import BadRow
from joblens.model.recipes.recipe import OperatorCall, Partition


class OperatorRun:
    """Changes the state; rows that cannot be worked on leave it, with the reason."""

    def __init__(
        self,
        workshop: WorkerContext,
        partition: Partition,
        rejects: RejectsOfPartition,
        *,
        is_last_try: bool = True,
    ) -> None:
        self._shop = workshop
        self._recipe = workshop.plan.recipe
        self._partition = partition
        self._rejects = rejects
        # A model on a disk that is away, a service that is down: next time it may be there again. When it is
        # not, or is about a file that one row names, the rows have to answer for it.
        self._not_of_rows = (MemoryError,) if is_last_try else (MemoryError, OSError)
        self.tracer = Tracer(workshop.folder, partition.id, workshop.plan.recipe)

    def work(self, state: PartitionState, operator: Operator, call: OperatorCall) -> int:
        """-> how many rows were rejected."""
        if isinstance(operator, Mapper):
            return self._map(state, operator, call)
        assert isinstance(operator, Filter)
        return self._filter(state, operator, call)

    def _map(self, state: PartitionState, operator: Mapper, call: OperatorCall) -> int:
        def mapped(piece: Any) -> Any:
            result = operator.map(piece)
            if result.num_rows != piece.num_rows:
                raise ValueError(f"{call.name} made {result.num_rows} rows of {piece.num_rows}")
            return result

        worked = self._worked(state, call, mapped_in_pieces(mapped), bad_rows.joined_batches)
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
        stats = as_compared(worked.result) if self._shop.is_built_in(call.index) else worked.result
        if self._recipe.keep_stats:
            for name, values in stats.items():
                state.add_column(STATS_PREFIX + name, values)
        keep = np.asarray(operator.keep(stats))
        self.tracer.filtered(call, state, keep, stats)
        state.drop(keep)
        return len(worked.reasons)

    def _stats(self, state: PartitionState, operator: Filter, call: OperatorCall) -> Worked:
        if state.alive is not None and self._shop.is_built_in(call.index):
            # Looking at rows that were dropped before does no harm, and saves copying the others together.
            try:
                return Worked(stats_in_pieces(operator.stats)(state.batch), {})
            except Exception:  # noqa: BLE001, S110 - those rows may be why: again without them
                pass
        stats = stats_in_pieces(operator.stats)
        return self._worked(state, call, stats, bad_rows.joined_stats)

    def signatures(self, state: PartitionState, operator: GlobalOperator, call: OperatorCall) -> Any:
        worked = self._worked(state, call, operator.signatures, bad_rows.joined_batches)
        self._reject(state, worked.reasons, call)
        if worked.result is None:
            return operator.signatures(self._batch(state, call).slice(0, 0))
        return worked.result

    def _batch(self, state: PartitionState, call: OperatorCall) -> Any:
        """Somebody's own operator sees whole rows; ours have the columns they asked for."""
        state.compact()
        is_ours = self._shop.is_built_in(call.index)
        sees_columns = is_ours and not self._shop.operator(call.index).sees_whole_rows
        return state.batch if sees_columns else state.with_lines()

    def _worked(
        self, state: PartitionState, call: OperatorCall, function: Callable[[Any], Any], join: Any
    ) -> Worked:
        batch = self._batch(state, call)
        if self._recipe.skip_op_error and not self._recipe.is_strict:
            worked = work_on(batch, function, join, self._not_of_rows)
            bad_rows.check_operator(call.name, batch.num_rows, worked.reasons)
            return worked
        try:
            return Worked(function(batch), {})
        except MemoryError:
            raise
        except OF_AN_OPERATOR as error:
            raise self._told(state, call, bad_rows.first_bad(batch, function, error), error) from error

    def _told(
        self, state: PartitionState, call: OperatorCall, place: int | None, error: BaseException
    ) -> BadRow:
        """That the job cannot go on, by the first row that it cannot go on with."""
        reason = bad_rows.reason_at(place, error)
        if place is None:
            return BadRow(f"{call.name}: {reason}")
        origin = self._places([int(state.ids[place])])[0]
        return BadRow(told_place(msgspec.structs.replace(origin, operator=call.name, reason=reason)))

    def _places(self, ids: list[int]) -> list[Reject]:
        plan = self._shop.plan
        return places_of(self._partition, plan.columns, ids, plan.needed)

    def _reject(self, state: PartitionState, reasons: dict[int, str], call: OperatorCall) -> None:
        """Takes the rows out, and keeps them with where they came from."""
        if not reasons:
            return
        places = sorted(reasons)
        ids = [int(state.ids[place]) for place in places]
        origins = self._places(ids)
        rows = state.with_lines().take(pa.array(places))
        told = [
            msgspec.structs.replace(
                origin, operator=call.name, reason=reasons[place], row=_row_to_tell(rows, number)
            )
            for number, (place, origin) in enumerate(zip(places, origins, strict=True))
        ]
        self._rejects.add(told, call)
        state.drop(bad_rows.keeping(len(state.ids), reasons))
        state.compact()


def _row_to_tell(rows: Any, number: int) -> Any:
    if LINE in rows.schema.names:
        return bytes(rows.column(LINE)[number].as_py())
    return whole_rows(rows.slice(number, 1))[0]
