"""A chart as a value, whatever draws it: interactive page, picture, or own SVG."""

from collections.abc import Sequence

from msgspec import Struct

DASHES = ("solid", "dash", "dot", "dashdot")


class Axis(Struct, frozen=True):
    title: str
    color: str = ""  # '': that of all text
    is_whole: bool = False  # counts: no fractions on the axis
    most: float | None = None  # where it ends; None: where the numbers do
    step: float | None = None  # between its ticks, where `most` is said; None: a fifth of it


class Line(Struct, frozen=True, kw_only=True):
    """`axis` is a place in the panel's axes. A None in `y` is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    color: str
    axis: int = 0
    dash: str = "solid"
    width: float = 1.6
    is_step: bool = False  # a number holds until the next point
    is_rate: bool = False  # a number is that of the time since the point before
    is_filled: bool = False
    is_shown: bool = True  # else it is in the legend only, to be clicked on
    decimals: int = 1  # of its numbers, where the pointer is
    unit: str = ""

    @property
    def needs_marks(self) -> bool:
        """Too few points to be seen as a curve; a rate is a stroke along the time, and seen."""
        return len(self.x) <= 3 and self.dash == "solid" and not self.is_rate


class LinePanel(Struct, frozen=True, kw_only=True):
    lines: tuple[Line, ...]
    axes: tuple[Axis, ...]
    height: int = 480


class BarGroup(Struct, frozen=True):
    name: str
    values: tuple[float | None, ...]
    color: str


class BarPanel(Struct, frozen=True, kw_only=True):
    """Horizontal bars, one of each group for each name; `marks` are single strokes across them."""

    names: tuple[str, ...]
    groups: tuple[BarGroup, ...]
    axis: Axis
    marks: BarGroup | None = None


class Span(Struct, frozen=True, kw_only=True):
    """A bar along the time. `waits_from`: where the thin line before it begins."""

    begin: float
    end: float
    waits_from: float
    row: int
    state: str
    color: str
    about: tuple[str, ...]  # lines for where the pointer is
    is_critical: bool = False


class Connection(Struct, frozen=True):
    """From the end of one span to the begin of another."""

    x: tuple[float, float]
    rows: tuple[int, int]


class SpanPanel(Struct, frozen=True, kw_only=True):
    spans: tuple[Span, ...]
    connections: tuple[Connection, ...]
    rows: int
    row_names: tuple[str, ...] = ()

    @property
    def row_height(self) -> float:
        return 20.0 if self.row_names else max(4.0, min(16.0, 560 / max(1, self.rows)))

    @property
    def height(self) -> int:
        return max(120, round(self.row_height * self.rows) + 16)


Panel = LinePanel | BarPanel | SpanPanel


class Chart(Struct, frozen=True, kw_only=True):
    """Panels with bars stand side by side and share their names; others one below the other and share
    their time. `stem` is the file name without prefix and ending."""

    stem: str
    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    x_title: str = ""


def shortened(text: str, most: int) -> str:
    """What can be shown of it. Names of one sweep differ at their ends, so it is the middle that goes."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    plain = "".join(letter if letter.isprintable() else " " for letter in plain)
    if len(plain) <= most:
        return plain
    head = (most - 1) // 2
    return f"{plain[:head]}…{plain[len(plain) - (most - 1 - head) :]}"
