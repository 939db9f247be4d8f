"""Plots of runs, jobs and time-series files into a folder."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from joblens.analysis.charts.series import JobSeries, PlotSource
from joblens.app.reports.exports import output_file
from joblens.app.reports.plot_sources import Advance, Source, source_of_run
from joblens.files.private import make_private_folder
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run
from joblens.model.runs.workflow_spec import MonitorSpec
from joblens.model.values.units import counted
from joblens.ports.store import Store
from joblens.views.plots.chart import Chart

FORMATS = ("html", "png", "svg")
MOST_JOB_PLOTS = 20
_MIB_OF_A_PAGE = 5  # nearly all of it is the script
_GOOD = (None, Status.SUCCESS, Status.MEASURED, Status.RUNNING, Status.QUEUED)


class PlotChoice(Struct, frozen=True, kw_only=True):
    prefix: str = "resource_plot"
    formats: tuple[str, ...] = ("html",)
    job_ids: tuple[int, ...] = ()  # empty: all
    all_jobs: bool = False  # a plot for each, however many there are


class PlotResult(Struct, frozen=True, kw_only=True):
    files: tuple[str, ...]
    jobs: int  # each attempt counts
    unit: str = "job"  # or attempt, if some job has several
    notes: tuple[str, ...] = ()


def plot_run(store: Store, run: Run, out_dir: str, *, plan: Plan) -> PlotResult:
    """Writes all plots of one run. Raises MissingExtra, or InputError if there is nothing to draw."""
    return plot_sources([source_of_run(store, run, plan)], out_dir, PlotChoice(), lambda _jobs: None)


def plot_sources(sources: Sequence[Source], out_dir: str, choice: PlotChoice, advance: Advance) -> PlotResult:
    """Checks everything before the first file is written."""
    if not re.fullmatch(r"[^/\0]+", choice.prefix):
        raise InputError(f"prefix '{choice.prefix}' is not a valid file name prefix", hint="omit any '/'")
    selected = [structs.replace(source, plot=_only(source.plot, choice.job_ids)) for source in sources]
    if choice.job_ids:
        _check_ids(sources, choice.job_ids)
        selected = [source for source in selected if source.plot.jobs]
    jobs = [job for source in selected for job in source.plot.jobs]
    drawn = [job for job in jobs if job.has_curve]
    can_compare = len(jobs) > 1 and any(job.at_us for job in jobs)
    if not drawn and not can_compare and not any(source.gantt for source in selected):
        raise _nothing_to_draw(jobs)
    drawers = [_drawer(form) for form in dict.fromkeys(choice.formats)]
    single, note = _single_plots(drawn, choice)
    files = []
    _make_folder(out_dir)
    for chart in _charts(selected, single):
        for form, draw in drawers:
            path = os.path.join(out_dir, f"{choice.prefix}_{chart.stem}.{form}")
            content = draw(chart, f"{choice.prefix}_{chart.stem}")
            with output_file(path) as file:
                file.write(content)
            files.append(path)
            advance(1)
    notes = [note] if note else []
    notes += _without_curve(jobs)
    unit = "attempt" if any(job.attempt > 1 for job in jobs) else "job"
    return PlotResult(files=tuple(files), jobs=len(jobs), unit=unit, notes=tuple(notes))


# ---- which charts ---------------------------------------------------------------------------------------


def _charts(sources: Sequence[Source], single: Sequence[JobSeries]) -> Iterator[Chart]:
    from joblens.views.plots.job_charts import cpu_chart, job_chart, memory_chart, summary_chart

    runs = [source for source in sources if source.gantt is not None]
    for source in runs:
        assert source.gantt is not None
        several = "" if len(runs) == 1 else f"_{_safe(source.plot.file_label)}"
        yield structs.replace(source.gantt, stem=f"gantt{several}")
    plots = [source.plot for source in sources if source.plot.jobs]
    ids = Counter(job.job_id for plot in plots for job in plot.jobs)
    own = {id(job) for job in single}
    for plot in plots:
        for job in plot.jobs:
            if id(job) in own:
                # The same number in several files is a job in each.
                several = "" if ids[job.job_id] == 1 else f"_{_safe(plot.file_label)}"
                yield job_chart(job, plot.label, f"job_{job.job_id}{several}")
    if not plots or (len(ids) == 1 and plots[0].file_label == "jobs"):
        return  # one job that was named: there is nothing to compare it with
    if single:
        yield cpu_chart(plots)
        yield memory_chart(plots)
    yield summary_chart(plots)


def _single_plots(jobs: Sequence[JobSeries], choice: PlotChoice) -> tuple[list[JobSeries], str]:
    """Returns the jobs with their own plots, and a note about the others."""
    if len(jobs) <= MOST_JOB_PLOTS or choice.all_jobs or choice.job_ids:
        return list(jobs), ""
    order = sorted(jobs, key=lambda job: (job.status in _GOOD, job.begin_us - job.end_us))
    selected = order[:MOST_JOB_PLOTS]
    size = f", {len(jobs) * _MIB_OF_A_PAGE:,} MiB in all" if "html" in choice.formats else ""
    note = (
        f"{MOST_JOB_PLOTS} of {len(jobs):,} jobs have a plot of their own, failed ones and the longest "
        f"first; select others with --job-ids, or all with --all-jobs{size}"
    )
    return selected, note


def _only(plot: PlotSource, job_ids: tuple[int, ...]) -> PlotSource:
    if not job_ids:
        return plot
    return structs.replace(plot, jobs=tuple(job for job in plot.jobs if job.job_id in job_ids))


def _check_ids(sources: Sequence[Source], job_ids: tuple[int, ...]) -> None:
    known = sorted({job.job_id for source in sources for job in source.plot.jobs})
    unknown = [number for number in job_ids if number not in known]
    if unknown:
        listed = ", ".join(map(str, known[:20])) + (f" … {known[-1]}" if len(known) > 20 else "")
        raise InputError(
            f"no job {', '.join(map(str, unknown))} among the jobs to plot", hint=f"available: {listed}"
        )


def _nothing_to_draw(jobs: Sequence[JobSeries]) -> InputError:
    if not jobs:
        return InputError("nothing to plot: no job has started yet")
    if jobs[0].at_us:
        return InputError(
            f"job {jobs[0].label} is too short to plot: no sample was taken",
            hint="`joblens show` has its totals; run it again with --interval 50ms to sample more often",
        )
    names = ", ".join(job.label for job in jobs[:3])
    return InputError(
        f"there are no samples of {names}{' …' if len(jobs) > 3 else ''}",
        hint="the job was too short, monitoring was off, or samples were pruned",
    )


def _without_curve(jobs: Sequence[JobSeries]) -> list[str]:
    """Returns the jobs that are only in charts without curves, and why."""
    short = sum(bool(job.at_us) and not job.has_curve for job in jobs)
    unsampled = sum(not job.at_us for job in jobs)
    if unsampled == len(jobs):
        return ["no job was sampled: the runs were too short, or samples were pruned"] if jobs else []
    of_all = f"of {counted(len(jobs), 'job')}"
    notes = [f"too short to plot, no sample was taken: {short:,} {of_all}"] if short else []
    if unsampled:
        notes.append(f"not sampled, or the samples were pruned: {unsampled:,} {of_all}")
    return notes


def _safe(label: str) -> str:
    return re.sub(r"[^\w.-]+", "_", label)


# ---- into files -----------------------------------------------------------------------------------------


def _drawer(form: str) -> tuple[str, Callable[[Chart, str], bytes]]:
    """Raises MissingExtra before anything is drawn."""
    if form == "html":
        from joblens.views.plots.plotly_page import plotly_page, plotly_script

        script = plotly_script()
        return form, lambda chart, name: plotly_page(chart, script, name).encode()
    from joblens.views.plots.gantt import gantt_svg
    from joblens.views.plots.matplotlib_pictures import load_matplotlib, picture

    load_matplotlib()

    def draw(chart: Chart, _name: str) -> bytes:
        if form == "svg" and chart.stem.startswith("gantt"):
            return gantt_svg(chart).encode()
        return picture(chart, form)

    return form, draw


def _make_folder(path: str) -> None:
    try:
        make_private_folder(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be created: {error.strerror}") from error


# ---- the time series of a run ---------------------------------------------------------------------------


def write_run_time_series(store: Store, run: Run, plan: Plan, output_dir: str, owner: str = "") -> str:
    """Returns the file, resource_utilization/resource_metrics_<host>_<workflow>_<run>.db in `output_dir`:
    a row for each sample of each attempt; job_id is the number of its record. Writing it again gives the
    same file. If the file has jobs of another store, its name gets a suffix made from `owner` and the
    run."""
    from joblens.agent.runtime.output_folders import owner_suffix
    from joblens.stores.sinks.time_series import write_own_time_series

    name = f"resource_metrics_{_safe(run.host or os.uname().nodename)}_{run.workflow_number}_{run.number}.db"
    path = os.path.join(output_dir, "resource_utilization", name)
    own = {one.job_uuid for one in store.run_results(run.uuid)}
    suffix = owner_suffix(f"{run.uuid} {owner}")
    return write_own_time_series(path, suffix, own, _attempts_with_samples(store, run, plan))


def _attempts_with_samples(store: Store, run: Run, plan: Plan) -> Iterator[tuple[Record, list[Sample]]]:
    query = HistoryQuery(run_uuid=run.uuid, sort=SortKey.STARTED, ascending=True)
    for record in store.records(query):
        link = record.job.run
        if link is not None and 0 <= link.index < len(plan.jobs) and record.number is not None:
            named = structs.replace(record.job, name=plan.jobs[link.index].name)
            samples = [_of_machine(sample, plan.monitor) for _, sample in store.samples(record.job.uuid)]
            yield structs.replace(record, job=named), samples


def _of_machine(sample: Sample, monitor: MonitorSpec) -> Sample:
    """Removes numbers of the machine that the workflow does not want (`compute_node`)."""
    if monitor.host_enabled and monitor.host_cpu and monitor.host_memory:
        return sample
    without: dict[str, None] = {}
    if not (monitor.host_enabled and monitor.host_cpu):
        without |= dict.fromkeys(("host_cpu_busy_usec", "host_cpu_total_usec"))
    if not (monitor.host_enabled and monitor.host_memory):
        without |= dict.fromkeys(("host_memory_used_bytes", "host_memory_total_bytes"))
    return structs.replace(sample, **without)
