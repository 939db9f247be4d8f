"""What not every job has: GPU, network and power, each in a panel of its own below the rest."""

from collections.abc import Sequence

from joblens.analysis.plot_series import JobSeries
from joblens.views.plots import colors
from joblens.views.plots.chart import Axis, Line, LinePanel
from joblens.views.plots.curve_lines import line_of, reach
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
        lines.append(line_of("GPU", x, series.gpu_percent, colors.CPU, unit="%"))
    if series.gpu_memory_bytes:
        sizes = memory.all_of(series.gpu_memory_bytes)
        lines.append(line_of("GPU memory", x, sizes, colors.MEMORY, axis=1, decimals=3, unit=memory.unit))
    axes = (
        Axis("GPU (%; 100 is one)", colors.CPU, False, *reach(lines, 0, 0.05)),
        Axis(f"GPU memory ({memory.unit})", colors.MEMORY, False, *reach(lines, 1, 0.2)),
    )
    return LinePanel(lines=tuple(lines), axes=axes, height=_HEIGHT)


def _network(series: JobSeries, x: Sequence[float]) -> LinePanel | None:
    ways = [
        ("Received", series.network_rx_per_s, colors.GREEN),
        ("Sent", series.network_tx_per_s, colors.ORANGE),
    ]
    most = max((rate for _, curve, _ in ways for rate in curve if rate is not None), default=0.0)
    scale = Scale("KB/s", 1024) if most < 1024**2 else memory_scale(max(most, 0.0))
    unit = scale.unit if scale.unit.endswith("/s") else f"{scale.unit}/s"
    lines = [
        line_of(name, x, scale.all_of(curve), color, decimals=2, unit=unit)
        for name, curve, color in ways
        if curve
    ]
    return _panel(lines, f"Network ({unit})")


def _power(series: JobSeries, x: Sequence[float]) -> LinePanel | None:
    kinds = [
        ("Processors and memory, the job's share", series.power_watts, colors.PURPLE),
        ("Its GPUs", series.gpu_power_watts, colors.BLACK),
    ]
    lines = [line_of(name, x, curve, color, unit="W") for name, curve, color in kinds if curve]
    return _panel(lines, "Power (W)")


def _panel(lines: Sequence[Line], title: str) -> LinePanel | None:
    if not lines:
        return None
    return LinePanel(
        lines=tuple(lines), axes=(Axis(title, "", False, *reach(lines, 0, 0.1)),), height=_HEIGHT
    )
