"""Small pictures in text: a spark line of blocks and a braille curve with its axis."""

from collections.abc import Callable, Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_BRAILLE_BASE = 0x2800
# dot bits of one braille cell: [column][row from the bottom]
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
_DOT_ROWS = 4
_DOT_COLUMNS = 2

Series = Sequence[float | None]


def spark_line(values: Series, width: int, top: float | None = None) -> str:
    """The last `width` values as blocks from 0 to `top` (or the largest); a gap where unknown."""
    shown = list(values)[-width:] if width > 0 else []
    highest = top if top is not None else max((value for value in shown if value is not None), default=0.0)
    return "".join(_block(value, highest) for value in shown)


def cpu_spark_line(percents: Series, width: int) -> str:
    """From 0 to one core, or to the most that was used when that is more."""
    highest = max((value for value in percents if value is not None), default=0.0)
    return spark_line(percents, width, top=max(100.0, highest))


def _block(value: float | None, highest: float) -> str:
    if value is None:
        return " "
    if highest <= 0:
        return _BLOCKS[0]
    step = int(value / highest * (len(_BLOCKS) - 1) + 0.5)
    return _BLOCKS[max(0, min(len(_BLOCKS) - 1, step))]


def resample(times: Sequence[float], values: Series, columns: int) -> list[float | None]:
    """The largest value in each of `columns` equal slices of time, so that no spike is lost. A reading
    stands for the time since the one before it, as a rate does; an unknown one leaves a gap."""
    if not times or columns <= 0:
        return []
    start, span = times[0], (times[-1] - times[0]) or 1.0
    slices: list[float | None] = [None] * columns
    before = -1
    for time, value in zip(times, values, strict=True):
        place = min(columns - 1, int((time - start) / span * columns))
        if value is not None:
            for covered in range(min(before + 1, place), place + 1):
                known = slices[covered]
                slices[covered] = value if known is None else max(known, value)
        before = place
    return slices


def nice_top(highest: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten: an axis end people can read."""
    if highest <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= highest:
        power *= 10
    while power > highest:
        power /= 10
    return next((power * step for step in (1, 2, 2.5, 5) if power * step >= highest), power * 10)


def nice_top_binary(highest: float) -> float:
    """The same for bytes: powers of two, so that the axis says 512 MiB and not 476.8 MiB."""
    top = 1024.0
    while top < highest:
        top = top * 1.5 if top * 1.5 >= highest and top >= 2048 else top * 2
    return top


def braille_chart(
    times: Sequence[float],
    values: Series,
    *,
    width: int,
    height: int,
    top: float,
    axis: Callable[[float], str],
) -> list[str]:
    """Filled curve over time: `height` lines of `width` columns behind an axis from 0 to `top`."""
    label_width = max(len(axis(top)), len(axis(0)))
    columns = max(1, width - label_width - 2)
    dots = resample(times, values, columns * _DOT_COLUMNS)
    rows = height * _DOT_ROWS
    levels = [None if value is None else _level(value, top, rows) for value in dots]
    lines = []
    for line in range(height):
        floor = (height - 1 - line) * _DOT_ROWS
        cells = "".join(_cell(levels[2 * c : 2 * c + 2], floor) for c in range(columns))
        label = axis(top) if line == 0 else axis(0) if line == height - 1 else ""
        lines.append(f"{label:>{label_width}} {'┤' if label else '│'}{cells}".rstrip())
    return lines


def _level(value: float, top: float, rows: int) -> int:
    """How many dots high; the base line is always drawn, so that zero differs from unknown."""
    return max(1, min(rows, round(value / top * rows))) if top > 0 else 1


def _cell(levels: Sequence[int | None], floor: int) -> str:
    bits = 0
    for column, level in enumerate(levels):
        if level is not None:
            for row in range(min(_DOT_ROWS, max(0, level - floor))):
                bits |= _DOTS[column][row]
    return chr(_BRAILLE_BASE + bits) if bits else " "
