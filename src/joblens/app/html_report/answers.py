"""Answers of the server's API that a report contains: of each job, and of each run."""

import contextlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from joblens.analysis.comparing.many import compared_with
from joblens.app.html_report.redaction import Redactor
from joblens.app.server import charts, jobs, run_charts
from joblens.app.server.access import Principal
from joblens.app.server.comparison import compare
from joblens.app.server.recipe_views import RecipeViews
from joblens.app.server.run_views import RunViews, TableQuery, get_run_page
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record, is_of_workflow
from joblens.model.runs.run import Run
from joblens.ports.store import QueueStore
from joblens.spec.workflows.redaction import Depth, redact_spec

STREAMS = ("stdout", "stderr")
_EARLIER_POINTS = 100
_COMPARED_POINTS = 200
_COMPARED_DIGITS = 6
_MOST_GROUPS = 12  # of a large run: whose jobs can be shown one by one


class Amount(Struct, frozen=True, kw_only=True):
    """How much of each job is in the report."""

    points: int  # per curve
    log_lines: int  # of each stream
    earlier: int  # earlier runs whose curves are drawn behind
    digits: int  # of each point: a chart shows no more; exact totals are in the record


def amount_for(count: int, points: int | None, log_lines: int | None) -> Amount:
    """Returns less per job of many jobs, so that a report of 10,000 jobs can still be e-mailed."""
    if count <= 100:
        usual = Amount(points=600, log_lines=500, earlier=3, digits=6)
    elif count <= 1000:
        usual = Amount(points=120, log_lines=50, earlier=0, digits=5)
    else:
        usual = Amount(points=30, log_lines=0, earlier=0, digits=4)
    return Amount(
        points=usual.points if points is None else points,
        log_lines=usual.log_lines if log_lines is None else log_lines,
        earlier=usual.earlier,
        digits=usual.digits,
    )


ReadLog = Callable[[Record, str, int], Any]  # the last lines of a stream; None: it cannot be read


class JobAnswers:
    """Answers about one job after the other."""

    def __init__(
        self, store: QueueStore, caller: Principal, amount: Amount, redactor: Redactor, read_log: ReadLog
    ) -> None:
        self._store = store
        self._caller = caller
        self._amount = amount
        self._redactor = redactor
        self._read_log = read_log
        self._advice: dict[tuple[object, ...], Any] = {}
        self._recipes = RecipeViews()

    def summary(self, record: Record, now_us: int) -> dict[str, Any]:
        """Returns the row of the job table."""
        (found,) = jobs.summaries_of(self._store, [self._redactor.record(record)])
        if found.duration_s is None and record.attempt is not None and record.outcome is None:
            found = replace(found, duration_s=max(0.0, (now_us - record.attempt.started_at_us) / 1e6))
        row = to_builtins(found)
        if record.job.external_id:
            row["id"] = record.job.external_id
        hidden: dict[str, Any] = self._redactor.values(row, self._redactor.secrets_of(record))
        return hidden

    def of(self, record: Record) -> dict[str, Any]:
        """Returns answers by the last part of their path, without provenance: many jobs share it."""
        store, caller, uuid, amount = self._store, self._caller, record.job.uuid, self._amount
        answers: dict[str, Any] = {"": self._redactor.record(record)}
        answers["charts"] = charts.get_charts(store, caller, uuid, None, None, amount.points)
        answers["details"] = store.details(uuid)
        answers["advice"] = self._advice_for(record)
        if amount.earlier:
            answers["earlier"] = charts.get_earlier(store, caller, uuid, amount.earlier, _EARLIER_POINTS)
        notes = jobs.get_annotations(store, caller, uuid)
        if notes.items:
            answers["annotations"] = notes
        if record.job.run is not None and record.job.run.index >= 0:
            answers["attempts"] = {
                "items": [
                    self._redactor.record(each) for each in jobs.get_attempts(store, caller, uuid).items
                ]
            }
        if amount.log_lines and record.attempt is not None:
            for stream in STREAMS:
                found = self._read_log(record, stream, amount.log_lines)
                if found is not None:
                    answers[f"logs/{stream}/window"] = found
        if record.job.tool == "recipe":
            with contextlib.suppress(InputError):  # a job of that name that ran none
                answers["recipe"] = self._recipes.get_page(store, caller, uuid)
        hidden = self._redactor.values(to_builtins(answers, str_keys=True), self._redactor.secrets_of(record))
        _shorten(hidden, amount.digits)
        return hidden  # type: ignore[no-any-return]

    def _advice_for(self, record: Record) -> Any:
        """Advice is about all jobs of a name: computed once for those that ask for the same."""
        job = record.job
        if not job.name:
            return charts.get_job_advice(self._store, self._caller, job.uuid)
        key = (job.name, repr(job.requirements), is_of_workflow(job))
        if key not in self._advice:
            self._advice[key] = charts.get_job_advice(self._store, self._caller, job.uuid)
        return self._advice[key]


def _shorten(answers: dict[str, Any], digits: int) -> None:
    """Most of a report are points of curves. `at_us` becomes the first time and steps in ms."""
    found = answers["charts"]
    times = found.pop("at_us")
    found["at_steps"] = [*times[:1], *((later - at) // 1000 for at, later in pairwise(times))]
    for chart in found["charts"]:
        for curve in chart["curves"]:
            curve["values"] = _short(curve["values"], digits)
    for run in answers.get("earlier", {}).get("items", ()):
        run["curves"] = {key: _short(values, digits) for key, values in run["curves"].items()}


def _short(values: list[float | None], digits: int) -> list[float | None]:
    form = f".{digits}g"
    return [None if value is None else _number(format(value, form)) for value in values]


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def run_answers(store: QueueStore, caller: Principal, run: Run, redactor: Redactor) -> dict[str, Any]:
    """Returns answers by the last part of their path, and parts of a grouped run by group: 'graph 3'."""
    spec_text = (
        redact_spec(run.spec_text, run.spec_format, depth=Depth.FOR_OTHERS)[0] if run.spec_text else ""
    )
    views, uuid = RunViews(), run.uuid
    table = views.get_table(store, caller, uuid, TableQuery())
    graph = run_charts.get_graph(views, store, caller, uuid, run_charts.GraphQuery())
    answers: dict[str, Any] = {
        "": replace(run, spec_text=spec_text),
        "page": get_run_page(store, caller, uuid),
        "table": table,
        "graph": graph,
        "timeline": run_charts.get_timeline(views, store, caller, uuid, run_charts.TimelineQuery()),
    }
    if graph.is_grouped and len(table.groups) <= _MOST_GROUPS:
        for group in range(len(table.groups)):
            opened = run_charts.GraphQuery(open=(group,))
            answers[f"graph {group}"] = run_charts.get_graph(views, store, caller, uuid, opened)
            timeline = run_charts.TimelineQuery(group=group)
            answers[f"timeline {group}"] = run_charts.get_timeline(views, store, caller, uuid, timeline)
    found: dict[str, Any] = redactor.values(to_builtins(answers, str_keys=True))
    return found


def comparison_answer(
    store: QueueStore,
    caller: Principal,
    redactor: Redactor,
    *,
    jobs: Sequence[str] = (),
    runs: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the comparison of all of them, and how their numbers differ from each: the reader chooses which
    ones to compare."""
    whole = compare(store, caller, jobs, runs, _COMPARED_POINTS)
    answer: dict[str, Any] = redactor.values(to_builtins(whole))
    for curves in answer["curves"]:
        curves["curves"] = {key: _short(values, _COMPARED_DIGITS) for key, values in curves["curves"].items()}
    answer["baselines"] = [
        [
            {"verdicts": found.verdicts, "percents": found.percents}
            for found in (compared_with(row, first) for row in whole.numbers)
        ]
        for first in range(len(whole.subjects))
    ]
    return answer
