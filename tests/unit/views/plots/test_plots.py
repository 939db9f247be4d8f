"""Charts as pages and pictures. What plotly.js takes is checked by plotly's own validators."""

import itertools
import json
import re
import warnings
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("plotly")
import plotly.graph_objects as go
from msgspec import structs

from joblens.analysis.charts.gantt import PlotJob, gantt_of, use_of_run
from joblens.analysis.charts.series import HostSeries, JobSeries, PlotSource, extremes_of
from joblens.model.jobs.job import Requirements, Status
from joblens.model.runs.run import JobResult, RunStarted
from joblens.model.values.units import GIB, MIB
from joblens.views.plots.chart import (
    BarPanel,
    Chart,
    Line,
    LinePanel,
    SpanPanel,
    memory_scale,
    round_axis,
    shortened,
    time_scale,
)
from joblens.views.plots.gantt import gantt_chart, gantt_svg, ticks
from joblens.views.plots.job_charts import MOST_CURVES, cpu_chart, job_chart, memory_chart, summary_chart
from joblens.views.plots.matplotlib_pictures import picture
from joblens.views.plots.plotly_page import plotly_figure, plotly_page
from tests.unit.analysis.charts.test_gantt import OWNER, SECOND, T0, event

NASTY = '</script><b>$x$ & "y" 日本\x1b[31m\ud800'


def a_series(job_id: int = 1, name: str = "train", count: int = 20, memory: int = 2 * GIB) -> JobSeries:
    cpu: list[float | None] = [None, *(50.0 + place for place in range(count - 1))]
    sizes: list[int | None] = [memory * (place + 1) // count for place in range(count)]
    processes: list[int | None] = [1 + place % 3 for place in range(count)]
    return JobSeries(
        job_id=job_id,
        name=name,
        at_us=[T0 + place * SECOND for place in range(count)],
        cpu_percent=cpu,
        memory_bytes=sizes,
        processes=processes,
        started_at_us=T0,
        status=Status.SUCCESS,
        asked=Requirements(cpus=1.0, memory_bytes=4 * GIB),
        extremes=extremes_of(cpu, sizes, processes),
    )


def on_devices(series: JobSeries) -> JobSeries:
    """With GPU, network and power."""
    count = len(series.at_us)
    return structs.replace(
        series,
        gpu_percent=[None, *[80.0] * (count - 1)],
        gpu_memory_bytes=[3 * GIB] * count,
        gpu_power_watts=[300.0 if place % 2 else None for place in range(count)],
        network_rx_per_s=[None, *[15.0 * MIB] * (count - 1)],
        network_tx_per_s=[None, *[0.5 * MIB] * (count - 1)],
        power_watts=[None, *[20.0 + place for place in range(count - 1)]],
    )


def a_source(*jobs: JobSeries) -> PlotSource:
    host = HostSeries(at_us=[T0, T0 + SECOND], cpu_percent=[None, 30.0], memory_bytes=[GIB, GIB])
    return PlotSource(label="run 1.1", file_label="run", jobs=jobs or (a_series(),), host=host)


def a_gantt(jobs: int = 3, name: str = "train") -> Chart:
    planned = [PlotJob(f"{name}{place}", (place - 1,) if place else ()) for place in range(jobs)]
    results = [
        JobResult(place, 1, place + 1, "u", Status.SUCCESS, 0, "", T0 + place * SECOND, 1.0, SECOND, MIB)
        for place in range(jobs)
    ]
    events = [event(0, RunStarted(OWNER, 4.0, GIB))]
    gantt = gantt_of(planned, results, events, T0)
    assert gantt is not None
    return gantt_chart(gantt, use_of_run(gantt, {}, events), f"Run 1: {shortened(name, 40)}")


def all_charts(name: str = "train") -> list[Chart]:
    source = a_source(a_series(1, name), a_series(2, name))
    return [
        job_chart(a_series(1, name), "run 1.1", "job_1"),
        job_chart(on_devices(a_series(1, name)), "run 1.1", "job_1_devices"),
        cpu_chart([source]),
        memory_chart([source]),
        summary_chart([source]),
        a_gantt(3, name),
        a_gantt(200, name),
    ]


CHARTS = [*all_charts(), *all_charts(NASTY)]
IDS = [f"{chart.stem}-{place}" for place, chart in enumerate(CHARTS)]


@pytest.mark.parametrize("chart", CHARTS, ids=IDS)
def test_every_figure_is_one_that_plotly_takes(chart: Chart) -> None:
    go.Figure(plotly_figure(chart))


@pytest.mark.parametrize("chart", CHARTS, ids=IDS)
def test_nothing_in_a_name_ends_the_script_or_makes_markup(chart: Chart) -> None:
    page = plotly_page(chart, "/* script */", "name")
    assert page.count("</script>") == page.count("<script>") == 2
    assert "<b>$x$" not in page
    figure = json.loads(re.findall(r"const figure = (.*);\n", page)[0])
    assert figure["layout"]["title"]["text"].count("<") == 2  # the bold of joblens itself


@pytest.mark.parametrize("chart", all_charts(), ids=lambda chart: str(chart.stem))
def test_every_chart_becomes_a_png_with_content(chart: Chart) -> None:
    made = picture(chart, "png")
    assert made.startswith(b"\x89PNG")
    assert len(made) > 10_000


@pytest.mark.parametrize("chart", all_charts(NASTY), ids=lambda chart: str(chart.stem))
def test_every_chart_becomes_an_svg_without_a_warning_whatever_the_names(chart: Chart) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = picture(chart, "svg")
    assert chart.title in "".join(ET.fromstring(made).itertext())


def test_the_same_chart_makes_the_same_picture() -> None:
    assert picture(CHARTS[0], "svg") == picture(CHARTS[0], "svg")


def test_gpu_network_and_power_have_panels_of_their_own_where_they_were_measured() -> None:
    _, *panels = job_chart(on_devices(a_series()), "run 1.1", "job_1").panels
    titles = [[axis.title for axis in panel.axes] for panel in panels if isinstance(panel, LinePanel)]
    assert titles == [["GPU (%; 100 is one)", "GPU memory (GiB)"], ["Network (MiB/s)"], ["Power (W)"]]
    names = [[line.name for line in panel.lines] for panel in panels if isinstance(panel, LinePanel)]
    assert names[1:] == [["Received", "Sent"], ["Processors and memory, the job's share", "Its GPUs"]]


def test_a_job_without_a_gpu_has_no_panel_for_one() -> None:
    series = structs.replace(a_series(), network_rx_per_s=[None, *[100.0] * 19])
    chart = job_chart(series, "run 1.1", "job_1")
    assert [panel.axes[0].title for panel in chart.panels[1:] if isinstance(panel, LinePanel)] == [
        "Network (KiB/s)"
    ]


def test_panels_below_each_other_share_the_time_and_have_legends_of_their_own() -> None:
    figure = plotly_figure(job_chart(on_devices(a_series()), "run 1.1", "job_1"))
    layout = figure["layout"]
    assert layout["xaxis"]["anchor"] == "y7"  # three axes, two, one: the last panel has the seventh
    domains = [layout[key]["domain"] for key in ("yaxis", "yaxis4", "yaxis6", "yaxis7")]
    assert all(above[0] > below[1] for above, below in itertools.pairwise(domains))
    assert {trace["legend"] for trace in figure["data"]} == {"legend", "legend2", "legend3", "legend4"}


def test_a_job_has_three_curves_each_with_its_own_axis_in_units_that_fit() -> None:
    chart = job_chart(a_series(memory=2 * GIB), "run 1.1", "job_1")
    (panel,) = chart.panels
    assert isinstance(panel, LinePanel)
    assert [axis.title for axis in panel.axes] == ["CPU (%; 100 is one core)", "Memory (GiB)", "Processes"]
    assert [(line.name, line.axis) for line in panel.lines[:3]] == [
        ("CPU", 0),
        ("Memory", 1),
        ("Processes", 2),
    ]
    assert max(y for y in panel.lines[1].y if y is not None) == 2.0
    small = job_chart(a_series(memory=3 * MIB), "", "job_1").panels[0]
    assert isinstance(small, LinePanel)
    assert small.axes[1].title == "Memory (MiB)"


def test_what_was_asked_for_is_hidden_where_it_would_squeeze_the_curve() -> None:
    near = job_chart(a_series(memory=2 * GIB), "", "x").panels[0]
    far = job_chart(a_series(memory=2 * MIB), "", "x").panels[0]
    assert isinstance(near, LinePanel)
    assert isinstance(far, LinePanel)
    assert near.lines[-1].is_shown
    assert not far.lines[-1].is_shown


def test_curves_on_axes_of_their_own_do_not_hide_each_other() -> None:
    """One process, CPU and memory near what was asked for: all would run along the upper edge."""
    series = structs.replace(a_series(memory=150 * MIB), processes=[1] * 20)
    series = structs.replace(series, asked=Requirements(cpus=1.0, memory_bytes=160 * MIB))
    panel = job_chart(series, "run", "job_1").panels[0]
    assert isinstance(panel, LinePanel)
    heights = []
    for place, axis in enumerate(panel.axes):
        assert axis.most is not None
        heights.append(max(y for line in panel.lines if line.axis == place for y in line.y if y) / axis.most)
    assert len({round(height, 2) for height in heights}) == 3


@pytest.mark.parametrize(
    ("largest", "room", "least", "expected"),
    [
        (100, 0.05, 0.0, (125, 25)),
        (0.15, 0.2, 0.0, (0.2, 0.05)),
        (1, 0.6, 1.0, (2, 1)),
        (0, 0.1, 0.0, (1, 0.2)),
    ],
)
def test_an_axis_ends_at_a_round_number(
    largest: float, room: float, least: float, expected: tuple[float, float]
) -> None:
    assert round_axis(largest, room, least) == pytest.approx(expected)


def test_an_average_that_is_unknown_is_no_bar() -> None:
    series = structs.replace(a_series(), extremes=extremes_of([50.0], [None], [1]))
    drawn = picture(summary_chart([a_source(series)]), "svg").decode()
    known = picture(summary_chart([a_source()]), "svg").decode()
    assert drawn.count("<path") < known.count("<path")


def test_jobs_that_did_not_start_are_reported_in_the_gantt() -> None:
    planned = [PlotJob("a"), PlotJob("b", (0,)), PlotJob("c", (1,))]
    results = [JobResult(0, 1, 1, "u", Status.FAILED, 1, "", T0, 1.0, SECOND, MIB)]
    events = [event(0, RunStarted(OWNER, 4.0, GIB))]
    gantt = gantt_of(planned, results, events, T0)
    assert gantt is not None
    assert "2 jobs did not start" in gantt_chart(gantt, use_of_run(gantt, {}, events), "Run 1").subtitle


def test_of_many_jobs_those_with_the_highest_peaks_have_pens_of_their_own() -> None:
    jobs = [a_series(place, memory=place * GIB) for place in range(1, 101)]
    (panel,) = memory_chart([a_source(*jobs)]).panels
    assert isinstance(panel, LinePanel)
    own = [line for line in panel.lines if line.name[0].isdigit() and "other" not in line.name]
    assert len(own) == len({(line.color, line.dash) for line in own}) == MOST_CURVES
    assert panel.lines[0].name == f"{100 - MOST_CURVES} other jobs"
    assert {line.name.split()[0] for line in own} == {str(n) for n in range(101 - MOST_CURVES, 101)}


def test_the_summary_sets_peak_and_average_beside_what_was_asked_for() -> None:
    chart = summary_chart([a_source(a_series(1), a_series(2, memory=GIB))])
    _, memory = chart.panels
    assert isinstance(memory, BarPanel)
    assert memory.names == ("1 train", "2 train")
    assert [group.name for group in memory.groups] == ["Peak", "Average"]
    assert memory.groups[0].values == (2.0, 1.0)
    assert memory.groups[1].values == pytest.approx((1.05, 0.525))
    assert memory.marks is not None
    assert memory.marks.values == (4.0, 4.0)


def test_a_summary_of_very_many_jobs_says_that_it_has_only_some() -> None:
    jobs = [a_series(place, memory=place * MIB) for place in range(1, 301)]
    chart = summary_chart([a_source(*jobs)])
    assert chart.subtitle == "100 of 300 jobs, with the highest peaks"


def test_two_sources_apart_in_time_are_laid_over_each_other() -> None:
    later = structs.replace(
        a_series(),
        at_us=[T0 + (10_000 + place) * SECOND for place in range(20)],
        started_at_us=T0 + 10_000 * SECOND,
    )
    chart = cpu_chart([a_source(), a_source(later)])
    (panel,) = chart.panels
    assert isinstance(panel, LinePanel)
    assert "aligned at their starts" in chart.subtitle
    assert panel.lines[0].x == panel.lines[1].x


def test_the_gantt_chart_names_its_rows_until_they_are_too_many() -> None:
    few, many = a_gantt(3).panels[0], a_gantt(200).panels[0]
    assert isinstance(few, SpanPanel)
    assert isinstance(many, SpanPanel)
    assert few.row_names == ("train0", "train1", "train2")
    assert all(span.is_critical for span in few.spans)
    assert len(few.connections) == 2
    assert many.row_names == ()


def test_the_own_svg_has_every_attempt_with_what_is_known_of_it() -> None:
    drawn = ET.fromstring(gantt_svg(a_gantt(3, NASTY)))
    titles = [node.text or "" for node in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert sum("completed, ran 1.0s" in title for title in titles) == 3
    assert any("started when its dependency" in title for title in titles)
    words = "".join(drawn.itertext())
    for word in ("CPUs available", "memory used", "critical path", "Time since the run's start (s)"):
        assert word in words


def test_ticks_are_round_and_reach_the_end() -> None:
    assert ticks(114.6, 10) == [0, 20, 40, 60, 80, 100]
    assert ticks(8.4, 4) == [0, 5]
    assert ticks(0, 4) == [0]


def test_units_fit_what_is_drawn() -> None:
    assert [time_scale(s * SECOND).unit for s in (5, 600, 3600, 90_000, 10**6)] == [
        "s",
        "s",
        "min",
        "h",
        "days",
    ]
    assert [memory_scale(size).unit for size in (None, MIB, GIB)] == ["MiB", "MiB", "GiB"]


def test_a_long_name_loses_its_middle_and_what_cannot_be_shown() -> None:
    assert shortened("train_lr_0.001_seed_17", 15) == "train_l…seed_17"
    assert shortened("a\x1b[31m\nb", 20) == "a [31m b"


def test_an_offer_far_above_the_rest_is_reported_and_not_drawn() -> None:
    _, _, cpus, memory = a_gantt(3).panels
    assert isinstance(cpus, LinePanel)
    assert isinstance(memory, LinePanel)
    assert next((line.name, line.is_shown) for line in cpus.lines) == ("CPUs available (4)", True)
    assert next((line.name, line.is_shown) for line in memory.lines) == (
        "memory available (1,024 MiB)",
        False,
    )


def lines_of(chart: Chart) -> dict[str, Line]:
    return {line.name: line for panel in chart.panels if isinstance(panel, LinePanel) for line in panel.lines}


def test_a_rate_is_drawn_as_a_step_over_the_time_it_was_measured_in() -> None:
    """50 % in the first second and 5 % in the next are no slope."""
    chart = job_chart(on_devices(a_series()), "", "job_1")
    lines = lines_of(chart)
    rates = {name for name, line in lines.items() if line.is_rate}
    assert rates == {"CPU", "GPU", "Received", "Sent", "Processors and memory, the job's share"}
    shapes = {trace["name"]: trace["line"]["shape"] for trace in plotly_figure(chart)["data"]}
    assert (shapes["CPU"], shapes["Memory"], shapes["Processes"]) == ("vh", "linear", "hv")


def test_rates_begin_where_they_were_measured_first() -> None:
    """A first sample milliseconds after the start is as good as the start; a look seconds later is not."""
    series = a_series(count=5)
    at_us = [series.begin_us + 3000, *series.at_us[1:]]
    late: list[float | None] = [None, None, None, 80.0, 90.0]
    series = structs.replace(series, at_us=at_us, network_rx_per_s=[None, 1.0, 2.0, 3.0, 4.0])
    lines = lines_of(job_chart(structs.replace(series, gpu_percent=late), "", "job_1"))
    assert lines["CPU"].x[:2] == lines["Received"].x[:2] == [0.0, 1.0]
    assert (lines["GPU"].x, lines["GPU"].y) == ([2.0, 3.0, 4.0], [80.0, 80.0, 90.0])


def test_no_two_curves_of_a_job_have_the_same_colour() -> None:
    lines = [line for line in lines_of(job_chart(on_devices(a_series()), "", "job_1")).values() if line.x]
    used = [line.color for line in lines if not line.name.endswith(")")]  # what was asked for is dotted
    assert len(used) == len(set(used)) == 9


def test_equal_curves_are_seen_through_each_other() -> None:
    """Over the loopback as much is received as sent, and jobs of a sweep may be alike."""
    lines = lines_of(job_chart(on_devices(a_series()), "", "job_1"))
    assert (lines["Received"].dash, lines["Sent"].dash) == ("solid", "dash")
    alike = memory_chart([a_source(*(a_series(place) for place in range(1, 6)))])
    (panel,) = alike.panels
    assert isinstance(panel, LinePanel)
    dashes = [line.dash for line in panel.lines if line.is_shown]
    widths = {line.dash: line.width for line in panel.lines if line.is_shown}
    assert widths["solid"] > widths["dash"] > widths["dot"] > widths["dashdot"]
    assert all(first != second for first, second in itertools.pairwise(dashes))
    heights = {trace["line"]["dash"]: trace["zorder"] for trace in plotly_figure(alike)["data"]}
    assert heights["solid"] < heights["dash"] < heights["dot"]


def test_the_grey_curves_of_the_rest_are_not_joined_to_each_other() -> None:
    jobs = [a_series(place, memory=place * GIB) for place in range(1, 41)]
    for chart in (cpu_chart([a_source(*jobs)]), memory_chart([a_source(*jobs)])):
        (panel,) = chart.panels
        assert isinstance(panel, LinePanel)
        rest = panel.lines[0]
        begins = [place for place, value in enumerate(rest.y) if value is None]
        assert len(begins) == 12
        assert all(rest.x[place] == rest.x[place + 1] for place in begins)


def test_a_job_with_no_sample_between_its_start_and_its_end_has_no_curve() -> None:
    short = a_series(2, "short", count=2)
    assert not short.has_curve
    (panel,) = memory_chart([a_source(a_series(1), short)]).panels
    assert isinstance(panel, LinePanel)
    assert [line.name for line in panel.lines if line.is_shown] == ["1 train"]


def test_the_first_rate_of_a_job_holds_from_its_start() -> None:
    panel = job_chart(a_series(), "", "job_1").panels[0]
    assert isinstance(panel, LinePanel)
    assert (panel.lines[0].x[0], panel.lines[0].y[:2]) == (0.0, [50.0, 50.0])
