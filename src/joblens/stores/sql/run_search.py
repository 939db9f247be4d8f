"""Which workflow or run someone means. What is exact comes before what is a prefix; several that fit are an
error that tells how to say which."""

import difflib
from collections.abc import Iterable

from joblens.model.errors import AmbiguousRun, UnknownRun, UnknownWorkflow
from joblens.model.runs.run import Run, Workflow
from joblens.model.values.units import format_instant
from joblens.stores.sql.asking import Ask
from joblens.stores.sql.job_search import may_be_prefix
from joblens.stores.sql.run_rows import read_run, read_workflows

_CANDIDATES_SHOWN = 10
_HIGHEST = "\U0010ffff"
_LIST_HINT = "`joblens workflows` lists them"


def find_workflow(ask: Ask, ident: str) -> Workflow:
    ident = _bare(ident)
    found = _workflows_of(ask, ident)
    if not found:
        raise UnknownWorkflow(f"no workflow has the id or name '{ident}'", hint=_hint(ask, ident))
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
    raise UnknownRun(f"no run or workflow has the id or name '{ident}'", hint=_hint(ask, ident))


def _bare(ident: str) -> str:
    """`workflow:3` is how to say 3 where it could also be a job."""
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
    """Of 'WORKFLOW.N'; where the workflow is known and has no such run, what to say."""
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
