"""Filter ranges, and the check for tokenization, which needs models."""

from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.base.operator import Filter
from joblens.model.errors import RecipeError

_POWERS = np.array([float(f"1e-{digits}") for digits in range(11)])


def to_ten_digits(numbers: Any) -> Any:
    """Rounds to ten decimals exactly as DataJuicer does before comparing with bounds:
    an integer times a power of ten.

    So 1/3 is 0.33333333330000003, and 0.3 is 0.30000000000000004, which is more than a bound of 0.3.
    """
    is_usual = np.isfinite(numbers) & (numbers >= 0)
    usual = np.where(is_usual, numbers, 0.0)
    whole = np.floor(usual)
    scaled = (usual - whole) * 1e10
    digits = np.floor(scaled)
    rest = scaled - digits
    digits += (rest > 0.5) | ((rest == 0.5) & ((digits == 0) | (digits % 2 == 1)))
    is_over = digits >= 1e10
    whole, digits = np.where(is_over, whole + 1, whole), np.where(is_over, 0.0, digits)
    decimals = np.full(len(digits), 10)
    for _ in range(10):
        is_zero = (digits % 10 == 0) & (decimals > 0)
        digits, decimals = np.where(is_zero, digits / 10, digits), decimals - is_zero
    return np.where(is_usual, whole + digits * _POWERS[decimals], numbers)


def as_compared(stats: dict[str, Any]) -> dict[str, Any]:
    """Returns the statistics of a filter with doubles rounded for comparison."""
    return {
        name: pa.array(to_ten_digits(values.to_numpy(zero_copy_only=False)), mask=_missing(values))
        if pa.types.is_float64(values.type)
        else values
        for name, values in stats.items()
    }


def _missing(values: Any) -> Any:
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None


def within(settings: Filter, values: Any, low: float | None, high: float | None) -> Any:
    """Returns a BooleanArray; a missing or undefined number is in no range.

    Bounds are included unless the filter says otherwise; a reversed range is everything outside, including
    the bounds.
    """
    numbers = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else np.asarray(values)
    is_low_in = settings.min_closed_interval != settings.reversed_range
    is_high_in = settings.max_closed_interval != settings.reversed_range
    inside = np.ones(len(numbers), dtype=bool)
    if low is not None:
        inside &= numbers >= low if is_low_in else numbers > low
    if high is not None:
        inside &= numbers <= high if is_high_in else numbers < high
    return pa.array(~inside if settings.reversed_range else inside)


def refuse_tokenization(operator: str, *, is_wanted: bool) -> None:
    if is_wanted:
        raise RecipeError(
            f"{operator}: tokenization: true needs a tokenizer model, which joblens does not include",
            hint="omit it to split words at spaces, or write your own operator",
        )
