"""Charts of jobs: a single one with device panels, CPU or memory of all, peaks against means."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

from joblens.analysis.charts.series import (
    Extremes,
    JobSeries,
    PlotSource,
    clock_starts,
    points_for_each,
    thinned,
)
from joblens.model.values.units import KIB, counted, format_bytes, format_duration
from joblens.views.plots import chart
from joblens.views.plots.chart import (
    DASHES,
    Axis,
    BarGroup,
    BarPanel,
    Chart,
    Line,
    LinePanel,
    Scale,
    memory_scale,
    round_axis,
    shortened,
    time_scale,
)
from joblens.views.text.numbers import instant, percent

_NEAR_START = 0.34  # of the first interval


def reach(
    lines: Sequence[Line], axis: int, margin: float, least_step: float = 0.0
) -> tuple[float, float] | tuple[None, None]:
    """Returns (end, step) of an axis, or None for both if one of its lines is hidden at first."""
    own = [line for line in lines if line.axis == axis]
    known = [y for line in own for y in line.y if y is not None]
    if not known or not all(line.is_shown for line in own):
        return None, None
    return round_axis(max(known), margin, least_step)


def line_of(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    color: str,
    *,
    axis: int = 0,
    decimals: int = 1,
    unit: str = "",
) -> Line:
    """Returns a line without points of unknown value: their neighbours are joined."""
    known = [(at, round(value, 4)) for at, value in zip(x, y, strict=True) if value is not None]
    return Line(
        name=name,
        x=[at for at, _ in known],
        y=[value for _, value in known],
        color=color,
        axis=axis,
        decimals=decimals,
        unit=unit,
    )


def rate_line_of(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    color: str,
    *,
    decimals: int = 1,
    unit: str = "",
    start: float = 0.0,
) -> Line:
    """Returns a line of rates. Each number covers the time since the previous point, so the first one begins
    there too, or at the job's start if the first sample is near it."""
    line = line_of(name, x, y, color, decimals=decimals, unit=unit)
    first = next((index for index, value in enumerate(y) if value is not None), 0)
    if first:
        begin = x[first - 1]
        if begin - start <= (x[first] - begin) * _NEAR_START:
            begin = start
        line = structs.replace(line, x=[begin, *line.x], y=[line.y[0], *line.y])
    return structs.replace(line, is_rate=True)


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
        lines.append(rate_line_of("GPU", x, series.gpu_percent, chart.GPU, unit="%"))
    if series.gpu_memory_bytes:
        sizes = memory.all_of(series.gpu_memory_bytes)
        lines.append(line_of("GPU memory", x, sizes, chart.GPU_MEMORY, axis=1, decimals=3, unit=memory.unit))
    axes = (
        Axis("GPU (%; 100 is one)", chart.GPU, False, *reach(lines, 0, 0.05)),
        Axis(f"GPU memory ({memory.unit})", chart.GPU_MEMORY, False, *reach(lines, 1, 0.2)),
    )
    return LinePanel(lines=tuple(lines), axes=axes, height=_HEIGHT)


def _network(series: JobSeries, x: Sequence[float]) -> LinePanel | None:
    ways = [
        # over the loopback both curves are equal
        ("Received", series.network_rx_per_s, chart.RECEIVED, 3.0, "solid"),
        ("Sent", series.network_tx_per_s, chart.SENT, 1.6, "dash"),
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
        lines.append(rate_line_of(name, x, series.power_watts, chart.POWER, unit="W"))
    if series.gpu_power_watts:
        lines.append(line_of("Its GPUs", x, series.gpu_power_watts, chart.GPU_POWER, unit="W"))
    return _panel(lines, "Power (W)")


def _panel(lines: Sequence[Line], title: str) -> LinePanel | None:
    if not lines:
        return None
    return LinePanel(
        lines=tuple(lines), axes=(Axis(title, "", False, *reach(lines, 0, 0.1)),), height=_HEIGHT
    )


MOST_CURVES = len(chart.CURVES) * len(DASHES)  # all distinguishable; the rest is grey
MOST_BARS = 100
_LONGEST_NAME = 44
# more gaps: thinner and on top, so that equal curves stay visible
_WIDTHS = dict(zip(DASHES, (2.8, 2.0, 1.5, 1.1), strict=True))


def job_chart(series: JobSeries, source: str, stem: str) -> Chart:
    """Draws CPU, memory and process count on one time line, each with its own axis; below it GPU, network and
    power if measured."""
    drawn = thinned(series)
    clock = time_scale(series.end_us - series.begin_us)
    x = clock.times(drawn.at_us, series.begin_us)
    memory = memory_scale(_known_max(drawn.memory_bytes))
    lines = [
        rate_line_of("CPU", x, drawn.cpu_percent, chart.CPU, unit="%"),
        line_of(
            drawn.memory_label,
            x,
            memory.all_of(drawn.memory_bytes),
            chart.MEMORY,
            axis=1,
            decimals=3,
            unit=memory.unit,
        ),
        Line(
            name="Processes", x=x, y=drawn.processes, color=chart.PROCESSES, axis=2, is_step=True, decimals=0
        ),
    ]
    lines += _asked_lines(series, [0.0, clock.of(series.end_us - series.begin_us)], memory)
    axes = (
        Axis("CPU (%; 100 is one core)", chart.CPU, False, *reach(lines, 0, 0.05)),
        Axis(f"{drawn.memory_label} ({memory.unit})", chart.MEMORY, False, *reach(lines, 1, 0.3)),
        Axis("Processes", chart.PROCESSES, True, *reach(lines, 2, 0.6, least_step=1.0)),
    )
    return Chart(
        stem=stem,
        title=_title_of(series),
        subtitle=_about_job(series, source),
        x_title=f"Time since its start ({clock.unit})",
        panels=(LinePanel(lines=tuple(lines), axes=axes, height=520), *device_panels(drawn, x)),
    )


def _title_of(series: JobSeries) -> str:
    name = f": {shortened(series.name, 70)}" if series.name else ""
    return f"Job {series.job_id}{name}" + (f", attempt {series.attempt}" if series.attempt > 1 else "")


def _asked_lines(series: JobSeries, ends: list[float], memory: Scale) -> list[Line]:
    """Returns lines of requests, unless they would flatten the curve of the use."""
    asked, top = series.asked, series.extremes
    lines = []
    if asked.cpus is not None:
        name = f"CPUs requested ({asked.cpus:g})"
        near = 100 * asked.cpus <= 4 * (top.cpu_peak_percent or 0.0)
        lines.append(_asked(name, ends, 100 * asked.cpus, chart.CPU, 0, is_shown=near))
    if asked.memory_bytes is not None:
        name = f"Memory requested ({format_bytes(asked.memory_bytes)})"
        near = asked.memory_bytes <= 4 * (top.memory_peak_bytes or 0.0)
        lines.append(_asked(name, ends, memory.of(asked.memory_bytes), chart.MEMORY, 1, is_shown=near))
    return lines


def _asked(name: str, ends: list[float], value: float, color: str, axis: int, *, is_shown: bool) -> Line:
    y = [value, value]
    return Line(name=name, x=ends, y=y, color=color, axis=axis, dash="dot", width=1.2, is_shown=is_shown)


def _about_job(series: JobSeries, source: str) -> str:
    top = series.extremes
    words = [
        source,
        f"started {instant(series.begin_us)}",
        f"{series.status.value} after {format_duration((series.end_us - series.begin_us) / 1e6)}"
        if series.status is not None and series.status.is_final
        else f"{format_duration((series.end_us - series.begin_us) / 1e6)} long",
        f"CPU peak {percent(top.cpu_peak_percent)}, mean {percent(top.cpu_mean_percent)}",
        f"{_memory_label(series)} peak {format_bytes(top.memory_peak_bytes)}",
    ]
    return " · ".join(word for word in words if word)


def _memory_label(series: JobSeries) -> str:
    return series.memory_label[0].lower() + series.memory_label[1:]


def _memory_title(jobs: Iterable[JobSeries]) -> str:
    return " or ".join(sorted({job.memory_label for job in jobs}))


# ---- all jobs -------------------------------------------------------------------------------------------


class _Subject(Struct, frozen=True):
    stem: str
    title: str
    curve: Callable[[JobSeries], Sequence[float | None]]
    peak: Callable[[Extremes], float | None]


_CPU = _Subject(
    "cpu_all_jobs",
    "CPU of all jobs",
    lambda job: job.cpu_percent,
    lambda top: top.cpu_peak_percent,
)
_MEMORY = _Subject(
    "memory_all_jobs", "Memory of all jobs", lambda job: job.memory_bytes, lambda top: top.memory_peak_bytes
)


def cpu_chart(sources: Sequence[PlotSource]) -> Chart:
    """Draws CPU of all jobs. The machine has its own axis: its 100% are all cores."""
    host = any(value is not None for source in sources for value in source.host.cpu_percent)
    axes = [Axis("CPU (%; 100 is one core)")]
    if host:
        axes.append(Axis("Whole machine (%; 100 is all cores)", chart.GREY, most=100.0))
    return _overview(sources, _CPU, Scale("%", 1.0), axes)


def memory_chart(sources: Sequence[PlotSource]) -> Chart:
    largest = _known_max([job.extremes.memory_peak_bytes for source in sources for job in source.jobs])
    scale = memory_scale(largest)
    title = _memory_title(job for source in sources for job in source.jobs)
    return _overview(sources, _MEMORY, scale, [Axis(f"{title} ({scale.unit})")])


def _overview(sources: Sequence[PlotSource], subject: _Subject, scale: Scale, axes: list[Axis]) -> Chart:
    zeros = clock_starts([source.reach_us for source in sources])
    span_us = max(source.reach_us[1] - zero for source, zero in zip(sources, zeros, strict=True))
    clock = time_scale(span_us)
    jobs = [(job, source, zero) for source, zero in zip(sources, zeros, strict=True) for job in source.jobs]
    by_peak = sorted(jobs, key=lambda entry: -(subject.peak(entry[0].extremes) or 0.0))
    chosen = {id(job) for job, _, _ in by_peak[:MOST_CURVES]}
    most = points_for_each(len(jobs))
    lines: list[Line] = []
    rest_x: list[float] = []
    rest_y: list[float | None] = []
    for job, source, zero in jobs:
        if not job.has_curve:
            continue
        line = _curve_of(thinned(job, most), subject, clock, scale, zero)
        if id(job) in chosen:
            color, dash = _pen(len(lines))
            name = shortened(job.label, _LONGEST_NAME) + _of_source(source, sources)
            lines.append(structs.replace(line, name=name, color=color, dash=dash, width=_WIDTHS[dash]))
        elif line.x:
            rest_x += [line.x[0], *line.x]  # a gap before each
            rest_y += [None, *line.y]
    if rest_x:
        others = f"{len(jobs) - MOST_CURVES:,} other jobs"
        rest = Line(name=others, x=rest_x, y=rest_y, color=chart.PALE, width=0.8, unit=scale.unit)
        lines.insert(0, structs.replace(rest, is_rate=subject is _CPU))
    lines += _host_lines(sources, zeros, clock, scale, subject)
    return Chart(
        stem=subject.stem,
        title=subject.title,
        subtitle=_about_sources(sources, len(jobs), zeros)
        + (f" · the {MOST_CURVES} highest peaks in colour" if rest_x else ""),
        x_title=f"Time since the start ({clock.unit})",
        panels=(LinePanel(lines=tuple(lines), axes=tuple(axes), height=560),),
    )


def _curve_of(job: JobSeries, subject: _Subject, clock: Scale, scale: Scale, zero_us: int) -> Line:
    x, y = clock.times(job.at_us, zero_us), scale.all_of(subject.curve(job))
    if subject is _CPU:
        return rate_line_of("", x, y, "", unit=scale.unit, start=clock.of(job.begin_us - zero_us))
    return line_of("", x, y, "", decimals=3 if scale.unit == "GiB" else 1, unit=scale.unit)


def _of_source(source: PlotSource, sources: Sequence[PlotSource]) -> str:
    """Returns a label that distinguishes the same job of two runs or files; empty for single jobs."""
    return f" ({source.label})" if len(sources) > 1 and source.label else ""


def _pen(index: int) -> tuple[str, str]:
    """Returns colour and dash. Neighbours share neither, so that equal curves stay visible.

    The numbers of colours and dashes are coprime: every pair occurs once.
    """
    return chart.CURVES[index % len(chart.CURVES)], DASHES[index % len(DASHES)]


def _host_lines(
    sources: Sequence[PlotSource], zeros: Sequence[int], clock: Scale, scale: Scale, subject: _Subject
) -> list[Line]:
    lines = []
    for source, zero in zip(sources, zeros, strict=True):
        is_cpu = subject is _CPU
        values = source.host.cpu_percent if is_cpu else source.host.memory_bytes
        if all(value is None for value in values):
            continue
        line = line_of(
            "whole machine" + (_of_source(source, sources) or _at_that_time(source, sources)),
            clock.times(source.host.at_us, zero),
            scale.all_of(values),
            chart.GREY,
            axis=1 if is_cpu else 0,
            decimals=1,
            unit=scale.unit,
        )
        # It would flatten the jobs' curves, so it is hidden at first.
        lines.append(_hidden(line))
    return lines


def _at_that_time(source: PlotSource, sources: Sequence[PlotSource]) -> str:
    return f" (job {source.jobs[0].job_id})" if len(sources) > 1 else ""


def _hidden(line: Line) -> Line:
    return structs.replace(line, is_shown=False, dash="dash")


def _about_sources(sources: Sequence[PlotSource], jobs: int, zeros: Sequence[int]) -> str:
    labels = [shortened(source.label, 40) for source in sources if source.label]
    words = [" + ".join(labels[:3]) + (f" + {len(labels) - 3} more" if len(labels) > 3 else "")]
    tried = any(job.attempt > 1 for source in sources for job in source.jobs)
    words.append(counted(jobs, "attempt" if tried else "job"))
    starts = sorted(set(zeros))
    if len(starts) == 1:
        words.append(f"started {instant(starts[0])}")
    else:
        words.append("aligned at their starts")
    return " · ".join(word for word in words if word)


# ---- peaks against means --------------------------------------------------------------------------------


def summary_chart(sources: Sequence[PlotSource]) -> Chart:
    jobs = [(job, source) for source in sources for job in source.jobs]
    total = len(jobs)
    if total > MOST_BARS:
        most = max((job.extremes.memory_peak_bytes or 0.0 for job, _ in jobs), default=0.0) or 1.0
        busiest = max((job.extremes.cpu_peak_percent or 0.0 for job, _ in jobs), default=0.0) or 1.0
        jobs = sorted(jobs, key=lambda entry: -_weight(entry[0].extremes, most, busiest))[:MOST_BARS]
    names = tuple(shortened(job.label, _LONGEST_NAME) + _of_source(source, sources) for job, source in jobs)
    tops = [job.extremes for job, _ in jobs]
    memory = memory_scale(_known_max([top.memory_peak_bytes for top in tops]))
    asked_cpus = [None if job.asked.cpus is None else 100 * job.asked.cpus for job, _ in jobs]
    asked_memory = memory.all_of([job.asked.memory_bytes for job, _ in jobs])
    panels = (
        _bars(
            names,
            "CPU (%; 100 is one core)",
            _rounded(top.cpu_peak_percent for top in tops),
            _rounded(top.cpu_mean_percent for top in tops),
            asked_cpus,
        ),
        _bars(
            names,
            f"{_memory_title(job for job, _ in jobs)} ({memory.unit})",
            memory.all_of(top.memory_peak_bytes for top in tops),
            memory.all_of(top.memory_mean_bytes for top in tops),
            asked_memory,
        ),
    )
    subtitle = _about_sources(sources, len(jobs), [source.reach_us[0] for source in sources[:1]])
    if total > len(jobs):
        subtitle = f"{len(jobs)} of {total:,} jobs, with the highest peaks"
    return Chart(stem="summary", title="Peak and average of each job", subtitle=subtitle, panels=panels)


def _weight(top: Extremes, most_memory: float, most_cpu: float) -> float:
    return max((top.memory_peak_bytes or 0.0) / most_memory, (top.cpu_peak_percent or 0.0) / most_cpu)


def _bars(
    names: tuple[str, ...],
    title: str,
    peaks: list[float | None],
    means: list[float | None],
    asked: list[float | None],
) -> BarPanel:
    groups = (
        BarGroup("Peak", tuple(peaks), chart.PEAK),
        BarGroup("Average", tuple(means), chart.MEAN),
    )
    has_asked = any(value is not None for value in asked)
    marks = BarGroup("Requested", tuple(asked), chart.BLACK) if has_asked else None
    return BarPanel(names=names, groups=groups, axis=Axis(title), marks=marks)


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 2) for value in values]


def _known_max(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
