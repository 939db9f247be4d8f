"""Run rows: turned into workflows, runs, events, results and tags, and searched by id, number or prefix."""

import difflib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from joblens.model.errors import AmbiguousRun, UnknownRun, UnknownWorkflow
from joblens.model.history import TaggedJobs
from joblens.model.jobs.job import Status
from joblens.model.runs.run import (
    JobResult,
    RaisedRequest,
    RequirementsRaised,
    Run,
    RunEvent,
    RunFact,
    RunOptions,
    RunStarted,
    RunStatus,
    Workflow,
)
from joblens.model.values.units import format_instant
from joblens.stores.sql import Ask
from joblens.stores.sql.batch import unpacked_spec
from joblens.stores.sql.job_rows import may_be_prefix

_workflow = msgspec.json.Decoder(Workflow)
_run = msgspec.json.Decoder(Run)
_fact = msgspec.json.Decoder(RunFact)
_STATUSES = {status.value: status for status in Status}


def workflow_of(number: int, detail: bytes) -> Workflow:
    return replace(_workflow.decode(detail), number=number)


def read_workflows(ask: Ask, query: str, parameters: Sequence[str | int] = ()) -> list[Workflow]:
    return [workflow_of(*row) for row in ask(query, *parameters)]


def read_runs(ask: Ask, workflow_uuid: str) -> list[Run]:
    rows = ask("runs_of_workflow", workflow_uuid)
    return [_with_turns(ask, row[0], _with_count(ask, row[0], _numbered(*row[1:]))) for row in rows]


def read_run(ask: Ask, run_id: int) -> Run:
    """Reads a run with the text of its spec."""
    [(number, workflow, detail, spec)] = ask("run", run_id)
    run = _numbered(number, workflow, detail)
    text, tables = unpacked_spec(spec, run.uuid)
    spawned = tuple(_fact.decode(fact) for (fact,) in ask("spawned_in_run", run_id))
    jobs = spawned[-1].first + len(spawned[-1].jobs) if spawned else run.jobs
    raised = _raised(ask, run_id)
    whole = replace(run, spec_text=text, tables=tables, spawned=spawned, jobs=jobs, raised=raised)
    return _with_turns(ask, run_id, whole)


def _with_count(ask: Ask, run_id: int, run: Run) -> Run:
    """Adds the number of jobs added at run time, without reading them."""
    for (fact,) in ask("last_spawned_in_run", run_id):
        last = _fact.decode(fact)
        return replace(run, jobs=last.first + len(last.jobs))
    return run


def _raised(ask: Ask, run_id: int) -> tuple[RaisedRequest, ...]:
    facts = [_fact.decode(encoded) for (encoded,) in ask("raises_of_run", run_id)]
    return tuple(one for fact in facts if isinstance(fact, RequirementsRaised) for one in fact.jobs)


def _numbered(number: int, workflow: int | None, detail: bytes) -> Run:
    return replace(_run.decode(detail), number=number, workflow_number=workflow)


def _with_turns(ask: Ask, run_id: int, run: Run) -> Run:
    """Derives status, times and owner from starts and ends.

    An end before a later start is of an earlier attempt.
    """
    for at_us, encoded in ask("turns_of_run", run_id):
        fact = _fact.decode(encoded)
        if isinstance(fact, RunStarted):
            first_us = at_us if run.started_at_us is None else run.started_at_us
            run = replace(
                run,
                status=RunStatus.RUNNING,
                started_at_us=first_us,
                ended_at_us=None,
                owner=fact.owner,
                logs_dir=fact.logs_dir,
                options=_options_since(fact, run.options),
            )
        else:
            run = replace(run, status=fact.status, ended_at_us=at_us)
    return run


def _options_since(start: RunStarted, before: RunOptions) -> RunOptions:
    return before if start.options is None else replace(start.options, parameters=before.parameters)


def read_events(ask: Ask, run_uuid: str, after: int) -> list[tuple[int, RunEvent]]:
    rows = ask("run_events", run_uuid, after)
    return [(key, RunEvent(uuid, run_uuid, at_us, _fact.decode(fact))) for key, uuid, at_us, fact in rows]


def read_results(ask: Ask, run_uuid: str) -> list[JobResult]:
    """Of deleted jobs too: their successes stay successes."""
    found, deleted = _results(ask, "run_results", run_uuid), _results(ask, "deleted_run_results", run_uuid)
    if not deleted:
        return found
    return sorted([*found, *deleted], key=lambda one: (one.index, one.attempt, one.number))


def _results(ask: Ask, query: str, run_uuid: str) -> list[JobResult]:
    return [
        JobResult(
            index,
            attempt,
            number,
            uuid,
            _STATUSES[status],
            exit_code,
            reason or "",
            began_at_us,
            None if duration_us is None else duration_us / 1_000_000,
            cpu_usec,
            memory_bytes,
            max(1, fence),
        )
        for (
            index,
            attempt,
            number,
            uuid,
            status,
            exit_code,
            reason,
            began_at_us,
            duration_us,
            cpu_usec,
            memory_bytes,
            fence,
        ) in ask(query, run_uuid)
    ]


_CANDIDATES_SHOWN = 10
_HIGHEST = "\U0010ffff"
_LIST_HINT = "`joblens workflows` lists them"


def find_workflow(ask: Ask, ident: str) -> Workflow:
    ident = _bare(ident)
    found = _workflows_of(ask, ident)
    if not found:
        raise UnknownWorkflow(f"no workflow has the ID or name '{ident}'", hint=_hint(ask, ident))
    if len(found) > 1:
        raise _ambiguous(ident, [f"{each.number}  {each.uuid}  {each.name}" for each in found])
    return found[0]


def find_run(ask: Ask, ident: str) -> Run:
    ident = _bare(ident)
    exact = _run_ids(ask, "run_of_uuid", (ident.lower(),))
    workflows = [] if exact else _exact_workflows(ask, ident)
    numbered, missing = ([], "") if exact else _numbered_runs(ask, ident)
    if not exact and not workflows and not numbered and not missing and may_be_prefix(ident):
        exact = _run_ids(ask, "runs_of_prefix", _prefix(ident))
        workflows = read_workflows(ask, "workflows_of_prefix", _prefix(ident))
    newest = [run for each in workflows for run in _newest_run(ask, each)]
    found = [read_run(ask, run) for run in dict.fromkeys([*exact, *newest, *numbered])]
    if len(found) > 1:
        raise _ambiguous(ident, map(_candidate, found))
    if found:
        return found[0]
    if workflows:
        number, name = workflows[0].number, workflows[0].name
        raise UnknownRun(
            f"workflow {number} ('{name}') has not been run yet",
            hint=f"start it with `joblens run-jobs {number}`",
        )
    if missing:
        whose = _exact_workflows(ask, ident.rpartition(".")[0])[0].number
        raise UnknownRun(missing, hint=f"`joblens workflows show {whose}` lists its runs")
    raise UnknownRun(f"no run or workflow has the ID or name '{ident}'", hint=_hint(ask, ident))


def _bare(ident: str) -> str:
    """Removes the prefix `workflow:`, which distinguishes a workflow from a job."""
    return ident.strip().removeprefix("workflow:")


def _exact_workflows(ask: Ask, ident: str) -> list[Workflow]:
    by_uuid = read_workflows(ask, "workflow_of_uuid", (ident.lower(),))
    if by_uuid:
        return by_uuid
    found = read_workflows(ask, "workflow_of_name", (ident,))
    if _is_number(ident):
        found += read_workflows(ask, "workflow_of_number", (int(ident),))
    return list({each.uuid: each for each in found}.values())


def _workflows_of(ask: Ask, ident: str) -> list[Workflow]:
    if not ident:
        return []
    exact = _exact_workflows(ask, ident)
    if exact or not may_be_prefix(ident):
        return exact
    return read_workflows(ask, "workflows_of_prefix", _prefix(ident))


def _numbered_runs(ask: Ask, ident: str) -> tuple[list[int], str]:
    """Returns runs for 'WORKFLOW.N', or an error message if the workflow has no such run."""
    whose, dot, number = ident.rpartition(".")
    if not dot or not whose or not _is_number(number):
        return [], ""
    workflows = _exact_workflows(ask, whose)
    found = [run for each in workflows for run in _run_ids(ask, "run_of_number", (each.uuid, int(number)))]
    if found or not workflows:
        return found, ""
    return [], f"workflow {workflows[0].number} ('{workflows[0].name}') has no run {number}"


def _newest_run(ask: Ask, workflow: Workflow) -> list[int]:
    return _run_ids(ask, "newest_run", (workflow.uuid,))


def _run_ids(ask: Ask, query: str, parameters: tuple[str | int, ...]) -> list[int]:
    return [run_id for (run_id,) in ask(query, *parameters)]


def _prefix(ident: str) -> tuple[str | int, ...]:
    lower = ident.lower()
    return lower, lower + _HIGHEST, _CANDIDATES_SHOWN + 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _candidate(run: Run) -> str:
    return f"{run.workflow_number}.{run.number}  {run.uuid}  {format_instant(run.created_at_us)[:19]}"


def _ambiguous(ident: str, candidates: Iterable[str]) -> AmbiguousRun:
    lines = [f"  {line}" for line in candidates]
    if len(lines) > _CANDIDATES_SHOWN:
        lines[_CANDIDATES_SHOWN:] = ["  … and more"]
    return AmbiguousRun(
        "\n".join([f"'{ident}' fits several:", *lines]), hint="use the UUID, or enough of its beginning"
    )


def _hint(ask: Ask, ident: str) -> str:
    names = [name for (name,) in ask("workflow_names")]
    near = difflib.get_close_matches(ident, names, n=1)
    return f"did you mean '{near[0]}'? {_LIST_HINT}" if near else _LIST_HINT


def read_tagged(ask: Ask, prefix: str) -> list[TaggedJobs]:
    """Reads newest first."""
    found: dict[str, TaggedJobs] = {}
    for tag, status, jobs, one_of_them, began_at_us in ask("jobs_of_tags", prefix, prefix + _HIGHEST):
        before = found.get(tag)
        found[tag] = TaggedJobs(
            tag=tag,
            one_of_them=one_of_them,
            began_at_us=began_at_us if before is None else min(before.began_at_us, began_at_us),
            by_status={**({} if before is None else before.by_status), Status(status): jobs},
        )
    return sorted(found.values(), key=lambda each: each.began_at_us, reverse=True)
