"""Aligned columns that fit a width: numbers to the right, and one column that gives way."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.views.style import PLAIN, Palette, fit, pad, pad_left, visible_width

_GAP = "  "


class Column(Struct, frozen=True):
    title: str
    is_right: bool = False
    gives_way: bool = False  # cut when the table would be too wide
    least: int = 8  # … but never below this


def render_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, paint: Palette = PLAIN
) -> list[str]:
    """Title line and rows. Cells may be coloured, except in the column that gives way."""
    widths = [
        max(visible_width(column.title), *(visible_width(row[place]) for row in rows))
        if rows
        else visible_width(column.title)
        for place, column in enumerate(columns)
    ]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for place, column in enumerate(columns):
        if column.gives_way and excess > 0:
            kept = max(min(column.least, widths[place]), widths[place] - excess)
            excess -= widths[place] - kept
            widths[place] = kept
    titles = _line([column.title for column in columns], columns, widths)
    return [paint.paint(titles, "bold"), *(_line(row, columns, widths) for row in rows)]


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        shown = fit(cell, width) if column.gives_way else cell
        parts.append(pad_left(shown, width) if column.is_right else pad(shown, width))
    return _GAP.join(parts).rstrip()
