"""Chart as a value for every renderer, with its colours and units."""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from joblens.model.runs.run import JobState
from joblens.model.values.units import GIB, MIB
from joblens.views.text.style import fit_middle

DASHES = ("solid", "dash", "dot", "dashdot")


class Axis(Struct, frozen=True):
    title: str
    color: str = ""  # '': the default
    is_whole: bool = False  # counts: no fractions on the axis
    most: float | None = None  # its end; None: the largest number
    step: float | None = None  # between ticks, if `most` is set; None: a fifth of it


class Line(Struct, frozen=True, kw_only=True):
    """`axis` is an index into the panel's axes. A None in `y` is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    color: str
    axis: int = 0
    dash: str = "solid"
    width: float = 1.6
    is_step: bool = False  # a number holds until the next point
    is_rate: bool = False  # a number covers the time since the previous point
    is_filled: bool = False
    is_shown: bool = True  # False: only in the legend, shown by a click
    decimals: int = 1  # in tooltips
    unit: str = ""

    @property
    def needs_marks(self) -> bool:
        """Returns whether there are too few points for a visible curve; a rate is always visible."""
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
    """Horizontal bars, one per group and name; `marks` are strokes across them."""

    names: tuple[str, ...]
    groups: tuple[BarGroup, ...]
    axis: Axis
    marks: BarGroup | None = None


class Span(Struct, frozen=True, kw_only=True):
    """A bar on the time axis. `waits_from`: start of the thin line before it."""

    begin: float
    end: float
    waits_from: float
    row: int
    state: str
    color: str
    about: tuple[str, ...]  # lines of its tooltip
    is_critical: bool = False


class Connection(Struct, frozen=True):
    """Connection from the end of one span to the start of another."""

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
    """Panels with bars are side by side and share their names; others are stacked and share the time axis.
    `stem`: file name without prefix and extension."""

    stem: str
    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    x_title: str = ""


def shortened(text: str, most: int) -> str:
    """Returns printable text, shortened in its middle."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    return fit_middle("".join(letter if letter.isprintable() else " " for letter in plain), most)


BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, BLACK, GREY, PALE = "#b05a8c", "#56b4e9", "#000000", "#8a8a8a", "#c4c4c4"
INDIGO, SLATE = "#5d3a9b", "#6b6b6b"
TEXT, GRID = "#222222", "#e4e4e4"

CURVES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK)

# curves of one job have different colours
CPU, MEMORY, PROCESSES = BLUE, VERMILLION, SLATE
GPU, GPU_MEMORY, POWER, GPU_POWER = INDIGO, PURPLE, BLACK, SKY
RECEIVED, SENT = GREEN, ORANGE
PEAK, MEAN = BLUE, ORANGE

_STATES = {
    JobState.COMPLETED: GREEN,
    JobState.FAILED: VERMILLION,
    JobState.TERMINATED: ORANGE,
    JobState.CANCELED: PURPLE,
    JobState.RUNNING: SKY,
}


def state_color(state: JobState) -> str:
    return _STATES.get(state, GREY)


class Scale(Struct, frozen=True):
    """Unit of an axis: `size` base units (microseconds, bytes)."""

    unit: str
    size: float

    def of(self, value: float) -> float:
        return round(value / self.size, 4)

    def all_of(self, values: Iterable[float | None]) -> list[float | None]:
        return [None if value is None else self.of(value) for value in values]

    def times(self, at_us: Sequence[int], zero_us: int) -> list[float]:
        return [self.of(at - zero_us) for at in at_us]


def time_scale(span_us: int) -> Scale:
    seconds = span_us / 1_000_000
    if seconds <= 600:
        return Scale("s", 1e6)
    if seconds <= 3 * 3600:
        return Scale("min", 60e6)
    return Scale("h", 3600e6) if seconds <= 4 * 86400 else Scale("days", 86400e6)


def round_axis(largest: float, margin: float, least_step: float = 0.0) -> tuple[float, float]:
    """Returns (end, step) of an axis with round ticks, with at least `margin` (a share) of free space above
    the largest value, so that curves on different axes do not all touch the upper edge."""
    least_end = max(largest * (1 + margin), least_step)
    if least_end <= 0:
        return 1.0, 0.2
    power = 10.0 ** math.floor(math.log10(least_end / 5))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least_end / 5 * 0.999)
    step = max(least_step, step if least_step == 0 else math.ceil(step))
    return round(math.ceil(least_end / step - 1e-9) * step, 10), step


def memory_scale(largest_bytes: float | None) -> Scale:
    return Scale("MiB", MIB) if (largest_bytes or 0) < GIB else Scale("GiB", GIB)
