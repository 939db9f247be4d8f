"""Tables of aligned columns that fit a width: numbers on the right, long columns shortened."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.views.text.numbers import UNKNOWN
from joblens.views.text.style import PLAIN, Palette, fit, fit_middle, pad, pad_left, visible_width

_GAP = "  "
_NARROW = 80  # below this columns are omitted; never in a pipe, which gets all columns


class Column(Struct, frozen=True):
    title: str
    is_right: bool = False
    gives_way: bool = False  # shortened if the table is too wide
    least: int = 8  # … to no less than this
    keeps_end: bool = False  # shortened in the middle
    goes: int = 0  # omitted if still too wide: 1 first, 0 never


def render_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int,
    paint: Palette = PLAIN,
    *,
    indexes: Sequence[int] | None = None,
) -> list[str]:
    """Returns the title line and rows. Cells may be coloured, except in columns that give way. `indexes`: of
    the columns to show; None: all."""
    indexes = range(len(columns)) if indexes is None else indexes
    if width < _NARROW:
        indexes = columns_that_fit(columns, indexes, rows, width)
    columns = [columns[index] for index in indexes]
    rows = [[row[index] for index in indexes] for row in rows]
    widths = [
        max(visible_width(text) for text in (column.title, *(row[index] for row in rows)))
        for index, column in enumerate(columns)
    ]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for index, column in reversed(list(enumerate(columns))):  # names come first and are shortened last
        if column.gives_way and excess > 0:
            cut = max(_least(column, widths[index]), widths[index] - excess)
            excess -= widths[index] - cut
            widths[index] = cut
    titles = _line([column.title for column in columns], columns, widths)
    return [paint.paint(titles, "bold"), *(_line(row, columns, widths) for row in rows)]


def columns_with_values(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the columns without those that may be omitted and have no value: they would waste space."""
    return [
        index
        for index, column in enumerate(columns)
        if not column.goes or any(row[index] not in ("", UNKNOWN) for row in rows)
    ]


def columns_that_fit(
    columns: Sequence[Column],
    indexes: Sequence[int],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    whole_names: bool = False,
) -> list[int]:
    """Returns the columns that fit: a terminal would wrap longer lines. Omits those with the smallest `goes`
    first. `whole_names`: without shortening names, which may differ only at their ends."""
    widths = {}
    for index in indexes:
        column = columns[index]
        longest = max(visible_width(text) for text in (column.title, *(row[index] for row in rows)))
        widths[index] = longest if whole_names else _least(column, longest)
    for index in sorted(indexes, key=lambda each: columns[each].goes):
        if sum(widths.values()) + len(_GAP) * (len(widths) - 1) <= width:
            break
        if columns[index].goes:
            del widths[index]
    return list(widths)


def _least(column: Column, width: int) -> int:
    return min(column.least, width) if column.gives_way else width


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        cut = fit_middle if column.keeps_end else fit
        shown = cut(cell, width) if column.gives_way else cell
        parts.append(pad_left(shown, width) if column.is_right else pad(shown, width))
    return _GAP.join(parts).rstrip()
