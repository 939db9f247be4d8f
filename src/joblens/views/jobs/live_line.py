"""Live line of `joblens run` on a terminal while the job runs."""

from collections.abc import Sequence

from joblens.model.jobs.sample import Sample
from joblens.model.values.units import counted
from joblens.views.text.charts import Point, cpu_spark_line, last_known, points
from joblens.views.text.numbers import clock, compact_bytes, compact_rate, percent
from joblens.views.text.style import Palette, clean, fit, visible_width

_SEPARATOR = "  "
_SPARK_COLUMNS = 16
_SPARK_LEAST = 4
_NAME_COLUMNS = 24
_GPU_SAMPLES = 10  # enough samples to include a reading of the GPUs


def render_live_line(name: str, samples: Sequence[Sample], width: int, color: bool) -> str:  # noqa: FBT001
    """Formats at most `width` - 1 columns, so that no terminal wraps the line. Omits parts that do not fit,
    least important first: spark line, processes, network, I/O, name, GPU, memory."""
    paint = Palette(is_on=color)
    series = points(samples)
    now = series[-1] if series else Point(0.0)
    pieces = {
        "name": paint.paint(fit(clean(name), _NAME_COLUMNS), "bold"),
        "elapsed": clock(now.elapsed_s),
        "cpu": f"{_label('cpu', paint)} {percent(now.cpu_percent):>4}",
        "memory": f"{_label('mem', paint)} {compact_bytes(now.memory_bytes):>5}",
        "gpu": _gpu(series, paint),
        "io": _io(now, paint),
        "network": f"{_label('net in+out', paint)} {compact_rate(now.network_per_s):>7}"
        if now.network_per_s
        else "",
        "processes": "" if now.processes is None else counted(now.processes, "proc"),
    }
    shown = [key for key in pieces if pieces[key]]
    for least in ("processes", "network", "io", "name", "gpu", "memory"):
        if _line_width(pieces, shown) < width:
            break
        shown = [key for key in shown if key != least]
    line = _SEPARATOR.join(pieces[key] for key in shown)
    if visible_width(line) >= width:  # a very narrow terminal shows only the time
        return fit(pieces["elapsed"], max(0, width - 1))
    columns_left = min(_SPARK_COLUMNS, width - 1 - visible_width(line) - len(_SEPARATOR))
    cpu_curve = [point.cpu_percent for point in series[1:]]
    if columns_left < _SPARK_LEAST or not cpu_curve:
        return line
    return line + _SEPARATOR + paint.paint(cpu_spark_line(cpu_curve, columns_left), "cyan")


def _label(text: str, paint: Palette) -> str:
    return paint.paint(text, "dim")


def _io(now: Point, paint: Palette) -> str:
    if now.io_per_s is None:
        return ""
    return (
        f"{_label('rd', paint)} {compact_rate(now.read_per_s):>7}"
        f"{_SEPARATOR}{_label('wr', paint)} {compact_rate(now.write_per_s):>7}"
    )


def _gpu(series: Sequence[Point], paint: Palette) -> str:
    """Returns '' for jobs without a GPU. GPUs are sampled less often than the rest."""
    memory = series[-1].gpu_memory_bytes if series else None
    busy = last_known(point.gpu_percent for point in series[-_GPU_SAMPLES:])
    if not memory and not busy:
        return ""
    own = f" {compact_bytes(memory):>5}" if memory else ""
    return f"{_label('gpu', paint)} {percent(busy):>4}{own}"


def _line_width(pieces: dict[str, str], shown: Sequence[str]) -> int:
    return sum(visible_width(pieces[key]) for key in shown) + len(_SEPARATOR) * (len(shown) - 1)
