"""Sources of plots: runs and jobs of the store, and time-series files."""

import glob
import os
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from joblens.analysis.charts.gantt import AttemptFacts, JobUse, PlotJob, gantt_of, use_of_job, use_of_run
from joblens.analysis.charts.series import (
    SUMMED_RSS,
    HostSeries,
    JobSeries,
    PlotSource,
    clock_starts,
    extremes_of,
    series_of_samples,
    thinned,
)
from joblens.app.jobs.queries import Note, find, newest_named, newest_with_id
from joblens.app.runs.lookup import records_of_whole_run, reused_events, reused_results
from joblens.model.errors import FormatError, InputError, UnknownJob, UnknownRun, UnknownWorkflow
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobResult, OutputsMissing, RecoveryRan, Run, RunEvent
from joblens.ports.store import Store
from joblens.stores.sinks.time_series import host_rows
from joblens.views.plots.chart import Chart
from joblens.views.plots.gantt import gantt_chart

Advance = Callable[[int], None]

_MAX_POINTS = 5000  # of each curve; includes every peak
_FILE_ENDINGS = (".db", ".sqlite", ".sqlite3")


class Source(Struct, frozen=True):
    """`gantt` for runs in which a job has started."""

    plot: PlotSource
    gantt: Chart | None = None


def sources_named(
    idents: Sequence[str], store: Callable[[], Store], advance: Advance, note: Note
) -> list[Source]:
    """`store` is only opened if something other than a file is named. `note` gets the chosen job if
    several have the name."""
    found: list[Source] = []
    jobs: list[Record] = []
    for ident in idents:
        paths = _files_of(ident)
        for path in paths:
            found.append(source_of_file(path))
            advance(1)
        if not paths:
            target = _find(store(), ident, note)
            if isinstance(target, Run):
                found.append(source_of_run(store(), target, advance=advance))
            else:
                jobs.append(target)
    return [*found, *(source_of_jobs(store(), together, advance) for together in _overlapping_groups(jobs))]


def _files_of(ident: str) -> list[str]:
    """Empty if it names no file. A pattern that the shell has not expanded is expanded here."""
    if os.path.isdir(ident):
        return []  # a workflow may have the name of a folder
    if os.path.exists(ident):
        return [ident]
    if any(letter in ident for letter in "*?["):
        matching = sorted(path for path in glob.glob(ident, recursive=True) if os.path.isfile(path))
        if not matching:
            raise InputError(f"no file matches '{ident}'", hint=f"the current directory is {os.getcwd()}")
        return matching
    if os.sep in ident or ident.endswith(_FILE_ENDINGS):
        raise InputError(f"{ident}: no such file")
    return []


def _find(store: Store, ident: str, note: Note) -> Run | Record:
    """`job:3` and `workflow:3` say which of the two is meant. A word that is the id of neither may be a
    job's name."""
    kind, colon, bare = ident.partition(":")
    if colon and kind == "job":
        return find(store, bare, note)
    if colon and kind in ("workflow", "run"):
        return store.find_run(bare)
    run = record = None
    try:
        run = store.find_run(ident)
    except (UnknownRun, UnknownWorkflow) as error:
        if "not been run" in str(error):
            raise
    try:
        bare = ident.strip()
        record = newest_with_id(store, bare, store.find(bare), note, is_to_change=False)
    except UnknownJob:
        record = None if run is not None else newest_named(store, ident.strip(), note)
        if run is None and record is None:
            raise _nothing_named(ident) from None
    if run is not None and record is not None:
        raise InputError(f"'{ident}' is a workflow and a job", hint=f"write workflow:{ident} or job:{ident}")
    found = run if run is not None else record
    assert found is not None
    return found


def _nothing_named(ident: str) -> InputError:
    if os.path.isdir(ident):
        inside = sorted(glob.glob(os.path.join(glob.escape(ident), "**", "*.db"), recursive=True))
        hint = f"name the files: {' '.join(inside[:3])}" if inside else "name a file"
        return InputError(f"{ident} is a directory", hint=hint)
    return InputError(
        f"'{ident}' is not a run, workflow or job of this store, nor a file",
        hint="`joblens history` lists the jobs, `joblens workflows list` the workflows",
    )


# ---- from the store -------------------------------------------------------------------------------------


class _SourceBuilder:
    """Reads curves of one record after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jobs: list[JobSeries] = []
        self.uses: dict[int, JobUse] = {}
        self._host: dict[int, tuple[float | None, int | None]] = {}

    def add(self, record: Record) -> None:
        samples = [sample for _, sample in self._store.samples(record.job.uuid)]
        series = series_of_samples(record, samples)
        use = use_of_job(series)
        if use is not None:
            self.uses[series.job_id] = use
        self.jobs.append(thinned(series, _MAX_POINTS))
        for at_s, cpu, memory, _ in host_rows(samples):
            if cpu is not None or at_s not in self._host:
                self._host[at_s] = (cpu, memory)

    def source(self, label: str, file_label: str) -> PlotSource:
        at_s = sorted(self._host)
        host = HostSeries(
            at_us=[second * 1_000_000 for second in at_s],
            cpu_percent=[self._host[second][0] for second in at_s],
            memory_bytes=[self._host[second][1] for second in at_s],
        )
        return PlotSource(label=label, file_label=file_label, jobs=tuple(self.jobs), host=host)


def source_of_jobs(store: Store, records: Iterable[Record], advance: Advance) -> Source:
    reading = _SourceBuilder(store)
    for record in records:
        reading.add(record)
        advance(1)
    return Source(reading.source("", "jobs"))


def _overlapping_groups(records: Sequence[Record]) -> list[list[Record]]:
    """Overlapping jobs share a time axis; each of the others starts at its own 0."""
    named = list({record.job.uuid: record for record in records}.values())
    now_us = time.time_ns() // 1000
    together: dict[int, list[Record]] = {}
    for start_us, record in zip(clock_starts([_reach(each, now_us) for each in named]), named, strict=True):
        together.setdefault(start_us, []).append(record)
    return list(together.values())


def _reach(record: Record, now_us: int) -> tuple[int, int]:
    attempt, outcome = record.attempt, record.outcome
    begin_us = attempt.started_at_us if attempt is not None else record.job.created_at_us
    if outcome is None:
        return begin_us, max(begin_us, now_us)
    return begin_us, begin_us + round(outcome.duration_s * 1_000_000)


def source_of_run(
    store: Store, run: Run, plan: Plan | None = None, advance: Advance = lambda _: None
) -> Source:
    """Includes every started attempt, also of earlier runs whose results it keeps; commands of actions
    are not jobs of the workflow."""
    if plan is None:
        from joblens.app.workflows.loader import plan_of_run

        plan = plan_of_run(run)
    reading = _SourceBuilder(store)
    requirements = {}
    for record in records_of_whole_run(store, run):
        if record.attempt is not None:
            reading.add(record)
            requirements[record.job.uuid] = record.job.requirements
        advance(1)
    name = f"{run.workflow_number}.{run.number}"
    reused = reused_results(store, run)
    events = [event for _, event in store.run_events(run.uuid)]
    jobs = [PlotJob(job.name, job.depends_on, job.requirements) for job in plan.jobs]
    results = store.run_results(run.uuid)
    if reused is not None:
        events = [*reused_events(store, reused), *events]
        results = [*reused.results, *results]
    facts = AttemptFacts(asked=requirements, not_before_us=ends_of_pauses(plan, results, events))
    gantt = gantt_of(jobs, results, events, time.time_ns() // 1000, facts)
    chart = None
    if gantt is not None:
        use = use_of_run(gantt, reading.uses, events)
        chart = gantt_chart(gantt, use, f"Run {run.number} of workflow {run.workflow_number}: {plan.name}")
    return Source(reading.source(f"{plan.name}, run {name}", f"run_{name}"), chart)


def ends_of_pauses(
    plan: Plan, results: Iterable[JobResult], events: Iterable[RunEvent]
) -> dict[tuple[int, int], int]:
    """Returns until when the next attempt of a failed job was delayed, by (index, attempt)."""
    from joblens.engine.schedule.retries import Ending, matching_rule, pause_s

    facts = [(event.at_us, event.fact) for event in events]
    recovered = {(fact.index, fact.attempt): at for at, fact in facts if isinstance(fact, RecoveryRan)}
    missing_outputs = {(fact.index, fact.attempt) for _, fact in facts if isinstance(fact, OutputsMissing)}
    failures: dict[int, int] = {}
    ends = {}
    for result in sorted(results, key=lambda result: (result.index, result.attempt)):
        has_failed = result.status is not Status.SUCCESS or (result.index, result.attempt) in missing_outputs
        is_job = 0 <= result.index < len(plan.jobs)
        if not is_job or result.duration_s is None or not has_failed or result.status is Status.LOST:
            continue
        failures[result.index] = failures.get(result.index, 0) + 1
        key = result.index, result.attempt
        ending = Ending(result.status, result.exit_code, result.reason, key in missing_outputs)
        rule = matching_rule(plan.jobs[result.index], ending, plan.execution)
        if rule is not None:
            ended_us = result.began_at_us + round(result.duration_s * 1_000_000)
            pause_us = round(pause_s(rule, failures[result.index]) * 1_000_000)
            ends[result.index, result.attempt + 1] = max(ended_us, recovered.get(key, 0)) + pause_us
    return ends


# ---- from files -----------------------------------------------------------------------------------------


def source_of_file(path: str) -> Source:
    """Reads a time-series file of joblens or Torc."""
    from joblens.stores.sinks.time_series import Series, read_host_series, read_time_series

    def curves(series: Series) -> JobSeries:
        cpu = [row.cpu_percent for row in series.rows]
        memory = [row.memory_bytes for row in series.rows]
        processes = [row.num_processes for row in series.rows]
        whole = JobSeries(
            job_id=series.job_id,
            name=series.job_name,
            at_us=[row.at_us for row in series.rows],
            memory_label=SUMMED_RSS if series.own is None else "Memory",
            cpu_percent=cpu,
            memory_bytes=memory,
            processes=processes,
            extremes=extremes_of(cpu, memory, processes),
        )
        return thinned(whole, _MAX_POINTS)

    try:
        jobs = tuple(curves(series) for series in read_time_series(path))
    except FormatError as error:
        hint = "plot reads files with job_resource_samples, as `granularity: time_series` writes them"
        raise FormatError(str(error), hint=hint) from error
    if not jobs:
        raise InputError(f"{path}: no samples", hint="the jobs may have ended before the first was due")
    machine = read_host_series(path)
    host = HostSeries(
        at_us=[row.at_us for row in machine],
        cpu_percent=[row.cpu_percent for row in machine],
        memory_bytes=[row.memory_bytes for row in machine],
    )
    stem = os.path.splitext(os.path.basename(path))[0]
    return Source(
        PlotSource(label=stem.removeprefix("resource_metrics_"), file_label=stem, jobs=jobs, host=host)
    )
