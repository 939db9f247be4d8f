"""Which numbers lie in a filter's range."""

from typing import Any

import numpy as np
import pyarrow as pa

from joblens.data.operator import Filter


def within(settings: Filter, values: Any, low: float | None, high: float | None) -> Any:
    """A BooleanArray; a missing or undefined number lies in no range. Bounds belong to the range unless the
    filter is told otherwise; a reversed range is all that lies outside, its bounds with it."""
    numbers = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else np.asarray(values)
    is_low_in = settings.min_closed_interval != settings.reversed_range
    is_high_in = settings.max_closed_interval != settings.reversed_range
    inside = np.ones(len(numbers), dtype=bool)
    if low is not None:
        inside &= numbers >= low if is_low_in else numbers > low
    if high is not None:
        inside &= numbers <= high if is_high_in else numbers < high
    return pa.array(~inside if settings.reversed_range else inside)
