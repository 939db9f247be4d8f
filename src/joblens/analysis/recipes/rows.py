"""How many rows came to a recipe's job and left it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from joblens.model.jobs.details import RejectReason
from joblens.model.recipes.snapshot import OperatorProgress, ProcessingStatus

_EXPORTED = (ProcessingStatus.COMPLETED, ProcessingStatus.PARTIAL)


class JobRows(Struct, frozen=True):
    """Of the whole job."""

    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int | None = None


def job_rows(
    told: JobRows,
    status: ProcessingStatus,
    operators: Sequence[OperatorProgress],
    summary: Mapping[str, Any],
    rejected: int,
) -> JobRows:
    """What a job told that has exported, then what its summary says, then what its operators tell. Of any
    other job that has ended, what its last operator made was not exported: nothing has left it, and rows
    that it rejected are those that its partitions told of."""
    is_exported = status in _EXPORTED
    written = summary if is_exported else {}
    came = operators[0].input_rows if operators else None
    left = operators[-1].output_rows if operators else None
    if not is_exported and status is not ProcessingStatus.IN_PROGRESS:
        left = None
    return JobRows(
        _first_known(told.rows_in if is_exported else None, _number(written.get("rows_in")), came),
        _first_known(told.rows_out if is_exported else None, _number(written.get("rows_out")), left),
        _first_known(told.rejected if is_exported else None, _number(written.get("rejected_rows")), rejected),
    )


def rejects_in(summary: Mapping[str, Any]) -> tuple[RejectReason, ...]:
    """By reason, as the summary of a job that has ended says; () where it does not, or is damaged."""
    try:
        return msgspec.convert(summary.get("rejects") or (), tuple[RejectReason, ...])
    except msgspec.ValidationError:
        return ()


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first_known(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)
