"""Rows become workflows, runs, events and results here and nowhere else."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

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
from joblens.stores.sql.asking import Ask
from joblens.stores.sql.run_facts import unpacked_spec

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
    """Whole, with the text it was made from."""
    [(number, workflow, detail, spec)] = ask("run", run_id)
    run = _numbered(number, workflow, detail)
    text, tables = unpacked_spec(spec, run.uuid)
    spawned = tuple(_fact.decode(fact) for (fact,) in ask("spawned_in_run", run_id))
    jobs = spawned[-1].first + len(spawned[-1].jobs) if spawned else run.jobs
    raised = _raised(ask, run_id)
    whole = replace(run, spec_text=text, tables=tables, spawned=spawned, jobs=jobs, raised=raised)
    return _with_turns(ask, run_id, whole)


def _with_count(ask: Ask, run_id: int, run: Run) -> Run:
    """With the jobs that were added to it counted, without reading them all."""
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
    """Status, times and owner as its starts and ends tell. An end before a later start is an earlier try."""
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
    return [(place, RunEvent(uuid, run_uuid, at_us, _fact.decode(fact))) for place, uuid, at_us, fact in rows]


def read_results(ask: Ask, run_uuid: str) -> list[JobResult]:
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
        ) in ask("run_results", run_uuid)
    ]
