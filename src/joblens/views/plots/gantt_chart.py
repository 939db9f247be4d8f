"""The chart of a run: every attempt along the time, what determined the end, and the machine's use below."""

from collections import Counter
from collections.abc import Iterable, Sequence

from joblens.analysis.charts.gantt import Bar, Cause, Gantt, Link
from joblens.analysis.charts.machine_use import MachineUse, StepCurve
from joblens.model.values.units import format_bytes, format_duration, format_instant
from joblens.views.plots import colors
from joblens.views.plots.chart import Axis, Chart, Connection, Line, LinePanel, Span, SpanPanel, shortened
from joblens.views.plots.scales import Scale, memory_scale, time_scale
from joblens.views.text.numbers import counted

_LONGEST_NAME = 36
_OFFER = "offered"
_FAR_ABOVE = 5


def gantt_chart(gantt: Gantt, use: MachineUse, title: str) -> Chart:
    clock = time_scale(gantt.end_us - gantt.begin_us)
    memory = memory_scale(max([*use.memory_reserved.values, *use.memory_used.values], default=None))
    plain = Scale("", 1.0)
    panels = (
        _span_panel(gantt, clock),
        _strip(
            gantt,
            clock,
            plain,
            Axis("Jobs", is_whole=True),
            [("running", use.jobs_running, colors.SKY), ("ready, waiting", use.jobs_waiting, colors.PURPLE)],
        ),
        _strip(
            gantt,
            clock,
            plain,
            Axis("CPUs"),
            _three("CPUs", use.cpus_offered, use.cpus_reserved, use.cpus_used),
        ),
        _strip(
            gantt,
            clock,
            memory,
            Axis(f"Memory ({memory.unit})"),
            _three("memory", use.memory_offered, use.memory_reserved, use.memory_used),
        ),
    )
    return Chart(
        stem="gantt",
        title=title,
        subtitle=_about(gantt),
        x_title=f"Time since the run's start ({clock.unit})",
        panels=panels,
    )


def _three(
    of: str, offered: StepCurve, reserved: StepCurve, used: StepCurve
) -> list[tuple[str, StepCurve, str]]:
    return [
        (f"{of} offered", offered, colors.BLACK),
        (f"{of} reserved", reserved, colors.ORANGE),
        (f"{of} used", used, colors.BLUE),
    ]


def _about(gantt: Gantt) -> str:
    final = {bar.index: bar for bar in gantt.bars}
    states = Counter(bar.state.label for bar in final.values())
    words = [
        f"started {format_instant(gantt.begin_us)[:19].replace('T', ' ')} UTC",
        f"{format_duration((gantt.end_us - gantt.begin_us) / 1e6)} long",
        ", ".join(f"{count:,} {state}" for state, count in states.most_common()),
    ]
    if gantt.not_started:
        words.append(f"{counted(gantt.not_started, 'job')} did not start")
    if len(gantt.bars) > len(final):
        words.append(counted(len(gantt.bars), "attempt"))
    busy_us = sum(gantt.bars[place].ended_us - gantt.bars[place].began_us for place in gantt.critical_bars)
    words.append(
        f"critical path: {counted(len(gantt.critical_bars), 'job')}, running {format_duration(busy_us / 1e6)}"
    )
    return " · ".join(words)


def _span_panel(gantt: Gantt, clock: Scale) -> SpanPanel:
    causes = {link.later: link for link in gantt.critical}
    spans = tuple(_span(bar, gantt, clock, causes.get(place)) for place, bar in enumerate(gantt.bars))
    return SpanPanel(
        spans=spans,
        connections=tuple(_connections(gantt, clock)),
        rows=gantt.rows,
        row_names=tuple(shortened(name, _LONGEST_NAME) for name in gantt.row_names),
    )


def _span(bar: Bar, gantt: Gantt, clock: Scale, link: Link | None) -> Span:
    begin, end = clock.of(bar.began_us - gantt.begin_us), clock.of(bar.ended_us - gantt.begin_us)
    return Span(
        begin=begin,
        end=end,
        waits_from=clock.of(bar.ready_us - gantt.begin_us),
        row=bar.row,
        state=bar.state.label,
        color=colors.state_color(bar.state),
        about=tuple(_about_bar(bar, gantt, link)),
        is_critical=link is not None,
    )


def _about_bar(bar: Bar, gantt: Gantt, link: Link | None) -> Iterable[str]:
    attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
    yield f"{shortened(bar.name, 70)} (job {bar.number}{attempt})"
    yield f"{bar.state.label}, ran {format_duration((bar.ended_us - bar.began_us) / 1e6)}"
    if bar.waited_us > 0:
        yield f"ready, waited {format_duration(bar.waited_us / 1e6)}"
    asked = bar.requirements
    if asked.cpus is not None or asked.memory_bytes is not None:
        cpus = "" if asked.cpus is None else f"{asked.cpus:g} CPU{'' if asked.cpus == 1 else 's'}"
        memory = "" if asked.memory_bytes is None else format_bytes(asked.memory_bytes)
        yield f"asked for {', '.join(filter(None, (cpus, memory)))}"
    if bar.memory_bytes is not None:
        yield f"peak memory {format_bytes(bar.memory_bytes)}"
    if link is not None:
        yield f"on the critical path: {_why(link, gantt)}"


def _why(link: Link, gantt: Gantt) -> str:
    if link.earlier is None:
        return link.cause.value
    name = shortened(gantt.bars[link.earlier].name, 40)
    return {
        Cause.DEPENDENCY: f"began when {name}, on which it depends, ended",
        Cause.RESOURCES: f"began when {name} made room",
        Cause.RETRY: "began after the attempt before it",
    }.get(link.cause, link.cause.value)


def _connections(gantt: Gantt, clock: Scale) -> Iterable[Connection]:
    for link in gantt.critical:
        if link.earlier is not None:
            earlier, later = gantt.bars[link.earlier], gantt.bars[link.later]
            yield Connection(
                (clock.of(earlier.ended_us - gantt.begin_us), clock.of(later.began_us - gantt.begin_us)),
                (earlier.row, later.row),
            )


def _strip(
    gantt: Gantt, clock: Scale, scale: Scale, axis: Axis, curves: Sequence[tuple[str, StepCurve, str]]
) -> LinePanel:
    known = [(name, curve, color) for name, curve, color in curves if curve.at_us]
    most = max((max(curve.values) for name, curve, _ in known if not name.endswith(_OFFER)), default=0.0)
    lines = tuple(_step_line(*entry, gantt, clock, scale, most) for entry in known)
    return LinePanel(lines=lines, axes=(axis,), height=120)


def _step_line(
    name: str, curve: StepCurve, color: str, gantt: Gantt, clock: Scale, scale: Scale, most: float
) -> Line:
    """From the run's start to its end, whatever happened outside. An offer far above everything else is told
    in the legend only: drawn, it would squeeze the rest to the bottom."""
    end = clock.of(gantt.end_us - gantt.begin_us)
    x = [min(max(0.0, at), end) for at in clock.times(curve.at_us, gantt.begin_us)]
    is_offer = name.endswith(_OFFER)
    there = scale.of(curve.values[-1])
    amount = f"{there:,.0f}" if there >= 1000 else f"{there:.4g}"
    told = f"{name} ({amount}{scale.unit and ' '}{scale.unit})" if is_offer else name
    return Line(
        name=told,
        x=[*x, end],
        y=[*scale.all_of(curve.values), scale.of(curve.values[-1])],
        color=color,
        is_step=True,
        is_filled=not is_offer and "reserved" not in name,
        is_shown=not is_offer or curve.values[-1] <= _FAR_ABOVE * most,
        dash="dash" if is_offer else "solid",
        width=1.4,
        decimals=2 if scale.unit in ("GiB", "MiB") else 1,
        unit=scale.unit,
    )
