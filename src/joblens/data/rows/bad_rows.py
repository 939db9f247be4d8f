"""An operator that fails on some rows, and works on all others."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from joblens.data.base.operator import RowErrors
from joblens.data.base.reasons import OF_AN_OPERATOR, reason_with_line
from joblens.model.errors import BrokenOperator

# Fewer rows say nothing about an operator.
_ENOUGH_ROWS = 20
_NEARLY_ALL = 0.9


class Worked(Struct, frozen=True, eq=False):
    result: Any  # of the rows that are left; None: there are none
    reasons: dict[int, str]  # of the others, by their place in the batch


def work_on(
    batch: Any,
    function: Callable[[Any], Any],
    join: Callable[[Sequence[Any]], Any],
    not_of_rows: tuple[type[BaseException], ...] = (MemoryError,),
) -> Worked:
    """Bad rows are found by halves: few of them among many cost little. `join` puts the results of pieces
    together. Errors that are `not_of_rows` are raised: they say nothing about a row."""
    try:
        return Worked(function(batch), {})
    except RowErrors as error:
        return _without(batch, error.reasons, function, join, not_of_rows)
    except not_of_rows:
        raise
    except OF_AN_OPERATOR as error:  # whatever it is, it is about a row of the batch
        if batch.num_rows <= 1:
            return Worked(None, {0: reason_with_line(error)} if batch.num_rows else {})
        half = batch.num_rows // 2
        one = work_on(batch.slice(0, half), function, join, not_of_rows)
        other = work_on(batch.slice(half), function, join, not_of_rows)
        reasons = one.reasons | {half + place: reason for place, reason in other.reasons.items()}
        results = [piece.result for piece in (one, other) if piece.result is not None]
        return Worked(join(results) if results else None, reasons)


def _without(
    batch: Any,
    bad: dict[int, str],
    function: Callable[[Any], Any],
    join: Any,
    not_of_rows: tuple[type[BaseException], ...],
) -> Worked:
    places = np.delete(np.arange(batch.num_rows), sorted(bad))
    if not len(places):
        return Worked(None, bad)
    again = work_on(batch.take(pa.array(places)), function, join, not_of_rows)
    return Worked(again.result, bad | {int(places[place]): text for place, text in again.reasons.items()})


def check_operator(name: str, rows: int, reasons: dict[int, str]) -> None:
    """Raises BrokenOperator. `reasons` are of the rows that it failed on, of so many that it was given."""
    if rows < _ENOUGH_ROWS or len(reasons) < _NEARLY_ALL * rows:
        return
    kinds = Counter(reason.partition(":")[0] for reason in reasons.values())
    kind, count = kinds.most_common(1)[0]
    if count >= _NEARLY_ALL * rows:
        example = next(reason for reason in reasons.values() if reason.partition(":")[0] == kind)
        raise BrokenOperator(f"{name} fails on {count} of {rows} rows: {example}")


def first_bad(batch: Any, function: Callable[[Any], Any], error: BaseException) -> int | None:
    """The place of the first row that the function fails on, having failed on all of them together; None: on
    each one by itself it does not."""
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


def reason_at(place: int | None, error: BaseException) -> str:
    if isinstance(error, RowErrors) and place is not None:
        return error.reasons[place]
    return reason_with_line(error)


def keeping(count: int, bad: dict[int, str]) -> Any:
    """A mask without the bad ones."""
    mask = np.ones(count, dtype=bool)
    mask[list(bad)] = False
    return mask


def joined_batches(batches: Sequence[Any]) -> Any:
    table = pa.Table.from_batches(list(batches)).combine_chunks()
    pieces = table.to_batches()
    return pieces[0] if pieces else batches[0]


def joined_stats(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in pieces[0]}
