"""Writes a report: asks the use cases of the server as a reader, and packs the answers."""

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from msgspec import Struct, to_builtins

import joblens
from joblens.analysis.runs.status import run_label
from joblens.app.dashboard.bundle import report_parts
from joblens.app.html_report.answers import (
    STREAMS,
    JobAnswers,
    ReadLog,
    amount_for,
    comparison_answer,
    run_answers,
)
from joblens.app.html_report.packing import ReportFile
from joblens.app.html_report.redaction import Redactor
from joblens.app.runs.lookup import records_of_run, reused_results
from joblens.app.server.access import Principal
from joblens.app.server.comparison import MOST as MOST_COMPARED
from joblens.app.server.overview import FAILURES, failure_of, retried_of
from joblens.model.access import Role, Scope
from joblens.model.errors import InputError, UnknownJob, UnknownRun
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, is_of_workflow
from joblens.model.runs.run import Run
from joblens.ports.store import QueueStore

_TABLE_ROWS = 2000
_BATCH = 500
_FAILURES = 200  # that the first page shows; the job table has all
_RETRIED = "retried"
_MOST_RUNS = 50  # of jobs that a filter selected
Advance = Callable[[int], None]


class Selection(Struct, frozen=True, kw_only=True):
    """Subject of a report. `query`: jobs besides those that are named."""

    title: str
    jobs: tuple[Record, ...] = ()
    runs: tuple[Run, ...] = ()
    query: HistoryQuery | None = None


class ReportChoice(Struct, frozen=True, kw_only=True):
    """None: as much as fits the number of jobs."""

    points: int | None = None
    log_lines: int | None = None
    hides_paths: bool = False


class ReportResult(Struct, frozen=True, kw_only=True):
    jobs: int  # each attempt counts
    runs: int
    failed: int
    retried: int  # failed attempts that were followed by another
    unknown_secrets: tuple[str, ...]  # names whose values may be in the output that the report shows


class Totals:
    """Sums over jobs. A sum is unknown where no job has the number."""

    def __init__(self) -> None:
        self.jobs = self.failed = 0
        self._states: dict[str, int] = {}
        self._sums: dict[str, float] = {}
        self._peak: int | None = None
        self._times: list[int] = []

    def add(self, record: Record, *, was_retried: bool) -> None:
        self.jobs += 1
        self.failed += record.status in FAILURES and not was_retried
        state = _RETRIED if was_retried else record.status.value
        self._states[state] = self._states.get(state, 0) + 1
        if record.attempt is not None:
            self._span(record.attempt.started_at_us)
        outcome = record.outcome
        if outcome is None:
            return
        self._span(outcome.ended_at_us)
        usage = outcome.usage
        for name, value in (
            ("duration_s", outcome.duration_s),
            ("cpu_s", None if usage.cpu_total_usec is None else usage.cpu_total_usec / 1e6),
        ):
            if value is not None:
                self._sums[name] = self._sums.get(name, 0.0) + value
        if usage.memory_peak_bytes is not None:
            self._peak = max(self._peak or 0, usage.memory_peak_bytes)

    @property
    def retried(self) -> int:
        return self._states.get(_RETRIED, 0)

    def _span(self, at_us: int) -> None:
        known = [*self._times, at_us]
        self._times = [min(known), max(known)]

    def form(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "failed": self.failed,
            "states": self._states,
            "duration_s": self._sums.get("duration_s"),
            "cpu_s": self._sums.get("cpu_s"),
            "memory_peak_bytes": self._peak,
            "first_us": self._times[0] if self._times else None,
            "last_us": self._times[-1] if self._times else None,
        }


def reader(user: str) -> Principal:
    """Returns the principal of a report, which may contain all that the store shows to its user."""
    return Principal(name=user, user=user, role=Role.READER, scope=Scope.ALL)


def write_report(
    store: QueueStore,
    caller: Principal,
    selection: Selection,
    choice: ReportChoice,
    file: IO[bytes],
    read_log: ReadLog,
    expect: Callable[[int], Advance],
) -> ReportResult:
    """Raises InputError if no job is selected, MissingExtra without the parts of the page."""
    script, style = report_parts()
    count = count_jobs(store, selection)
    if not count and not selection.runs:
        raise InputError("no job matches", hint="joblens history, with the same filters, lists jobs")
    out = ReportFile(file, script=script, style=style, version=joblens.__version__)
    writer = _Writer(store, caller, choice, out, read_log, count)
    return writer.write(selection, expect(count))


def count_jobs(store: QueueStore, selection: Selection) -> int:
    """Returns the number of selected jobs; of a run, those that ran in it."""
    count = len(selection.jobs)
    count += sum(store.count(HistoryQuery(run_uuid=run.uuid)) for run in selection.runs)
    if selection.query is not None:
        found = store.count(selection.query)
        count += found if selection.query.limit is None else min(found, selection.query.limit)
    return count


class _Writer:
    def __init__(
        self,
        store: QueueStore,
        caller: Principal,
        choice: ReportChoice,
        out: ReportFile,
        read_log: ReadLog,
        count: int,
    ) -> None:
        self._store = store
        self._caller = caller
        self._out = out
        self._amount = amount_for(count, choice.points, choice.log_lines)
        self._redactor = Redactor(hides_paths=choice.hides_paths, environ=os.environ)
        self._unknown_secrets: dict[str, None] = {}
        self._hides_paths = choice.hides_paths
        self._answers = JobAnswers(store, caller, self._amount, self._redactor, read_log)
        self._now_us = time.time_ns() // 1000
        self._totals = Totals()
        self._failures: list[dict[str, Any]] = []
        self._provenances: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._runs: dict[str, dict[str, Any]] = {}  # by uuid: number of the item, label, workflow
        self._other_runs: dict[str, None] = {}
        self._compared: dict[str, int] = {}  # first jobs: UUID -> number

    def write(self, selection: Selection, advance: Advance) -> ReportResult:
        for records in _batches(_records(self._store, selection)):
            retried = retried_of(self._store, records)
            for record in records:
                self._add_job(record, was_retried=record.number in retried)
                advance(1)
        self._flush_rows()
        for run in (*selection.runs, *self._found_runs(selection)):
            self._add_run(run)
        comparisons = {
            "jobs": self._comparison(jobs=list(self._compared)),
            "runs": self._comparison(runs=list(self._runs)),
        }
        self._out.close(self._manifest(selection, comparisons))
        return ReportResult(
            jobs=self._totals.jobs,
            runs=len(self._runs),
            failed=self._totals.failed,
            retried=self._totals.retried,
            unknown_secrets=tuple(self._unknown_secrets),
        )

    def _comparison(self, **subjects: list[str]) -> int | None:
        """Returns the number of its item; None: there are too few or too many to compare."""
        if not all(2 <= len(uuids) <= MOST_COMPARED for uuids in subjects.values()):
            return None
        answer = comparison_answer(self._store, self._caller, self._redactor, **subjects)
        return self._out.add("comparisons", answer)

    def _add_job(self, record: Record, *, was_retried: bool) -> None:
        self._redactor.know_folders(_folders(record) if self._hides_paths else ())
        self._totals.add(record, was_retried=was_retried)
        self._rows.append(self._answers.summary(record, self._now_us))
        answers = self._answers.of(record)
        digest = "" if record.attempt is None else record.attempt.provenance
        if digest:
            answers["provenance"] = self._provenance(digest)
        self._out.add("jobs", answers)
        if any(answers.get(f"logs/{stream}/window", {}).get("lines") for stream in STREAMS):
            self._unknown_secrets |= dict.fromkeys(self._redactor.unknown_secrets(record))
        if len(self._rows) >= _TABLE_ROWS:
            self._flush_rows()
        has_failed = record.outcome is not None and record.status in FAILURES and not was_retried
        if has_failed and len(self._failures) < _FAILURES:
            failure = to_builtins(failure_of(self._redactor.record(record)))
            self._failures.append(self._redactor.values(failure, self._redactor.secrets_of(record)))
        if record.number is not None and len(self._compared) <= MOST_COMPARED:
            self._compared[record.job.uuid] = record.number
        if is_of_workflow(record.job) and record.job.run is not None and len(self._other_runs) < _MOST_RUNS:
            self._other_runs.setdefault(record.job.run.run_uuid)

    def _provenance(self, digest: str) -> int | None:
        """Returns the number of its item; jobs that ran in the same surroundings share it."""
        if digest not in self._provenances:
            found = self._store.provenance(digest)
            if found is None:
                return None
            item = self._redactor.values(to_builtins(found))
            self._provenances[digest] = self._out.add("provenances", item)
        return self._provenances[digest]

    def _flush_rows(self) -> None:
        """One list per column: rows of one kind compress well side by side."""
        if not self._rows:
            return
        names = dict.fromkeys(name for row in self._rows for name in row)
        columns = {name: [row.get(name) for row in self._rows] for name in names}
        self._out.add("rows", {"count": len(self._rows), "columns": columns})
        self._rows = []

    def _found_runs(self, selection: Selection) -> Iterator[Run]:
        """Runs that selected jobs belong to."""
        known = {run.uuid for run in selection.runs}
        for uuid in self._other_runs:
            if uuid not in known:
                try:
                    yield self._store.find_run(uuid)
                except UnknownRun:
                    continue  # it was deleted

    def _add_run(self, run: Run) -> None:
        item = self._out.add("runs", run_answers(self._store, self._caller, run, self._redactor))
        self._runs[run.uuid] = {
            "item": item,
            "label": run_label(run),
            "workflow": self._redactor.text(self._store.find_workflow(run.workflow_uuid).name),
            "status": run.status.value,
        }

    def _manifest(self, selection: Selection, comparisons: dict[str, int | None]) -> dict[str, Any]:
        text = self._redactor.text
        return {
            "title": text(selection.title),
            "version": joblens.__version__,
            "created_at_us": self._now_us,
            "totals": self._totals.form(),
            "failures": self._failures,
            "runs": self._runs,
            "numbers": list(self._compared.values()),
            "comparisons": comparisons,
            "amount": to_builtins(self._amount),
            "hides_paths": self._hides_paths,
        }


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(itertools.islice(records, _BATCH)):
        yield batch


def _records(store: QueueStore, selection: Selection) -> Iterator[Record]:
    """Every job once."""
    seen: set[str] = set()
    for record in _selected(store, selection):
        if record.job.uuid not in seen:
            seen.add(record.job.uuid)
            yield record


def _selected(store: QueueStore, selection: Selection) -> Iterator[Record]:
    yield from selection.jobs
    for run in selection.runs:
        reused = reused_results(store, run)
        for result in () if reused is None else reused.results:
            try:
                yield store.find(result.job_uuid)
            except UnknownJob:
                continue  # it was deleted
        yield from records_of_run(store, run.uuid)
    if selection.query is not None:
        yield from store.records(selection.query)


def _folders(record: Record) -> Iterable[str]:
    job, attempt = record.job, record.attempt
    yield from (job.cwd, job.output_dir, job.env.get("HOME", ""), job.env.get("VIRTUAL_ENV", ""))
    if attempt is not None:
        yield attempt.logs_dir
