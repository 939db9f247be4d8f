"""What not every job has: GPU, network and power, each in a panel of its own below the rest."""

from collections.abc import Sequence

from msgspec import structs

from joblens.analysis.charts.plot_series import JobSeries
from joblens.model.values.units import KIB
from joblens.views.plots import colors
from joblens.views.plots.chart import Axis, Line, LinePanel
from joblens.views.plots.curve_lines import line_of, rate_line_of, reach
from joblens.views.plots.scales import Scale, memory_scale

_HEIGHT = 190


def device_panels(series: JobSeries, x: Sequence[float]) -> list[LinePanel]:
    panels = [_gpu(series, x), _network(series, x), _power(series, x)]
    return [panel for panel in panels if panel is not None]


def _gpu(series: JobSeries, x: Sequence[float]) -> LinePanel | None:
    if not series.gpu_percent and not series.gpu_memory_bytes:
        return None
    memory = memory_scale(max((size for size in series.gpu_memory_bytes if size is not None), default=None))
    lines = []
    if series.gpu_percent:
        lines.append(rate_line_of("GPU", x, series.gpu_percent, colors.GPU, unit="%"))
    if series.gpu_memory_bytes:
        sizes = memory.all_of(series.gpu_memory_bytes)
        lines.append(line_of("GPU memory", x, sizes, colors.GPU_MEMORY, axis=1, decimals=3, unit=memory.unit))
    axes = (
        Axis("GPU (%; 100 is one)", colors.GPU, False, *reach(lines, 0, 0.05)),
        Axis(f"GPU memory ({memory.unit})", colors.GPU_MEMORY, False, *reach(lines, 1, 0.2)),
    )
    return LinePanel(lines=tuple(lines), axes=axes, height=_HEIGHT)


def _network(series: JobSeries, x: Sequence[float]) -> LinePanel | None:
    ways = [
        # over the loopback the two are the same
        ("Received", series.network_rx_per_s, colors.RECEIVED, 3.0, "solid"),
        ("Sent", series.network_tx_per_s, colors.SENT, 1.6, "dash"),
    ]
    most = max((rate for _, curve, *_ in ways for rate in curve if rate is not None), default=0.0)
    scale = Scale("KiB/s", KIB) if most < 1024**2 else memory_scale(max(most, 0.0))
    unit = scale.unit if scale.unit.endswith("/s") else f"{scale.unit}/s"
    lines = []
    for name, curve, color, width, dash in ways:
        if curve:
            line = rate_line_of(name, x, scale.all_of(curve), color, decimals=2, unit=unit)
            lines.append(structs.replace(line, width=width, dash=dash))
    return _panel(lines, f"Network ({unit})")


def _power(series: JobSeries, x: Sequence[float]) -> LinePanel | None:
    lines = []
    if series.power_watts:
        name = "Processors and memory, the job's share"
        lines.append(rate_line_of(name, x, series.power_watts, colors.POWER, unit="W"))
    if series.gpu_power_watts:
        lines.append(line_of("Its GPUs", x, series.gpu_power_watts, colors.GPU_POWER, unit="W"))
    return _panel(lines, "Power (W)")


def _panel(lines: Sequence[Line], title: str) -> LinePanel | None:
    if not lines:
        return None
    return LinePanel(
        lines=tuple(lines), axes=(Axis(title, "", False, *reach(lines, 0, 0.1)),), height=_HEIGHT
    )
