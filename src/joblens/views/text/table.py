"""Aligned columns that fit a width: numbers to the right, and one column that gives way."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.views.text.style import PLAIN, Palette, fit, fit_middle, pad, pad_left, visible_width

_GAP = "  "
_NARROW = 80  # below this columns are left out; never in a pipe, whose readers count on all of them


class Column(Struct, frozen=True):
    title: str
    is_right: bool = False
    gives_way: bool = False  # cut when the table would be too wide
    least: int = 8  # … but never below this
    keeps_end: bool = False  # cut in the middle
    goes: int = 0  # left out where even that is too wide: those with 1 first, with 0 never


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
    kept = _places_that_fit(columns, widths, width)
    columns, widths = [columns[place] for place in kept], [widths[place] for place in kept]
    rows = [[row[place] for place in kept] for row in rows]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for place, column in reversed(list(enumerate(columns))):  # names stand first and are the last to give
        if column.gives_way and excess > 0:
            cut = max(_least(column, widths[place]), widths[place] - excess)
            excess -= widths[place] - cut
            widths[place] = cut
    titles = _line([column.title for column in columns], columns, widths)
    return [paint.paint(titles, "bold"), *(_line(row, columns, widths) for row in rows)]


def places_beside_whole_names(
    columns: Sequence[Column], places: Sequence[int], rows: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Of these columns, those that leave whole what would give way: for names that are told apart by their
    ends. Those with the smallest `goes` are left out first."""
    widths = {
        place: max(visible_width(text) for text in (columns[place].title, *(row[place] for row in rows)))
        for place in places
    }
    for place in sorted(places, key=lambda each: columns[each].goes):
        if sum(widths.values()) + len(_GAP) * (len(widths) - 1) <= width:
            break
        if columns[place].goes:
            del widths[place]
    return list(widths)


def _places_that_fit(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """A terminal breaks lines that are too long in the middle of a column, which nobody can read."""
    places = list(range(len(columns)))
    for least_wanted in sorted(
        (place for place in places if columns[place].goes), key=lambda at: columns[at].goes
    ):
        needed = sum(_least(columns[place], widths[place]) for place in places) + len(_GAP) * (
            len(places) - 1
        )
        if needed <= width or width >= _NARROW:
            break
        places.remove(least_wanted)
    return places


def _least(column: Column, width: int) -> int:
    return min(column.least, width) if column.gives_way else width


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        cut = fit_middle if column.keeps_end else fit
        shown = cut(cell, width) if column.gives_way else cell
        parts.append(pad_left(shown, width) if column.is_right else pad(shown, width))
    return _GAP.join(parts).rstrip()
