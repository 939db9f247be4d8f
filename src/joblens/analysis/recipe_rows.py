"""How many rows came to a recipe's job and left it."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.model.job_snapshot import OperatorProgress, ProcessingStatus

_ENDED = (ProcessingStatus.COMPLETED, ProcessingStatus.PARTIAL, ProcessingStatus.FAILED)


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
    """What the job told at its end, then what its summary says, then what its operators tell. Nothing has
    left a job that failed: what its last operator made was not exported."""
    written = summary if status in _ENDED else {}
    came = operators[0].input_rows if operators else None
    left = operators[-1].output_rows if operators and status is not ProcessingStatus.FAILED else None
    return JobRows(
        _first_known(told.rows_in, _number(written.get("rows_in")), came),
        _first_known(told.rows_out, _number(written.get("rows_out")), left),
        _first_known(told.rejected, _number(written.get("rejected_rows")), rejected),
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first_known(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)
