"""Series: columns of samples, put together from stored parts without decoding the rest."""

from collections.abc import Callable, Iterable, Sequence

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.sample import SampleSeries
from joblens.stores.samples.rows import decode_values

Part = tuple[int, bytes]  # index of its first sample, encoded


def read_series(
    parts: Iterable[Part],
    names: Sequence[str],
    from_us: int,
    to_us: int,
    report_damage: Callable[[int, StoreCorrupt], None],
) -> SampleSeries:
    """`parts` by their first index; they may overlap. Of a part before the span only the times are decoded,
    except of the last one, which has the sample before the span."""
    gathered = _Gathered(names)
    before: Part | None = None
    for part in parts:
        try:
            if from_us > 0:
                (times,) = decode_values(part[1], ("at_us",))
                if times and times[-1] is not None and times[-1] < from_us:
                    before = part
                    continue
            if before is not None:
                gathered.add(*before)
                before = None
            if gathered.add(*part) >= to_us:
                break
        except StoreCorrupt as error:
            report_damage(part[0], error)
    return gathered.cut(from_us, to_us)


class _Gathered:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(dict.fromkeys(("at_us", *names)))
        self._columns: list[list[int | None]] = [[] for _ in self._names]
        self._next = 0  # index of the sample that comes next

    def add(self, first: int, data: bytes) -> int:
        """Returns the time of its last sample."""
        found = decode_values(data, self._names)
        known = max(0, self._next - first)  # in a part before, too
        for column, values in zip(self._columns, found, strict=True):
            column.extend(values[known:] if known else values)
        self._next = max(self._next, first + len(found[0]))
        return found[0][-1] or 0 if found[0] else 0

    def cut(self, from_us: int, to_us: int) -> SampleSeries:
        from bisect import bisect_left

        times: list[int] = self._columns[0]  # type: ignore[assignment]  # every sample has its time
        start, end = max(0, bisect_left(times, from_us) - 1), bisect_left(times, to_us)
        columns = {name: column[start:end] for name, column in zip(self._names, self._columns, strict=True)}
        return SampleSeries(times[start:end], columns)
